"""Rows of the DLQ as they were read, for a batch that carries them again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from destinations.delta import Delta
from origins.batch import Batch
from origins.nack import REFUSED, shown
from origins.names import HIDDEN, text
from origins.origin import PLACE, Backlog, Origin, Progress
from origins.payload import restore
from stages.halving import FAILS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

_ROW, _ID, _READ = HIDDEN + "row", HIDDEN + "id", HIDDEN + "read"


@dataclass(frozen=True, kw_only=True)
class DeadLetterRows(Origin):
    """The rows of a DLQ that a batch names in its span, with the columns that their origin has today.

    A column that is new is NULL, one that is gone is left out, one of another type is converted; a row of which a value
    cannot be is refused.
    """

    dlq: Delta

    def survey(self, spark: SparkSession, progress: Progress) -> Backlog:
        raise NotImplementedError("what of a DLQ is carried again, somebody chooses")

    def columns(self, spark: SparkSession, backlog: Backlog) -> str | None:
        raise NotImplementedError("its rows have the columns of the origin that read them")

    def fetch(self, spark: SparkSession, batch: Batch, *, places: bool = False) -> DataFrame:
        from pyspark.sql import functions as F
        from pyspark.sql.types import StructType

        ids = batch.span.parts
        wanted = spark.createDataFrame(list(enumerate(ids)), f"{_ROW} bigint, {_ID} string")
        kept = spark.sql(f"SELECT id AS {_ID}, original, original_schema FROM {self.dlq.sql_name}")
        said = f"SELECT original_schema FROM {self.dlq.sql_name} WHERE id = {text(ids[0])}"
        before = StructType.fromJson(json.loads(spark.sql(said).collect()[0][0]))
        now = StructType.fromJson(json.loads(batch.schema))
        lost = F.raise_error(F.concat(F.lit(f"{FAILS}the dead letter queue has this row no more: "), F.col(_ID)))
        original = F.coalesce(F.col("original"), lost.cast("string"))
        frame = wanted.join(kept, _ID, "left")
        frame = frame.select(_ROW, original.alias("original"), restore(original, before).alias(_READ))
        values = {field.name: _as_today(field, before) for field in now}
        problems = [why for field in now if (why := _misfit(field, before)) is not None]
        columns = [value.alias(name) for name, value in values.items()]
        if problems:
            why = F.concat_ws("; ", *problems)
            said_of_it = F.struct(F.lit("PARSE").alias("code"), why.alias("message"), F.col("original").alias("raw"))
            columns.append(F.when(why != "", said_of_it).alias(REFUSED))
        if places:
            block = F.lit(0).cast("bigint").alias("block")
            columns.append(F.struct(F.lit("").alias("part"), block, F.col(_ROW).alias("row")).alias(PLACE))
        return frame.select(*columns)

    def parts(self, batch: Batch) -> Sequence[str]:
        return ("",)


def _found(name: str, before: StructType) -> StructField | None:
    return next((field for field in before if field.name.lower() == name.lower()), None)


def _as_today(field: StructField, before: StructType) -> Column:
    """A column of today, from the row as it was read."""
    from pyspark.sql import functions as F

    old = _found(field.name, before)
    if old is None:
        return F.lit(None).cast(field.dataType)
    value = F.col(_READ)[old.name]
    return value if old.dataType == field.dataType else value.try_cast(field.dataType)


def _misfit(field: StructField, before: StructType) -> Column | None:
    """What is said of a value that cannot be converted to the type of today; None for a column that needs none."""
    from pyspark.sql import functions as F

    old = _found(field.name, before)
    if old is None or old.dataType == field.dataType:
        return None
    value = F.col(_READ)[old.name]
    kind = field.dataType.simpleString()
    message = F.concat(
        F.lit(f"column {field.name}: "), shown(value), F.lit(f" is not {'an' if kind[0] in 'aeiou' else 'a'} {kind}")
    )
    return F.when(value.isNotNull() & value.try_cast(field.dataType).isNull(), message)
