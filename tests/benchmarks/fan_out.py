"""Three destinations side by side: `python -m tests.benchmarks.fan_out` prints what a batch costs each way.

By hand every table is a read of the file and an append. Wherry reads it once, decides once, and writes three times; its
time is that of a whole run, divided by the batches. Both go in turns, in one Spark session.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from runners.definition import load
from runners.session import own, start
from tests.benchmarks.small_batches import SCHEMA, land

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = ("a", "b", "c")


def by_hand(spark: SparkSession, place: Path, files: list[Path]) -> float:
    """Seconds a batch, for three reads and three appends of each file."""
    for table in TABLES:
        if not (place / table).exists():
            spark.sql(
                f"create table delta.`{place / table}` ({SCHEMA}) using delta "
                "tblproperties ('delta.checkpointInterval' = '100')"
            )
    began = time.perf_counter()
    for file in files:
        for table in TABLES:
            frame = spark.read.schema(SCHEMA).json(str(file))
            frame.write.format("delta").mode("append").save(str(place / table))
    return (time.perf_counter() - began) / len(files)


def by_wherry(place: Path, files: list[Path]) -> float:
    """Seconds a batch, for a run that carries these files."""
    definition = place / "orders.yaml"
    tables = ", ".join(f"delta: {{path: tables/{table}}}" for table in TABLES)
    definition.write_text(
        "name: orders\n"
        f'origin: {{files: {{path: "landing/*.json", format: json, schema: "{SCHEMA}"}}}}\n'
        f"destinations: [{tables}]\n"
        "run: {batch: {files: 1}}\n",
        encoding="utf-8",
    )
    began = time.perf_counter()
    report = load(definition).pipeline.run()
    if report.batches != len(files) or not report.balanced:
        raise RuntimeError(f"expected {len(files)} batches, the run had {report.batches}")
    return (time.perf_counter() - began) / len(files)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000, help="rows a batch")
    parser.add_argument("--batches", type=int, default=20, help="batches a turn")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="wherry-benchmark-"))
    spark = own(start({}))
    try:
        for name in ("hand", "wherry"):  # the JVM warms up on each way, uncounted
            files = land(root / "warm" / name / "landing", 5, 1_000, 0)
            by_hand(spark, root / "warm" / name, files) if name == "hand" else by_wherry(root / "warm" / name, files)
        hand, wherry = [], []
        for turn in range(asked.rounds):
            first = turn * asked.batches
            hand.append(by_hand(spark, root / "hand", land(root / "hand/in", asked.batches, asked.rows, first)))
            files = land(root / "wherry/landing", asked.batches, asked.rows, first)
            wherry.append(by_wherry(root / "wherry", files))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    ratios = [mine / theirs for mine, theirs in zip(wherry, hand, strict=True)]
    print(  # noqa: T201
        f"{asked.rows:,} rows a batch, {asked.rounds} turns of {asked.batches} batches: "
        f"by hand {statistics.median(hand):.3f} s, Wherry {statistics.median(wherry):.3f} s, "
        f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    )


if __name__ == "__main__":
    main()
