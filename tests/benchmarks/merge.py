"""A merge side by side: `python -m tests.benchmarks.merge` prints what 10,000 rows into 2,000,000 cost each way.

Both ways read the same JSON file and bring its rows into a table of their own, in one Spark session, in turns. By hand
that is one `MERGE INTO` with a condition on the sequence. Wherry's side is all that a runner does with a batch: what
the table and the options demand of each row, one row for each key, the counts, the merge, and its figures.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from destinations.conformance import label
from destinations.delta import Delta
from runners.counting import Tally
from runners.line import Line, passing
from runners.session import own, start
from stages.rows import Straight

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 10_000
SCHEMA = "id bigint, at bigint, email string, amount decimal(10,2)"


def by_hand(spark: SparkSession, table: str, file: Path) -> None:
    """The statement that anybody would write."""
    spark.read.schema(SCHEMA).json(str(file)).createOrReplaceTempView("changes")
    spark.sql(
        f"MERGE INTO {table} t USING changes s ON t.id = s.id "
        "WHEN MATCHED AND s.at >= t.at THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    ).collect()


def by_wherry(spark: SparkSession, delta: Delta, line: Line, file: Path) -> None:
    """What a runner does with a batch that goes straight."""
    frame, tally = spark.read.schema(SCHEMA).json(str(file)), Tally.of(line)
    rows = passing(Straight.begin(frame, tuple(frame.columns), {}, tally.observe), line.common, {})
    written = delta.write(spark, rows.frame, [label()])
    counts = tally.counts(written.rows)
    if not counts.balanced({"latest": written.rows or 0}) or written.rows != ROWS:
        raise RuntimeError(f"expected {ROWS} rows, {written.rows} were merged, and {counts}")


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--rows", type=int, default=2_000_000)
    asked = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="wherry-benchmark-"))
    spark = own(start({}))
    try:
        delta = Delta(path=str(place / "wherry"), mode="merge", keys=["id"], sequence_by="at")
        hand = Delta(path=str(place / "hand"))
        rows = spark.range(asked.rows).selectExpr(*_columns("id", "1L"))
        for table in (delta, hand):
            table.open(spark, rows.schema)
            rows.write.format("delta").mode("append").save(table.place)
        line = Line.of([], {"latest": delta}, {"latest": delta.demands(spark, rows.schema)})
        ways: dict[str, Callable[[Path], None]] = {
            "by hand": lambda file: by_hand(spark, hand.sql_name, file),
            "Wherry": lambda file: by_wherry(spark, delta, line, file),
        }
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(-2, asked.rounds):  # the JVM warms up in two rounds that do not count
            file = place / f"changes{turn}"
            # Nine rows of ten are there already, all over the table; the tenth is new.
            changes = spark.range(ROWS).selectExpr(
                f"CASE WHEN id % 10 > 0 THEN id * {asked.rows // ROWS} ELSE -id - {ROWS * (turn + 3)} END AS id"
            )
            changes.selectExpr(*_columns("id", f"{turn + 4}L")).coalesce(1).write.json(str(file))
            order = list(ways) if turn % 2 else list(reversed(ways))
            for name in order:
                began = time.perf_counter()
                ways[name](file)
                if turn >= 0:
                    taken[name].append(time.perf_counter() - began)
        same = spark.table(hand.sql_name).exceptAll(spark.table(delta.sql_name)).isEmpty()
    finally:
        shutil.rmtree(place, ignore_errors=True)
    print(_shown(taken))  # noqa: T201
    print("both tables hold the same rows" if same else "THE TABLES DIFFER")  # noqa: T201


def _columns(number: str, at: str) -> list[str]:
    return [
        f"{number} AS id",
        f"{at} AS at",
        f"concat('A', {number}, '@x.com') AS email",
        f"cast({number} % 1000 AS decimal(10,2)) AS amount",
    ]


def _shown(taken: dict[str, list[float]]) -> str:
    lines = ["| way | merges | median ms | least ms | most ms | to by hand |", "|---|---|---|---|---|---|"]
    base = statistics.median(taken["by hand"])
    for name, times in taken.items():
        figures = " | ".join(f"{1_000 * figure:.0f}" for figure in (statistics.median(times), min(times), max(times)))
        lines.append(f"| {name} | {len(times)} | {figures} | {statistics.median(times) / base:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
