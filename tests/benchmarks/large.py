"""Measure large batches: parquet rows that pass a cast, a rule and a filter. None of the rows is bad."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from runners.model.events import BatchSettled
from runners.pipeline import Pipeline
from runners.spark.session import find_jvm_process
from tests.benchmarks import peers
from tests.benchmarks.carried import carry_batches, define, time_last_batch
from tests.benchmarks.case import Bar, Case, Taken, Way, measure_in_turns, open_session
from tests.benchmarks.landing import AMOUNT, SCHEMA, land_parquet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 4_000_000
BATCHES, IN_EACH = 20, 1_000_000
PLAIN, WHERRY = "plain Spark", "Wherry"
BATCH = "Wherry, the batch alone"
RARE = "id % 10000 > 0"
RUN, COMPARED = "a run", "`compare`"


def measure_bulk(place: Path, turns: int) -> Taken:
    """Measure 4,000,000 rows in one batch: a whole run of Wherry, and its batch alone."""
    spark = open_session()
    land_parquet(spark, place / "rows", ROWS)
    alone: list[float] = []

    def by_wherry(where: Path, turn: int) -> Iterator[float]:
        own = where / str(turn)
        file = define_orders(own, place / "rows", files=1_000)
        began = time.perf_counter()
        alone.append(time_last_batch(file, 1))
        yield time.perf_counter() - began
        shutil.rmtree(own)

    def by_hand(where: Path, turn: int) -> Iterator[float]:
        yield _write_by_hand(spark, where, sorted((place / "rows").glob("*.parquet")))
        shutil.rmtree(where / "table")

    taken = measure_in_turns({PLAIN: by_hand, WHERRY: by_wherry}, place, turns)
    return {**taken, BATCH: alone[-turns:]}


def measure_bulk_refused(place: Path, turns: int) -> Taken:
    """Measure 2,000,000 rows in one batch, of which a rule refuses 200, and the append of the others by hand."""
    spark = open_session()
    land_parquet(spark, place / "rows", ROWS // 2)
    files = sorted((place / "rows").glob("*.parquet"))

    def by_wherry(where: Path, turn: int) -> Iterator[float]:
        own = where / str(turn)
        own.mkdir(parents=True)
        file = define(
            own,
            f'origin: {{files: {{path: "{place}/rows/*.parquet", format: parquet, schema: "{SCHEMA}"}}}}\n'
            f'stages:\n  - require: {{rare: "{RARE}"}}\ndestinations: [delta: {{path: tables/orders}}]\n'
            "dlq: {window: 0}\nrun: {batch: {files: 1000}}\n",
        )
        yield time_last_batch(file, 1)
        shutil.rmtree(own)

    def by_hand(where: Path, turn: int) -> Iterator[float]:
        peers.make_table(spark, where / "table", SCHEMA)
        began = time.perf_counter()
        rows = spark.read.schema(SCHEMA).parquet(*map(str, files)).where(RARE)
        rows.write.format("delta").mode("append").save(str(where / "table"))
        yield time.perf_counter() - began
        shutil.rmtree(where / "table")

    return measure_in_turns({PLAIN: by_hand, BATCH: by_wherry}, place, turns)


def measure_long(place: Path, turns: int) -> Taken:
    """Measure 20,000,000 rows in 20 batches, and the memory of the driver after the second batch and after the last."""
    spark = open_session()
    for number in range(BATCHES):
        land_parquet(spark, place / "rows", IN_EACH, files=1, first=number * IN_EACH)
    held: dict[str, list[float]] = {"memory after a tenth": [], "memory at the end": []}

    def by_wherry(where: Path, turn: int) -> Iterator[float]:
        numbers = iter(range(1, BATCHES + 1))

        def weigh(event: BatchSettled) -> None:
            number = next(numbers)
            if number in (BATCHES // 10, BATCHES):
                held["memory after a tenth" if number < BATCHES else "memory at the end"].append(_measure_memory(spark))

        own, began = where / str(turn), time.perf_counter()
        list(carry_batches(define_orders(own, place / "rows", files=1), BATCHES, weigh if turn == turns else None))
        yield time.perf_counter() - began
        shutil.rmtree(own)

    def by_hand(where: Path, turn: int) -> Iterator[float]:
        files = sorted((place / "rows").glob("*.parquet"))
        yield sum(_write_by_hand(spark, where, [file]) for file in files)
        shutil.rmtree(where / "table")

    ways: dict[str, Way] = {PLAIN: by_hand, WHERRY: by_wherry}
    taken = measure_in_turns(ways, place, turns)
    list(by_wherry(place / "weighed", turns))
    return {**taken, **held}


def measure_comparison(place: Path, turns: int) -> Taken:
    """Measure a run of 1,000,000 rows, and a comparison of its definition with a definition that filters other rows."""
    spark = open_session()
    land_parquet(spark, place / "rows", IN_EACH)

    def by_run(where: Path, turn: int) -> Iterator[float]:
        own, began = where / str(turn), time.perf_counter()
        list(carry_batches(define_orders(own, place / "rows", files=1_000), 1))
        yield time.perf_counter() - began
        shutil.rmtree(own)

    def by_comparison(where: Path, turn: int) -> Iterator[float]:
        old = define_orders(where / str(turn) / "old", place / "rows", files=1_000)
        new = define_orders(where / str(turn) / "new", place / "rows", files=1_000)
        new.write_text(new.read_text().replace("id % 5 > 0", "id % 5 < 4"))
        began = time.perf_counter()
        (batch,) = Pipeline.load(old).compare(Pipeline.load(new)).batches
        yield time.perf_counter() - began
        (destination,) = batch.destinations
        if (destination.same, destination.differing) != (IN_EACH * 3 // 5, IN_EACH * 2 // 5):
            raise RuntimeError(f"expected two fifths of the rows to differ, got {destination}")

    return measure_in_turns({RUN: by_run, COMPARED: by_comparison}, place, turns)


def define_orders(place: Path, rows: Path, *, files: int) -> Path:
    """Write the definition that delivers these rows, this many files a batch."""
    place.mkdir(parents=True, exist_ok=True)
    return define(
        place,
        f'origin: {{files: {{path: "{rows}/*.parquet", format: parquet, schema: "{SCHEMA}"}}}}\n'
        f'stages:\n  - cast: {{amount: "{AMOUNT}"}}\n  - require: {{positive: "amount >= 0"}}\n'
        '  - filter: "id % 5 > 0"\n'
        f"destinations: [delta: {{path: tables/orders}}]\nrun: {{batch: {{files: {files}}}}}\n",
    )


def _write_by_hand(spark: SparkSession, place: Path, files: list[Path]) -> float:
    peers.make_table(spark, place / "table", SCHEMA.replace("amount string", f"amount {AMOUNT}"))
    began = time.perf_counter()
    rows = peers.apply_stages_by_hand(spark.read.schema(SCHEMA).parquet(*map(str, files)))
    rows.write.format("delta").mode("append").save(str(place / "table"))
    return time.perf_counter() - began


def _measure_memory(spark: SparkSession) -> float:
    """Return the memory in MiB that Python uses, plus the JVM's use after a garbage collection."""
    gc.collect()
    process = find_jvm_process(spark)
    subprocess.run(["jcmd", str(process), "GC.run"], check=True, capture_output=True)
    told = subprocess.run(["jstat", "-gc", str(process)], check=True, capture_output=True, text=True).stdout
    names, figures = (line.split() for line in told.splitlines()[:2])
    used = sum(float(figure) for name, figure in zip(names, figures, strict=True) if name in ("S0U", "S1U", "EU", "OU"))
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return used / 1_024 + pages * os.sysconf("SC_PAGE_SIZE") / 2**20


CASES = (
    Case(
        name="compare",
        says="two definitions tried on 1,000,000 parquet rows, of which two fifths differ, beside a run of one",
        measure=measure_comparison,
        turns=5,
        bars=(Bar(of=COMPARED, to=RUN, most=2.2),),
    ),
    Case(
        name="bulk",
        says="4,000,000 parquet rows in one batch, cast, require, filter, none bad",
        measure=measure_bulk,
        turns=9,
        bars=(Bar(of=BATCH, to=PLAIN, most=1.0),),
    ),
    Case(
        name="bulk_refused",
        says="2,000,000 parquet rows in one batch, of which a rule refuses 200",
        measure=measure_bulk_refused,
        turns=9,
        bars=(Bar(of=BATCH, to=PLAIN, most=1.5),),
    ),
    Case(
        name="long",
        says="20,000,000 rows in 20 batches; memory in MiB",
        measure=measure_long,
        bars=(Bar(to=PLAIN, most=1.05), Bar(of="memory at the end", to="memory after a tenth", most=1.1)),
    ),
)
