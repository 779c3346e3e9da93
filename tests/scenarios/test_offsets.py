"""When a user moves offsets, Wherry first shows what will happen, and then it happens."""

from __future__ import annotations

import json

import pytest

from runners.command_line import cli
from runners.model.errors import Refusal
from runners.operations.offsets import carry_out, plan_rewind, plan_set
from tests.scenarios.conftest import ORDERS, Place, make_order

pytestmark = [pytest.mark.spark]

KINDS = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, schema: "id long, email string, amount string"}
destinations:
  - delta: {path: tables/added}
  - delta: {path: tables/merged, mode: merge, keys: [id], sequence_by: amount}
  - delta: {path: tables/replaced, mode: replace}
  - files: {path: out, format: json}
  - python: "load:write"
    name: function
run: {batch: {files: 1}}
"""
LOAD = """
import pathlib

def write(rows, label):
    with pathlib.Path(__file__).with_name("given.txt").open("a") as file:
        file.write("".join(f"{row.id} " for row in rows.collect()))
"""


def carry_orders(place: Place) -> None:
    for number in range(1, 4):
        place.land(f"{number}.json", [make_order(number)])
    place.load(ORDERS).run()


@pytest.mark.promise("SS-12", "CD-27")
def test_a_rewind_repeats_the_batches_that_it_announced(place: Place) -> None:
    """Two batches of one row each are delivered again under new numbers, and the table has their rows twice. A move
    needs a reason, and no offset of files can be set."""
    carry_orders(place)
    with pytest.raises(Refusal, match="no offset can be set"):
        plan_set(place.load(), "0", 7)
    move = plan_rewind(place.load(), batches=2)
    assert (move.lanes["0"].batches, move.lanes["0"].rows) == (2, 2)
    assert "twice" in move.destinations["orders"]
    with pytest.raises(Refusal, match="needs a reason"):
        carry_out(place.load(), move, reason=" ")
    carry_out(place.load(), move, reason="the prices were wrong")
    report = place.load().run()
    assert (report.batches, place.ids("tables/orders")) == (2, [1, 2, 2, 3, 3])
    assert place.load().offsets.read().lanes["0"]["number"] == 5


def test_an_invalid_offset_is_refused(place: Place) -> None:
    """An offset beyond the end is invalid too, because no row would ever be delivered after it."""
    text = "name: made\norigin: {generate: {rows: 6}}\ndestinations: [log: {}]\n"
    for offset in ("x", -1, 7, 2.5, True, {"file": "a"}):
        with pytest.raises(Refusal, match="expected a number from 0 to 6"):
            plan_set(place.load(text), "0", offset)


@pytest.mark.promise("SS-12")
def test_the_announced_effect_on_each_kind_of_destination_happens(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table and files get rows twice, a merge keeps one row for each key, `replace` replaces, and a function gets the
    rows again."""
    (place.folder / "load.py").write_text(LOAD)
    for number in (1, 2):
        place.land(f"{number}.json", [make_order(number)])
    place.load(KINDS).run()
    file = str(place.folder / "pipeline.yaml")
    capsys.readouterr()
    assert cli.execute(["offsets", "--to-beginning", file, "--reason", "the prices were wrong", "--yes"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "0 2.json, changed " in said
    assert " the beginning 2 2 " in said
    for name, what in {
        "added": "gets the rows again; rows that it has already will be there twice",
        "merged": "merges the rows again; each key keeps the row",
        "replaced": "gets the rows again; the run's first batch replaces the table",
        "out": "gets the rows again; rows that it has already will be there twice",
        "function": "is given the rows again",
    }.items():
        assert f"{name} {what}" in said
    assert cli.execute(["run", file]) == 0
    assert [place.ids(f"tables/{name}") for name in ("added", "merged", "replaced")] == [[1, 1, 2, 2], [1, 2], [1, 2]]
    lines = [line for part in (place.folder / "out").rglob("*.json") for line in part.read_text().splitlines()]
    assert sorted(json.loads(line)["id"] for line in lines if '"amount"' in line) == [1, 1, 2, 2]
    assert (place.folder / "given.txt").read_text().split() == ["1", "2", "1", "2"]
