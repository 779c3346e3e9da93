"""Measure what it costs to read a table by its name only, beside the way that reads the table's log.

The table is open, so both ways are possible. It has 20,000,000 rows, and each batch has 1,000 new ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from origins import delta_table
from runners.pipeline import Pipeline
from tests.benchmarks.carried import carry_batches, define
from tests.benchmarks.case import Bar, Case, Taken, Way, measure_in_turns, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

THERE, FILES, ROWS, A_TURN = 20_000_000, 20, 1_000, 3
COLUMNS = "id", "concat('a', id, '@x.com') AS email", "cast(id % 1000 AS decimal(10,2)) AS amount"
BY_LOG, BY_NAME = "by the log", "by the name only"
KINDS = {
    BY_LOG: "",
    BY_NAME: "",
    f"{BY_NAME}, row tracking": "delta.enableRowTracking",
    f"{BY_NAME}, change data feed": "delta.enableChangeDataFeed",
}
"""The ways, and the property of the table that each needs."""


def measure_by_name(place: Path, turns: int) -> Taken:
    """Measure runs with nothing new, and runs with one batch, in each way."""
    spark = open_session({"spark.sql.warehouse.dir": str(place / "warehouse")})
    ways: dict[str, Way] = {}
    for number, (way, option) in enumerate(KINDS.items()):
        table, by_name = f"orders_{number}", way != BY_LOG
        definition = _begin(spark, place / table, table, option, by_name=by_name)
        ways[f"nothing new, {way}"] = _make_looks(definition, by_name=by_name)
        ways[f"a batch, {way}"] = _make_batches(spark, table, definition, by_name=by_name)
    return measure_in_turns(ways, place, turns)


def _begin(spark: SparkSession, folder: Path, table: str, option: str, *, by_name: bool) -> Path:
    """Make the table, and a pipeline that has seen its rows. Return the definition."""
    options = {option: "true"} if option else {}
    writer = spark.range(0, THERE, 1, FILES).selectExpr(*COLUMNS).write.format("delta").options(**options)
    writer.saveAsTable(table)
    folder.mkdir()
    definition = define(
        folder,
        f"origin: {{delta: {{table: default.{table}, starting_version: latest}}}}\n"
        "destinations: [delta: {path: copy}]\n",
    )
    with _reach(by_name=by_name):
        Pipeline.load(definition).run()
    return definition


def _reach(*, by_name: bool) -> AbstractContextManager[object]:
    """In this block, read the table by its name only, or by its log."""
    return patch.object(delta_table, "is_only_named", lambda *_: by_name)


def _make_looks(definition: Path, *, by_name: bool) -> Way:
    def look(*_: object) -> Iterator[float]:
        for _each in range(A_TURN):
            began = time.perf_counter()
            with _reach(by_name=by_name):
                Pipeline.load(definition).run()
            yield time.perf_counter() - began

    return look


def _make_batches(spark: SparkSession, table: str, definition: Path, *, by_name: bool) -> Way:
    def carry(*_: object) -> Iterator[float]:
        for _each in range(A_TURN):
            spark.range(0, ROWS, 1, 1).selectExpr(*COLUMNS).write.format("delta").mode("append").saveAsTable(table)
            with _reach(by_name=by_name):
                yield from carry_batches(definition, 1)

    return carry


CASES = (
    Case(
        name="by_name",
        says="1,000 rows that were added to an open table of 20,000,000, and runs with nothing new",
        measure=measure_by_name,
        turns=3,
        bars=(Bar(of=f"a batch, {BY_LOG}", to=f"a batch, {BY_NAME}", most=0.5),),
    ),
)
