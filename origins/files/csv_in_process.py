"""Conversion of a few lines of CSV or text to rows in this process, if Spark would certainly read the same rows.

Only plain CSV is read here: lines without a quote, whose fields have the usual form of their types. If one line is bad
or only unusual, Spark reads all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from origins.files.json_in_process import list_kinds, make_column, make_plain_array, split_lines
from origins.lazy import T, pa

PLAIN_OPTIONS = frozenset({"header", "sep", "delimiter"})
"""The options with which this process can read CSV files."""
_LINE_OPTIONS = frozenset({"sep", "delimiter", "escape", "maxcolumns"})
"""The options with which this process can read lines. The last two do not affect plain lines."""
_ODD = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\"\\\ufeff]")
_NUMBER = r"-?[0-9]{1,15}(?:\.[0-9]{1,9})?"
_FIELDS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), (r"-?[0-9]{1,18}", int)),
    "boolean": ("true|false", "true".__eq__),
    "double": (_NUMBER, float),
    "decimal": (_NUMBER, Decimal),
}
"""The text of a field of each type, and its conversion. Fields of other types remain text."""


def parse_csv(
    content: bytes, schema: T.StructType, options: Mapping[str, str], *, header: bool, zone: Callable[[], str]
) -> pa.Table | None:
    """Return the rows of a file; None if Spark has to read them.

    Spark has to read them, for example, if the header and the schema have different columns.
    """
    try:
        lines = [line for line in split_lines(content.decode("utf-8")) if line.strip(" \t")]
        names = lines.pop(0).split(_get_separator(options)) if header and lines else schema.names
    except ValueError:
        return None
    if sorted(names) != sorted(schema.names):
        return None
    plainly = {name: value for name, value in options.items() if name != "header"}
    found = parse_plain_csv(lines, T.StructType([schema[name] for name in names]), plainly, zone)
    return None if found is None else found.select(schema.names)


def parse_plain_csv(
    texts: Sequence[str | None], schema: T.StructType, options: Mapping[str, str], zone: Callable[[], str]
) -> pa.Table | None:
    """Return the rows of plain lines; None if Spark has to read them.

    `zone` returns the time zone of times that have none.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    separator, kinds = _get_separator(options), list_kinds(schema)
    if kinds is None or options.keys() - _LINE_OPTIONS or not re.fullmatch(r"[,;|\t]", separator):
        return None
    plain = [text for text in texts if text and text.strip() and not _ODD.search(text)]
    lines = [text.split(separator) for text in plain]
    if len(lines) < len(texts) or any(len(line) != len(kinds) for line in lines):
        return None
    wanted = to_arrow_schema(schema, timezone="UTC")
    try:
        columns = [
            make_column(
                _parse_fields([line[at] for line in lines], kinds[each.name]), kinds[each.name], each.type, zone
            )
            for at, each in enumerate(wanted)
        ]
    except (ValueError, ArithmeticError, pa.ArrowException):
        return None
    return pa.Table.from_arrays(columns, schema=wanted)


def parse_text(content: bytes, schema: T.StructType) -> pa.Table | None:
    """Return the lines of a file as its only column; None if Spark has to read them."""
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        lines = split_lines(content.decode("utf-8"))
    except ValueError:
        return None
    kinds = list_kinds(schema)
    if kinds is None or [*kinds.values()] != ["string"] or lines[0].startswith("\ufeff"):
        return None
    wanted = to_arrow_schema(schema)
    return pa.Table.from_arrays([make_plain_array(lines[: -1 if not lines[-1] else None], pa.string())], schema=wanted)


def _get_separator(options: Mapping[str, str]) -> str:
    return options.get("sep", options.get("delimiter", ","))


def _parse_fields(texts: Sequence[str], kind: str) -> Sequence[Any]:
    """Return the values of a column's fields for `make_column`. Raise ValueError if a field is not plain."""
    pattern, convert = _FIELDS.get(kind, ("(?s).*", str))
    is_plain = re.compile(pattern).fullmatch
    if not all(text == text.strip() and is_plain(text) for text in texts if text):
        raise ValueError
    return [convert(text) if text else None for text in texts]
