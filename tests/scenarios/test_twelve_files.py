"""A person takes twelve odd exports as they are: `init --from`, `validate`, `preview` and `run`, by the clock."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from runners.command_line.commands import wherry
from tests.pace import measure_pace
from tests.twelve_exports import AMOUNTS, LEFT_OUT, write_exports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = 500
SECONDS = {"init": 30.0, "validate": 10.0, "preview": 60.0, "run": 120.0}
"""How long each command may take, also on a busy machine. Spark has started."""


def type_command(*words: str) -> tuple[dict[str, Any], float]:
    """Run a command. Return its JSON output, and the seconds that it took."""
    began = time.monotonic()
    result = CliRunner().invoke(wherry, [*words, "--json"], standalone_mode=False)
    assert result.exception is None, result.output
    return dict(json.loads(result.stdout)), time.monotonic() - began


@pytest.mark.long
@pytest.mark.parametrize("kind", ["csv", "json"])
def test_twelve_odd_files_are_delivered_in_a_minute(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Good rows have the right values, bad rows are in the DLQ, and each command ends soon."""
    monkeypatch.chdir(tmp_path)
    exports = write_exports(Path("exports"), kind, ROWS)
    words = {"init": ["invoices", "--from", "exports"]}
    ended = {each: type_command(each, *words.get(each, ["invoices/invoices.yaml"])) for each in SECONDS}
    found, report = ended["init"][0]["found"], ended["run"][0]
    assert [*found["left_out"]] == ([LEFT_OUT] if kind == "json" else [])
    assert (report["read"], report["nacked"]) == (len(exports.totals) + exports.bad, exports.bad)
    table = spark.read.format("delta").load(str(tmp_path / "invoices" / "tables" / "invoices"))
    kinds = dict(table.dtypes)
    assert {kinds[name] for name in AMOUNTS} == {"decimal(18,2)"}
    assert (kinds["id"], kinds["day"], kinds["booked_at"]) == ("bigint", "date", "timestamp")
    rows = table.selectExpr("id", f"{' + '.join(AMOUNTS)} as total").collect()
    assert {row.id: row.total for row in rows} == exports.totals
    assert len(rows) == len(exports.totals)
    took = {command: round(seconds, 1) for command, (_, seconds) in ended.items()}
    pace = measure_pace()
    assert {command: seconds for command, seconds in took.items() if seconds > SECONDS[command] * pace} == {}
