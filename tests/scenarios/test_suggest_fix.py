"""For each cause of refused rows, Wherry tries common changes and shows the best one with its rows."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import SparkSession

from runners.command_line import cli
from runners.operations.suggest_fix import Suggestion, list_changes
from runners.running.choice import Choice
from runners.running.replay import Replay
from tests.scenarios.conftest import Place, list_files

pytestmark = pytest.mark.spark

DEFINITION = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, schema: "id long, amount string, day string, email string, mail string"}
stages:
  - cast: {amount: "decimal(10,2)", day: date}
  - require: {reachable: "email is not null"}
destinations:
  - delta: {path: tables/orders}
protect: [mail]
dlq: {window: 0}
"""


def format_order(number: int, amount: str = "1.50", day: str = "2026-01-31", **more: str | None) -> str:
    """Return an order as a line of JSON."""
    return json.dumps({"id": number, "amount": amount, "day": day, "email": "a@x.com", **more})


ROWS = [
    format_order(1),
    format_order(2, "2,50"),
    format_order(3, "1.234,50"),
    format_order(4, "sieben"),
    format_order(5, day="31.12.2026"),
    format_order(6, day="05.06.2026"),
    format_order(7, email=None, mail="b@x.com"),
    format_order(8, "1,234,567.5"),
    "no JSON",
]


def map_by_example(found: list[Suggestion]) -> dict[str, Suggestion]:
    """Return the suggestions by the example of their cause."""
    return {each.cause.example: each for each in found}


@pytest.fixture
def refused(place: Place) -> Place:
    """Provide a pipeline that has refused all rows except the first."""
    place.land("1.json", ROWS)
    place.load(DEFINITION).run()
    return place


@pytest.mark.promise("CD-30")
@pytest.mark.connect
def test_each_cause_gets_a_change_with_which_its_rows_pass(refused: Place) -> None:
    """Wherry writes nothing, and masks protected values."""
    before = list_files(refused.folder)
    found = [*refused.load().suggest_fixes()]
    assert list_files(refused.folder) == before
    facts = {
        example: (each.column, each.change.name if each.change else None, each.passing, each.tried)
        for example, each in map_by_example(found).items()
    }
    assert facts == {
        "'2,50'": ("amount", "a decimal comma", 1, 1),
        "'1.234,50'": ("amount", "points between thousands", 1, 1),
        "'sieben'": ("", None, 0, 0),
        "'1,234,567.5'": ("amount", "commas between thousands", 1, 1),
        "'31.12.2026'": ("day", "the format dd.MM.yyyy", 2, 2),
        "reachable: email is not null is false": ("email", "its value in the column mail", 1, 1),
        "this line is not a JSON object whose values have the types of the schema": ("", None, 0, 0),
    }
    assert "b@x.com" not in json.dumps([each.json() for each in found])


def test_the_pasted_line_delivers_the_rows(refused: Place) -> None:
    """The row that passed without the line does not change."""
    (found,) = refused.load().suggest_fixes(Choice(values=("day=31*",)))
    assert found.change
    line = f"  - with_columns: {json.dumps({found.column: found.change.expression})}\n"
    mended = DEFINITION.replace("  - cast:", f"{line}  - cast:")
    report = refused.load(mended).replay(Replay(choice=Choice(column="day"), reason="other days"))
    assert (report.read, report.nacked) == (2, 0)
    refused.land("2.json", [format_order(9)])
    refused.load(mended).run()
    days = {row["id"]: str(row["day"]) for row in refused.rows("tables/orders")}
    assert days == {1: "2026-01-31", 5: "2026-12-31", 6: "2026-06-05", 9: "2026-01-31"}


def test_the_output_has_lines_to_paste(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """It also names a change that fits too and gives other values."""
    place.land("1.json", [format_order(1, "1,234"), format_order(2, "5,678")])
    place.load(DEFINITION).run()
    assert cli.execute(["dlq", "suggest", str(place.folder / "pipeline.yaml"), "--quiet"]) == 0
    text = capsys.readouterr().out
    assert "commas between thousands: 2 of 2 rows would pass" in text
    assert 'amount: "1,234" becomes "1234"' in text
    assert '+ - with_columns: {"amount": "if(try_cast(amount AS decimal(10,2)) IS NULL, if(amount RLIKE' in text
    assert text.count("These fit as well, and give other values: a decimal comma\n") == 1
    assert "--code CAST --stage cast --column amount --reason 'commas between thousands'" in text


def test_without_a_waiting_row_there_is_nothing_to_suggest(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints one sentence."""
    place.land("1.json", [format_order(1)])
    place.load(DEFINITION).run()
    assert cli.execute(["dlq", "suggest", str(place.folder / "pipeline.yaml"), "--quiet"]) == 0
    assert capsys.readouterr().out == "No refused row waits.\n"


@pytest.mark.parametrize(
    ("kind", "text", "words", "value"),
    [
        ("int", " 7\u00a0", "blanks around it", "7"),
        ("double", "1 234.5", "blanks or apostrophes between thousands", "1234.5"),
        ("int", "1'234", "blanks or apostrophes between thousands", "1234"),
        ("decimal(10,2)", "€ 12.50", "a currency or a per cent sign", "12.50"),
        ("decimal(10,2)", "12,50 €", "a currency sign and a decimal comma", "12.50"),
        ("int", "12.0", "zeros behind a decimal point", "12"),
        ("int", "n/a", "a word for no value", None),
        ("date", "20261231", "the format yyyyMMdd", "2026-12-31"),
        ("timestamp", "31.12.2026 17:05", "the format dd.MM.yyyy HH:mm", "2026-12-31 17:05:00"),
        ("timestamp", "1798736700", "seconds since 1970", "2026-12-31 17:05:00"),
    ],
)
def test_a_change_converts_a_text_to_a_value(
    spark: SparkSession, kind: str, text: str, words: str, value: str | None
) -> None:
    """Without the change, the cast refuses the text."""
    change = next(each for each in list_changes("c", kind) if each.name == words)
    frame = spark.createDataFrame([(text,)], "c string")
    row = frame.selectExpr(
        f"try_cast(c AS {kind}) AS before", f"cast(try_cast({change.expression} AS {kind}) AS string) AS after"
    ).first()
    assert row is not None
    assert (row["before"], row["after"]) == (None, value)


@pytest.mark.parametrize(
    ("kind", "text"),
    [("decimal(10,2)", "1.50"), ("int", "-7"), ("date", "2026-01-02"), ("timestamp", "2026-01-02 03:04:05.6")],
)
def test_no_change_affects_a_value_that_can_be_cast(spark: SparkSession, kind: str, text: str) -> None:
    """A pasted line therefore does no harm to rows that pass now."""
    frame = spark.createDataFrame([(text,)], "c string")
    row = frame.selectExpr(*[each.expression for each in list_changes("c", kind)]).first()
    assert row is not None
    assert {*row} == {text}
