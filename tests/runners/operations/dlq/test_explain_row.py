"""What `dlq explain` shows about one refused row. Without Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from runners.command_line import cli
from runners.definitions.definition import Definition, load
from runners.model.entry import Entry
from runners.model.errors import Refusal
from runners.operations.explain_row import TriedRow, load_refused_row
from runners.operations.printing_state import format_refused_row
from runners.operations.trace import TracedRow
from runners.pipeline import Pipeline
from runners.state.journal import Journal
from runners.state.location import StateLocation
from tests.runners.running.letterbox import append_letters, make_letters

ORDERS = """
name: orders
origin: {memory: {schema: "id long, amount string"}, name: origin}
stages:
  - require: {positive: "amount > 0"}
  - cast: {amount: int}
destinations: [{memory: {}}]
state: state
"""


@pytest.fixture
def definition(tmp_path: Path) -> Definition:
    """A definition whose state has two rows that `require` refused, and one row that `cast` refused."""
    made = read_definition(tmp_path, ORDERS)
    record_opening(made)
    refused = make_letters(1, 2, stage="require", code="positive", message="positive: amount > 0 is false")
    rows = [{**each, "row": '{"id": 7, "amount": "-1"}', "definition": made.hash} for each in refused]
    append_letters(tmp_path / "state" / "dlq", [*rows, *make_letters(3, definition="gone", part="landing/a.csv")])
    return made


def read_definition(folder: Path, text: str) -> Definition:
    (folder / "orders.yaml").write_text(text)
    return load(folder / "orders.yaml")


def record_opening(definition: Definition) -> None:
    """Record a definition in the ledger, as a run does when it opens."""
    journal = Journal(StateLocation.of(definition.pipeline).open_ledger(None))
    body = {"pipeline": "orders", "definition": definition.text, "hash": definition.hash}
    journal.ledger.append([Entry(kind="open", body=body)], after=journal.state.seq)


def test_a_row_is_explained_with_the_values_that_its_rule_read(definition: Definition) -> None:
    """The message has only the rule. The column that the rule reads gives the values."""
    row = load_refused_row(definition, "p/1")
    assert (row.refuser, row.state, row.position, row.alike) == ("require", "waiting", 1, 1)
    assert row.values == {"amount": "-1"}


def test_an_unknown_id_is_named(definition: Definition) -> None:
    """The message names the id, even if it has a quote."""
    with pytest.raises(Refusal, match="The DLQ has no row p/9"):
        load_refused_row(definition, "p/9")
    with pytest.raises(Refusal, match="The DLQ has no row it's/1"):
        load_refused_row(definition, "it's/1")


def test_a_rule_name_may_have_a_quote(definition: Definition, tmp_path: Path) -> None:
    """Rows with the same rule are counted."""
    append_letters(tmp_path / "state" / "dlq", make_letters(7, 8, 9, code="it's", stage="a 'b'"))
    assert load_refused_row(definition, "p/8").alike == 2


def test_protected_values_are_masked(definition: Definition, tmp_path: Path) -> None:
    """Values are masked in the row, and in the values beside the message."""
    hidden = read_definition(tmp_path, f"{ORDERS}protect: [amount]\n")
    row = load_refused_row(hidden, "p/1")
    assert "-1" not in json.dumps([dict(row.letter), dict(row.values)])
    assert load_refused_row(hidden, "p/1", reveal=True).values == {"amount": "-1"}


TODAY = TracedRow(row={"id": 7}, outcome="wanted", destinations=["memory"])


@pytest.mark.parametrize(
    ("tried", "line"),
    [
        (TriedRow(today=TODAY), "it would go to memory"),
        (
            TriedRow(today=replace(TODAY, filtered_for={"b": "b/filter"})),
            "it would go to memory; b/filter would filter it",
        ),
        (TriedRow(today=replace(TODAY, outcome="filtered", stage="f", destinations=[])), "f would filter it"),
        (
            TriedRow(today=replace(TODAY, outcome="rejected", stage="cast", message="no", destinations=[])),
            "cast would refuse it: no",
        ),
        (
            TriedRow(today=replace(TODAY, outcome="changed", stage="sql")),
            "it would pass up to sql, which makes other rows",
        ),
        (TriedRow(why_not="it is gone"), "it cannot be tried: it is gone"),
    ],
)
def test_the_outcome_of_a_row_today_is_shown(
    definition: Definition,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    tried: TriedRow,
    line: str,
) -> None:
    """For a row that would pass, the commands that deliver it and all rows with its cause are shown. For a row that
    would be refused, the command that tries a fix is shown.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("runners.operations.explain_row.RefusedRow.try_again", lambda self: tried)
    assert cli.execute(["dlq", "explain", "orders.yaml", "p/1"]) == 0
    shown = capsys.readouterr().out
    assert f"today    {line}\n" in shown
    assert 'amount is "-1"' in shown
    alike, refused = "--code positive --stage require", tried.today is not None and tried.today.outcome == "rejected"
    assert ("wherry dlq replay orders.yaml --id p/1" in shown) == tried.passes
    assert (f'wherry dlq replay orders.yaml {alike} --reason "…"\n' in shown) == tried.passes
    assert (f'wherry dlq replay orders.yaml {alike} --set "COLUMN=EXPR" --dry-run\n' in shown) == refused
    assert cli.execute(["dlq", "explain", "orders.yaml", "p/3"]) == 0
    assert "all alike" not in capsys.readouterr().out


def test_an_id_is_not_taken_for_a_definition_file(
    definition: Definition,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """The definition may be omitted."""
    plan = "0123456789abcdef" * 2
    append_letters(tmp_path / "state" / "dlq", make_letters(4, plan=plan))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("runners.operations.explain_row.RefusedRow.try_again", lambda self: TriedRow(today=TODAY))
    assert cli.execute(["dlq", "explain", f"{plan}/4", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["id"], shown["position"], shown["today"]["destinations"]) == (f"{plan}/4", 4, ["memory"])
    command = f'wherry dlq replay orders.yaml --id {plan}/4 --reason "…"'
    assert shown["next"][0] == {"what": "Deliver it", "command": command}
    assert cli.execute(["dlq", "explain", "orders.yaml"]) == 2
    assert "Missing argument ID" in capsys.readouterr().err


def test_python_explains_a_row(definition: Definition) -> None:
    """`Pipeline.refused.explain` returns the row."""
    assert Pipeline.of(definition.pipeline).refused.explain("p/2").letter["id"] == "p/2"


def test_a_row_that_failed_again_names_its_first_entry(definition: Definition, tmp_path: Path) -> None:
    """It lists all earlier entries, through each replay that refused the row."""
    append_letters(
        tmp_path / "state" / "dlq", make_letters(1, plan="q", replays="p/1") + make_letters(1, plan="r", replays="q/1")
    )
    row = load_refused_row(definition, "r/1")
    assert list(row.earlier) == ["p/1", "q/1"]
    facts = row.json(TriedRow())
    assert (facts["replays"], facts["first"], facts["earlier"]) == ("q/1", "p/1", ["p/1", "q/1"])
    assert "earlier  row p/1, which was replayed\n         row q/1, which was replayed" in format_refused_row(row)
