"""Stored JSON of a known shape. Wherry checks it once when it reads it, and the code after that is typed."""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

from origins.secret import EXCERPT, cut_text

T = TypeVar("T")
Check = Callable[[object], None]


class Malformed(ValueError):
    """A stored value does not have the expected shape."""

    def __init__(self, expected: str, found: object, names: tuple[str, ...] = ()) -> None:
        where = f"{'.'.join(names)}: " if names else ""
        super().__init__(f"{where}expected {expected}, found {cut_text(repr(found), EXCERPT)}")
        self.expected, self.found, self.names = expected, found, names

    def within(self, name: object) -> Malformed:
        """Return the same error for a value that is inside another value under this name."""
        return Malformed(self.expected, self.found, (str(name), *self.names))


def check_shape(shape: type[T], value: object) -> T:
    """Return the value, which has this shape: a plain type, or a `TypedDict`, which may have additional names.

    A part whose type is `Json` is not checked. Raise `Malformed`, with the position and what was expected and found.
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
        return _check_any_of([_make_check(each) for each in of])
    if kind is tuple:
        row = [_make_check(each) for each in of]
        return _check_parts(
            f"a list of {len(row)}",
            lambda value: isinstance(value, list | tuple) and len(value) == len(row),
            lambda value: zip(itertools.count(), row, value),
        )
    if kind is Sequence:
        element = _make_check(of[0])
        return _check_parts(
            "a list",
            lambda value: isinstance(value, list | tuple),
            lambda value: zip(itertools.count(), itertools.repeat(element), value),
        )
    if kind is Mapping:
        element = _make_check(of[1])
        return _check_parts(
            "a mapping",
            lambda value: isinstance(value, Mapping),
            lambda value: zip(value, itertools.repeat(element), value.values()),
        )
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


def _check_any_of(checks: Sequence[Check]) -> Check:
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


def _check_names(shape: Any) -> Check:
    checks = {name: _make_check(hint) for name, hint in get_type_hints(shape, localns={"Json": Any}).items()}
    required: frozenset[str] = shape.__required_keys__

    def list_parts(value: Mapping[str, object]) -> Iterator[tuple[str, Check, object]]:
        for name, check in checks.items():
            if name in value:
                yield name, check, value[name]
            elif name in required:
                raise Malformed(f"a mapping with `{name}`", value)

    return _check_parts("a mapping", lambda value: isinstance(value, Mapping), list_parts)


def _check_parts(
    expected: str, is_alike: Callable[[Any], bool], list_parts: Callable[[Any], Iterable[tuple[object, Check, object]]]
) -> Check:
    """Return a check of a value that contains others, each with a name and a check."""

    def check(value: object) -> None:
        if not is_alike(value):
            raise Malformed(expected, value)
        for name, check_part, part in list_parts(value):
            try:
                check_part(part)
            except Malformed as error:
                raise error.within(name) from None

    return check
