"""A reader of Avro values that takes nothing but what the format allows.

fastavro takes more: it rounds decimals, reads an index of -1 as the last one, and fills memory at a false count. This
code also runs in Spark's Python workers, and is sent there by value. So it uses nothing else of Wherry.
"""

from __future__ import annotations

import datetime
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

from origins.kafka.formats import Days, LocalMicros, Micros

_MOST_EMPTY = 100
"""How many items that take no bytes a value may have."""
_LONGEST_DECIMAL = 64
_DAY = datetime.timedelta(days=1)
_MIDNIGHT = datetime.datetime(1, 1, 1)
_MILLISECOND, _MICROSECOND = datetime.timedelta(milliseconds=1), datetime.timedelta(microseconds=1)


@dataclass(slots=True)
class _Bytes:
    """The bytes of a value, and how many of them are read."""

    data: bytes
    at: int = 0
    empty: int = 0
    """How many items without bytes were read."""

    def take(self, count: int) -> bytes:
        begin, self.at = self.at, self.at + count
        if count < 0 or self.at > len(self.data):
            raise EOFError("the value ends early")
        return self.data[begin : self.at]

    def read_whole(self, bits: int) -> int:
        """Return a zigzag varint. Raise ValueError if it has more bits."""
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
            if shift >= bits:
                raise ValueError(f"a whole number has more than {bits} bits")
        if value >> bits:
            raise ValueError(f"a whole number has more than {bits} bits")
        return value >> 1 ^ -(value & 1)

    def read_index(self, of: Sequence[Any]) -> Any:
        index = self.read_whole(32)
        if not 0 <= index < len(of):
            raise ValueError(f"expected an index below {len(of)}, got {index}")
        return of[index]

    def note_items(self, count: int, size: int) -> None:
        """Raise ValueError if this number of items, of at least this size each, cannot follow."""
        if size == 0:
            self.empty += count
            if self.empty > _MOST_EMPTY:
                raise ValueError(f"{count} items take no bytes")
        elif count * size > len(self.data) - self.at:
            raise EOFError(f"{count} items do not fit into {len(self.data) - self.at} bytes")


_Read: TypeAlias = "Callable[[_Bytes], Any]"


def make_avro_reader(schema: Any, named: Mapping[str, Any]) -> Callable[[bytes], Any]:
    """Return a function that reads one value of this parsed schema, which may refer to the named ones.

    It raises an error of `BROKEN` for bytes that are no such value, also if more bytes follow.
    """
    read = _make_reader(schema, named, {})

    def read_value(value: bytes) -> Any:
        source = _Bytes(value)
        found = read(source)
        if source.at < len(value):
            raise ValueError(f"{len(value) - source.at} more bytes follow")
        return found

    return read_value


def _make_reader(schema: Any, named: Mapping[str, Any], known: dict[str, _Read]) -> _Read:
    """Return the reader of a schema. `known` has the readers of records, because a record may hold itself."""
    if isinstance(schema, str):
        return _PLAIN[schema] if schema in _PLAIN else _make_reader(named[schema], named, known)
    if isinstance(schema, list):
        members = [_make_reader(each, named, known) for each in schema]
        return lambda source: source.read_index(members)(source)
    kind, logical = schema["type"], schema.get("logicalType")
    if not isinstance(kind, str):
        return _make_reader(kind, named, known)
    if kind in ("record", "error"):
        return _make_record_reader(schema, named, known)
    if kind == "enum":
        symbols = schema["symbols"]
        return lambda source: source.read_index(symbols)
    if kind in ("array", "map"):
        inner = schema["items" if kind == "array" else "values"]
        read, size = _make_reader(inner, named, known), _find_size(inner, named, ())
        return _make_list_reader(read, size) if kind == "array" else _make_map_reader(read)
    if kind == "fixed":
        length = schema["size"]
        plain: _Read = lambda source: source.take(length)  # noqa: E731
    elif kind in _PLAIN:
        plain = _PLAIN[kind]
    else:
        return _make_reader(kind, named, known)
    if logical == "decimal" and kind in ("bytes", "fixed"):
        scale = schema.get("scale", 0)
        return lambda source: _to_decimal(plain(source), scale)
    convert = _LOGICAL.get((kind, logical))
    return plain if convert is None else lambda source: convert(plain(source))


