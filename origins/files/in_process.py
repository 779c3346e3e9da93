"""Conversion of a few lines to rows in this process, if Spark would certainly read the same rows.

Only plain lines of JSON are read here: objects of single values that have exactly the types of their columns. If one
line is bad or only unusual, Spark reads all of them.

Other JSON is only checked: whether Spark's parser certainly turns each line into a row without a change. That parser
stops after the first value, drops unknown keys, and changes some values silently. A number that is too large for a
float becomes infinite. Half of a surrogate pair becomes a question mark. Control characters around a time are dropped.
If a key occurs twice, the last value wins. Plain lines have none of these, and one pattern recognizes them. Other lines
are parsed, in small files.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from arro3.core import Array

from origins.batch import Json
from origins.files.file_systems import ReadableFile, is_moderate, is_small, read_pieces
from origins.files.json_written import list_fine_patterns
from origins.lazy import T, pa, pc
from origins.schema import walk_types
from origins.spark_versions import make_arrow_schema

_WHOLE_NUMBERS = ("tinyint", "smallint", "int", "bigint")
_KINDS: Mapping[str, frozenset[type]] = {
    **dict.fromkeys(_WHOLE_NUMBERS, frozenset({int})),
    **dict.fromkeys(("string", "date", "timestamp", "timestamp_ntz"), frozenset({str})),
    "boolean": frozenset({bool}),
    "double": frozenset({int, float, Decimal}),
    "decimal": frozenset({int, Decimal}),
}
"""The Python types of JSON values that fit a column's type."""
_NAME, _DIGITS, _WHOLE = 1_000, 38, 1 << 63
"""The greatest length of a name and of a number, and the limit of whole numbers, that every parser accepts."""
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = _DATE + r"[T ](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_MINUS_NOTHING = re.compile(r"-0(?![0-9.eE])")


class _Unlike(ValueError):
    """The text is not plain."""


def parse_rows(
    content: bytes, schema: T.StructType, *, extra: bool, missing: bool, zone: Callable[[], str]
) -> pa.Table | None:
    """Return the rows of these lines; None if Spark has to read them.

    Unknown keys are ignored unless `extra` is true, and so are missing columns unless `missing` is true. `zone` returns
    the time zone of times that have none.
    """
    kinds = list_kinds(schema)
    if kinds is None:
        return None
    try:
        text = content.decode("utf-8")
        rows = _parse_objects(text, Decimal if "decimal" in kinds.values() else float)
        _check_keys(rows, frozenset(kinds), extra, missing)
        wanted = make_arrow_schema(schema)
        columns = [
            make_column([row.get(each.name) for row in rows], kinds[each.name], each.type, zone) for each in wanted
        ]
        if "double" in kinds.values() and _MINUS_NOTHING.search(text):
            return None
    except (ValueError, ArithmeticError, RecursionError, pa.ArrowException):
        return None
    return pa.Table.from_arrays(columns, schema=wanted)


def list_kinds(schema: T.StructType) -> Mapping[str, str] | None:
    """Return the type of each column, without its sizes; None if Spark has to read one of them."""
    kinds = {column.name: column.dataType.simpleString().partition("(")[0] for column in schema}
    plain = all(kind in _KINDS for kind in kinds.values()) and not any(column.metadata for column in schema)
    return kinds if plain and len({name.lower() for name in kinds}) == len(schema.names) else None


