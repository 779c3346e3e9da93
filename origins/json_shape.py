"""Stored JSON of a known shape: it is checked once where it is read, and typed from there on."""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

T = TypeVar("T")
Check = Callable[[object], None]


class Malformed(ValueError):
    """A stored value has another shape than was expected."""

    def __init__(self, expected: str, found: object, names: tuple[str, ...] = ()) -> None:
        where = f"{'.'.join(names)}: " if names else ""
        super().__init__(f"{where}expected {expected}, found {_shorten(repr(found))}")
        self.expected, self.found, self.names = expected, found, names

    def within(self, name: object) -> Malformed:
        """The same, of a value that stands in another one under this name."""
        return Malformed(self.expected, self.found, (str(name), *self.names))


def check_shape(shape: type[T], value: object) -> T:
    """The value, which has this shape: a plain type, or a `TypedDict`, which may have further names.

    What is `Json` in it is not looked into. Raises `Malformed`, which says where, and what was expected and found.
    """
    _make_check(cast(Hashable, shape))(value)
    return cast(T, value)


@cache
def _make_check(shape: Any) -> Check:
    kind, of = get_origin(shape), get_args(shape)
    if shape in (Any, object):
        return lambda value: None
    if is_typeddict(shape):
        return _check_names(shape)
    if kind in (Union, types.UnionType):
        return _check_any_of(of)
    if kind is tuple:
        return _check_row(of)
    if kind is Sequence:
        return _check_list(_make_check(of[0]))
    if kind is Mapping:
        return _check_values(_make_check(of[1]))
    return _check_plain(shape)


_WORDS: Mapping[object, str] = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    types.NoneType: "null",
}


def _check_plain(shape: type) -> Check:
    accepted: tuple[type, ...] = (int, float) if shape is float else (shape,)

    def check(value: object) -> None:
        if not isinstance(value, accepted) or (isinstance(value, bool) and shape is not bool):
            raise Malformed(_WORDS[shape], value)

    return check


def _check_any_of(shapes: Sequence[Any]) -> Check:
    checks = [_make_check(shape) for shape in shapes]

    def check(value: object) -> None:
        errors: list[Malformed] = []
        for each in checks:
            try:
                return each(value)
            except Malformed as error:
                errors.append(error)
        deeper = max(errors, key=lambda error: len(error.names))
        raise deeper if deeper.names else Malformed(" or ".join(error.expected for error in errors), value)

    return check


def _check_list(element: Check) -> Check:
    def check(value: object) -> None:
        if not isinstance(value, list | tuple):
            raise Malformed("a list", value)
        for place, each in enumerate(value):
            _check_within(element, place, each)

    return check


def _check_row(shapes: Sequence[Any]) -> Check:
    checks = [_make_check(shape) for shape in shapes]

    def check(value: object) -> None:
        if not isinstance(value, list | tuple) or len(value) != len(checks):
            raise Malformed(f"a list of {len(checks)}", value)
        for place, (element, each) in enumerate(zip(checks, value, strict=True)):
            _check_within(element, place, each)

    return check


def _check_values(element: Check) -> Check:
    def check(value: object) -> None:
        if not isinstance(value, Mapping):
            raise Malformed("a mapping", value)
        for name, each in value.items():
            _check_within(element, name, each)

    return check


def _check_names(shape: Any) -> Check:
    hints = get_type_hints(shape, localns={"Json": Any})
    checks = {name: _make_check(hint) for name, hint in hints.items()}
    required: frozenset[str] = shape.__required_keys__

    def check(value: object) -> None:
        if not isinstance(value, Mapping):
            raise Malformed("a mapping", value)
        for name, element in checks.items():
            if name in value:
                _check_within(element, name, value[name])
            elif name in required:
                raise Malformed(f"a mapping with `{name}`", value)

    return check


def _check_within(check: Check, name: object, value: object) -> None:
    try:
        check(value)
    except Malformed as error:
        raise error.within(name) from None


def _shorten(text: str, most: int = 80) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
