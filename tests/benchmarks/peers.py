"""The peers with which Wherry is compared. Each loads files into a Delta table as its users would. Those that need
Spark use the same session."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks.landing import AMOUNT, SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Transform = Callable[["DataFrame"], "DataFrame"]
OURS = "tblproperties ('delta.checkpointInterval' = '100')"
"""The property of the tables that Wherry creates."""


def return_unchanged(rows: DataFrame) -> DataFrame:
    """Return the rows unchanged."""
    return rows


def apply_stages_by_hand(rows: DataFrame) -> DataFrame:
    """Do by hand what three stages do: a cast, a rule, and a filter that keeps 80 % of the rows."""
    cast = rows.selectExpr("id", "email", f"cast(amount as {AMOUNT}) as amount", "at")
    return cast.where("assert_true(amount >= 0) is null").where("id % 5 > 0")


def make_table(spark: SparkSession, table: Path, schema: str = SCHEMA, properties: str = OURS) -> None:
    """Create the table, unless it exists."""
    if not table.exists():
        spark.sql(f"create table delta.`{table}` ({schema}) using delta {properties}")


def append_plainly(
    spark: SparkSession, table: Path, files: list[Path], transform: Transform = return_unchanged
) -> Iterator[float]:
    """Read a file and append it. This is the least that Spark can do. Yield the seconds of each file."""
    for file in files:
        began = time.perf_counter()
        frame = transform(spark.read.schema(SCHEMA).json(str(file)))
        frame.write.format("delta").mode("append").save(str(table))
        yield time.perf_counter() - began


def stream_by_sink(spark: SparkSession, place: Path) -> Iterator[float]:
    """Write all waiting files with Structured Streaming into its Delta sink, one file a trigger. Yield the seconds of
    each trigger."""
    yield from stream_into_table(spark, place, _read(spark, place))


def stream_into_table(spark: SparkSession, place: Path | str, rows: DataFrame) -> Iterator[float]:
    """Write all waiting rows of a stream into a table of this folder. Yield the seconds of each trigger."""
    stream = _write(spark, rows).format("delta").option("checkpointLocation", f"{place}/checkpoint")
    yield from _list_triggers(stream.start(f"{place}/table"))


def stream_by_batches(spark: SparkSession, place: Path, write: Callable[[DataFrame, int], None]) -> Iterator[float]:
    """Write with Structured Streaming and `foreachBatch`, one file a trigger. Yield the seconds of each trigger."""
    stream = _write(spark, _read(spark, place)).foreachBatch(write)
    yield from _list_triggers(stream.option("checkpointLocation", str(place / "checkpoint")).start())


def append_once(rows: DataFrame, table: Path, number: int) -> None:
    """Append rows unless Delta has already recorded this number, as the documentation of Delta shows it."""
    writer = rows.write.format("delta").mode("append")
    writer.option("txnAppId", f"orders-{table.name}").option("txnVersion", number).save(str(table))


def load_with_dlt(place: Path, files: list[Path]) -> Iterator[float]:
    """Load files with dlt into its Delta destination, one file a load, without Spark. Yield the seconds of each
    load."""
    import dlt
    from dlt.sources.filesystem import filesystem, read_jsonl

    dlt.config["runtime.dlthub_telemetry"] = False
    pipeline = dlt.pipeline(
        "orders",
        pipelines_dir=str(place / "dlt"),
        destination=dlt.destinations.filesystem(str(place / "table")),
        dataset_name="shop",
    )
    for file in files:
        began = time.perf_counter()
        rows = filesystem(bucket_url=str(file.parent), file_glob=file.name) | read_jsonl()
        pipeline.run(rows.with_name("orders"), table_format="delta", write_disposition="append")
        yield time.perf_counter() - began


def _read(spark: SparkSession, place: Path) -> DataFrame:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(place / "landing"))


def _write(spark: SparkSession, rows: DataFrame) -> Any:
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "100000")
    return rows.writeStream.trigger(availableNow=True)


def _list_triggers(query: Any) -> Iterator[float]:
    query.awaitTermination()
    took = [each["durationMs"] for each in query.recentProgress if each["numInputRows"]]
    yield from (each["triggerExecution"] / 1_000 for each in took)
