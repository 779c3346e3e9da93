"""How wide the numbers are that stand in files as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from origins.nack import REFUSED
from origins.names import quoted, text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructField

    Read = Callable[[list[StructField]], DataFrame]

_WHOLE = r"^[+-]?([0-9]{1,38})()$"
_NUMBER = r"^[+-]?([0-9]*)[.]?([0-9]*)$"


def widened(columns: Sequence[StructField], read: Read) -> list[StructField]:
    """The columns, with types as wide as their numbers want. What is no number widens nothing.

    `read` gives the rows of the files, lazily, with columns as they are asked for. One Spark job, if a column is a
    number at all.
    """
    from pyspark.sql.types import DecimalType, StringType, StructField

    numbers = [column for column in columns if isinstance(column.dataType, (*_ladder(), DecimalType))]
    if not numbers:
        return list(columns)
    names = {column.name for column in numbers}
    as_text = [StructField(each.name, StringType()) if each.name in names else each for each in columns]
    rows = read(as_text).where(f"{REFUSED} is null")
    asked = [wanted for column in numbers for wanted in _asked(column)]
    found = iter(rows.selectExpr(*asked).collect()[0])
    wide = {column.name: _wide(column, [next(found) for _ in _asked(column)]) for column in numbers}
    return [wide.get(column.name, column) for column in columns]


def _asked(column: StructField) -> list[str]:
    """What is asked of all values: the digits before and behind the point, and the largest whole number."""
    value = f"trim({quoted(column.name)})"
    pattern = _NUMBER if column.dataType.typeName() == "decimal" else _WHOLE

    def digits(group: int) -> str:
        is_number = f"{value} rlike {text(pattern)}"
        return f"max(case when {is_number} then char_length(regexp_extract({value}, {text(pattern)}, {group})) end)"

    whole = f"try_cast({value} as long)"
    beyond = f"max(case when {value} rlike {text(_WHOLE)} and {whole} is null then 1 else 0 end)"
    return [digits(1), digits(2), f"max(if({whole} < 0, ~{whole}, {whole}))", beyond]


def _wide(column: StructField, found: Sequence[int | None]) -> StructField:
    from pyspark.sql.types import DecimalType, StructField

    before, behind, largest, beyond = (each or 0 for each in found)
    kind = column.dataType
    if isinstance(kind, DecimalType):
        scale, digits = max(kind.scale, behind), max(kind.precision - kind.scale, before)
        return StructField(column.name, DecimalType(digits + scale, scale)) if digits + scale <= 38 else column
    if beyond:
        return StructField(column.name, DecimalType(max(before, 20), 0))
    ladder = _ladder()
    fits = (each for each in ladder[ladder.index(type(kind)) :] if largest < 1 << (8 * (1 << ladder.index(each)) - 1))
    return StructField(column.name, next(fits)())


def _ladder() -> tuple[type[DataType], ...]:
    from pyspark.sql.types import ByteType, IntegerType, LongType, ShortType

    return (ByteType, ShortType, IntegerType, LongType)
