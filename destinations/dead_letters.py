"""Nacked rows as the DLQ keeps them, and how they are read again."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from destinations.arrow_rows import python_rows
from destinations.delta import Delta
from destinations.delta_table import Table
from destinations.destination import Destination, DestinationError, Identity, Misfit
from origins.batch import JSON, Batch
from origins.names import text
from origins.secret import cut, list_mask_steps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SCHEMA = (
    "id string, pipeline string, origin string, lane string, number bigint, plan string, run string, stage string, "
    "destination string, delivered_to array<string>, code string, message string, row string, row_schema string, "
    "original string, original_schema string, part string, position bigint, nacked_at timestamp, definition string, "
    "replays string"
)
"""The columns of a DLQ; the README says what each holds."""

_SHOWN = "id, lane, number, run, stage, destination, delivered_to, code, message, `row`, original, nacked_at, replays"
_NEWEST = "nacked_at DESC, lane DESC, number DESC, position DESC"


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
    refused: DataFrame,
    batch: Batch,
    *,
    original: bool,
    secrets: Mapping[str, str] | None = None,
    replayed: Sequence[str] = (),
) -> DataFrame:
    """The rows of a DLQ for the refused rows of a batch: `nack`, `part`, and `position`, the place in the batch.

    Without `original` the row as it was read is left out. No message says a secret: a condition that has one stands
    there with what `secrets` has for it. `replayed` are the ids of the entries that the batch carries again, by their
    places in it.
    """
    from pyspark.sql import functions as F

    message = F.col("nack")["message"]
    for pattern, put in list_mask_steps(secrets or {}):
        message = F.regexp_replace(message, pattern, put)
    nack, nothing = F.col("nack"), F.lit(None).cast("string")
    columns = {
        "id": F.concat(F.lit(f"{batch.plan}/"), F.col("position").cast("string")),
        **{name: F.lit(value) for name, value in of_batch(batch).items()},
        "number": F.lit(batch.number).cast("bigint"),
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
        "replays": F.try_element_at(F.split(F.lit(" ".join(replayed)), " "), F.col("position").cast("int"))
        if replayed
        else nothing,
    }
    return refused.select(*[columns[each.name].alias(each.name) for each in schema()])


def lacking(spark: SparkSession, dlq: Delta, rows: DataFrame, batch: Batch) -> DataFrame:
    """Those of a batch's rows that the DLQ does not have yet."""
    there = spark.sql(f"SELECT id FROM {dlq.sql_name} WHERE plan = {text(batch.plan)}")
    return rows.join(there, "id", "left_anti").select(*rows.columns)


def of_batch(batch: Batch) -> Mapping[str, JSON]:
    """What is the same in all rows of a DLQ that were refused in one batch."""
    return {
        "pipeline": batch.pipeline,
        "origin": batch.origin,
        "lane": batch.lane,
        "number": batch.number,
        "plan": batch.plan,
        "run": batch.run,
        "definition": batch.definition,
    }


def read_dead_letters(
    dlq: Destination,
    spark: Callable[[], SparkSession],
    *,
    limit: int | None = None,
    replayed: Collection[str] = (),
    discarded: Collection[str] = (),
) -> list[dict[str, JSON]]:
    """The last `limit` nacked rows (default: all), the newest last, as values that `json.dumps` takes; `replayed` and
    `discarded` are the ids of those of which that is to be said.

    A table on this machine is read without Spark; `spark` is called only where there is no other way. Raises
    `DestinationError` for a DLQ that cannot be read again.
    """
    limited = "" if limit is None else f" LIMIT {limit}"
    columns = _SHOWN.replace("replays", "NULL AS replays") if _is_older(dlq) else _SHOWN
    rows = asked(dlq, spark, f"SELECT {columns} FROM {{table}} ORDER BY {_NEWEST}{limited}")
    shown = [_shown(row) for row in reversed(rows)]
    return [{**row, "replayed": row["id"] in replayed, "discarded": row["id"] in discarded} for row in shown]


def asked(
    dlq: Destination, spark: Callable[[], SparkSession], query: str, *, in_sparks_words: bool = False
) -> list[dict[str, JSON]]:
    """The rows of a query over `{table}`, which is the DLQ; none before it is made. Without Spark where it lies on this
    machine, unless the query is in Spark's own SQL. Raises `DestinationError` for a DLQ that cannot be read again."""
    if not isinstance(dlq, Delta):
        raise DestinationError(
            f"Nacked rows are not kept in a table, but in {dlq.place}.",
            hint="Only a DLQ of the kind delta can be read again.",
        )
    rows = None if in_sparks_words else _on_this_machine(dlq, query)
    return _through_spark(spark(), dlq, query) if rows is None else rows


def count_dead_letters(dlq: Destination, spark: Callable[[], SparkSession]) -> int | None:
    """How many rows the DLQ holds; None for one that cannot be read again."""
    if not isinstance(dlq, Delta):
        return None
    rows = asked(dlq, spark, "SELECT count(*) AS n FROM {table}")
    return int(rows[0]["n"]) if rows else 0


def opened(dlq: Destination, spark: SparkSession) -> Identity:
    """What the DLQ in a state is; one that an earlier version made gets the columns that it lacks."""
    try:
        return dlq.open(spark, schema())
    except Misfit:
        table = Table.find(spark, dlq.sql_name, dlq.folder) if isinstance(dlq, Delta) else None
        there = {name.lower() for name in table.declared(spark).schema.names} if table else set()
        missing = [column for column in SCHEMA.split(", ") if column.split(" ")[0] not in there]
        if table is None or not missing:
            raise
        with table.held():
            spark.sql(f"ALTER TABLE {table.name} ADD COLUMNS ({', '.join(missing)})")
        return dlq.open(spark, schema())


def _is_older(dlq: Destination) -> bool:
    """Whether this is a table on this machine of before replays were known."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    if not isinstance(dlq, Delta) or dlq.folder is None or not dlq.folder.exists():
        return False
    try:
        return "replays" not in {field.name for field in DeltaTable(str(dlq.folder)).schema().fields}
    except DeltaError:
        return False


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
    except Exception as error:  # deltalake's own word for a file that is gone or broken has no type of its own
        said = str(error).splitlines()[0]
        raise DestinationError(
            f"The dead letter queue at {dlq.folder} cannot be read: {cut(said, 300)}",
            hint="Put the file back from a backup; `wherry audit FILE` says whose rows it holds. Nothing was changed.",
        ) from error
    return python_rows(pyarrow.RecordBatchReader.from_stream(told).read_all())


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
        "nacked_at": said(row["nacked_at"]),
    }


def said(moment: datetime) -> str:
    """A moment as facts have it: in UTC, to the millisecond."""
    return moment.astimezone(timezone.utc).isoformat(timespec="milliseconds")
