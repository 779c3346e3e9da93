"""Values of messages that a schema describes: fields become columns, and columns become fields.

This code also runs in Spark's Python workers, and is sent there by value. So it uses nothing else of Wherry.
"""

from __future__ import annotations

import datetime
import json
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

Fields: TypeAlias = "Mapping[str, Any]"
Fit: TypeAlias = "Callable[[Any], Any]"
MISSING = "the message has no value"
FORMATS = ("json", "csv", "avro", "protobuf", "text", "raw")
"""The formats of a message's value."""
CODED = ("avro", "protobuf")
"""The formats that a schema describes."""
BROKEN = (
    ValueError, ArithmeticError, LookupError, TypeError, EOFError, AttributeError, RecursionError, MemoryError,
    struct.error,
)  # fmt: skip
"""The errors of readers at bytes that are not a value."""
_SHOWN, _LONGEST = 80, 300
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_DAY = _EPOCH.date()
_MICROSECOND = datetime.timedelta(microseconds=1)
_FIRST_DAY, _LAST_DAY = (datetime.date.min - _DAY).days, (datetime.date.max - _DAY).days
"""The dates of the years 1 to 9999. Spark and Python cannot show others."""
_MICROS_OF_DAY = 86_400_000_000


class Unreadable(ValueError):
    """A value does not have its format, or does not fit its columns."""


class NoColumns(ValueError):
    """A schema has a part that no column can have."""


class Micros(int):
    """A moment, in microseconds since 1970."""


class LocalMicros(int):
    """A date and a time of day without a time zone, in microseconds since 1970."""


class Days(int):
    """A date, in days since 1970."""


class Coding(ABC):
    """The conversion between bytes and fields."""

    @abstractmethod
    def open(self) -> Callable[[bytes], Fields]:
        """Return a function that reads a value. The function raises `Unreadable`."""

    @abstractmethod
    def open_writer(self) -> Callable[[Fields], bytes]:
        """Return a function that writes a value. The function raises `Unreadable` if the fields do not fit."""

    @abstractmethod
    def list_columns(self) -> Mapping[str, Any]:
        """Return the columns, as Spark's JSON.

        Each has a flag `needs`: whether a row must have it. Raise `NoColumns`.
        """


def decode_values(
    coding: Coding, values: Sequence[bytes | None], kinds: pa.Schema
) -> tuple[list[list[Any]], list[str | None]]:
    """Return the values of each column, for `pyarrow.array`, and for each message why it is refused, or None.

    Fields without a column are left out. Columns without a field are NULL.
    """
    decode = coding.open()
    fits = [(each.name, make_fit(each.type, each.name)) for each in kinds]
    columns: list[list[Any]] = [[] for _ in fits]
    whys: list[str | None] = []
    for value in values:
        why, row = None, [None] * len(fits)
        try:
            if value is None:
                raise Unreadable(MISSING)
            found = decode(value)
            row = [fit(found.get(name)) for name, fit in fits]
        except Unreadable as error:
            why = str(error)
        whys.append(why)
        for column, each in zip(columns, row, strict=True):
            column.append(each)
    return columns, whys


@dataclass(frozen=True, kw_only=True)
class BatchDecoder:
    """A function that adds the decoded columns of messages, and why a message is refused."""

    coding: Coding
    kinds: pa.Schema
    names: Sequence[str]
    """The names of the decoded columns."""
    why: str

    def decode(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches with the decoded columns, for `mapInArrow`."""
        import pyarrow as pa

        for batch in batches:
            columns, whys = decode_values(self.coding, batch.column("value").to_pylist(), self.kinds)
            decoded = [pa.array(each, of.type) for each, of in zip(columns, self.kinds, strict=True)]
            arrays = [*batch.columns, *decoded, pa.array(whys, pa.string())]
            yield pa.RecordBatch.from_arrays(arrays, names=[*batch.schema.names, *self.names, self.why])


@dataclass(kw_only=True)
class RowEncoder:
    """A function for Spark's workers that returns the value of a message for a row, or why it has none."""

    coding: Coding
    schema: str
    """The columns of the row, as Spark's JSON."""
    _write: Callable[[Any], bytes] | None = None
    """The writer, made at the first row."""

    def __call__(self, row: Any) -> tuple[bytes | None, str | None]:
        if row is None:
            return None, None
        if self._write is None:
            self._write = self._open()
        try:
            return self._write(row), None
        except Unreadable as error:
            return None, str(error)

    def _open(self) -> Callable[[Any], bytes]:
        fit = _make_writer_fit(json.loads(self.schema), self.coding.list_columns(), "")
        write = self.coding.open_writer()
        return lambda row: write(fit(row))


def _make_writer_fit(given: Any, wanted: Any, path: str) -> Fit:
    """Return a function that converts a Spark value for writers of the wanted type. Both types are Spark's JSON.

    A `timestamp` is given as microseconds since 1970, and a `date` as days. The function raises `Unreadable` with the
    path.
    """
    name, kind = _get_name(given), _get_name(wanted)
    if name == kind == "struct":
        there = {each["name"]: each["type"] for each in wanted["fields"]}
        fields = [
            (each["name"], _make_writer_fit(each["type"], there[each["name"]], _join(path, each["name"])))
            for each in given["fields"]
            if each["name"] in there
        ]
        return _keep_null(lambda row: {field: fit(row[field]) for field, fit in fields})
    if name == kind == "array":
        element = _make_writer_fit(given["elementType"], wanted["elementType"], f"{path}[]")
        return _keep_null(lambda values: [element(each) for each in values])
    if name == kind == "map":
        key = _make_writer_fit(given["keyType"], wanted["keyType"], f"{path} (key)")
        of = _make_writer_fit(given["valueType"], wanted["valueType"], f"{path} (value)")
        return _keep_null(lambda entries: {key(name): of(each) for name, each in entries.items()})
    return _explain_misfit(path, kind, _find_writer_leaf(name, kind))


def _find_writer_leaf(given: str, wanted: str) -> Fit:
    if given == "timestamp":
        return lambda value: _EPOCH + value * _MICROSECOND
    if given == "date":
        return lambda value: _DAY + datetime.timedelta(days=value)
    if wanted in ("integer", "long"):
        return lambda value: to_whole(value, 32 if wanted == "integer" else 64)
    if wanted.startswith("decimal"):
        precision, scale = map(int, wanted[len("decimal(") : -1].split(","))
        return lambda value: _to_decimal(value, precision, scale)
    return bytes if given == "binary" else lambda value: value


def _get_name(kind: Any) -> str:
    return str(kind["type"] if isinstance(kind, Mapping) else kind)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}".strip(".")


