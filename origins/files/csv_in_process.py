"""A few lines of CSV or text become rows in this process, where each of them surely is the row that Spark would read.

Only CSV that is written plainly is read here: lines without a quote, of fields that are written as their types are
usually written. Where one line is anything else, be it bad or only unusual, all of them are Spark's to read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from origins.files.json_in_process import list_kinds, make_column, make_plain_array, split_lines
from origins.lazy import T, pa

PLAIN_OPTIONS = frozenset({"header", "sep", "delimiter"})
"""The options with which this process reads files of CSV."""
_LINE_OPTIONS = frozenset({"sep", "delimiter", "escape", "maxcolumns"})
"""The options with which this process reads lines; the last two change no plain one."""
_ODD = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\"\\\ufeff]")
_NUMBER = r"-?[0-9]{1,15}(?:\.[0-9]{1,9})?"
_FIELDS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), (r"-?[0-9]{1,18}", int)),
    "boolean": ("true|false", "true".__eq__),
    "double": (_NUMBER, float),
    "decimal": (_NUMBER, Decimal),
}
"""How fields are written, and what they are then; others stay the texts that they are."""


def parse_csv(
    content: bytes, schema: T.StructType, options: Mapping[str, str], *, header: bool, zone: Callable[[], str]
) -> pa.Table | None:
    """The rows of a file; None where Spark has to read them, as where its header has other columns than the schema."""
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
    """The rows of lines that are written plainly; None where Spark has to read them. `zone` says in which zone times
    are that name none."""
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
    """The lines of a file in its only column; None where Spark has to read them."""
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
    """What `make_column` takes for the fields of a column. Raises ValueError where one is not written plainly."""
    pattern, convert = _FIELDS.get(kind, ("(?s).*", str))
    is_plain = re.compile(pattern).fullmatch
    if not all(text == text.strip() and is_plain(text) for text in texts if text):
        raise ValueError
    return [convert(text) if text else None for text in texts]
