"""The JSON of what is stored and printed. It follows from the fields of a dataclass and their annotations."""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import datetime
from functools import cache
from typing import Any, Literal, TypeAlias, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from origins.secret import EXCERPT, cut_text

T = TypeVar("T")
Decoder: TypeAlias = Callable[[Any], Any]

LEFT_OUT: Mapping[str, object] = {"left out": True}
"""The metadata of a field that JSON leaves out while it has its default."""
NEEDED: Mapping[str, object] = {"needed": True}
"""The metadata of a field that JSON must have, though it has a default."""
UNSTORED: Mapping[str, object] = {"name": None}
"""The metadata of a field that is not in JSON. Only a dataclass in which it has a default can be read."""
INLINE: Mapping[str, object] = {"name": ""}
"""The metadata of a field with a dataclass whose fields stand among those of the dataclass around it."""


def named(name: str) -> Mapping[str, object]:
    """Return the metadata of a field that has another name in JSON."""
    return {"name": name}


def encode(value: Any) -> Any:
    """Return the value as dicts, lists and plain values. A class that shows more than its fields has its own `json`."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        return [encode(inner) for inner in value]
    if hasattr(value, "json"):
        return value.json()
    if is_dataclass(value):
        return encode_fields(value)
    if isinstance(value, Mapping):
        return {name: encode(inner) for name, inner in value.items()}
    return sorted(value) if isinstance(value, Set) else value


def encode_fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as JSON."""
    body: dict[str, Any] = {}
    for own, name, left_out in _list_stored(value.__class__):
        inner = getattr(value, own)
        if name == "":
            body.update(encode(inner))
        elif inner != left_out:
            body[name] = inner.isoformat() if isinstance(inner, datetime) else encode(inner)
    return body


@cache
def _list_stored(shape: Any) -> Sequence[tuple[str, str, object]]:
    """Return of each stored field its name, its name in JSON, and the value that is left out."""
    return [
        (each.name, name, _make_default(each) if "left out" in each.metadata else MISSING)
        for each in fields(shape)
        if (name := each.metadata.get("name", each.name)) is not None
    ]


def _make_default(field: Field[Any]) -> object:
    """Return the default of a field, or `MISSING`."""
    return field.default if field.default_factory is MISSING else field.default_factory()


def decode(shape: type[T], value: object) -> T:
    """Return the value that this JSON describes: a dataclass, a collection or a plain value.

    Names that a dataclass lacks are ignored. A part whose type is `Json` is returned unchecked. Raise `Malformed`, with
    the position and what was expected and found.
    """
    return cast(T, _make_decoder(cast(Hashable, shape))(value))


class Malformed(ValueError):
    """A stored value does not have the expected shape."""

    def __init__(self, expected: str, found: object, names: tuple[str, ...] = ()) -> None:
        where = f"{'.'.join(names)}: " if names else ""
        super().__init__(f"{where}expected {expected}, found {cut_text(repr(found), EXCERPT)}")
        self.expected, self.found, self.names = expected, found, names

    def within(self, name: object) -> Malformed:
        """Return the same error for a value that is inside another value under this name."""
        return Malformed(self.expected, self.found, (str(name), *self.names))


@cache
def _make_decoder(shape: Any) -> Decoder:
    kind, of = get_origin(shape), get_args(shape)
    if shape in (Any, object):
        return lambda value: value
    if is_dataclass(shape):
        return _decode_fields(shape)
    if kind is Literal:
        return _decode_word(of)
    if kind in (Union, types.UnionType):
        return _decode_any_of([_make_decoder(each) for each in of])
    if kind is Mapping:
        return _decode_mapping(_make_decoder(of[1]))
    if hasattr(shape, "_fields"):
        row = [*map(_make_decoder, get_type_hints(shape, localns={"Json": Any}).values())]
        return _decode_row(row, lambda parts: shape(*parts), len(row) - len(shape._field_defaults))
    if kind is tuple and of[-1] is not ...:
        return _decode_row([*map(_make_decoder, of)], tuple, len(of))
    if kind in (tuple, Sequence, frozenset):
        return _decode_list(_make_decoder(of[0]), frozenset if kind is frozenset else tuple)
    if shape is datetime:
        return _decode_moment
    return _decode_plain(shape, (int, float) if shape is float else (shape,))


_WORDS: Mapping[object, str] = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    types.NoneType: "null",
}


def _decode_plain(shape: type, accepted: tuple[type, ...]) -> Decoder:
    def decode_plain(value: object) -> object:
        if type(value) is shape or (isinstance(value, accepted) and not isinstance(value, bool)):
            return value
        raise Malformed(_WORDS[shape], value)

    return decode_plain


def _decode_word(words: tuple[object, ...]) -> Decoder:
    def decode_word(value: object) -> object:
        if value not in words:
            raise Malformed(" or ".join(map(repr, words)), value)
        return value

    return decode_word


def _decode_moment(value: object) -> datetime:
    try:
        return datetime.fromisoformat(cast(str, value))
    except (TypeError, ValueError):
        raise Malformed("a time", value) from None


def _decode_any_of(decoders: Sequence[Decoder]) -> Decoder:
    def decode_any(value: object) -> object:
        errors: list[Malformed] = []
        for each in decoders:
            try:
                return each(value)
            except Malformed as error:
                errors.append(error)
        deeper = max(errors, key=lambda error: len(error.names))
        raise deeper if deeper.names else Malformed(" or ".join(error.expected for error in errors), value)

    return decode_any


def _decode_part(decoder: Decoder, name: object, value: object) -> Any:
    try:
        return decoder(value)
    except Malformed as error:
        raise error.within(name) from None


def _decode_mapping(decoder: Decoder) -> Decoder:
    def decode_mapping(value: object) -> object:
        if not isinstance(value, Mapping):
            raise Malformed("a mapping", value)
        return {name: _decode_part(decoder, name, each) for name, each in value.items()}

    return decode_mapping


def _decode_list(decoder: Decoder, make: Callable[[Any], object]) -> Decoder:
    def decode_list(value: object) -> object:
        if not isinstance(value, list | tuple):
            raise Malformed("a list", value)
        return make(map(_decode_part, itertools.repeat(decoder), itertools.count(), value))

    return decode_list


def _decode_row(decoders: Sequence[Decoder], make: Callable[[Any], object], least: int) -> Decoder:
    """Return the decoder of a list with one element for each decoder, of which only the first `least` must be there."""

    def decode_row(value: object) -> object:
        if not isinstance(value, list | tuple) or not least <= len(value) <= len(decoders):
            raise Malformed(f"a list of {len(decoders)}", value)
        return make(map(_decode_part, decoders, itertools.count(), value))

    return decode_row


def _decode_fields(shape: Any) -> Decoder:
    hints = get_type_hints(shape, localns={"Json": Any})
    needed = {each.name for each in fields(shape) if "needed" in each.metadata or _make_default(each) is MISSING}
    known = [(own, name, _make_decoder(hints[own]), own in needed) for own, name, _ in _list_stored(shape)]

    def decode_fields(value: object) -> object:
        if not isinstance(value, Mapping):
            raise Malformed("a mapping", value)
        made = {}
        for own, name, decoder, is_needed in known:
            if name == "":
                made[own] = decoder(value)
            elif name in value:
                made[own] = _decode_part(decoder, name, value[name])
            elif is_needed:
                raise Malformed(f"a mapping with `{name}`", value)
        return shape(**made)

    return decode_fields


class JsonForm:
    """A result that is printed with all its fields. A class that shows more has its own `json`."""

    def json(self) -> dict[str, Any]:
        """Return the form that `--json` prints."""
        return encode_fields(self)
