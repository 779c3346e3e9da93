"""`wherry init --from` for a folder of files that differ, and the first `validate`, `preview` and `run` after it."""

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
    """What a command prints as JSON."""
    result = CliRunner().invoke(wherry, [*words, "--json"], standalone_mode=False)
    assert result.exception is None
    return dict(json.loads(result.stdout))


@pytest.mark.parametrize("semicolons", [False, pytest.param(True, marks=pytest.mark.variant)])
def test_five_months_that_differ_are_delivered_by_the_first_run(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, semicolons: bool
) -> None:
    """The good rows have their right values, also those with decimal commas, and the bad 2 % are in the DLQ."""
    monkeypatch.chdir(tmp_path)
    months = write_months(Path("months"), semicolons=semicolons)
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
    }
    rows = table.select("trip_id", "zone", "fare", "distance_km", "airport_fee").collect()
    assert {row.trip_id for row in rows} == months.ids
    assert len(rows) == months.good
    assert sum(row.fare for row in rows) == months.fares
    assert sum(row.airport_fee or 0 for row in rows) == months.fees
    assert round(sum(row.distance_km for row in rows), 3) == float(months.distances)
    assert {len(row.zone) for row in rows} == {3}
