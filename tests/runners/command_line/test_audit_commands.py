"""`wherry audit` and `wherry repair`, for users and for programs. Without Spark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from runners.command_line import cli
from tests.runners.command_line.test_quick_commands import time_command
from tests.runners.operations.audit.evidence import Carried

DEFINITION = """
name: orders
origin: {files: {path: "landing/*.json", format: json, schema: "id long"}}
destinations: [{delta: {path: orders}}]
state: state
"""


@pytest.fixture
def carried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Carried:
    """A pipeline with two processed batches. The second has a refused row."""
    made = Carried(tmp_path)
    made.record_opening()
    made.carry(1)
    made.carry(2, nacked=1)
    (tmp_path / "orders.yaml").write_text(DEFINITION)
    monkeypatch.chdir(tmp_path)
    return made


def test_an_audit_needs_no_jvm(carried: Carried) -> None:
    """It exits with 0 if everything balances, and does not import pyspark."""
    _, out = time_command(["audit", "orders.yaml", "--json"], carried.folder)
    found = json.loads(out)
    assert (found["balanced"], found["problems"], found["read"]) == (True, [], 6)


def test_an_audit_shows_what_is_proved(carried: Carried, capsys: pytest.CaptureFixture[str]) -> None:
    """It shows the batch from which the proof begins."""
    assert cli.execute(["audit", "orders.yaml"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("orders balances: every row is where it should be.\n")
    assert "6 rows in 2 batches; 1 refused" in out
    assert "5 rows delivered in all batches, 0 filtered" in out
    assert "checked since batch 1: commit, row count and every file" in out


def test_a_destination_missing_in_the_definition_is_named(carried: Carried, capsys: pytest.CaptureFixture[str]) -> None:
    """The audit shows what it received. The status names it before the next run."""
    (carried.folder / "orders.yaml").write_text(DEFINITION.replace("path: orders", "path: other"))
    assert cli.execute(["audit", "orders.yaml"]) == 0
    out = capsys.readouterr().out
    assert "5 rows in 2 batches; it is not in the definition any more" in out
    assert cli.execute(["status", "orders.yaml"]) == 0
    assert "orders: the next run delivers nothing to it; its rows stay" in capsys.readouterr().out


def test_an_audit_shows_problems_and_repair_commands(carried: Carried, capsys: pytest.CaptureFixture[str]) -> None:
    """It shows the batch, the destination, and the expected and actual rows. It exits with 1."""
    carried.plan(3)
    carried.settle(3)
    assert cli.execute(["audit", "orders.yaml"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("orders does not balance: 1 problem.\n")
    assert (
        "NOT_DELIVERED  batch 3 of lane 0, orders\n"
        "  the ledger counts 3 rows as delivered, but no commit here has them\n"
        "  Deliver it again, with today's definition:  "
        'wherry backfill orders.yaml --from 3 --to 3 --only orders --again --reason "…"\n'
    ) in out


def test_an_audit_before_the_first_run_finds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is no ledger yet, and the audit creates none."""
    (tmp_path / "orders.yaml").write_text(DEFINITION)
    monkeypatch.chdir(tmp_path)
    assert cli.execute(["audit", "orders.yaml"]) == 0
    assert capsys.readouterr().out == "orders has processed nothing yet.\n"
    assert not (tmp_path / "state").exists()


def test_an_accepted_problem_is_kept_with_the_reason(carried: Carried, capsys: pytest.CaptureFixture[str]) -> None:
    """The audit lists it, but no longer as a problem. The same loss of another batch is a problem."""
    DeltaTable(carried.table()).delete("id = 11")
    assert cli.execute(["audit", "orders.yaml", "--json"]) == 1
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    words = ["repair", "orders.yaml", "--accept", problem["id"], "--reason", "asked to be forgotten", "--yes", "--json"]
    assert cli.execute(words) == 0
    assert json.loads(capsys.readouterr().out)["audit"]["accepted"][0]["id"] == problem["id"]
    assert cli.execute(["audit", "orders.yaml"]) == 0
    assert "accepted" in capsys.readouterr().out
    (entry,) = [entry for entry in carried.journal.ledger.read() if entry.kind == "repair"]
    assert (entry.body["reason"], "@" in entry.body["who"]) == ("asked to be forgotten", True)
    DeltaTable(carried.table()).delete("id = 22")
    assert cli.execute(["audit", "orders.yaml"]) == 1


def test_a_repair_asks_before_it_changes_anything(carried: Carried, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal it needs `--yes`, and shows what it would do. Without a reason it does nothing."""
    DeltaTable(carried.table()).delete("id < 20")
    assert cli.execute(["repair", "orders.yaml", "--reason", "x"]) == 2
    assert "put the rows back as they were" in capsys.readouterr().err
    assert cli.execute(["repair", "orders.yaml", "--yes"]) == 2
    assert "needs a reason" in capsys.readouterr().err
    assert [entry.kind for entry in carried.journal.ledger.read()].count("repair") == 0


def test_a_repair_that_needs_a_user_exits_with_1(carried: Carried, capsys: pytest.CaptureFixture[str]) -> None:
    """If everything balances, it exits with 0."""
    assert cli.execute(["repair", "orders.yaml", "--reason", "x", "--yes"]) == 0
    assert capsys.readouterr().err == "Nothing is wrong.\n"
    shutil.rmtree(carried.table())
    assert cli.execute(["repair", "orders.yaml", "--reason", "x", "--yes"]) == 1
    out, err = capsys.readouterr()
    assert "Wherry can repair nothing by itself" in err
    assert "TABLE_GONE" in out
