"""The refused rows that the DLQ stores, the filtered rows that are stored, and the functions that read them again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import islice
from typing import Any

from destinations.capabilities import find_read_back
from destinations.delta.delta import Delta, OpenDelta
from destinations.delta.table import TargetTable
from destinations.destination import Destination, DestinationError, Identity, Misfit, OpenDestination
from destinations.labels import Label
from origins.batch import Batch, Json
from origins.batch_rows import BatchRows, compute_once, to_python_rows
from origins.lazy import DataFrame, F, SparkSession, T, delta_errors, deltalake, pa
from origins.nack import DLQ_COLUMNS, parse_columns
from origins.names import quote_text
from origins.object_store import open_delta_table
from origins.secret import cut_text, list_mask_steps, make_mask
from origins.spark_versions import make_arrow_schema
from origins.store_access import StoreError

FILTERED_SCHEMA = (
    "pipeline string, origin string, lane string, number bigint, plan string, run string, stage string, "
    "destination string, code string, message string, row string, row_schema string, original string, "
    "original_schema string, part string, filtered_at timestamp, definition string"
)
"""The columns of the table with filtered rows. They have the same meaning as in a DLQ."""

_SHOWN = (
    "id, lane, number, run, stage, destination, delivered_to, code, message, `row`, original, part, nacked_at, replays"
)
MOST_LISTED = 1_000
"""The highest number of ids in a query. With more ids, Wherry reads all rows of their plans and selects from them."""
_STREAMED = 64
"""How many batches of deltalake are in memory at once. Each has some thousand rows."""
NEWEST = "nacked_at DESC, lane DESC, number DESC, position DESC"


def make_dlq_schema() -> T.StructType:
    return parse_columns(DLQ_COLUMNS)


def make_filtered_schema() -> T.StructType:
    return parse_columns(FILTERED_SCHEMA)


@dataclass(frozen=True, kw_only=True)
class DeadLetters(BatchRows):
    """The rows of a DLQ for the refused rows of a batch.

    With the columns of `make_filtered_schema`, the stored rows for the filtered rows of a batch.
    """

    refused: BatchRows
    """The refused rows with the columns `nack` and `part`. In a DLQ, `position` has the row's place in the batch."""
    batch: Batch
    original: bool
    """Whether the DLQ keeps the row as it was read."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """What no message may show. Each text is replaced with the text that this mapping has for it."""
    source: str = ""
    """Where all rows came from, in the place of the part of each."""
    replayed: Sequence[str] = ()
    """The ids of the entries that this batch replays, by their places in the batch."""
    columns: T.StructType = field(default_factory=make_dlq_schema)
    """The columns to keep of each row."""

    def frame(self) -> DataFrame:
        refused = self.refused.frame()  # read first, because a column needs a Spark session
        message = F.col("nack")["message"]
        for pattern, put in list_mask_steps(self.secrets):
            message = F.regexp_replace(message, pattern, put)
        nack, nothing = F.col("nack"), F.lit(None).cast("string")
        columns = {
            "id": F.concat(F.lit(f"{self.batch.plan}/"), F.col("position").cast("string")),
            **{name: F.lit(value) for name, value in _describe_batch(self.batch).items()},
            "number": F.lit(self.batch.number).cast("bigint"),
            "stage": nack["stage"],
            "destination": nack["destination"],
            "delivered_to": F.array().cast("array<string>"),
            "code": nack["code"],
            "message": message,
            "row": nack["row"],
            "row_schema": nack["row_schema"],
            "original": nack["original"] if self.original else nothing,
            "original_schema": nack["original_schema"] if self.original else nothing,
            "part": F.lit(self.source) if self.source else F.col("part"),
            "position": F.col("position").cast("bigint"),
            "nacked_at": F.current_timestamp(),
            "filtered_at": F.current_timestamp(),
            "replays": F.try_element_at(F.split(F.lit(" ".join(self.replayed)), " "), F.col("position").cast("int"))
            if self.replayed
            else nothing,
        }
        return refused.select(*[columns[name].alias(name) for name in self.columns.names])

    @compute_once
    def table(self) -> pa.Table | None:
        refused = self.refused.table()
        if refused is None:
            return None
        now = datetime.now(timezone.utc)
        same = {**_describe_batch(self.batch), "delivered_to": [], "nacked_at": now, "filtered_at": now}
        mask, replayed = make_mask(self.secrets), self.replayed
        rows = [
            {
                **row["nack"],
                **({} if self.original else {"original": None, "original_schema": None}),
                **same,
                "id": f"{self.batch.plan}/{position}",
                "message": None if row["nack"]["message"] is None else mask(row["nack"]["message"]),
                "part": self.source or row["part"],
                "position": position,
                "replays": replayed[position - 1] if 1 <= position <= len(replayed) else None,
            }
            for row in refused.to_pylist()
            for position in [row.get("position", 0)]
        ]
        return pa.Table.from_pylist(rows, make_arrow_schema(self.columns))

    def count(self) -> int | None:
        return self.refused.count()


def select_lacking(spark: SparkSession, dlq: Delta, rows: DataFrame, batch: Batch) -> DataFrame:
    """Return the rows of a batch that the DLQ does not have yet."""
    there = spark.sql(f"SELECT id FROM {dlq.sql_name} WHERE plan = {quote_text(batch.plan)}")
    return rows.join(there, "id", "left_anti").select(*rows.columns)


def _describe_batch(batch: Batch) -> Mapping[str, Json]:
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
    ids: Collection[str] | None = None,
    replayed: Collection[str] = (),
    discarded: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Return the last `limit` refused rows (default: all), with the newest row last.

    `json.dumps` takes all values. `replayed` and `discarded` are ids. Each row gets a field that says whether its id is
    among them. With `ids`, it returns only rows with one of these ids.

    A table in a folder or an object store is read without Spark; `spark` is called only if there is no other way.
    Raises `DestinationError` if the DLQ cannot be read.
    """
    limited = "" if limit is None else f" LIMIT {limit}"
    columns = _SHOWN.replace("replays", "NULL AS replays") if lacks_replays(dlq) else _SHOWN
    named = "" if ids is None else f" WHERE {narrow_to_ids(ids)}"
    query = f"SELECT {columns} FROM {{table}}{named} ORDER BY {NEWEST}{limited}"
    rows = [
        row
        for table in stream_dlq(dlq, spark, query)
        for row in to_python_rows(table)
        if ids is None or row["id"] in ids
    ]
    shown = [_decode_row(row) for row in reversed(rows)]
    return [{**row, "replayed": row["id"] in replayed, "discarded": row["id"] in discarded} for row in shown]


