"""Whether what is protected is there at all: a name that no row has protects nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from runners.definitions.problems import nearest
from runners.errors import Refusal
from runners.line import Line, Step, passing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

    from stages.rows import Straight


def check_protected(
    protect: Sequence[str], spark: SparkSession, lines: Mapping[str, Line], schemas: Mapping[str, str]
) -> None:
    """Raises `Refusal` for a protected column that no origin gives and no stage makes. Reads nothing."""
    known: dict[str, str] = {}
    for origin, schema in schemas.items() if protect else ():
        known.update({name.lower(): name for name in _names(spark, lines[origin], schema)})
    for column in protect:
        if column.lower() not in known:
            near = nearest(column, known.values())
            raise Refusal(
                f"protect: no row has a column '{column}', neither as read nor behind a stage; {near}",
                hint="It would protect nothing: correct the name, or take it out.",
            )


def _names(spark: SparkSession, line: Line, schema: str) -> list[str]:
    """The columns and their fields as they are read, and behind each stage."""
    from pyspark.sql.types import StructType

    from runners.opening import SAMPLE
    from stages.rows import Straight

    arriving = StructType.fromJson(json.loads(schema))
    empty = spark.createDataFrame([], arriving)
    rows = Straight.begin(empty, tuple(arriving.names), SAMPLE, lambda frame, _: frame)
    names = [*_inside(rows.schema)]

    def behind(rows: Straight, steps: Sequence[Step]) -> Straight:
        for step in steps:
            rows = passing(rows, [step], {}, checked=True)
            names.extend(_inside(rows.schema))
        return rows

    common = behind(rows, line.common)
    for steps in line.branches.values():
        behind(common, steps)
    return names


def _inside(kind: DataType, above: str = "") -> Iterator[str]:
    """The names of all that stands in a value of this type, as `buyer.email`."""
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(kind, ArrayType):
        yield from _inside(kind.elementType, above)
    elif isinstance(kind, StructType):
        for field in kind.fields:
            yield above + field.name
            yield from _inside(field.dataType, f"{above}{field.name}.")
