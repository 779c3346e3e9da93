"""Measure three destinations. By hand, each table needs a read of the file and an append. Wherry reads the file once,
decides once, and writes three times."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks import peers
from tests.benchmarks.carried import carried, define
from tests.benchmarks.case import Bar, Case, Taken, Way, in_turns, session
from tests.benchmarks.landing import SCHEMA, land

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = ("a", "b", "c")
BY_HAND, WHERRY = "three reads and appends", "Wherry"


def small(place: Path, turns: int) -> Taken:
    """Measure batches of 1,000 rows."""
    return _measured(place, turns, batches=20, rows=1_000)


def large(place: Path, turns: int) -> Taken:
    """Measure batches of 1,000,000 rows. A run has one batch, and the whole run is timed."""
    return _measured(place, turns, batches=1, rows=1_000_000)


def _measured(place: Path, turns: int, *, batches: int, rows: int) -> Taken:
    spark = session()
    ways: dict[str, Way] = {
        BY_HAND: lambda where, turn: _by_hand(spark, where, _landed(where, turn, batches, rows)),
        WHERRY: lambda where, turn: _by_wherry(where, len(_landed(where, turn, batches, rows))),
    }
    return in_turns(ways, place, turns)


def _landed(place: Path, turn: int, batches: int, rows: int) -> list[Path]:
    if "warm" in place.parts:
        batches, rows = 5, 1_000
    return land(place / "landing", batches, rows, first=turn * batches)


def _by_hand(spark: SparkSession, place: Path, files: list[Path]) -> Iterator[float]:
    for table in TABLES:
        peers.make(spark, place / table)
    for file in files:
        began = time.perf_counter()
        for table in TABLES:
            list(peers.plain(spark, place / table, [file]))
        yield time.perf_counter() - began


def _by_wherry(place: Path, files: int) -> Iterator[float]:
    tables = ", ".join(f"delta: {{path: tables/{table}}}" for table in TABLES)
    definition = define(
        place,
        f'origin: {{files: {{path: "landing/*.json", format: json, schema: "{SCHEMA}"}}}}\n'
        f"destinations: [{tables}]\nrun: {{batch: {{files: 1}}}}\n",
    )
    yield from carried(definition, files)


CASES = (
    Case(
        name="fan_out",
        says="1,000 JSON rows a batch into three Delta tables",
        measure=small,
        turns=4,
        bars=(Bar(to=BY_HAND, most=0.4),),
    ),
    Case(
        name="fan_out_large",
        says="1,000,000 JSON rows in a batch into three Delta tables, the whole run",
        measure=large,
        turns=5,
        bars=(Bar(to=BY_HAND, most=1.0),),
    ),
)