def trace_replays(
    dlq: Destination, spark: Callable[[], SparkSession], rows: Sequence[Mapping[str, Any]]
) -> Mapping[str, Sequence[str]]:
    """Return the earlier entries of each row, by its id: the first entry first, then its replays.

    The DLQ names only entries that it still has, and the one before each of them.
    """
    known: dict[str, str] = {row["id"]: row["replays"] for row in rows if row["replays"]}
    wanted = {*known.values()} - known.keys()
    while wanted:
        query = f"SELECT id, replays FROM {{table}} WHERE replays IS NOT NULL AND {narrow_to_ids(wanted)}"
        found = query_dlq(dlq, spark, query)
        before = {row["id"]: row["replays"] for row in found if row["id"] in wanted}
        known |= before
        wanted = {*before.values()} - known.keys()
    return {row["id"]: _list_earlier(known, row["id"]) for row in rows}


def _list_earlier(known: Mapping[str, str], id_: str) -> Sequence[str]:
    found: list[str] = []
    while (before := known.get(id_)) and before not in found:
        found.insert(0, before)
        id_ = before
    return found


def narrow_to_ids(ids: Collection[str]) -> str:
    """Return SQL that is true for the rows with these ids, and for others if there are more than `MOST_LISTED` ids.

    It also names their plans, because a file has rows of few plans. No row has an id with a quote or a backslash, which
    Spark and deltalake write differently.
    """
    possible = sorted(each for each in ids if _is_possible(each)) or [""]
    plans = _match_plans(possible)
    return plans if len(ids) > MOST_LISTED else f"{plans} AND id IN ({', '.join(map(quote_text, possible))})"


def _match_plans(ids: Iterable[str]) -> str:
    """Return SQL that is true for all rows of the batches that have rows with these ids."""
    plans = sorted({each.rpartition("/")[0] for each in ids if _is_possible(each)})
    return "true" if not plans or "" in plans else f"plan IN ({', '.join(map(quote_text, plans))})"


def _is_possible(id_: str) -> bool:
    return not {"'", "\\"}.intersection(id_)


def query_dlq(dlq: Destination, spark: Callable[[], SparkSession], query: str) -> list[dict[str, Any]]:
    """Return the rows of a query over `{table}`, which stands for the DLQ; none if the DLQ does not exist yet.

    A DLQ in a folder or an object store is read without Spark. Raises `DestinationError` if the DLQ cannot be read.
    """
    return [row for each in stream_dlq(dlq, spark, query) for row in to_python_rows(each)]


def stream_dlq(
    dlq: Destination, spark: Callable[[], SparkSession], query: str, *, in_sparks_words: bool = False
) -> Iterator[pa.Table]:
    """Return the rows of such a query as tables, none of them empty. A query in Spark's SQL is read through Spark.

    Without Spark, one table at a time is in memory.
    """
    if not isinstance(dlq, Delta):
        raise DestinationError(
            f"The DLQ keeps refused rows in {dlq.place}.", hint="Only a DLQ of the kind `delta` can be read again."
        )
    tables = None if in_sparks_words else _stream_local(dlq, query)
    yield from _query_through_spark(spark(), dlq, query) if tables is None else tables


