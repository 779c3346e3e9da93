"""Small batches side by side: `python -m tests.benchmarks.small_batches` prints what a batch costs each way.

Each way carries the same number of 1,000-row JSON files, one file a batch, into a Delta table, in one Spark session,
in turns. Wherry's mean has everything in it that a run does but the start of Spark: the lock, the ledger, the listing,
the analysis, every commit. Its stages are none, as plain Spark's; `--stages` gives it a cast, a rule and a filter.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from runners.definition import load
from runners.events import BatchSettled, Event
from runners.session import own, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id long, email string, amount string, at timestamp"
STAGES = """
stages:
  - cast: {amount: "decimal(10,2)"}
  - require: {positive: "amount >= 0"}
  - filter: "id % 5 > 0"
"""


def land(folder: Path, files: int, rows: int, first: int) -> list[Path]:
    """Files of good orders, in order of age."""
    folder.mkdir(parents=True, exist_ok=True)
    landed = []
    for number in range(first, first + files):
        lines = (
            {
                "id": number * rows + row,
                "email": f"A{row}@x.com",
                "amount": f"{row / 7:.2f}",
                "at": "2026-01-01T00:00:00Z",
            }
            for row in range(rows)
        )
        file = folder / f"{number:05}.json"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
        landed.append(file)
    return landed


def plain(spark: SparkSession, place: Path, files: list[Path]) -> Iterator[float]:
    """Read a file, append it: the least that Spark can do."""
    table = place / "plain"
    if not table.exists():
        spark.sql(
            f"create table delta.`{table}` ({SCHEMA}) using delta tblproperties ('delta.checkpointInterval' = '100')"
        )
    for file in files:
        began = time.perf_counter()
        frame = spark.read.schema(SCHEMA).json(str(file))
        frame.write.format("delta").mode("append").save(str(table))
        yield time.perf_counter() - began


def wherry(spark: SparkSession, place: Path, files: list[Path], stages: str = "") -> Iterator[float]:
    """A run of a pipeline; the time of each batch, and of what came before the first in the first."""
    definition = place / "orders.yaml"
    definition.write_text(
        "name: orders\n"
        f'origin: {{files: {{path: "landing/*.json", format: json, schema: "{SCHEMA}"}}}}\n'
        f"{stages}"
        "destinations: [delta: {path: tables/orders}]\n"
        "run: {batch: {files: 1}}\n",
        encoding="utf-8",
    )
    times = [time.perf_counter()]

    def listen(event: Event) -> None:
        if isinstance(event, BatchSettled):
            times.append(time.perf_counter())

    report = load(definition).pipeline.run(listeners=[listen])
    times[-1] = time.perf_counter()
    if report.batches != len(files):
        raise RuntimeError(f"expected {len(files)} batches, the run had {report.batches}")
    yield from (after - before for before, after in pairwise(times))


def streaming(spark: SparkSession, place: Path, files: list[Path]) -> Iterator[float]:
    """Structured Streaming into its Delta sink, one file a trigger, all that is there."""
    began = time.perf_counter()
    query = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .json(str(place / "landing"))
        .writeStream.format("delta")
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(place / "streaming"))
    )
    query.awaitTermination()
    yield from [(time.perf_counter() - began) / len(files)] * len(files)


def main() -> None:
    """Measure, and print a table with ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=2, help="how many turns each way gets")
    parser.add_argument("--stages", action="store_true", help="give Wherry a cast, a rule and a filter")
    asked = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="wherry-benchmark-"))
    spark = own(start({}))
    stages = STAGES if asked.stages else ""
    ways: dict[str, Callable[[Path, list[Path]], Iterator[float]]] = {
        "plain Spark": lambda where, files: plain(spark, where, files),
        "Wherry": lambda where, files: wherry(spark, where, files, stages),
        "Structured Streaming": lambda where, files: streaming(spark, where, files),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    try:
        for name, way in ways.items():  # the JVM warms up on each way, uncounted
            warm = place / "warm" / name.replace(" ", "-")
            list(way(warm, land(warm / "landing", 10, 1_000, 0)))
        size = asked.batches // asked.rounds
        for turn in range(asked.rounds):
            for name, way in ways.items():
                where = place / name.replace(" ", "-")
                taken[name] += way(where, land(where / "landing", size, 1_000, turn * size))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    print(table(taken))  # noqa: T201


def table(taken: dict[str, list[float]]) -> str:
    """Mean, median and 90th percentile of a batch in milliseconds, and the means as ratios."""
    means = {name: statistics.mean(times) for name, times in taken.items()}
    lines = ["| way | batches | mean ms | median ms | p90 ms | to plain Spark | to Structured Streaming |"]
    lines.append("|---|---|---|---|---|---|---|")
    for name, times in taken.items():
        p90 = statistics.quantiles(times, n=10)[-1]
        figures = [statistics.mean(times), statistics.median(times), p90]
        shown = " | ".join(f"{1_000 * figure:.0f}" for figure in figures)
        ratios = f"{means[name] / means['plain Spark']:.2f} | {means[name] / means['Structured Streaming']:.2f}"
        lines.append(f"| {name} | {len(times)} | {shown} | {ratios} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