def _keep_null(fit: Fit) -> Fit:
    return lambda value: None if value is None else fit(value)


def _explain_misfit(path: str, name: str, convert: Fit, of: Any = object) -> Fit:
    """Return the conversion of values of these classes. It keeps NULL.

    It raises `Unreadable` with the path for a value that is not of the type with this name.
    """

    def fit(value: Any) -> Any:
        if value is None:
            return None
        try:
            if not isinstance(value, of):
                raise ValueError
            return convert(value)
        except Unreadable:
            raise
        except (ValueError, ArithmeticError) as error:
            article = "an" if name[0] in "aeiou" else "a"
            raise Unreadable(f"{path}: {show_value(value)} is not {article} {name}") from error

    return fit


def list_misfits(given: Any, wanted: Any, path: str = "") -> Iterator[str]:
    """Yield why values of one type cannot be written as another, one phrase each. Both types are Spark's JSON."""
    kinds = _get_name(given), _get_name(wanted)
    if kinds == ("struct", "struct"):
        there = {each["name"]: each for each in wanted["fields"]}
        named = {name.lower(): name for name in there}
        found = set()
        for each in given["fields"]:
            inner, known = _join(path, each["name"]), named.get(each["name"].lower())
            if each["name"] in there:
                yield from list_misfits(each["type"], there[each["name"]]["type"], inner)
            elif known is not None:
                yield f"{inner} is called {known} in the schema; change the name with `rename`"
            else:
                yield f"the schema has no field {inner}; drop the column, or put the fields into a struct for `value`"
            found.add(known)
        for name in sorted(name for name, each in there.items() if each["needs"] and name not in found):
            yield f"there is no column '{_join(path, name)}', which the schema needs"
    elif kinds == ("array", "array"):
        yield from list_misfits(given["elementType"], wanted["elementType"], f"{path}[]")
    elif kinds == ("map", "map"):
        yield from list_misfits(given["keyType"], wanted["keyType"], f"{path} (key)")
        yield from list_misfits(given["valueType"], wanted["valueType"], f"{path} (value)")
    elif kinds[0] != kinds[1] and not _may_be(*kinds):
        yield f"{path} is {kinds[0]}, and {kinds[1]} in the schema; change it with `cast`"


_WHOLE = ("byte", "short", "integer", "long")


def _may_be(given: str, wanted: str) -> bool:
    """Return whether a value of one type may be one of the other. Each value is checked when it is written."""
    if wanted in ("integer", "long"):
        return given in _WHOLE
    if wanted.startswith("decimal"):
        return given in _WHOLE or given.startswith("decimal")
    return wanted == "double" and given in ("float", "byte", "short", "integer")


