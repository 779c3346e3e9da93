"""When a line of a file is no row, and what is said about it: as SQL over what Spark's reader gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from origins.names import HIDDEN, quoted, text

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

CORRUPT = HIDDEN + "corrupt"
"""The column in which Spark's reader keeps a line that it could not read."""
_EXCERPT = 80
"""So many characters of a value stand in a message."""
_PATTERNS = {"date": "dateformat", "timestamp": "timestampformat", "timestamp_ntz": "timestampntzformat"}
_AS_IT_IS = {"ignoreleadingwhitespace": "false", "ignoretrailingwhitespace": "false"}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Three SQL expressions over a line: whether it is bad, why, and the line itself."""

    is_bad: str
    why: str
    raw: str


def of_csv(
    header: Sequence[str],
    typed: Mapping[StructField, str],
    options: Mapping[str, str],
    *,
    in_words: bool,
    suspect: Mapping[str, str] | None = None,
    line: str = "NULL",
) -> Verdict:
    """The verdict on a line of CSV whose fields are text; `typed` says where they stand with their types.

    `suspect` are other conditions under which a line is bad, each with what is said then. Where the `line` itself is
    not known, Spark keeps only lines with too few or too many fields; any other is written again from its fields.
    """
    corrupt, suspect = quoted(CORRUPT), suspect or {}
    lost = [f"{quoted(column.name)} is not null and {name} is null" for column, name in typed.items()]
    why, raw = text(f"this line has not the {len(header)} fields that were expected"), corrupt
    if in_words:
        said = misfits((column, quoted(column.name), name) for column, name in typed.items())
        first = "".join(f"when {condition} then {text(what)} " for condition, what in suspect.items())
        why = f"case {first}when {corrupt} is null then {said} else {why} end"
        fields = f"struct({', '.join(map(quoted, header))})"
        raw = f"coalesce({corrupt}, {line}, to_csv({fields}, {as_map({**_AS_IT_IS, **options})}))"
    return Verdict(is_bad=" or ".join([f"{corrupt} is not null", *suspect, *lost]), why=why, raw=raw)


def typed_field(column: StructField, options: Mapping[str, str]) -> str:
    """A CSV field with the column's type; NULL if it cannot have it."""
    kind, value = column.dataType.simpleString(), quoted(column.name)
    pattern = options.get(_PATTERNS.get(kind, ""))
    if pattern is None:
        return f"try_cast({value} as {kind})"
    function = "try_to_date" if kind == "date" else "try_to_timestamp"
    return f"cast({function}({value}, {text(pattern)}) as {kind})"


def misfits(columns: Iterable[tuple[StructField, str, str]]) -> str:
    """What is said of columns that have text and yet no value; NULL if there is none."""
    said = []
    for column, value, typed in columns:
        kind = column.dataType.simpleString()
        cut = f"if(char_length({value}) > {_EXCERPT}, concat(left({value}, {_EXCERPT}), '…'), {value})"
        before = text(f"column {column.name}: '")
        after = text(f"' is not {'an' if kind[0] in 'aeiou' else 'a'} {kind}")
        is_lost = f"{typed} is null and {value} is not null"
        said.append(f"case when {is_lost} then concat({before}, {cut}, {after}) end")
    return f"nullif(array_join(array({', '.join(said)}), '; '), '')"


def as_map(options: Mapping[str, str]) -> str:
    """Options for Spark's parsers, as SQL."""
    told = {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    return f"map({', '.join(f'{text(name)}, {text(value)}' for name, value in told.items())})"
