"""Rows of the DLQ in their original form, for a batch that processes them again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from destinations.dead_letters import narrow_to_ids, query_dlq
from destinations.delta.delta import Delta
from origins.batch import Batch
from origins.batch_rows import FrameRows
from origins.lazy import DataFrame, F, SparkSession, T
from origins.nack import REFUSED, convert_value, describe_misfit, make_refusal, restore
from origins.names import HIDDEN
from origins.origin import PLACE, Backlog, Origin, Progress
from stages.bisection import FAILS

_FEW = 10
"""At most this many rows are read in this process."""
_ROW, _ID, _READ, _CORRECTED = (f"{HIDDEN}{name}" for name in ("row", "id", "read", "corrected"))


@dataclass(frozen=True, kw_only=True)
class DeadLetterRows(Origin):
    """The rows of a DLQ that a batch names in its span, with today's columns of their origin.

    A new column is NULL. A removed column is left out. Wherry converts the values of a column that has another type
    now, and refuses a row with a value that cannot be converted.
    """

    dlq: Delta
    corrected: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Corrected rows by the ids of their entries. They are read in place of the rows in the DLQ."""

    def survey(self, spark: SparkSession, progress: Progress) -> Backlog:
        raise NotImplementedError("a replay chooses the rows of a DLQ")

    def columns(self, spark: SparkSession, backlog: Backlog) -> str | None:
        raise NotImplementedError("its rows have the columns of the origin that read them")

    def fetch(self, spark: SparkSession, batches: Sequence[Batch], *, places: bool = False) -> FrameRows:
        (batch,) = batches
        ids = batch.span.parts
        asked = [(number, id_, self.corrected.get(str(id_))) for number, id_ in enumerate(ids)]
        wanted = spark.createDataFrame(asked, f"{_ROW} bigint, {_ID} string, {_CORRECTED} string")
        kept, schema = self._find_rows(spark, [str(each) for each in ids])
        now = T.StructType.fromJson(json.loads(batch.schema))
        before = T.StructType.fromJson(json.loads(schema)) if schema else now
        lost = F.raise_error(F.concat(F.lit(f"{FAILS}the DLQ no longer has this row: "), F.col(_ID)))
        original = F.coalesce(F.col("original"), lost.cast("string"))
        original = F.coalesce(F.col(_CORRECTED), original) if self.corrected else original
        frame = wanted.join(kept, _ID, "left")
        frame = frame.select(_ROW, original.alias("original"))
        frame = frame.select("*", F.expr(restore("original", before)).alias(_READ))
        read = F.col(_READ)
        problems = [why for field in now if (why := describe_misfit(field, before, read)) is not None]
        columns = [convert_value(field, before, read).alias(field.name) for field in now]
        if problems:
            columns.append(make_refusal(F.concat_ws("; ", *problems), F.col("original")).alias(REFUSED))
        if places:
            block = F.lit(0).cast("bigint").alias("block")
            columns.append(F.struct(F.lit("").alias("part"), block, F.col(_ROW).alias("row")).alias(PLACE))
        return FrameRows(frame.select(*columns))

    def _find_rows(self, spark: SparkSession, ids: Sequence[str]) -> tuple[DataFrame, str]:
        """Return the rows with these ids, perhaps among others, and the schema with which they were read.

        The schema is empty if the rows are gone. Few rows are read without Spark, because a new Spark needs seconds to
        open the table.
        """
        columns = f"id AS {_ID}, original"
        if len(ids) <= _FEW:
            query = f"SELECT {columns}, original_schema FROM {{table}} WHERE {narrow_to_ids(ids)}"
            rows = query_dlq(self.dlq, lambda: spark, query)
            texts = [(row[_ID], row["original"]) for row in rows]
            return spark.createDataFrame(texts, f"{_ID} string, original string"), _find_schema(rows)
        first = f"SELECT original_schema FROM {{table}} WHERE {narrow_to_ids(ids[:1])}"
        kept = spark.sql(f"SELECT {columns} FROM {self.dlq.sql_name} WHERE {narrow_to_ids(ids)}")
        return kept, _find_schema(query_dlq(self.dlq, lambda: spark, first))

    def parts(self, batch: Batch) -> Sequence[str]:
        return ("",)


def _find_schema(rows: Sequence[Mapping[str, Any]]) -> str:
    return str(rows[0]["original_schema"]) if rows else ""
