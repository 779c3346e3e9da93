"""Compare three expectations of rows with Great Expectations' own validation, on 1,000,000 rows. Rows that fail go to
the DLQ. One pipeline has no other stage, and another has a stage before the expectations that changes a column.

Both sides begin with the same parquet file. Great Expectations validates a frame that is cached already, which favours
it. Wherry's figure is the batch of a run whose lane has had refused rows, with the expectations and without them.
"""

from __future__ import annotations

import functools
import json
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from origins.batch import JSON
from stages.expect import gx
from stages.expect.expectation import parse_expectation
from tests.benchmarks.carried import define, time_last_batch
from tests.benchmarks.case import Bar, Case, Taken, Way, measure_in_turns, open_session
from tests.benchmarks.landing import AMOUNT, SCHEMA, land_parquet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 1_000_000
RULES = {
    "expect_column_values_to_not_be_null": {"column": "email"},
    "expect_column_values_to_be_between": {"column": "id", "min_value": 1_000},
    "expect_column_values_to_match_regex": {"column": "email", "regex": "^A[0-9]+@x[.]com$"},
}
NONE, THREE, THEIRS, ADDED = "no expectation", "three expectations", "Great Expectations, SUMMARY", "what three add"
PLAIN, FILTER = "plain Spark", "plain Spark, the same three as a filter"
FILTER_ADDED = "what the filter adds to plain Spark"
HOLDS = "email is not null and id >= 1000 and email rlike '^A[0-9]+@x[.]com$'"
"""The three expectations as a condition. A write that drops the failing rows is the cheapest possible check."""


def measure_expectations(place: Path, turns: int, *, behind: Sequence[JSON] = ()) -> Taken:
    """Measure a batch of 1,000,000 rows, of which 1,000 fail. As in a longer run, two small batches with failing rows
    come first. The expectations come after the stages in `behind`."""
    spark = open_session()
    land_parquet(spark, place / "rows", 2_000, files=2)
    first = {*(place / "rows").glob("*.parquet")}
    land_parquet(spark, place / "rows", ROWS, files=1)
    for file in first:
        file.rename(file.with_name(f"a-{file.name}"))
    three = [*behind, {"expect": [{name: of} for name, of in RULES.items()]}]
    frame = spark.read.parquet(str(place / "rows")).where(f"id < {ROWS}")
    cached = frame.cache()
    cached.count()

    def read_by_hand() -> DataFrame:
        rows = spark.read.parquet(
            str(place / "rows" / "*.parquet")
        )  # name the files, so that Spark does not use the cache
        return rows.withColumn("amount", rows["amount"].cast(AMOUNT)) if behind else rows

    ways: dict[str, Way] = {
        NONE: lambda where, turn: _carry_rows(where, turn, place / "rows", behind),
        THREE: lambda where, turn: _carry_rows(where, turn, place / "rows", three),
        THEIRS: lambda where, turn: _validate_by_gx(spark, cached),
        PLAIN: lambda where, turn: _write_rows(read_by_hand(), where / str(turn)),
        FILTER: lambda where, turn: _write_rows(read_by_hand().where(HOLDS), where / str(turn)),
    }
    taken = measure_in_turns(ways, place, turns)
    return {**taken, ADDED: _subtract_times(taken, THREE, NONE), FILTER_ADDED: _subtract_times(taken, FILTER, PLAIN)}


def _subtract_times(taken: Taken, more: str, less: str) -> list[float]:
    return [dear - cheap for dear, cheap in zip(taken[more], taken[less], strict=True)]


def _write_rows(rows: DataFrame, place: Path) -> Iterator[float]:
    began = time.perf_counter()
    rows.write.format("delta").save(str(place))
    yield time.perf_counter() - began
    shutil.rmtree(place)


def _carry_rows(where: Path, turn: int, rows: Path, stages: Sequence[JSON]) -> Iterator[float]:
    own = where / str(turn)
    own.mkdir(parents=True)
    file = define(
        own,
        f'origin: {{files: {{path: "{rows}/*.parquet", format: parquet, schema: "{SCHEMA}"}}}}\n'
        f"stages: {json.dumps(list(stages))}\n"
        "destinations: [delta: {path: tables/orders}]\ndlq: {window: 0}\nrun: {batch: {files: 1}}\n",
    )
    yield time_last_batch(file, 3)
    shutil.rmtree(own)


def _validate_by_gx(spark: SparkSession, frame: DataFrame) -> Iterator[float]:
    began = time.perf_counter()
    made = [gx.make_expectation(parse_expectation(name, options)).configuration for name, options in RULES.items()]
    with gx.silence_logs():
        results = gx.make_validator(frame).graph_validate(
            configurations=made, runtime_configuration={"result_format": "SUMMARY", "catch_exceptions": False}
        )
    yield time.perf_counter() - began
    if sum(each.success for each in results) != 2:
        raise RuntimeError(f"expected one of three to fail, Great Expectations says {results}")


CASES = (
    Case(
        name="expectations",
        says="three expectations of rows, 1,000,000 rows, 1,000 of them into the DLQ",
        measure=measure_expectations,
        turns=5,
        bars=(Bar(of=ADDED, to=THEIRS, most=0.5),),
    ),
    Case(
        name="expectations_changed",
        says="the same behind a stage that casts a column",
        measure=functools.partial(measure_expectations, behind=[{"cast": {"amount": AMOUNT}}]),
        turns=5,
        bars=(Bar(of=ADDED, to=THEIRS, most=0.5),),
    ),
)