def _make_record_reader(schema: Any, named: Mapping[str, Any], known: dict[str, _Read]) -> _Read:
    name = schema["name"]
    if name not in known:
        fields: list[tuple[str, _Read]] = []
        known[name] = lambda source: {field: read(source) for field, read in fields}
        fields += [(each["name"], _make_reader(each["type"], named, known)) for each in schema["fields"]]
    return known[name]


def _make_list_reader(read: _Read, size: int) -> _Read:
    def read_list(source: _Bytes) -> list[Any]:
        found: list[Any] = []
        _read_blocks(source, size, lambda: found.append(read(source)))
        return found

    return read_list


def _make_map_reader(read: _Read) -> _Read:
    def read_map(source: _Bytes) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def read_entry() -> None:
            key = _read_text(source)
            if key in found:
                raise ValueError(f"the key {key[:80]!r} stands twice in a map")
            found[key] = read(source)

        _read_blocks(source, 1, read_entry)
        return found

    return read_map


def _read_blocks(source: _Bytes, size: int, read_item: Callable[[], object]) -> None:
    """Read the blocks of an array or a map. A block with a negative count also says how many bytes it has."""
    while count := source.read_whole(64):
        length = source.read_whole(64) if count < 0 else None
        begin = source.at
        source.note_items(abs(count), size)
        for _ in range(abs(count)):
            read_item()
        if length is not None and source.at - begin != length:
            raise ValueError(f"a block of {length} bytes has {source.at - begin}")


def _find_size(schema: Any, named: Mapping[str, Any], inside: tuple[str, ...]) -> int:
    """Return how many bytes a value of this schema has at least."""
    if isinstance(schema, str):
        return _SIZES.get(schema, 1) if schema in _PLAIN else _find_size(named[schema], named, inside)
    if isinstance(schema, list):
        return 1
    kind = schema["type"]
    if kind in ("record", "error"):
        if schema["name"] in inside:
            return 0
        within = (*inside, schema["name"])
        return sum(_find_size(each["type"], named, within) for each in schema["fields"])
    if kind == "fixed":
        return int(schema["size"])
    return 1 if kind in ("enum", "array", "map") else _find_size(kind, named, inside)


def _read_text(source: _Bytes) -> str:
    return source.take(source.read_whole(64)).decode()


def _read_boolean(source: _Bytes) -> bool:
    (byte,) = source.take(1)
    if byte > 1:
        raise ValueError(f"expected a boolean of 0 or 1, got {byte}")
    return byte == 1


_PLAIN: Mapping[str, _Read] = {
    "null": lambda _: None,
    "boolean": _read_boolean,
    "int": lambda source: source.read_whole(32),
    "long": lambda source: source.read_whole(64),
    "float": lambda source: struct.unpack("<f", source.take(4))[0],
    "double": lambda source: struct.unpack("<d", source.take(8))[0],
    "bytes": lambda source: source.take(source.read_whole(64)),
    "string": _read_text,
}
_SIZES = {"null": 0, "float": 4, "double": 8}


def _to_decimal(content: bytes, scale: int) -> Decimal:
    if not 0 < len(content) <= _LONGEST_DECIMAL:
        raise ValueError(f"a decimal has {len(content)} bytes")
    unscaled = int.from_bytes(content, "big", signed=True)
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _to_time(unit: datetime.timedelta) -> Callable[[int], datetime.time]:
    def convert(value: int) -> datetime.time:
        if not 0 <= value < _DAY // unit:
            raise ValueError(f"{value} is not a time of day")
        return (_MIDNIGHT + value * unit).time()

    return convert


def _check_uuid(text: str) -> str:
    uuid.UUID(text)
    return text


_LOGICAL: Mapping[tuple[str, Any], Callable[[Any], Any]] = {
    ("int", "date"): Days,
    ("int", "time-millis"): _to_time(_MILLISECOND),
    ("long", "time-micros"): _to_time(_MICROSECOND),
    ("long", "timestamp-millis"): lambda value: Micros(value * 1_000),
    ("long", "timestamp-micros"): Micros,
    ("long", "local-timestamp-millis"): lambda value: LocalMicros(value * 1_000),
    ("long", "local-timestamp-micros"): LocalMicros,
    ("string", "uuid"): _check_uuid,
}
