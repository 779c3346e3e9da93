"""Run `wherry init --from` on a folder of different files, and then the first `validate`, `preview` and `run`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from runners.command_line.commands import wherry
from tests.five_months import write_months

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def type_command(*words: str) -> dict[str, Any]:
    """Run a command, and return its JSON output."""
    result = CliRunner().invoke(wherry, [*words, "--json"], standalone_mode=False)
    assert result.exception is None
    return dict(json.loads(result.stdout))


def test_five_months_that_differ_are_delivered_by_the_first_run(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Good rows have the right values, also those with decimal commas. The bad 2 % are in the DLQ."""
    monkeypatch.chdir(tmp_path)
    months = write_months(Path("months"), semicolons=True)
    found = type_command("init", "trips", "--from", "months")["found"]
    assert [*found["left_out"]] == ["README.txt", "trips-2026-02.csv.gz"]
    assert type_command("validate", "trips/trips.yaml")["version"] == 1
    preview = type_command("preview", "trips/trips.yaml")
    report = type_command("run", "trips/trips.yaml")
    assert report["balanced"] is True
    assert preview["version"] == 1
    assert (report["read"], report["nacked"]) == (months.good + months.bad, months.bad)
    table = spark.read.format("delta").load(str(tmp_path / "trips" / "tables" / "trips"))
    assert {name: kind for name, kind in table.dtypes if name != "zone"} == {
        "trip_id": "bigint",
        "pickup_at": "timestamp",
        "passengers": "bigint",
        "distance_km": "double",
        "fare": "decimal(18,2)",
        "cash": "boolean",
        "airport_fee": "decimal(18,2)",
        "file_name": "string",
    }
    rows = table.select("trip_id", "zone", "fare", "distance_km", "airport_fee").collect()
    assert {row.trip_id for row in rows} == months.ids
    assert len(rows) == months.good
    assert sum(row.fare for row in rows) == months.fares
    assert sum(row.airport_fee or 0 for row in rows) == months.fees
    assert round(sum(row.distance_km for row in rows), 3) == float(months.distances)
    assert {len(row.zone) for row in rows} == {3}


ODD = {
    "UTF-16": ({"a.csv": "id,name\n1,Zoë\n".encode("utf-16")}, [(1, "Zoë")], 0),
    "values that the narrowest type would change": (
        {
            "a.csv": b"id,phone,sum,at\n"
            + b"1000000000000000001,+491,7,2026-01-31\n" * 9
            + b"1000000000000000002,+492,12.50,2026-01-31 10:00:00\n"
        },
        [
            *[(1000000000000000001, "+491", "7.00", "2026-01-31 00:00:00")] * 9,
            (1000000000000000002, "+492", "12.50", "2026-01-31 10:00:00"),
        ],
        0,
    ),
    "keys twice": ({"a.json": b'{"id": 1, "id": 2}\n' + b'{"id": 3}\n' * 12}, [(3,)] * 12, 1),
    "an array of objects": (
        {"a.json": b'[{"id": 1},\n {"id": 2, "at": {"zip": "007"}}]'},
        [(1, "None"), (2, "Row(zip='007')")],
        0,
    ),
}


@pytest.mark.parametrize(("files", "rows", "refused"), ODD.values(), ids=ODD)
def test_the_first_run_after_init_reads_unusual_files(
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, bytes],
    rows: list[tuple[object, ...]],
    refused: int,
) -> None:
    """Init writes the options and policies that the files need."""
    monkeypatch.chdir(tmp_path)
    for name, content in files.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(content)
    type_command("init", "odd", "--from", "in")
    report = type_command("run", "odd/odd.yaml")
    assert (report["balanced"], report["nacked"]) == (True, refused)
    found = spark.read.format("delta").load(str(tmp_path / "odd" / "tables" / "odd"))
    delivered = found.drop("file_name").collect()
    assert {row.file_name for row in found.collect()} <= {Path(name).name for name in files}
    assert sorted(tuple(map(str, row)) for row in delivered) == sorted(tuple(map(str, row)) for row in rows)
