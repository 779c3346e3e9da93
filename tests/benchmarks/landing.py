"""The input of the benchmarks: orders in JSON files of a thousand rows, and in parquet files of any size."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id long, email string, amount string, at timestamp"
AMOUNT = "decimal(10,2)"


def land(folder: Path, files: int, rows: int = 1_000, *, first: int = 0, bad: int = 0, names: str = "") -> list[Path]:
    """Write JSON files of orders, and return them from oldest to newest. In each file, `bad` orders have an invalid
    amount."""
    folder.mkdir(parents=True, exist_ok=True)
    landed = []
    for number in range(first, first + files):
        file = folder / f"{number:05}{names}.json"
        file.write_text(make_lines(number, rows, bad), encoding="utf-8")
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
        landed.append(file)
    return landed


def land_parquet(spark: SparkSession, folder: Path, rows: int, *, files: int = 4, first: int = 0) -> None:
    """Write parquet files of good orders, all with the same age."""
    make_orders(spark, rows, files=files, first=first).write.mode("append").parquet(str(folder))
    for file in folder.glob("*.parquet"):
        os.utime(file, (1_700_000_000, 1_700_000_000))


def make_orders(spark: SparkSession, rows: int, *, files: int = 4, first: int = 0) -> DataFrame:
    """Return good orders that Spark writes as `files` files."""
    return spark.range(first, first + rows, 1, files).selectExpr(
        "id",
        "concat('A', id, '@x.com') as email",
        "cast(cast(id % 100000 as decimal(10,2)) / 7 as string) as amount",
        "timestamp '2026-01-01 00:00:00' + make_interval(0, 0, 0, 0, 0, 0, id % 86400) as at",
    )


def make_lines(file: int, rows: int = 1_000, bad: int = 0) -> str:
    """Return the orders of the file with this number as lines of JSON. The first `bad` orders have an invalid
    amount."""
    return "".join(f"{make_order(file * rows + row, row < bad)}\n" for row in range(rows))


def make_order(number: int, bad: bool = False) -> str:
    """Return an order as JSON."""
    row = {
        "id": number,
        "email": f"A{number}@x.com",
        "amount": "sieben" if bad else f"{number % 1_000 / 7:.2f}",
        "at": "2026-01-01T00:00:00Z",
    }
    return json.dumps(row)