def stream_fallback(
    fallback: Destination, spark: Callable[[], SparkSession], labels: Sequence[Label], columns: Sequence[str] = ()
) -> Iterator[pa.Table]:
    """Read the refused rows of these batches from the fallback, with these columns or all.

    There may be rows of other batches, and a row twice. Raises `DestinationError` if the fallback cannot be read.
    """
    columns = columns or make_dlq_schema().names
    read_back = find_read_back(fallback)
    assert read_back is not None, "a DLQ has no other fallback"
    if isinstance(fallback, Delta):  # usually read without Spark
        plans = _match_plans(f"{label.batch.plan}/" for label in labels)
        selected = ", ".join(f"`{name}`" for name in columns)
        yield from stream_dlq(fallback, spark, f"SELECT {selected} FROM {{table}} WHERE {plans}")
    else:
        yield read_back(spark(), labels, make_dlq_schema()).select(*columns).toArrow()


def match_id(plan: str) -> str:
    """Return a pattern for the ids of the rows that the batch with this plan refused, for Python and for Spark."""
    return rf"{re.escape(plan)}/(0|[1-9][0-9]*)"


def count_dead_letters(dlq: Destination, spark: Callable[[], SparkSession]) -> int | None:
    """Return the number of rows in the DLQ; None if it cannot be read."""
    if not isinstance(dlq, Delta):
        return None
    rows = query_dlq(dlq, spark, "SELECT count(*) AS n FROM {table}")
    return int(rows[0]["n"]) if rows else 0


def ensure_dlq(dlq: OpenDestination, spark: SparkSession) -> Identity:
    """Create or check the DLQ in a state. A DLQ of an earlier version gets its missing columns."""
    try:
        return dlq.ensure_place(spark, make_dlq_schema())
    except Misfit:
        table = dlq.find_table(spark) if isinstance(dlq, OpenDelta) else None
        there = {name.lower() for name in table.read_declared(spark).schema.names} if table else set()
        missing = [column for column in DLQ_COLUMNS.split(", ") if column.split(" ")[0] not in there]
        if table is None or not missing:
            raise
        with table.hold_commits():
            spark.sql(f"ALTER TABLE {table.name} ADD COLUMNS ({', '.join(missing)})")
        return dlq.ensure_place(spark, make_dlq_schema())


def lacks_replays(dlq: Destination) -> bool:
    """Whether this table is older than the column `replays`, as far as that is clear without Spark."""
    place = dlq.found_here if isinstance(dlq, Delta) else None
    if place is None:
        return False
    try:
        table = open_delta_table(place)
    except (delta_errors.DeltaError, StoreError):
        return False
    return table is not None and "replays" not in {field.name for field in table.schema().fields}


def _stream_local(dlq: Delta, query: str) -> Iterator[pa.Table] | None:
    """Return the rows of a table in a folder or a store: none if it is missing, None if only Spark can read it."""
    place = dlq.found_here
    if place is None:
        return None
    try:
        found = open_delta_table(place)
        if found is None:
            return iter(())
        stream = deltalake.QueryBuilder().register("dlq", found).execute(query.format(table="dlq"))
        batches = pa.RecordBatchReader.from_stream(stream)  # lets other threads run in the meantime
    except (delta_errors.DeltaError, StoreError):  # Spark may have access that this process does not have
        return None
    except Exception as error:
        raise _describe_broken(place, error) from error
    return _join_batches(place, batches)


def _join_batches(place: object, batches: pa.RecordBatchReader) -> Iterator[pa.Table]:
    filled = (batch for batch in batches if batch.num_rows)
    try:
        while waiting := [*islice(filled, _STREAMED)]:
            yield pa.Table.from_batches(waiting)
    except Exception as error:
        raise _describe_broken(place, error) from error


def _describe_broken(place: object, error: Exception) -> DestinationError:
    """Return the error for a DLQ that cannot be read. deltalake's error for a missing file has no type."""
    reason = str(error).splitlines()[0]
    return DestinationError(
        f"The DLQ at {place} cannot be read: {cut_text(reason, 300)}",
        hint="Put the file back from a backup; `wherry audit FILE` names its batches. Nothing was changed.",
    )


def _query_through_spark(spark: SparkSession, dlq: Delta, query: str) -> Iterator[pa.Table]:
    if TargetTable.find(spark, dlq.sql_name) is None:
        return
    found = spark.sql(query.format(table=dlq.sql_name)).toArrow()
    if found.num_rows:
        yield found


def _decode_row(row: Mapping[str, Any]) -> dict[str, Any]:
    original = row["original"]
    return {
        **row,
        "row": json.loads(row["row"]),
        "original": json.loads(original) if original is not None else None,
        "nacked_at": format_moment(row["nacked_at"]),
    }


def format_moment(moment: datetime) -> str:
    """Return the time in UTC, to the millisecond, as facts have it."""
    return moment.astimezone(timezone.utc).isoformat(timespec="milliseconds")