def split_lines(text: str) -> list[str]:
    """Return the lines of a text, split where Spark splits them."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _parse_objects(text: str, number: type[float | Decimal]) -> Sequence[Mapping[str, Json]]:
    def parse_number(written: str) -> float | Decimal:
        if len(written) > _DIGITS:
            raise _Unlike
        return number(written)

    if text.startswith("\ufeff") or ("\\u" in text and has_half(text)):
        raise _Unlike
    read = json.JSONDecoder(
        object_pairs_hook=_make_unique_object, parse_float=parse_number, parse_constant=_raise_unlike
    ).decode
    rows = [read(line) for line in split_lines(text) if line.strip(" \t")]
    if any(type(row) is not dict for row in rows):
        raise _Unlike
    return rows


def _raise_unlike(written: str) -> None:
    raise _Unlike


def _check_keys(rows: Iterable[Mapping[str, Json]], names: frozenset[str], extra: bool, missing: bool) -> None:
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


def _is_single(value: Json) -> bool:
    return abs(value) < _WHOLE if type(value) is int else not isinstance(value, dict | list)


def make_column(values: Sequence[Any], kind: str, wanted: pa.DataType, zone: Callable[[], str]) -> pa.Array:
    """Return the values as a column of this type. Raise an error if a value does not fit it as Spark would read it."""
    if not {type(value) for value in values if value is not None} <= _KINDS[kind]:
        raise _Unlike
    if kind == "double":
        values = [None if value is None else float(value) for value in values]
        if not all(value is None or math.isfinite(value) for value in values):
            raise _Unlike
    if kind == "decimal":
        values = [None if value is None else Decimal(value) for value in values]
        if not all(value is None or abs(value.as_tuple().exponent) <= _DIGITS for value in values):
            raise _Unlike  # Arrow takes it for another number
    if kind == "date":
        return _require_match(values, _DATE).cast(wanted)
    if kind.startswith("timestamp"):
        return _parse_times(values, kind, zone).cast(wanted)
    return make_plain_array(values, wanted)


def make_plain_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return the values as an array.

    arro3 makes it if it can, since pyarrow first imports pandas, which takes 0.2 s.
    """
    return pa.array(values, kind) if pa.types.is_decimal(kind) else pa.array(Array(values, kind))


def _parse_times(values: Sequence[Any], kind: str, zone: Callable[[], str]) -> pa.Array:
    """Return times that all have the zone `Z`, or of which none has a zone."""
    zoned = kind == "timestamp" and any(value is not None and value.endswith("Z") for value in values)
    if kind == "timestamp" and not zoned and zone() != "UTC":
        raise _Unlike
    found = _require_match(values, f"{_TIME}Z" if zoned else _TIME)
    return found.cast(pa.timestamp("us", "UTC" if zoned else None))


def _require_match(values: Sequence[Any], pattern: str) -> pa.Array:
    found = make_plain_array(values, pa.string())
    if pc.all(pc.match_substring_regex(found, rf"\A{pattern}\z")).as_py() is False:
        raise _Unlike
    return found


_TRIES, _MOST = 8, 100
"""How often a pattern learns more keys, and how many keys it has at most."""
_TEXT = r'"(?:[^"\\\x7f]|\\[^ub])*"'
_NUMBER = r"-?[0-9]{1,38}(?:\.[0-9]*)?|-?[0-9]{1,9}(?:\.[0-9]*)?[eE](?:-[0-9]+|\+?[0-2]?[0-9])"
"""A number that is finite even as a `float`."""
_BLANK = r"[ \t]*"
_SINGLE = rf"(?:{_TEXT}|{_NUMBER}|true|false|null)"
_VALUE = rf"(?:{_SINGLE}|\[{_BLANK}(?:{_SINGLE}{_BLANK}(?:,{_BLANK})?)*\])"
_LARGE = r"[eE]\+?[0-9]{2}|[0-9]{39}"
_HALF = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
    r"|\\\\u[dD]"
)
_CUT = ("\\u00", "\\b", "\x7f")
"""The forms of control characters that Spark drops around times."""


def are_all_plain(files: Sequence[ReadableFile], schema: T.StructType, *, extra: bool, missing: bool) -> bool:
    """Return whether all lines of these files are plain. Large files are not checked, and count as not plain.

    A plain line is an object of single values, or arrays of them. Its keys have one order in all files and occur once,
    exactly as in the schema. Unknown keys matter only with `extra`, and missing columns only with `missing`.
    """
    try:
        if not is_moderate(files):
            return False
        keys: list[str] = []
        fine = list_fine_patterns(schema)
        for content in read_pieces(files, "utf-8-sig"):
            if any(re.search(each, content) for each in fine):
                return False
            lines = pc.split_pattern(make_plain_array([content], pa.large_string()), "\n").flatten()
            for _ in range(_TRIES):
                lines = _find_unlike(lines, keys, all_there=missing)
                if not len(lines) or not _learn(keys, lines[0].as_py()):
                    break
            if len(lines):
                return False
        return _are_known(keys, {*schema.names}, extra) and not (missing and {*schema.names} - {*keys})
    except (ValueError, RecursionError, OSError):
        return False


