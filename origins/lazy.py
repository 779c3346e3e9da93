"""Names that a package exports and imports when they are first used, so that importing the package stays quick."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Mapping
from typing import Any


def load_export(package: str, name: str) -> Any:
    """A name of the package's `__all__`, for its `__getattr__`.

    It comes from the module from which the package imports it for type checkers. Raises `AttributeError`.
    """
    module = sys.modules[package]
    if name not in module.__all__:
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)
    value = getattr(importlib.import_module(_find_modules(package)[name]), name)
    setattr(module, name, value)
    return value


@functools.cache
def _find_modules(package: str) -> Mapping[str, str]:
    import ast
    import inspect

    tree = ast.parse(inspect.getsource(sys.modules[package]))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}
