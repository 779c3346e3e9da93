"""`wherry preview --save-case` writes a case from the rows that wait, and `wherry test` tries it."""

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
  - with_columns: {domain: "try_element_at(split(email, '@'), 2)", at: ":batch_time"}
  - with_columns: {random: "uuid()", told: "'${secret:KEY}'"}
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
    """Provide seven orders that wait. Two would be delivered, one filtered, and the others refused."""
    monkeypatch.setenv("KEY", HIDDEN)
    monkeypatch.chdir(place.folder)
    place.land("a.json", ROWS)
    place.define(DEFINITION)
    return place.folder


def type_command(*words: str) -> Result:
    return CliRunner().invoke(wherry, [*words, "--quiet"], standalone_mode=False)


@pytest.mark.connect
def test_a_saved_case_passes_and_holds_no_protected_value_or_secret(shop: Path) -> None:
    """It expects what the stages make of the masked rows. Nothing else is written."""
    ended = type_command("preview", "pipeline.yaml", "--save-case", "pipeline.test.yaml")
    assert ended.return_value is None, ended
    assert not Path("tables").exists()
    text = Path("pipeline.test.yaml").read_text()
    for value in (*PEOPLE, "eve.brown", "lovelace", "1815-12-10", "1999-02-03", HIDDEN):
        assert value not in text
        assert value not in ended.output
    (case,) = load_cases(Path("pipeline.test.yaml"))
    assert [row["id"] for row in case.rows] == [1, 2, 3, 4, 5, 6]
    assert case.rows[0] == {"id": 1, "email": "a***@example.org", "amount": "10", "born": "2000-01-01"}
    assert case.rows[2]["amount"] == "of c***"
    delivered, refused = case.delivered, case.refused
    assert isinstance(delivered, dict)
    assert isinstance(refused, tuple)
    ids = {name: [row["id"] for row in rows] for name, rows in delivered.items()}
    assert ids == {"orders": [1, 2, 6], "large": [2]}
    assert delivered["orders"][0]["domain"] == "example.org"
    assert not {"random", "told"} & delivered["orders"][0].keys()
    assert [(row["code"], row["row"]["id"]) for row in refused] == [("CAST", 3), ("POSITIVE", 4)]
    assert (case.filtered, case.fails) == (1, False)
    assert "Saved 6 rows in pipeline.test.yaml. Try them:  wherry test pipeline.yaml\n" in ended.output
    tested = type_command("test", "pipeline.yaml")
    assert (tested.return_value, tested.output.splitlines()[0][:17]) == (0, "passed  previewed")
    Path("pipeline.yaml").write_text(DEFINITION.replace("amount > 0", "amount > -5"))
    assert type_command("test", "pipeline.yaml").return_value == 1
