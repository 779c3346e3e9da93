"""Whether rows fit a Delta table as a destination is to write them, told before one is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from destinations.delta_rules import Declared
from destinations.delta_schema import lacking, misfits, parts_lacking

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructField, StructType

    from destinations.delta import Delta

_ASKED = "WHERRY_ASKED"
"""What the error of a write says that got past the table's own checks."""


def unfit(spark: SparkSession, delta: Delta, rows: StructType, table: Declared) -> list[str]:
    """Why these rows cannot be written into the table, each with the way out."""
    problems = misfits(rows, table.schema, delta.sql_name)
    problems |= _counted(delta, rows, table)
    if delta.mode == "merge":
        problems |= _in_part(rows, table.schema)
    wanted = lacking(rows, table.schema)
    fitting = [field for field in rows if field.name not in problems]
    own = {field.name for field in table.schema}  # what lies inside a struct no table fills by itself
    if wanted and (not own.issuperset(wanted) or not _fills(spark, delta.sql_name, fitting)):
        problems |= {
            name: f"{name}: the table wants it in every row (NOT NULL); add it, with_columns: {{{name}: …}}"
            for name in wanted
        }
    return list(problems.values())


def unclear(spark: SparkSession, delta: Delta, rows: StructType) -> list[str]:
    """Why the destination's own conditions cannot be asked of such rows."""
    problems = []
    for option, condition in (("apply_as_deletes", delta.apply_as_deletes), ("where", delta.where)):
        if condition is not None:
            try:
                spark.createDataFrame([], rows).where(condition).isLocal()  # analyses, on Connect too
            except Exception as error:
                problems.append(f"{option}: {str(error).splitlines()[0]}")
    return problems


def _counted(delta: Delta, rows: StructType, table: Declared) -> dict[str, str]:
    """The columns that the table counts itself, where it takes no values for them."""
    problems = {}
    keys = {key.lower() for key in delta.keys}
    for name in [field.name for field in rows if field.name.lower() in table.identities]:
        if not table.identities[name.lower()]:
            problems[name] = f"{name}: the table counts it itself (GENERATED ALWAYS AS IDENTITY); drop: [{name}]"
        elif delta.mode == "merge" and name.lower() not in keys:
            problems[name] = (
                f"{name}: the table counts it (IDENTITY), and a merge cannot change it; except_column_list: [{name}]"
            )
    return problems


def _in_part(rows: StructType, table: StructType) -> dict[str, str]:
    """The structs of which rows bring a part: a merge can neither keep nor clear the rest."""
    there = {field.name.lower(): field.dataType for field in table}
    return {
        field.name: f"{field.name}: a merge needs the whole struct; the rows have no {', '.join(parts)} in it"
        for field in rows
        if field.name.lower() in there and (parts := parts_lacking(field.dataType, there[field.name.lower()]))
    }


def _fills(spark: SparkSession, table: str, fields: Sequence[StructField]) -> bool:
    """Whether the table itself gives the columns that these lack. It is asked by a write whose only row raises."""
    from pyspark.sql import functions as F

    row = [F.raise_error(F.lit(_ASKED)).cast(field.dataType).alias(field.name) for field in fields]
    try:
        spark.range(1).select(*row).writeTo(table).append()
    except Exception as error:
        if _ASKED not in str(error) and "NOT_NULL" not in str(error):
            raise
        return _ASKED in str(error)
    raise AssertionError("a row that raises was written")
