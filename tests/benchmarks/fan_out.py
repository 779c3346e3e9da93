"""Measure three destinations. By hand, each table needs a read of the file and an append. Wherry reads the file once,
decides once, and writes three times."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks import peers
from tests.benchmarks.carried import carry_batches, define
from tests.benchmarks.case import Bar, Case, Taken, Way, measure_in_turns, open_session
from tests.benchmarks.landing import SCHEMA, land

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = ("a", "b", "c")
BY_HAND, WHERRY = "three reads and appends", "Wherry"


def measure_small(place: Path, turns: int) -> Taken:
    """Measure batches of 1,000 rows."""
    return _measure_both(place, turns, batches=20, rows=1_000)


def measure_large(place: Path, turns: int) -> Taken:
    """Measure batches of 1,000,000 rows. A run has one batch, and the whole run is timed."""
    return _measure_both(place, turns, batches=1, rows=1_000_000)


def _measure_both(place: Path, turns: int, *, batches: int, rows: int) -> Taken:
    spark = open_session()
    ways: dict[str, Way] = {
        BY_HAND: lambda where, turn: _write_by_hand(spark, where, _land_files(where, turn, batches, rows)),
        WHERRY: lambda where, turn: _carry_by_wherry(where, len(_land_files(where, turn, batches, rows))),
    }
    return measure_in_turns(ways, place, turns)


def _land_files(place: Path, turn: int, batches: int, rows: int) -> list[Path]:
    if "warm" in place.parts:
        batches, rows = 5, 1_000
    return land(place / "landing", batches, rows, first=turn * batches)


def _write_by_hand(spark: SparkSession, place: Path, files: list[Path]) -> Iterator[float]:
    for table in TABLES:
        peers.make_table(spark, place / table)
    for file in files:
        began = time.perf_counter()
        for table in TABLES:
            list(peers.append_plainly(spark, place / table, [file]))
        yield time.perf_counter() - began


def _carry_by_wherry(place: Path, files: int) -> Iterator[float]:
    tables = ", ".join(f"delta: {{path: tables/{table}}}" for table in TABLES)
    definition = define(
        place,
        f'origin: {{files: {{path: "landing/*.json", format: json, schema: "{SCHEMA}"}}}}\n'
        f"destinations: [{tables}]\nrun: {{batch: {{files: 1}}}}\n",
    )
    yield from carry_batches(definition, files)


CASES = (
    Case(
        name="fan_out",
        says="1,000 JSON rows a batch into three Delta tables",
        measure=measure_small,
        turns=4,
        bars=(Bar(to=BY_HAND, most=0.4),),
    ),
    Case(
        name="fan_out_large",
        says="1,000,000 JSON rows in a batch into three Delta tables, the whole run",
        measure=measure_large,
        turns=5,
        bars=(Bar(to=BY_HAND, most=1.0),),
    ),
)
