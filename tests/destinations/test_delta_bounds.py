"""What a table's log says of files that are taken over, and that they stay there; without Spark."""

from __future__ import annotations

import json
import math
import os
import time
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema
from pyarrow import parquet

from destinations.delta_adopted import COLUMNS, Adoptable, bring, told_of, write
from destinations.delta_append import Head, append


def columns(kind: str) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"name": "v", "type": kind, "nullable": True, "metadata": {}}]}


def bounds(file: Path, kind: str) -> tuple[Any, Any]:
    """The least and the highest that are told of the only column."""
    (told,) = told_of({file.name: file}, columns(kind))
    stats = json.loads(str(told["stats"]))
    return stats["minValues"].get("v"), stats["maxValues"].get("v")


@pytest.mark.parametrize("values", [[-0.0, 0.0], [0.0, -0.0], [0.0], [-0.0]])
def test_both_zeros_lie_within_the_bounds(tmp_path: Path, values: list[float]) -> None:
    """Some readers order them."""
    table = pa.table({"v": values})
    write([table], table.schema, "{}", tmp_path / "rows.parquet")
    least, highest = bounds(tmp_path / "rows.parquet", "double")
    assert (least, highest) == (0, 0)
    assert (math.copysign(1, least), math.copysign(1, highest)) == (-1, 1)


@pytest.mark.parametrize("unit", ["ms", "us"])
def test_moments_are_told_in_whatever_unit_a_file_has_them(tmp_path: Path, unit: str) -> None:
    """As Spark's `outputTimestampType` may have made it."""
    moments = [datetime(2026, 5, 1, 1, 2, 3, 4_000, timezone.utc), datetime(2026, 5, 2, tzinfo=timezone.utc)]
    parquet.write_table(pa.table({"v": pa.array(moments, pa.timestamp(unit, "UTC"))}), tmp_path / "rows.parquet")
    assert bounds(tmp_path / "rows.parquet", "timestamp") == ("2026-05-01T01:02:03.004Z", "2026-05-02T00:00:00.000Z")


@pytest.mark.parametrize(
    ("text", "highest"),
    [
        ("x" * 32, "x" * 32),
        ("x" * 32 + "y", "x" * 32 + "\U0010ffff"),
        ("é" * 40, "é" * 32 + "\U0010ffff"),
        ("x" * 32 + "\U0010ffff" * 2, None),
    ],
)
def test_nothing_is_higher_than_the_highest_that_is_told_of_long_texts(
    tmp_path: Path, text: str, highest: str | None
) -> None:
    """The first 32 characters, and behind them one that is higher than all others."""
    table = pa.table({"v": [text, "a"]})
    write([table], table.schema, "{}", tmp_path / "rows.parquet")
    assert bounds(tmp_path / "rows.parquet", "string") == ("a", highest)


def test_a_long_text_is_found_by_a_reader_that_passes_over_files(tmp_path: Path) -> None:
    """By each way in which `deltalake` filters."""
    folder, long = tmp_path / "notes", "x" * 50
    DeltaTable.create(str(folder), Schema.from_json(json.dumps(columns("string"))))
    table = pa.table({"v": [long, "a"]})
    write([table], table.schema, "{}", folder / "rows.parquet")
    append(folder, Head.of(folder), told_of({"rows.parquet": folder / "rows.parquet"}, columns("string")), "tag")
    assert DeltaTable(str(folder)).to_pyarrow_table(filters=[("v", "=", long)]).num_rows == 1


@pytest.mark.parametrize("word", ["org.apache.spark.legacyDateTime", "org.apache.spark.legacyINT96"])
def test_files_with_days_of_another_calendar_are_not_taken_over(tmp_path: Path, word: str) -> None:
    """What their footers say of a day is not the day that Spark reads."""
    plain = pa.schema([("v", pa.date32())], {COLUMNS: json.dumps(columns("date"))})
    parquet.write_table(pa.table({"v": [date(1500, 1, 1)]}, plain), tmp_path / "plain.parquet")
    legacy = plain.with_metadata({**(plain.metadata or {}), word: ""})
    parquet.write_table(pa.table({"v": [date(1500, 1, 1)]}, legacy), tmp_path / "legacy.parquet")
    assert Adoptable.of([tmp_path / "plain.parquet"]) is not None
    assert Adoptable.of([tmp_path / "legacy.parquet"]) is None
    assert Adoptable.of([tmp_path / "plain.parquet", tmp_path / "legacy.parquet"]) is None


def test_files_that_were_prepared_long_ago_outlive_a_vacuum(tmp_path: Path) -> None:
    """One that looked at the table before they came, and takes what is older than a week for left over."""
    folder, prepared = tmp_path / "orders", tmp_path / "rows.parquet"
    DeltaTable.create(str(folder), Schema.from_json(json.dumps(columns("long"))))
    table = pa.table({"v": [1]})
    write([table], table.schema, "{}", prepared)
    os.utime(prepared, (time.time() - 800_000,) * 2)
    early = DeltaTable(str(folder))
    bring({"part.parquet": prepared}, folder)
    append(folder, Head.of(folder), told_of({"part.parquet": folder / "part.parquet"}, columns("long")), "tag")
    early.vacuum(retention_hours=168, dry_run=False, full=True)
    assert DeltaTable(str(folder)).to_pyarrow_table()["v"].to_pylist() == [1]
