"""The user's functions, loaded by name."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import importlib.util
import os
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from origins.errors import WherryError

_NAME = re.compile(r"(?:(?P<folder>.*)/)?(?P<module>[^\W\d]\w*(?:\.[^\W\d]\w*)*):(?P<name>[^\W\d]\w*(?:\.[^\W\d]\w*)*)")
_importing = threading.RLock()
_own_modules: set[str] = set()
"""The modules that are files in a folder, and the modules that they imported from that folder."""


class FunctionMissing(WherryError):
    """A function cannot be used: its module is missing, raises an error, or does not have the function."""

    code = "FUNCTION"


def check_function(field: str, value: object) -> None:
    """Raise ValueError unless the value is a function, or text that can name one."""
    if callable(value):
        return
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        shown = shorten_name(value) if isinstance(value, str) else value
        raise ValueError(f"{field}: expected module:function, got {shown!r}")


def shorten_name(value: object) -> str:
    """Return `module:function`, without the folder of the module."""
    if isinstance(value, str):
        return value.rpartition("/")[2]
    module = str(getattr(value, "__module__", "")).rpartition("/")[2]
    return f"{module}:{getattr(value, '__qualname__', type(value).__qualname__)}"


def load_function(value: str | Callable[..., Any]) -> Callable[..., Any]:
    """Return the function `module:function`. Raise `FunctionMissing` if it cannot be loaded.

    For `folder/module:function`, the module is a file in that folder, or else an installed module. A file is run only
    once. While the file runs, it may import modules from its folder, as a program may. Afterwards Python's search path
    is the same as before.
    """
    if not isinstance(value, str):
        return value
    match = _NAME.fullmatch(value)
    assert match is not None, "check_function comes first"
    folder, module, name = match["folder"], match["module"], match["name"]
    file = Path(folder or "/", *module.split(".")).with_suffix(".py") if folder is not None else None
    with _wrap_import_errors(shorten_name(value), file), _importing:
        found: Any = _from(file, module) if file is not None and file.is_file() else importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    if not callable(found):
        raise FunctionMissing(f"{shorten_name(value)} is not a function; it is a {type(found).__name__}.")
    return found  # type: ignore[no-any-return]


def load_text(text: str, file: Path, *, prefer: str) -> Callable[..., Any]:
    """Return the function of a module with this text, even if its file now has another text.

    It is the function with the preferred name, or the only one whose name does not begin with `_`. Modules in the
    file's folder can be imported. Raise `FunctionMissing` if no such function exists.
    """
    with _wrap_import_errors(f"{file.name}:{prefer}", file), _importing:
        found = [each.name for each in ast.parse(text).body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
        public = [name for name in found if not name.startswith("_")]
        if prefer not in public and len(public) != 1:
            has = f"these functions: {', '.join(public)}" if public else "no function"
            raise FunctionMissing(f"{file.name} has {has}.", hint=f"Name one of its functions `{prefer}`.")
        module = _from(file, file.stem.partition(".")[0], text)
        return getattr(module, prefer if prefer in public else public[0])  # type: ignore[no-any-return]


def forget_own_modules() -> None:
    """Make the next load of a function read its file again."""
    with _importing:
        for name in _own_modules:
            sys.modules.pop(name, None)
        _own_modules.clear()


def ship_by_value(function: Callable[..., Any]) -> None:
    """Make sure that Spark's workers get a function, with everything that it uses from its package.

    Nothing is sent if the package is installed, since the workers then have it.
    """
    module = sys.modules.get(str(getattr(function, "__module__", "")).partition(".")[0])
    place = Path(getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), os.__file__))
    is_installed = not {"site-packages", "dist-packages"}.isdisjoint(place.parts)
    if module is not None and not is_installed and not place.is_relative_to(Path(os.__file__).parent):
        ship_modules([module])


def ship_modules(modules: Iterable[ModuleType]) -> None:
    """Send everything from these modules to Spark's workers by value. The workers need not have the modules."""
    from pyspark import cloudpickle

    for module in modules:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def list_imported_packages(function: Callable[..., Any]) -> set[str]:
    """Return the packages that a function's module imports, also through modules beside its file.

    Python's standard library and Wherry's packages, which are sent by value, are left out.
    """
    found: set[str] = set()
    module = sys.modules.get(str(getattr(function, "__module__", "")))
    waiting, seen = [getattr(module, "__file__", None)], set[str | None]()
    while waiting:
        file = waiting.pop()
        if file is None or file in seen or not file.endswith(".py"):
            continue
        seen.add(file)
        for name in _list_imports(ast.parse(Path(file).read_bytes())):
            beside = [Path(file).with_name(f"{name}.py"), Path(file).with_name(name) / "__init__.py"]
            there = next((each for each in beside if each.is_file()), None)
            if there is not None:
                waiting.append(str(there))
            elif name not in sys.stdlib_module_names and name not in _OURS:
                found.add(name)
    return found


_OURS = ("wherry", "origins", "stages", "destinations", "runners")


def _list_imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _from(file: Path, module: str, text: str | None = None) -> ModuleType:
    """Return the module in a file, or with `text` instead of the file's text, under a unique name.

    Functions of the module, and of modules that it imports from its folder, reach Spark's workers by value.
    """
    version = "" if text is None else f"{hashlib.sha256(text.encode()).hexdigest()[:16]}/"
    name = f"{file.parent}/{version}{module}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    made = importlib.util.module_from_spec(spec)
    before = {*sys.modules}
    sys.modules[name] = made
    folder = str(file.parents[module.count(".")])
    sys.path.insert(0, folder)
    try:
        content = file.read_bytes() if text is None else text
        code = compile(content, str(file), "exec", dont_inherit=True)
        exec(code, made.__dict__)  # noqa: S102 -- it is the user's module
    except BaseException:
        for new in _list_new_modules(before, name, folder):
            del sys.modules[new]
        raise
    finally:
        sys.path.remove(folder)
    own = list(_list_new_modules(before, name, folder))
    ship_modules(sys.modules[new] for new in own)
    _own_modules.update(own)
    return made


def _list_new_modules(before: Collection[str], name: str, folder: str) -> Iterator[str]:
    """Yield the module with this name, and the modules that were imported since from the folder."""
    for new in {*sys.modules} - {*before}:
        beside = os.path.join(folder, new.partition(".")[0])
        place = getattr(sys.modules[new], "__file__", None) or ""
        if new == name or place == f"{beside}.py" or place.startswith(f"{beside}{os.sep}"):
            yield new


@contextlib.contextmanager
def _wrap_import_errors(name: str, file: Path | None) -> Iterator[None]:
    module, _, wanted = name.partition(":")
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise FunctionMissing(f"{name}: its module needs '{error.name}', which is not installed.") from error
        beside = f" and there is no file {file}" if file else ""
        raise FunctionMissing(f"{name}: no module '{module}' is installed{beside}.") from error
    except AttributeError as error:
        if error.name is None or error.name not in wanted.split("."):
            raise FunctionMissing(f"{name}: its module raises {type(error).__name__}: {error}") from error
        raise FunctionMissing(f"{name}: the module '{module}' has no '{wanted}'.") from error
    except FunctionMissing:
        raise
    except (Exception, SystemExit) as error:
        raise FunctionMissing(f"{name}: its module raises {type(error).__name__}: {error}") from error
