"""`wherry run --record` writes a case from the rows of a run, and `wherry test` tries it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from runners.command_line.commands import wherry
from runners.operations.cases import load_cases
from tests.scenarios.conftest import Place

pytestmark = pytest.mark.spark

HIDDEN = "s3cretvalue"
DEFINITION = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, schema: "id long, email string, amount string, born date"}
stages:
  - cast: {amount: "decimal(10,2)"}
  - require: {POSITIVE: "amount > 0", NOT_IT: "email <> '${secret:KEY}'"}
  - filter: "id <> 5"
  - with_columns: {domain: "split(email, '@')[1]", at: ":batch_time", random: "uuid()", told: "'${secret:KEY}'"}
destinations:
  - delta: {path: tables/orders}
  - name: large
    delta: {path: tables/large}
    stages: [{filter: "amount > 50"}]
dlq: {window: 0}
protect: [email, born]
"""
PEOPLE = ["ada.lovelace@x.org", "bea.smith@y.org", "cyd.miller@x.org", "dot.jones@y.org"]
ROWS: list[dict[str, Any] | str] = [
    {"id": 1, "email": PEOPLE[0], "amount": "10", "born": "1815-12-10"},
    {"id": 2, "email": PEOPLE[1], "amount": "100", "born": "1999-02-03"},
    {"id": 3, "email": PEOPLE[2], "amount": f"of {PEOPLE[2]}"},
    {"id": 4, "email": PEOPLE[3], "amount": "-1", "born": "1815-12-10"},
    {"id": 5, "email": PEOPLE[0], "amount": "1"},
    {"id": 6, "email": HIDDEN, "amount": "6"},
    '{"id": 7, "email": "eve.brown@x.org',
]


@pytest.fixture
def shop(place: Place, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide seven orders. Two are delivered, one is filtered, and the others are refused."""
    monkeypatch.setenv("KEY", HIDDEN)
    monkeypatch.chdir(place.folder)
    place.land("a.json", ROWS)
    place.define(DEFINITION)
    return place.folder


def type_command(*words: str) -> Result:
    return CliRunner().invoke(wherry, [*words, "--quiet"], standalone_mode=False)


@pytest.mark.connect
def test_a_recorded_case_passes_and_holds_no_protected_value_or_secret(shop: Path) -> None:
    """It has a row of each kind whose outcome does not depend on a masked value."""
    ended = type_command("run", "pipeline.yaml", "--record", "pipeline.test.yaml")
    assert ended.return_value == 0, ended
    text = Path("pipeline.test.yaml").read_text()
    for value in (*PEOPLE, "eve.brown", "lovelace", "1815", "1999", HIDDEN):
        assert value not in text
        assert value not in ended.output
    (case,) = load_cases(Path("pipeline.test.yaml"))
    assert [row["id"] for row in case.rows] == [1, 2, 3, 4, 5]
    assert case.rows[0] == {"id": 1, "email": "a***@example.org", "amount": "10", "born": "2000-01-01"}
    assert case.rows[2]["amount"] == "of c***"
    delivered, refused = case.delivered, case.refused
    assert isinstance(delivered, dict)
    assert isinstance(refused, tuple)
    assert {name: [row["id"] for row in rows] for name, rows in delivered.items()} == {"orders": [1, 2], "large": [2]}
    assert delivered["orders"][0]["domain"] == "example.org"
    assert not {"random", "told"} & delivered["orders"][0].keys()
    assert [(row["code"], row["row"]["id"]) for row in refused] == [("CAST", 3), ("POSITIVE", 4)]
    assert (case.filtered, case.fails) == (1, False)
    assert "7 read, 2 delivered to orders, 1 delivered to large, 1 filtered, 4 refused" in text
    assert "1 row is left out: with masked values" in ended.output
    assert "leaves out rows that could not be read" in ended.output
    assert "Recorded 5 rows in pipeline.test.yaml. Try them:  wherry test pipeline.yaml\n" in ended.output
    tested = type_command("test", "pipeline.yaml")
    assert (tested.return_value, tested.output.splitlines()[0][:16]) == (0, "passed  recorded")
    Path("pipeline.yaml").write_text(DEFINITION.replace("amount > 0", "amount > -5"))
    assert type_command("test", "pipeline.yaml").return_value == 1


def test_a_run_that_a_refused_row_stops_is_recorded_into_an_existing_file(shop: Path) -> None:
    """Existing cases stay, and the number of rows is limited. After a stage that makes other rows, the case expects the
    result of the masked rows together."""
    made = "  - sql: SELECT amount > 5 AS large, count(*) AS n FROM rows GROUP BY 1\n"
    plain = DEFINITION[: DEFINITION.index("  - with_columns")] + made
    rest = "destinations: [delta: {path: tables/sums}]\ndlq: {window: 10}\nprotect: [email, born]\n"
    Path("pipeline.yaml").write_text(plain + rest)
    old = "# ours\ncases:\n  - {name: old, rows: [{id: 5, email: a, amount: '1'}], filtered: 1}\n"
    Path("others.test.yaml").write_text(old)
    ended = type_command("run", "pipeline.yaml", "--record", "others.test.yaml", "--record-rows", "4")
    assert ended.return_value == 1
    said = "Recorded 4 rows in others.test.yaml. Try them:  wherry test pipeline.yaml --cases others.test.yaml"
    assert said in ended.output
    assert Path("others.test.yaml").read_text().startswith(old)
    case = load_cases(Path("others.test.yaml"))[1]
    assert ([row["id"] for row in case.rows], case.delivered) == ([1, 3, 4, 6], ({"large": True, "n": 2},))
    assert not any(person in Path("others.test.yaml").read_text() for person in PEOPLE)
    tested = type_command("test", "pipeline.yaml", "--cases", "others.test.yaml")
    assert (tested.return_value, tested.output.count("passed  ")) == (0, 2), tested


def test_a_run_without_a_batch_or_with_an_unsuitable_file_records_nothing(shop: Path) -> None:
    """The unsuitable file is reported before the run begins."""
    before = Path("pipeline.yaml").read_text()
    with pytest.raises(Exception, match="cases"):
        CliRunner().invoke(
            wherry, ["run", "pipeline.yaml", "--record", "pipeline.yaml"], standalone_mode=False, catch_exceptions=False
        )
    assert (Path("pipeline.yaml").read_text(), Path("tables").exists()) == (before, False)
    for file in Path("landing").iterdir():
        file.unlink()
    ended = type_command("run", "pipeline.yaml", "--record", "new.test.yaml")
    assert (ended.return_value, Path("new.test.yaml").exists()) == (0, False)
    assert "No case was recorded: the run had no batch." in ended.output
