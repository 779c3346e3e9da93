"""A protected value appears only where its row belongs."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from runners.command_line import cli
from runners.model.errors import Refusal
from runners.model.run_report import PipelineFailed
from tests.scenarios.conftest import Place, make_order
from tests.scenarios.test_canary import read_state

pytestmark = pytest.mark.spark

CANARY = "canary7f3a9"
DEFINITION = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, schema: "id long, email string, amount string"}
stages:
  - with_columns: {copy: "upper(email)"}
  - cast: {amount: "decimal(10,2)"}
  - cast: {email: "int"}
destinations:
  - delta: {path: tables/orders}
  - log: {}
    name: said
protect: [Email]
dlq: {window: 1000, threshold: 500}
hooks: [{on: [start, success, failure], python: "told:keep"}]
"""
KEEPS = """
import json, pathlib

def keep(facts):
    with pathlib.Path(__file__).with_name("told.jsonl").open("a") as file:
        file.write(json.dumps(facts) + "\\n")
"""


@pytest.fixture
def shop(place: Place) -> Place:
    """Provide four lines: a row that both casts accept, a row whose email is refused, one whose amount is refused, and
    a line that is not JSON."""
    rows: list[Mapping[str, Any] | str] = [
        make_order(1, email="12345"),
        make_order(2, email=CANARY),
        make_order(3, email=CANARY, amount="sieben"),
        f"{{{CANARY}",
    ]
    place.land("a.json", rows)
    place.define(DEFINITION)
    (place.folder / "told.py").write_text(KEEPS)
    return place


@pytest.mark.connect
def test_no_output_shows_a_protected_value(
    shop: Place, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """This holds for a run that refuses rows, its log lines, the preview, the history and the report. Only the DLQ's
    table has the value."""
    file = str(shop.folder / "pipeline.yaml")
    caplog.set_level(logging.DEBUG, "wherry")
    page = str(shop.folder / "report.html")
    asked = [
        ["preview", file, "--json"],
        ["run", file, "--log-format", "json"],
        ["dlq", "show", file],
        ["dlq", "show", file, "--json"],
        ["status", file, "--json"],
        ["runs", file, "--json"],
        ["report", file, "--to", page],
    ]
    for words in asked:
        assert cli.execute(words) == 0
    said = "".join(capsys.readouterr()) + caplog.text + Path(page).read_text()
    assert said.count("c***") >= 5
    state = shop.folder / ".wherry" / "orders"
    kept = "".join(read_state(part) for part in state.iterdir() if part.is_dir() and part.name != "dlq")
    kept += (shop.folder / "told.jsonl").read_text()
    assert CANARY not in (said + kept).lower()
    assert CANARY in read_state(state / "dlq")
    assert cli.execute(["dlq", "show", file, "--reveal"]) == 0
    assert f"column email: '{CANARY}' is not an int" in capsys.readouterr().out


def test_a_run_that_trips_its_window_keeps_masked_rows(shop: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """`status` and `runs` print them in the error and in the snapshot. A later successful run removes the
    snapshot."""
    file = str(shop.folder / "pipeline.yaml")
    assert cli.execute(["run", file, "--set", "dlq.window=1", "--set", "dlq.threshold=1"]) == 1
    said = capsys.readouterr().err
    assert "column email: 'c***' is not an int" in said
    run = shop.load().history.list()[0]["run"]
    for words in (["status", file], ["runs", file, run]):
        assert cli.execute(words) == 0
        told = capsys.readouterr().out
        assert "batch 1 of lane 0" in told
        assert '"email": "c***"' in told
        said += told
    facts = [json.loads(line) for line in (shop.folder / "told.jsonl").read_text().splitlines()]
    assert [each["event"] for each in facts] == ["start", "failure"]
    assert "column email: 'c***' is not an int" in facts[1]["error"]["message"]
    assert CANARY not in said + json.dumps(facts) + read_state(shop.folder / ".wherry" / "orders").lower()
    assert cli.execute(["run", file, "--quiet"]) == 0
    assert shop.load().status()["last_run"]["snapshot"] is None


def test_a_failed_batch_keeps_its_first_rows_masked(shop: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are kept as they were read. The message of the function is hidden, because it may contain a value."""
    (shop.folder / "load.py").write_text(
        "def write(rows, label):\n    raise ValueError('bad row: ' + rows.collect()[0].email)\n"
    )
    text = DEFINITION.replace('  - cast: {email: "int"}\n', "").replace(
        "  - log: {}\n    name: said", '  - python: "load:write"\n    name: said'
    )
    report = shop.load(text).run(check=False)
    assert report.error is not None
    assert "raised ValueError (text hidden, may hold a protected value)" in report.error.message
    assert report.snapshot is not None
    kept = {each["id"]: each for each in report.snapshot["rows"] if "id" in each}
    assert kept[2] == {"id": 2, "email": "c***", "amount": "2.50"}
    assert {"raw": "***"} in report.snapshot["rows"]
    assert (report.snapshot["lane"], report.snapshot["number"], report.error.lane) == ("0", 1, "0")
    assert CANARY not in json.dumps(report.json())
    few = shop.load(text, run__snapshot="1").run(check=False)
    assert few.snapshot is not None
    assert len(few.snapshot["rows"]) == 1
    assert shop.load(text, run__snapshot="0").run(check=False).snapshot is None


def test_a_protected_name_that_no_row_has_is_refused(shop: Place) -> None:
    """It would protect nothing. A column that exists only between two stages may be protected."""
    with pytest.raises(Refusal, match=r"no row has a column 'emial'.*did you mean 'email'"):
        shop.load(DEFINITION.replace("[Email]", "[emial]")).preview()
    between = DEFINITION.replace("  - cast: {amount", "  - drop: [copy]\n  - cast: {amount").replace(
        "[Email]", "[copy]"
    )
    assert shop.load(between).run().status == "succeeded"


def test_a_field_inside_a_column_is_protected(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """`protect` names the field by its path. The error for an unknown field suggests the most similar one."""
    buyer = {"email": CANARY, "country": "DE"}
    place.land("a.json", [make_order(1, amount="sieben", buyer=buyer)])
    text = DEFINITION.replace("amount string", "amount string, buyer struct<email: string, country: string>")
    text = text[: text.index("hooks:")].replace('  - cast: {email: "int"}\n', "")
    file = place.define(text.replace("[Email]", "[buyer.email]"))
    assert cli.execute(["run", str(file)]) == 0
    capsys.readouterr()
    assert cli.execute(["dlq", "show", str(file), "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["rows"]
    assert shown["row"]["buyer"] == {"email": "c***", "country": "DE"}
    with pytest.raises(PipelineFailed, match=r"no row has a column 'buyer.emial'.*did you mean 'buyer.email'"):
        place.load(text.replace("[Email]", "[buyer.emial]")).run()
