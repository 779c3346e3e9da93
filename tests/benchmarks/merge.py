"""Measure the cost of merging 10,000 rows into 2,000,000 in two ways.

Each way merges the rows of one JSON file a batch into a separate table. Both ways use the same Spark session, in turns.
By hand, that is one `MERGE INTO` with a condition on the sequence. Wherry's side is a run of its pipeline.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from destinations.delta import Delta
from tests.benchmarks.carried import carry_batches, define
from tests.benchmarks.case import Bar, Case, Taken, Way, measure_in_turns, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, THERE, A_TURN, WARM = 10_000, 2_000_000, 5, 2
BY_HAND, WHERRY = "MERGE by hand", "Wherry"
SCHEMA = "id bigint, at bigint, email string, amount decimal(10,2)"


def merge_by_hand(spark: SparkSession, table: str, file: Path) -> None:
    """Merge with the statement that most users would write."""
    spark.read.schema(SCHEMA).json(str(file)).createOrReplaceTempView("changes")
    spark.sql(
        f"MERGE INTO {table} t USING changes s ON t.id = s.id "
        "WHEN MATCHED AND s.at >= t.at THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    ).collect()


def measure_merge(place: Path, turns: int) -> Taken:
    """Merge 10,000 rows into 2,000,000. Nine tenths of them match rows that are spread over the whole table."""
    spark = open_session()
    hand, ours = Delta(path=str(place / "hand")), Delta(path=str(place / "ours"), mode="merge", keys=["id"])
    rows = spark.range(THERE).selectExpr(
        "id", "1L AS at", "concat('A', id, '@x.com') AS email", "cast(id % 1000 AS decimal(10,2)) AS amount"
    )
    for table in (hand, ours):
        table.open().ensure_place(spark, rows.schema)
        rows.write.format("delta").mode("append").save(table.place)
    definition = define(
        place,
        f'origin: {{files: {{path: "landing/*.json", format: json, schema: "{SCHEMA}"}}}}\n'
        "destinations: [delta: {path: ours, mode: merge, keys: [id], sequence_by: at}]\nrun: {batch: {files: 1}}\n",
    )

    def merged(number: int, files: int) -> Iterator[float]:
        for file in [_land_changes(place / "by hand", number + each) for each in range(files)]:
            began = time.perf_counter()
            merge_by_hand(spark, hand.sql_name, file)
            yield time.perf_counter() - began

    def run(number: int, files: int) -> Iterator[float]:
        for each in range(files):
            _land_changes(place / "landing", number + each)
        yield from carry_batches(definition, files)

    ways: dict[str, Way] = {
        BY_HAND: lambda _, turn: merged(WARM + turn * A_TURN, A_TURN),
        WHERRY: lambda _, turn: run(WARM + turn * A_TURN, A_TURN),
    }
    warm: dict[str, Way] = {BY_HAND: lambda *_: merged(0, WARM), WHERRY: lambda *_: run(0, WARM)}
    taken = measure_in_turns(ways, place, turns, warm=warm)
    if not spark.table(hand.sql_name).exceptAll(spark.table(ours.sql_name)).isEmpty():
        raise RuntimeError("the two tables differ")
    return taken


def _land_changes(folder: Path, number: int) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / f"{number:05}.json"
    file.write_text("".join(_make_line(number, row) for row in range(ROWS)), encoding="utf-8")
    os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
    return file


def _make_line(number: int, row: int) -> str:
    key = row * (THERE // ROWS) if row % 10 else -row - ROWS * number - 1
    return json.dumps({"id": key, "at": number + 2, "email": f"A{key}@x.com", "amount": key % 1000}) + "\n"


CASES = (
    Case(
        name="merge",
        says="10,000 JSON rows a batch merged into 2,000,000",
        measure=measure_merge,
        turns=3,
        bars=(Bar(to=BY_HAND, most=1.15),),
    ),
)
