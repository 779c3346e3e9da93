"""Nacked rows as the DLQ keeps them, and how they are read again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from destinations.delta import Delta
from destinations.delta_table import Table
from destinations.destination import Destination, DestinationError
from origins.batch import JSON, Batch

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SCHEMA = (
    "id string, pipeline string, origin string, lane string, number bigint, plan string, run string, stage string, "
    "destination string, delivered_to array<string>, code string, message string, row string, row_schema string, "
    "original string, original_schema string, part string, position bigint, nacked_at timestamp, definition string"
)
"""The columns of a DLQ; the README says what each holds."""

_SHOWN = """id, lane, number, run, stage, destination, delivered_to, code, message, `row`, original, nacked_at"""
_NEWEST = "nacked_at DESC, lane DESC, number DESC, position DESC"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def schema() -> StructType:
    """The columns of a DLQ, as Spark's type."""
    from pyspark.sql.types import ArrayType, DataType, LongType, StringType, StructField, StructType, TimestampType

    kinds: dict[str, DataType] = {
        "string": StringType(),
        "bigint": LongType(),
        "timestamp": TimestampType(),
        "array<string>": ArrayType(StringType()),
    }
    columns = [column.split(" ", 1) for column in SCHEMA.split(", ")]
    return StructType([StructField(name, kinds[kind]) for name, kind in columns])


def dead_letters(
    refused: DataFrame, batch: Batch, *, original: bool, secrets: Mapping[str, str] | None = None
) -> DataFrame:
    """The rows of a DLQ for the refused rows of a batch: `nack`, `part`, and `position`, the place in the batch.

    Without `original` the row as it was read is left out. No message says a secret: a condition that has one stands
    there with what `secrets` has for it.
    """
    from pyspark.sql import functions as F

    message = F.col("nack")["message"]
    for secret in sorted(secrets or {}, key=len, reverse=True):
        message = F.replace(message, F.lit(secret), F.lit((secrets or {})[secret]))
    nack, nothing = F.col("nack"), F.lit(None).cast("string")
    columns = {
        "id": F.concat(F.lit(f"{batch.plan}/"), F.col("position").cast("string")),
        "pipeline": F.lit(batch.pipeline),
        "origin": F.lit(batch.origin),
        "lane": F.lit(batch.lane),
        "number": F.lit(batch.number).cast("bigint"),
        "plan": F.lit(batch.plan),
        "run": F.lit(batch.run),
        "stage": nack["stage"],
        "destination": nack["destination"],
        "delivered_to": F.array().cast("array<string>"),
        "code": nack["code"],
        "message": message,
        "row": nack["row"],
        "row_schema": nack["row_schema"],
        "original": nack["original"] if original else nothing,
        "original_schema": nack["original_schema"] if original else nothing,
        "part": F.col("part"),
        "position": F.col("position").cast("bigint"),
        "nacked_at": F.current_timestamp(),
        "definition": F.lit(batch.definition),
    }
    return refused.select(*[column.alias(name) for name, column in columns.items()])


def read_dead_letters(
    dlq: Destination, spark: Callable[[], SparkSession], *, limit: int | None = None
) -> list[dict[str, JSON]]:
    """The last `limit` nacked rows (default: all), the newest last, as values that `json.dumps` takes.

    A table on this machine is read without Spark; `spark` is called only where there is no other way. Raises
    `DestinationError` for a DLQ that cannot be read again.
    """
    if not isinstance(dlq, Delta):
        raise DestinationError(
            f"Nacked rows are not kept in a table, but in {dlq.place}.",
            hint="Only a DLQ of the kind delta can be read again.",
        )
    query = f"SELECT {_SHOWN} FROM {{table}} ORDER BY {_NEWEST}" + ("" if limit is None else f" LIMIT {limit}")
    rows = _on_this_machine(dlq, query)
    if rows is None:
        rows = _through_spark(spark(), dlq, query)
    return [_shown(row) for row in reversed(rows)]


def count_dead_letters(dlq: Destination, spark: Callable[[], SparkSession]) -> int | None:
    """How many rows the DLQ holds; None for one that cannot be read again."""
    if not isinstance(dlq, Delta):
        return None
    query = "SELECT count(*) AS n FROM {table}"
    rows = _on_this_machine(dlq, query)
    if rows is None:
        rows = _through_spark(spark(), dlq, query)
    return int(rows[0]["n"]) if rows else 0


def _on_this_machine(dlq: Delta, query: str) -> list[dict[str, JSON]] | None:
    """The rows of a table in a folder; none when there is no such folder yet. None when Spark alone can tell."""
    import pyarrow
    from deltalake import DeltaTable, QueryBuilder
    from deltalake.exceptions import DeltaError

    if dlq.folder is None:
        return None
    if not dlq.folder.exists():
        return []
    try:
        table = QueryBuilder().register("dlq", DeltaTable(str(dlq.folder)))
        told = table.execute(query.format(table="dlq")).read_all()
    except DeltaError:
        return None
    return _values(pyarrow.RecordBatchReader.from_stream(told).read_all())


def _values(table: pyarrow.Table) -> list[dict[str, JSON]]:
    """The rows of a table. Times take a way of their own: pyarrow's would import pandas, which takes longer than all
    the rest (and so would `pyarrow.table`)."""
    import pyarrow

    times = [field.name for field in table.schema if pyarrow.types.is_timestamp(field.type)]
    for name in times:
        counted = table[name].cast(pyarrow.timestamp("us", "UTC")).cast(pyarrow.int64())
        table = table.set_column(table.schema.get_field_index(name), name, counted)
    rows: list[dict[str, JSON]] = table.to_pylist()
    return [{**row, **{name: _EPOCH + timedelta(microseconds=row[name]) for name in times}} for row in rows]


def _through_spark(spark: SparkSession, dlq: Delta, query: str) -> list[dict[str, JSON]]:
    if Table.find(spark, dlq.sql_name) is None:
        return []
    return [row.asDict() for row in spark.sql(query.format(table=dlq.sql_name)).collect()]


def _shown(row: Mapping[str, JSON]) -> dict[str, JSON]:
    original = row["original"]
    return {
        **row,
        "row": json.loads(row["row"]),
        "original": json.loads(original) if original is not None else None,
        "nacked_at": row["nacked_at"].astimezone(timezone.utc).isoformat(timespec="milliseconds"),
        "replayed": False,
    }
