"""A faster `dataclass` than the standard library's: every start of Wherry makes hundreds of them.

The standard library compiles up to six methods for a class. Here a class compiles only its `__init__`.
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError
from operator import attrgetter
from typing import TYPE_CHECKING, Any

_QUICK = {"frozen", "kw_only", "eq"}


def _make_dataclass(cls: type | None = None, /, **options: bool) -> Any:
    """Make the class a dataclass. The standard library makes it if the class inherits from one or has rarer options."""
    if cls is None:
        return lambda given: _make_dataclass(given, **options)
    inherits = any(dataclasses.is_dataclass(base) for base in cls.__mro__[1:])
    if inherits or options.keys() - _QUICK:
        return dataclasses.dataclass(**options)(cls)
    doc, cls.__doc__ = cls.__doc__, cls.__doc__ or ""  # without a docstring, the standard library writes a signature
    dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=options.get("kw_only", False))(cls)
    cls.__doc__ = doc
    fields = dataclasses.fields(cls)
    methods: dict[str, Any] = {"__init__": _make_init(cls, fields), "__repr__": _make_repr(fields)}
    if options.get("eq", True):
        read = _make_reader(fields)
        methods["__eq__"] = _make_eq(read)
        methods["__hash__"] = (lambda self: hash(read(self))) if options.get("frozen") else None
    for name, method in methods.items():
        if vars(cls).get(name) is None:
            setattr(cls, name, method)
    if options.get("frozen"):
        cls.__setattr__, cls.__delattr__ = _refuse_assignment, _refuse_deletion  # type: ignore[assignment]
        cls.__dataclass_params__.frozen = True  # type: ignore[attr-defined]  # so that frozen classes may inherit
    return cls


def _make_init(cls: type, fields: tuple[Field[Any], ...]) -> Callable[..., None]:
    known: dict[str, Any] = {"__missing": MISSING}
    words, keywords, lines = ["self"], list[str](), ["__values = self.__dict__"]
    for field in fields:
        name, default = field.name, f"__default_{field.name}"
        is_made = field.default_factory is not MISSING
        known[default] = field.default_factory if is_made else field.default
        given = f"{name}=__missing" if is_made else name if field.default is MISSING else f"{name}={default}"
        if field.init:
            (keywords if field.kw_only else words).append(given)
            lines.append(
                f"__values[{name!r}] = {f'{default}() if {name} is __missing else {name}' if is_made else name}"
            )
        elif is_made:
            lines.append(f"__values[{name!r}] = {default}()")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters = ", ".join([*words, *(["*", *keywords] if keywords else [])])
    made: dict[str, Callable[..., None]] = {}
    exec(f"def __init__({parameters}):\n  " + "\n  ".join(lines), known, made)  # noqa: S102 (only names of fields)
    made["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    return made["__init__"]


def _make_repr(fields: tuple[Field[Any], ...]) -> Callable[[Any], str]:
    names = [field.name for field in fields if field.repr]

    @reprlib.recursive_repr()
    def show(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return show


def _make_reader(fields: tuple[Field[Any], ...]) -> Callable[[Any], tuple[Any, ...]]:
    names = [field.name for field in fields if field.compare]
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _make_eq(read: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, object], bool]:
    def equals(self: Any, other: object) -> bool:
        return read(self) == read(other) if other.__class__ is self.__class__ else NotImplemented

    return equals


def _refuse_assignment(self: object, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _make_dataclass