def are_lines_plain(
    files: Sequence[ReadableFile], schema: T.StructType, *, extra: bool, missing: bool, doubled: bool, whole_file: bool
) -> bool:
    """Return whether Spark's parser changes nothing in these small files, and whether their keys match the schema.

    It is false for large files. The files must have one object a line, or one value as a whole. Unknown keys matter
    with `extra`, or if they differ from a column only in case. Missing columns matter with `missing`, and keys that
    occur twice with `doubled`.
    """
    make_object = _make_unique_object if doubled else dict
    try:
        if not is_small(files):
            return False
        kinds, fine = {kind.typeName() for _, kind in walk_types(schema)}, list_fine_patterns(schema)
        for content in read_pieces(files, "utf-8-sig"):
            is_cut = kinds & {"date", "timestamp", "timestamp_ntz"} and any(sign in content for sign in _CUT)
            is_large = kinds & {"float", "double"} and re.search(_LARGE, content)
            is_fine = any(re.search(each, content) for each in fine)
            if is_cut or is_large or is_fine or ("\\u" in content and has_half(content)):
                return False
            texts = [content] if whole_file else [line for line in content.split("\n") if line.strip(" \t")]
            for text in texts:
                value = json.loads(text, object_pairs_hook=make_object)
                objects = value if whole_file and isinstance(value, list) else [value]
                if not all(isinstance(each, dict) and not _differs(each, schema, extra, missing) for each in objects):
                    return False
        return True
    except (ValueError, RecursionError, OSError):
        return False


def _differs(value: Any, kind: T.DataType, extra: bool, missing: bool) -> bool:
    """Return whether an object in the value has keys other than the names of its type."""
    if isinstance(kind, T.ArrayType | T.MapType):
        element = kind.elementType if isinstance(kind, T.ArrayType) else kind.valueType
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return any(_differs(each, element, extra, missing) for each in inside)
    if not isinstance(kind, T.StructType) or not isinstance(value, dict):
        return False
    names = {*kind.names}
    strange = value.keys() - names
    if (strange and not _are_known(strange, names, extra)) or (missing and not names <= value.keys()):
        return True
    fields = ((value.get(each.name), each.dataType) for each in kind)
    return any(_differs(each, of, extra, missing) for each, of in fields if isinstance(each, dict | list))


def has_half(content: str) -> bool:
    """Return whether the text may contain half of a surrogate pair.

    After a backslash this is unknown, and counts as true.
    """
    return _HALF.search(content) is not None


def _find_unlike(lines: pa.Array, keys: Sequence[str], *, all_there: bool) -> pa.Array:
    """Return the lines that are not plain objects with these keys, in this order."""
    once = "" if all_there else "?"
    items = "".join(
        rf'(?:"{re.escape(key)}"{_BLANK}:{_BLANK}{_VALUE}{_BLANK}(?:,{_BLANK}|\}}{_BLANK}\z)){once}' for key in keys
    )
    plain = rf"\A{_BLANK}(?:\{{{_BLANK}{items}(?:\}}{_BLANK})?)?\z"
    return lines.filter(pc.invert(pc.match_substring_regex(lines, plain)))


def _learn(keys: list[str], line: str) -> bool:
    """Insert the keys of this line into the known keys, in its order. Return False if that is impossible."""
    found = json.loads(line, object_pairs_hook=_make_unique_object)
    if not isinstance(found, dict) or not found.keys() - {*keys}:
        return False
    if not all(re.fullmatch(r"[\w .-]*", key) for key in found):
        return False
    at = 0
    for key in found:
        if key not in keys:
            keys.insert(at, key)
        at = keys.index(key) + 1
    return len(keys) <= _MOST


def _are_known(keys: Collection[str], names: Collection[str], extra: bool) -> bool:
    in_small = {name.lower() for name in names}
    strange = [key for key in keys if key not in names]
    return not strange or not (extra or any(key.lower() in in_small for key in strange))


def _make_unique_object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object. Raise ValueError if a key occurs twice, in upper or lower case."""
    found = dict(pairs)
    if len(found) < len(pairs) or len({key.lower() for key in found}) < len(pairs):
        raise ValueError("a key is there twice")
    return found
