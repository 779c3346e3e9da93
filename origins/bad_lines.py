"""When a line of a file is no row, and what is said about it: as SQL over what Spark's reader gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from origins.exact import exact, finer, is_changed, is_finer
from origins.names import HIDDEN, quoted, text
from origins.schema import sql_type
from origins.secret import EXCERPT

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

CORRUPT = HIDDEN + "corrupt"
"""The column in which Spark's reader keeps a line that it could not read."""
_PATTERNS = {"date": "dateformat", "timestamp": "timestampformat", "timestamp_ntz": "timestampntzformat"}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """SQL expressions over a line: whether it is bad, why, and the line itself."""

    is_bad: str
    why: str
    raw: str
    is_change: str = "false"
    """Whether it is bad for the columns that it has, and not for what stands in them."""
    stops: str = "false"
    """Whether the run stops there."""


def typed_field(column: StructField, options: Mapping[str, str]) -> str:
    """A CSV field with the column's type; NULL if it cannot have it."""
    kind, value = column.dataType.simpleString(), quoted(column.name)
    if is_finer(column.dataType):
        return exact(f"try_cast({value} as {sql_type(finer(column.dataType))})", column.dataType)
    pattern = options.get(_PATTERNS.get(kind, ""))
    if pattern is None:
        return f"try_cast({value} as {kind})"
    function = "try_to_date" if kind == "date" else "try_to_timestamp"
    return f"cast({function}({value}, {text(pattern)}) as {kind})"


def is_lost_field(column: StructField, value: str, typed: str) -> str:
    """SQL that is true for a CSV field that is there, and of which its cast (`typed`) made NULL or another value."""
    changed = is_changed(value, column.dataType.simpleString(), typed)
    return f"({value} is not null and ({typed} is null{'' if changed == 'false' else f' or {changed}'}))"


def misfits(columns: Iterable[tuple[StructField, str, str]]) -> str:
    """What is said of columns with text of which a condition says that it does not fit; NULL if there is none."""
    said = []
    for column, value, is_lost in columns:
        said.append(f"case when {is_lost} then {misfit(column, value)} end")
    return f"nullif(array_join(array({', '.join(said)}), '; '), '')"


def misfit(column: StructField, value: str) -> str:
    """What is said of a text that is no value of the column's type."""
    kind = column.dataType.simpleString()
    cut = f"if(char_length({value}) > {EXCERPT}, concat(left({value}, {EXCERPT}), '…'), {value})"
    before = text(f"column {column.name}: '")
    after = text(f"' is not {'an' if kind[0] in 'aeiou' else 'a'} {kind}")
    return f"concat({before}, {cut}, {after})"


def is_wider(column: StructField, value: str) -> str:
    """SQL that is true for a text that a wider number of the column's kind can hold; it never is for other types."""
    from pyspark.sql.types import ByteType, DecimalType, FloatType, IntegerType, LongType, ShortType

    kind = column.dataType
    if isinstance(kind, ByteType | ShortType | IntegerType | LongType):
        return f"coalesce(trim({value}) rlike '^[+-]?[0-9]{{1,38}}$', false)"
    if isinstance(kind, DecimalType):
        is_number = f"trim({value}) rlike '^[+-]?[0-9]*[.]?[0-9]*$' and try_cast({value} as double) is not null"
        return f"coalesce({is_number}, false)"
    if isinstance(kind, FloatType):
        return f"coalesce(abs(try_cast({value} as double)) < double('Infinity'), false)"
    return "false"


def as_map(options: Mapping[str, str]) -> str:
    """Options for Spark's parsers, as SQL."""
    told = {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    return f"map({', '.join(f'{text(name)}, {text(value)}' for name, value in told.items())})"