def cut_error(error: Exception) -> str:
    """Return the text of an error in one line of limited length."""
    text = " ".join(str(error).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def make_fit(kind: pa.DataType, path: str) -> Fit:
    """Return a function that converts a field's value to this type. The function raises `Unreadable`.

    Raise `NoColumns` for a type that no field can have.
    """
    from pyarrow import types

    where = f"column {path}"
    if types.is_struct(kind):
        inner = {each.name: make_fit(each.type, f"{path}.{each.name}") for each in kind}
        return _explain_misfit(
            where, "struct", lambda value: {name: fit(value.get(name)) for name, fit in inner.items()}, Mapping
        )
    if types.is_map(kind):
        key, item = make_fit(kind.key_type, f"{path}.key"), make_fit(kind.item_type, f"{path}.value")
        return _explain_misfit(where, "map", lambda value: [(key(k), item(v)) for k, v in value.items()], Mapping)
    if types.is_list(kind):
        element = make_fit(kind.value_type, f"{path}.element")
        return _explain_misfit(where, "array", lambda value: [element(each) for each in value], list | tuple)
    name, convert = _find_leaf(kind, path)
    return _explain_misfit(where, name, convert)


def _find_leaf(kind: pa.DataType, path: str) -> tuple[str, Fit]:
    """Return the name of a type without parts, and its conversion, which raises ValueError."""
    from pyarrow import types

    if types.is_signed_integer(kind):
        bits = kind.bit_width
        name = {8: "tinyint", 16: "smallint", 32: "int", 64: "bigint"}[bits]
        return name, lambda value: to_whole(value, bits)
    if types.is_floating(kind):
        return ("float", _to_single) if kind.bit_width == 32 else ("double", _to_float)
    if types.is_decimal(kind):
        precision, scale = kind.precision, kind.scale
        return f"decimal({precision},{scale})", lambda value: _to_decimal(value, precision, scale)
    if types.is_timestamp(kind):
        return ("timestamp", to_moment) if kind.tz else ("timestamp_ntz", _to_local_moment)
    plain: Mapping[str, tuple[str, Fit]] = {
        "bool": ("boolean", _require(bool)),
        "string": ("string", _to_text),
        "binary": ("binary", _require(bytes)),
        "date32[day]": ("date", _to_day),
    }
    if str(kind) not in plain:
        raise NoColumns(f"column {path}: no field can have the type {kind}")
    return plain[str(kind)]


def _require(kind: type) -> Fit:
    def convert(value: Any) -> Any:
        if type(value) is not kind:
            raise ValueError
        return value

    return convert


def to_whole(value: Any, bits: int) -> int:
    """Return the value as a whole number of this number of bits. Raise ValueError if it is not one.

    A time of day becomes its number of microseconds with 64 bits, or of milliseconds.
    """
    if isinstance(value, datetime.time):
        moment = datetime.timedelta(
            hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond
        )
        return moment // (_MICROSECOND if bits == 64 else _MICROSECOND * 1_000)
    if type(value) is not int or not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError
    return value


def _to_float(value: Any) -> float:
    if type(value) not in (int, float) or (type(value) is int and int(float(value)) != value):
        raise ValueError
    return float(value)


def _to_single(value: Any) -> float:
    number = _to_float(value)
    single = float(struct.unpack("<f", struct.pack("<f", number))[0])
    if single != number and number == number:  # NaN is no number, and stays NaN
        raise ValueError
    return single


def _to_decimal(value: Any, precision: int, scale: int) -> Decimal:
    if type(value) not in (int, Decimal):
        raise ValueError
    context = Context(prec=precision, traps=[Inexact, InvalidOperation])
    return context.quantize(Decimal(value), Decimal(1).scaleb(-scale, context))


def _to_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    value.encode()  # raises for a lone surrogate
    return value


def _to_day(value: Any) -> int:
    if isinstance(value, Days):
        return _check_day(int(value), int(value))
    if not isinstance(value, datetime.date) or isinstance(value, datetime.datetime):
        raise ValueError
    return (value - _DAY).days


def to_moment(value: Any) -> int:
    """Return the microseconds since 1970 of a moment. Raise ValueError outside the years 1 to 9999."""
    if isinstance(value, Micros):
        return _check_day(int(value), value // _MICROS_OF_DAY)
    if not isinstance(value, datetime.datetime) or value.tzinfo is None:
        raise ValueError
    return (value - _EPOCH) // _MICROSECOND


def _to_local_moment(value: Any) -> int:
    if isinstance(value, LocalMicros):
        return _check_day(int(value), value // _MICROS_OF_DAY)
    if not isinstance(value, datetime.datetime) or value.tzinfo is not None:
        raise ValueError
    return (value - _EPOCH.replace(tzinfo=None)) // _MICROSECOND


def _check_day(value: int, day: int) -> int:
    if not _FIRST_DAY <= day <= _LAST_DAY:
        raise ValueError
    return value


def show_value(value: Any) -> str:
    text = (value if isinstance(value, str) else repr(value)).encode("utf-8", "backslashreplace").decode()
    return f"'{text[:_SHOWN]}…'" if len(text) > _SHOWN else f"'{text}'"


def make_struct(fields: Iterable[tuple[str, Any, bool]]) -> dict[str, Any]:
    made = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}, "needs": needs} for name, kind, needs in fields
    ]
    return {"type": "struct", "fields": made}


def make_list(element: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": True}


def make_map(key: Any, value: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
