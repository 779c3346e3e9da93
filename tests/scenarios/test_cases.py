"""`wherry test` tries cases on the real stages."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from runners.command_line.commands import wherry
from runners.definitions.definition import load
from runners.model.errors import Refusal
from runners.operations.cases import Case
from runners.operations.run_cases import CaseRunner, run_cases
from runners.spark.session import obtain_for
from tests.scenarios.conftest import ORDERS, Place

pytestmark = pytest.mark.spark

TWO = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, schema: "id long, email string, amount string"}
stages:
  - with_columns: {today: "date(:batch_time)"}
destinations:
  - delta: {path: tables/all}
  - delta: {path: tables/large}
    stages: [{filter: "cast(amount as int) > 10"}, {with_columns: {size: "'large'"}}]
"""


TAGGED = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, schema: "id long"}
stages:
  - python: {function: "tag:tag", columns: {tag: string}}
destinations:
  - delta: {path: tables/orders}
"""


def try_cases(place: Place, text: str, *cases: Case) -> list[list[str]]:
    """Return the problems of each case."""
    return [list(result.problems) for result in run_cases(load(place.define(text)), cases)]


def make_case(name: str, *rows: dict[str, Any], **expected: Any) -> Case:
    return Case(name=name, rows=rows, **expected)


@pytest.mark.connect
def test_cases_are_tried_on_the_stages_and_nothing_is_written(place: Place) -> None:
    """A correct case passes. A wrong case reports the rows that came instead."""
    good = {"id": 1, "email": "A@X.ORG", "amount": "1.5"}
    before = [str(file) for file in place.folder.rglob("*")]
    found = try_cases(
        place,
        ORDERS,
        make_case("a", good, delivered=[{"id": 1, "email": "a@x.org", "amount": 1.5}]),
        make_case(
            "b", {**good, "amount": "x"}, {**good, "amount": "-1"}, refused=[{"code": "CAST"}, {"stage": "require"}]
        ),
        make_case("c", {"id": 2, "amount": "1"}, good, filtered=1, delivered=1, refused=0),
        make_case("d", good, good, delivered=[{"email": "A@X.ORG"}], filtered=1),
    )
    assert found[:3] == [[], [], []]
    assert found[3][0] == "delivered: expected 1, got 2"
    assert found[3][1].startswith('delivered: expected email "A@X.ORG", got "a@x.org" in {"id": 1')
    assert found[3][3:] == ["filtered: expected 1, got 0"]
    after = [str(file) for file in place.folder.rglob("*") if file.name != "pipeline.yaml"]
    assert after == before


def test_each_destination_gets_its_rows_at_the_time_of_the_case(place: Place) -> None:
    """The time of a case is fixed, and the same in every try."""
    rows = [{"id": 1, "amount": "5"}, {"id": 2, "amount": "50"}]
    large = [{"id": 2, "size": "large", "today": "2026-03-04"}]
    found = try_cases(
        place,
        TWO,
        make_case("a", *rows, at="2026-03-04 23:00", delivered={"all": [{"id": 1}, {"id": 2}], "large": large}),
        make_case("b", *rows, delivered={"all": [{"today": "2000-01-01"}] * 2, "large": 1}),
    )
    assert found == [[], []]


def test_a_file_is_read_by_the_origin(place: Place) -> None:
    """A broken line is refused, as in a run."""
    place.land("bad.json", [{"id": 1, "email": "a@x.org", "amount": "1"}, '{"id": 2, "am'], folder="samples")
    bad = Case(name="a", file=str(place.folder / "samples" / "bad.json"), delivered=1, refused=[{"stage": "origin"}])
    assert try_cases(place, ORDERS, bad) == [[]]


def test_a_stage_that_compares_rows_sees_only_one_case_at_a_time(place: Place) -> None:
    """The same id in two cases is not a duplicate."""
    text = ORDERS.replace("destinations:", "  - deduplicate: {keys: [id]}\ndestinations:")
    row = {"id": 1, "email": "a@x.org", "amount": "1"}
    found = try_cases(
        place, text, make_case("a", row, row, delivered=1, filtered=1), make_case("b", row, delivered=1, filtered=0)
    )
    assert found == [[], []]


def test_a_stage_that_makes_other_rows_can_be_tried(place: Place) -> None:
    """The case compares the rows that the stage makes."""
    text = ORDERS.replace(
        "destinations:", '  - sql: "SELECT email, count(*) AS n FROM rows GROUP BY email"\ndestinations:'
    )
    row = {"id": 1, "email": "a@x.org", "amount": "1"}
    case = make_case("a", row, row, {**row, "email": "b@x.org"}, delivered=[{"email": "a@x.org", "n": 2}, {"n": 1}])
    assert try_cases(place, text, case) == [[]]


def test_fifty_cases_share_one_query(place: Place) -> None:
    """Wherry groups cases if every stage treats each row alone."""
    definition = load(place.define(ORDERS))
    cases = [make_case(str(number), {"id": number, "amount": "1"}, filtered=1) for number in range(50)]
    runner = CaseRunner(definition, obtain_for(definition.pipeline))
    assert [len(group) for group in runner.group(cases)] == [50]
    assert {tuple(result.problems) for result in run_cases(definition, cases)} == {()}


def test_a_row_that_does_not_fit_the_origin_is_refused(place: Place) -> None:
    """The error suggests a column, or names the case with the wrong row."""
    with pytest.raises(Refusal, match="did you mean 'email'"):
        try_cases(place, ORDERS, make_case("a", {"id": 1, "emial": "x"}, delivered=1))
    with pytest.raises(Refusal, match="A row does not fit the columns of its origin, in one of these cases: 'a'"):
        try_cases(place, ORDERS, make_case("a", {"id": "x"}, delivered=1))


def test_the_command_prints_each_case_and_exits_with_1_if_one_fails(place: Place) -> None:
    """With `--json`, it prints the same facts for a program."""
    file = place.define(ORDERS)
    row = "rows: [{id: 1, amount: '1'}]"
    text = f"cases:\n- {{name: it passes, {row}, filtered: 1}}\n- {{name: it fails, {row}, delivered: 1}}\n"
    Path(place.folder, "pipeline.test.yaml").write_text(text)
    ended = CliRunner().invoke(wherry, ["test", str(file), "--quiet"], standalone_mode=False)
    assert ended.return_value == 1, ended
    assert "passed  it passes\nFAILED  it fails\n        delivered: expected 1, got 0\n" in ended.output
    ended = CliRunner().invoke(
        wherry, ["test", str(file), "--quiet", "--json", "--case", "it passes"], standalone_mode=False
    )
    assert (ended.return_value, json.loads(ended.output)["cases"]) == (
        0,
        [{"case": "it passes", "passed": True, "problems": []}],
    )


def test_cases_are_tried_again_after_each_change_until_ctrl_c(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions and the modules beside them are imported again. A mistake in a file does not end the command."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr("click.clear", lambda: None)
    file, beside = place.define(TAGGED), place.folder / "beside.py"
    tag = "from beside import NAME\n\ndef tag(rows):\n    return [{**row, 'tag': NAME} for row in rows]\n"
    (place.folder / "tag.py").write_text(tag)
    beside.write_text("NAME = 'a'\n")
    case = "cases: [{name: tagged, rows: [{id: 1}], delivered: [{tag: a}]}]"
    (place.folder / "pipeline.test.yaml").write_text(case)
    moments: Iterator[Callable[[], int]] = iter(
        [
            lambda: beside.write_text("NAME = 'b'\n"),
            lambda: (place.folder / "tag.py").write_text("def tag(rows:\n"),
            lambda: (place.folder / "tag.py").write_text(tag.replace("'tag': NAME", "'tag': 'a'")),
            lambda: file.write_text(TAGGED.replace("function", "functon")),
        ]
    )

    def pause(_: float) -> None:
        moment = next(moments, None)
        if moment is None:
            raise KeyboardInterrupt
        moment()

    from runners.operations.cases import watch_cases

    monkeypatch.setattr("runners.command_line.trial_commands.watch_cases", partial(watch_cases, pause=pause))
    ended = CliRunner().invoke(wherry, ["test", str(file), "--quiet", "--watch"], standalone_mode=False)
    assert (ended.return_value, ended.exception) == (0, None)
    tries = ended.output.split("\nWherry waits for a change. To end:  Ctrl-C\n")
    assert [piece.count("passed  tagged") for piece in tries] == [1, 0, 0, 1, 0, 0]
    assert 'changed: beside.py\n\nFAILED  tagged\n        delivered: expected tag "a", got "b"' in tries[1]
    assert "changed: tag.py\n" in tries[2]
    assert "its module raises SyntaxError" in tries[2]
    assert "changed: pipeline.yaml\n" in tries[4]
    assert "functon" in tries[4]
