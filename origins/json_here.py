"""A few lines of JSON become rows in this process, where each of them surely is the row that Spark would read.

Only what is written plainly is read here: objects of single values that are of the very types of their columns. Where
one line is anything else, be it bad or only unusual, all of them are Spark's to read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from origins.batch import JSON
from origins.json_plain import has_half

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

_ONLY_TEXT, _ONLY_WHOLE = frozenset({str}), frozenset({int})
_KINDS: Mapping[str, frozenset[type]] = {
    "boolean": frozenset({bool}),
    "tinyint": _ONLY_WHOLE,
    "smallint": _ONLY_WHOLE,
    "int": _ONLY_WHOLE,
    "bigint": _ONLY_WHOLE,
    "double": frozenset({int, float, Decimal}),
    "decimal": frozenset({int, Decimal}),
    "string": _ONLY_TEXT,
    "date": _ONLY_TEXT,
    "timestamp": _ONLY_TEXT,
    "timestamp_ntz": _ONLY_TEXT,
}
"""What JSON's values are in Python that are of a column's type."""
_NAME, _NUMBER, _WHOLE = 1_000, 38, 1 << 63
"""Up to how long a name or a number may be, and how large a whole number, for no parser to mind."""
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = _DATE + r"[T ](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_MINUS_NOTHING = re.compile(r"-0(?![0-9.eE])")


class _Unlike(ValueError):
    """Something that is not written plainly."""


def rows_of(
    content: bytes, schema: StructType, *, extra: bool, missing: bool, zone: Callable[[], str]
) -> pyarrow.Table | None:
    """The rows of these lines; None where Spark has to read them.

    Keys that the schema has not are left out unless they count (`extra`), and so do columns that a line has not
    (`missing`). `zone` says in which zone times are that name none.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    kinds = {column.name: column.dataType.simpleString().partition("(")[0] for column in schema}
    plain = all(kind in _KINDS for kind in kinds.values()) and not any(column.metadata for column in schema)
    if not plain or len({name.lower() for name in kinds}) < len(schema.names):
        return None
    try:
        text = content.decode("utf-8")
        rows = _objects(text, Decimal if "decimal" in kinds.values() else float)
        _check_keys(rows, frozenset(kinds), extra, missing)
        wanted = to_arrow_schema(schema, timezone="UTC")
        columns = [_column([row.get(each.name) for row in rows], kinds[each.name], each.type, zone) for each in wanted]
        if "double" in kinds.values() and _MINUS_NOTHING.search(text):
            return None
    except (ValueError, ArithmeticError, RecursionError, pa.ArrowException):
        return None
    return pa.Table.from_arrays(columns, schema=wanted)


def _objects(text: str, number: type[float | Decimal]) -> Sequence[Mapping[str, JSON]]:
    """The object on each line that is not blank."""

    def parsed(written: str) -> float | Decimal:
        if len(written) > _NUMBER:
            raise _Unlike
        return number(written)

    if text.startswith("\ufeff") or ("\\u" in text and has_half(text)):
        raise _Unlike
    read = json.JSONDecoder(object_pairs_hook=_object, parse_float=parsed, parse_constant=_unlike).decode
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    rows = [read(line) for line in lines if line.strip(" \t")]
    if any(type(row) is not dict for row in rows):
        raise _Unlike
    return rows


def _object(pairs: Sequence[tuple[str, JSON]]) -> Mapping[str, JSON]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Unlike
    return found


def _unlike(written: str) -> None:
    raise _Unlike


def _check_keys(rows: Iterable[Mapping[str, JSON]], names: frozenset[str], extra: bool, missing: bool) -> None:
    in_small = {name.lower() for name in names}
    for row in rows:
        if row.keys() == names:
            continue
        strange = row.keys() - names
        if missing and len(row) - len(strange) < len(names):
            raise _Unlike
        for name in strange:
            if extra or len(name) > _NAME or name.lower() in in_small or not _is_single(row[name]):
                raise _Unlike


def _is_single(value: JSON) -> bool:
    return abs(value) < _WHOLE if type(value) is int else not isinstance(value, dict | list)


def _column(values: Sequence[Any], kind: str, wanted: pyarrow.DataType, zone: Callable[[], str]) -> pyarrow.Array:
    """The values as a column of this type. Raises where one is not of it, or not as Spark would understand it."""
    import pyarrow as pa

    if not {type(value) for value in values if value is not None} <= _KINDS[kind]:
        raise _Unlike
    if kind == "double":
        values = [None if value is None else float(value) for value in values]
        if not all(value is None or math.isfinite(value) for value in values):
            raise _Unlike
    if kind == "decimal":
        values = [None if value is None else Decimal(value) for value in values]
    if kind == "date":
        return _matching(values, _DATE).cast(wanted)
    if kind.startswith("timestamp"):
        return _moments(values, kind, zone).cast(wanted)
    return pa.array(values, wanted)


def _moments(values: Sequence[Any], kind: str, zone: Callable[[], str]) -> pyarrow.Array:
    """Times that all name the zone `Z`, or none of which names one."""
    import pyarrow as pa

    zoned = kind == "timestamp" and any(value is not None and value.endswith("Z") for value in values)
    if kind == "timestamp" and not zoned and zone() != "UTC":
        raise _Unlike
    found = _matching(values, f"{_TIME}Z" if zoned else _TIME)
    return found.cast(pa.timestamp("us", "UTC" if zoned else None))


def _matching(values: Sequence[Any], pattern: str) -> pyarrow.Array:
    """The texts, all of which are like this."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pa.array(values, pa.string())
    if pc.all(pc.match_substring_regex(found, rf"\A{pattern}\z")).as_py() is False:
        raise _Unlike
    return found
