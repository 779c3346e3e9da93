"""A merge: what 10,000 rows into 2,000,000 cost each way.

Both ways read the same JSON file and bring its rows into a table of their own, in one Spark session, in turns. By hand
that is one `MERGE INTO` with a condition on the sequence. Wherry's side is all that a runner does with a batch: what
the table and the options demand of each row, one row for each key, the counts, the merge, and its figures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from destinations.conformance import label
from destinations.delta import Delta
from runners.counting import Tally
from runners.line import Line, passing
from stages.rows import Straight
from tests.benchmarks.case import Bar, Case, Taken, Way, in_turns, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, THERE = 10_000, 2_000_000
BY_HAND, WHERRY = "MERGE by hand", "Wherry"
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


def into_many(place: Path, turns: int) -> Taken:
    """10,000 rows into 2,000,000; nine of ten are there already, all over the table."""
    spark = session()
    delta = Delta(path=str(place / "wherry"), mode="merge", keys=["id"], sequence_by="at")
    hand = Delta(path=str(place / "hand"))
    rows = spark.range(THERE).selectExpr(*_columns("id", "1L"))
    for table in (delta, hand):
        table.open(spark, rows.schema)
        rows.write.format("delta").mode("append").save(table.place)
    line = Line.of([], {"latest": delta}, {"latest": delta.demands(spark, rows.schema)})

    def changes(turn: int) -> Path:
        file = place / f"changes{turn}"
        if not file.exists():
            news = spark.range(ROWS).selectExpr(
                f"CASE WHEN id % 10 > 0 THEN id * {THERE // ROWS} ELSE -id - {ROWS * (turn + 3)} END AS id"
            )
            news.selectExpr(*_columns("id", f"{turn + 4}L")).coalesce(1).write.json(str(file))
        return file

    def timed(merge: Callable[[Path], None], turn: int) -> Iterator[float]:
        file, began = changes(turn), time.perf_counter()
        merge(file)
        yield time.perf_counter() - began

    ways: dict[str, Way] = {
        BY_HAND: lambda _, turn: timed(lambda file: by_hand(spark, hand.sql_name, file), turn),
        WHERRY: lambda _, turn: timed(lambda file: by_wherry(spark, delta, line, file), turn),
    }
    warm: dict[str, Way] = {
        name: lambda where, turn, way=way: [each for cold in (-2, -1) for each in way(where, cold)]  # type: ignore[misc]
        for name, way in ways.items()
    }
    taken = in_turns(ways, place, turns, warm=warm)
    if not spark.table(hand.sql_name).exceptAll(spark.table(delta.sql_name)).isEmpty():
        raise RuntimeError("the two tables differ")
    return taken


def _columns(number: str, at: str) -> list[str]:
    return [
        f"{number} AS id",
        f"{at} AS at",
        f"concat('A', {number}, '@x.com') AS email",
        f"cast({number} % 1000 AS decimal(10,2)) AS amount",
    ]


CASES = (
    Case(
        name="merge",
        says="10,000 JSON rows merged into 2,000,000",
        measure=into_many,
        turns=9,
        bars=(Bar(to=BY_HAND, most=1.15),),
    ),
)
