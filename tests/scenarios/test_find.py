"""`find` shows what happened to rows, by batch, table and DLQ entry."""

from __future__ import annotations

import json
import os
from datetime import datetime
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from pyspark import SparkContext

from runners.command_line.commands import wherry
from runners.model.errors import Refusal
from runners.operations import find_rows, tracer
from runners.operations.tracer import Tracer
from runners.pipeline import Pipeline
from runners.running.choice import Choice
from runners.running.replay import Replay
from runners.spark.late import LateSession, LateSpark
from runners.spark.session import obtain
from tests.scenarios.conftest import ORDERS, Place, list_files, make_order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.spark

TWO = ORDERS.replace(
    "  - delta: {path: tables/orders}\n",
    "  - delta: {path: tables/orders}\n"
    '  - delta: {path: tables/large}\n    stages: [{filter: "amount > 5", name: large_only}]\n',
)
MENDED = TWO.replace(
    '  - cast: {amount: "decimal(10,2)"}\n',
    """  - with_columns: {amount: "case amount when 'two' then '2.00' else amount end"}
  - cast: {amount: "decimal(10,2)"}
""",
)


@pytest.mark.connect
def test_each_matching_row_is_delivered_filtered_rejected_or_replayed(place: Place) -> None:
    """Rows are shown by batch and table version, by stage, and by their state in the DLQ. Nothing is written."""
    place.land("1.json", [make_order(1), make_order(2, amount="two"), make_order(9)])
    place.load(TWO).run()
    place.land("2.json", [make_order(3, email=None), make_order(4, amount="9.00"), make_order(5, amount="five")])
    place.load().run()
    pipeline = place.load(MENDED)
    pipeline.replay(Replay(choice=Choice(where="original like '%two%'"), reason="two is a number"))
    before = list_files(place.folder)
    found = pipeline.find(where="id between 1 and 5")
    assert list_files(place.folder) == before
    assert (found.searched, found.matching, found.read) == (2, 2, 5)
    assert [(batch.number, batch.read) for batch in found.batches] == [(2, 3), (1, 2)]
    assert (found.count("filtered"), found.count("rejected")) == ({"filter": 1, "large/large_only": 2}, {"cast": 1})
    assert found.count("wanted") == {"orders": 3, "large": 1}
    orders, large = found.destinations["orders"], found.destinations["large"]
    assert (orders.rows, large.rows) == (3, 1)
    assert [(write.batches, write.rows) for write in orders.writes] == [
        ((("dlq/files", 1),), 1),
        ((("0", 2),), 1),
        ((("0", 1),), 1),
    ]
    assert [write.version for write in large.writes] == [2]
    assert found.dlq.states == {"open": 1, "replayed": 1, "discarded": 0}
    assert {(row.row["id"], row.state, row.code) for row in found.dlq.rows} == {
        (2, "replayed", "CAST"),
        (5, "open", "CAST"),
    }
    traced = {row.row["id"]: (row.outcome, row.stage, tuple(row.destinations)) for row in found.batches[0].rows}
    assert traced == {
        3: ("filtered", "filter", ()),
        4: ("wanted", "", ("orders", "large")),
        5: ("rejected", "cast", ()),
    }


def test_a_row_that_loses_against_another_row_counts_as_filtered(place: Place) -> None:
    """The whole batch passes the stage that compares rows, although only one of them matches."""
    place.land("1.json", [make_order(1, amount="1.00"), make_order(1, amount="2.00")])
    deduplicate = '  - deduplicate: {keys: [id], sequence_by: amount}\n  - filter: "email is not null"\n'
    pipeline = place.load(ORDERS.replace('  - filter: "email is not null"\n', deduplicate))
    pipeline.run()
    found = pipeline.find(where="amount = '1.00'")
    assert (found.read, found.count("filtered"), found.count("wanted")) == (1, {"deduplicate": 1}, {"orders": 0})


def test_a_row_is_followed_to_a_stage_that_makes_other_rows(place: Place) -> None:
    """The rows that the stage makes from matching rows are counted after it."""
    place.land("1.json", [make_order(1), make_order(2)])
    pipeline = place.load(ORDERS.replace("  - with_columns:", '  - sql: "select * from rows"\n  - with_columns:'))
    pipeline.run()
    found = pipeline.find(where="id = 2")
    (row,) = found.batches[0].rows
    assert (found.read, found.count("wanted"), row.outcome, row.stage) == (1, {"orders": 1}, "changed", "sql")


def test_missing_files_are_named_and_tables_are_still_searched(place: Place) -> None:
    """The output states that filtered rows of these files cannot be distinguished from rows that never existed."""
    place.land("1.json", [make_order(1)])
    pipeline = place.load(ORDERS)
    pipeline.run()
    (place.folder / "landing/1.json").unlink()
    place.land("2.json", [make_order(2)])
    found = pipeline.find(where="id = 1")
    assert (found.searched, found.read, [each.number for each in found.unread]) == (0, 0, [1])
    assert found.destinations["orders"].rows == 1
    assert "Wherry can no longer distinguish filtered rows" in " ".join(str(found).split())


def test_stages_that_read_tables_in_their_present_version_are_named(place: Place) -> None:
    """A delivered row counts as filtered at such a stage, and the destination shows the row."""
    place.land("1.json", [make_order(1)])
    against = "  - deduplicate: {keys: [id], sequence_by: amount, against: {path: tables/orders}}\n    name: new_only\n"
    pipeline = place.load(ORDERS.replace('  - filter: "email is not null"\n', against))
    pipeline.run()
    found = pipeline.find(where="id = 1")
    assert (found.count("filtered"), found.destinations["orders"].rows) == ({"new_only": 1}, 1)
    (notice,) = found.notices
    assert "as they are now: new_only." in notice
    assert "as they are now: new_only." in " ".join(str(found).split())


def test_a_line_that_cannot_be_read_matches_no_condition(place: Place) -> None:
    """It matches neither in a batch nor in the DLQ."""
    place.land("1.json", [make_order(1), make_order(2, email=None), "{"])
    pipeline = place.load(ORDERS)
    pipeline.run()
    found = pipeline.find(where="email is null")
    assert (found.read, found.count("filtered"), found.count("rejected")) == (1, {"filter": 1}, {})
    assert sum(found.dlq.states.values()) == 0
    assert found.dlq.why == (
        "1 refused line could not be read, so it has no columns to search. See:  wherry dlq show FILE --code PARSE"
    )


def test_a_time_without_a_zone_is_in_utc(place: Place) -> None:
    """The same holds when rows of the DLQ are chosen."""
    place.land("1.json", [make_order(1), make_order(2, amount="two")])
    pipeline = place.load(ORDERS)
    pipeline.run()
    found = pipeline.find(where="id < 3", since=datetime(2026, 1, 31))
    assert (found.since, found.searched) == ("2026-01-31T00:00:00+00:00", 1)
    assert found.dlq.states["open"] == 1


def test_all_rows_of_the_dlq_are_counted_and_the_newest_fetched(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other rows are not loaded into memory."""
    place.land("1.json", [make_order(number, amount="two") for number in range(3)])
    pipeline = place.load(ORDERS)
    pipeline.run()
    fetched: list[Row] = []
    kind = type(obtain().range(0))
    collect = kind.collect

    def watch(frame: DataFrame) -> list[Row]:
        rows = collect(frame)
        fetched.extend(row for row in rows if "two" in str(row) and "text" in str(row))
        return rows

    monkeypatch.setattr(find_rows, "SHOWN", 1)
    monkeypatch.setattr(kind, "collect", watch)
    found = pipeline.find(where="amount = 'two'")
    assert found.dlq.states["open"] == 3
    assert len(found.dlq.rows) == len(fetched) == 1


@pytest.mark.skipif("SPARK_REMOTE" in os.environ, reason="on Connect no plan can be asked for")
def test_the_rows_of_the_dlq_are_parsed_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest rows, which are shown, are read by their ids."""
    from pyspark.sql.classic.dataframe import DataFrame

    place.land("1.json", [make_order(number, amount="x") for number in range(1, 31)])
    pipeline = place.load(TWO)
    pipeline.run()
    plans: list[str] = []

    def watch(of: str) -> None:
        get = getattr(DataFrame, of)

        def get_and_keep(frame: DataFrame) -> object:
            plans.append(frame._jdf.queryExecution().optimizedPlan().toString())
            return get(frame)

        monkeypatch.setattr(DataFrame, of, get_and_keep)

    for of in ("collect", "toArrow"):
        watch(of)
    found = pipeline.find(where="id > 5")
    assert found.dlq.states["open"] == 25
    assert [row.row["id"] for row in found.dlq.rows] == [*range(6, 26)]
    assert len([plan for plan in plans if "from_json" in plan and "nacked_at" in plan]) == 1


def test_a_search_that_begins_with_the_dlq_starts_spark(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """This happens if an origin has no schema yet and no destination is a table."""
    place.land("1.json", [make_order(1, amount="two")])
    pipeline = place.load(ORDERS.replace("delta: {path: tables/orders}", "discard: {}"))
    pipeline.run()
    context = SparkContext._active_spark_context

    def begin() -> SparkSession:
        monkeypatch.setattr(SparkContext, "_active_spark_context", context)
        return place.spark

    session = LateSession(LateSpark(begin, {}), lambda given: given)
    monkeypatch.setattr(tracer, "open_session", lambda _: session)
    monkeypatch.setattr(Tracer, "find_schema", lambda *_: None)
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    found = pipeline.find(where="id = 1")
    assert (found.dlq.states["open"], found.dlq.rows[0].row["amount"]) == (1, "two")


def test_protected_columns_stay_masked(place: Place) -> None:
    """They are masked in rows as read, and in rows of the DLQ."""
    place.land("1.json", [make_order(1), make_order(2, amount="two")])
    pipeline = place.load(ORDERS + "protect: [email]\n")
    pipeline.run()
    said = json.dumps(pipeline.find(where="id < 3").json())
    assert "@X.COM" not in said
    assert "***" in said


@pytest.mark.connect
@pytest.mark.parametrize("where", ["amount = 2", "amount between 2 and 3 or id = 5", "cast(amount as int) = 2"])
def test_a_row_whose_value_cannot_be_compared_does_not_match(place: Place, where: str) -> None:
    """It matches neither in a batch, nor in a table, nor in the DLQ. It is counted."""
    text = TWO.replace("  - cast:", "  - filter: \"amount <> 'pack'\"\n  - cast:")
    place.land(
        "1.json",
        [
            make_order(1, amount="two"),
            make_order(2, amount="2"),
            make_order(3, amount=None),
            make_order(4, amount="pack"),
        ],
    )
    pipeline = place.load(text.replace("dlq:", "keep_filtered: 30d\ndlq:"))
    pipeline.run()
    found = pipeline.find(where=where)
    assert (found.read, found.not_compared, found.count("wanted")) == (1, 2, {"orders": 1, "large": 0})
    assert [row.row["id"] for row in found.batches[0].rows] == [2]
    assert (found.destinations["orders"].rows, sum(found.dlq.states.values()), found.dlq.why) == (1, 0, "")
    assert found.kept is not None
    assert "2 rows could not be compared" in str(found)


@pytest.mark.connect
@pytest.mark.parametrize("where", ["100 / (id - 4) < 0", "element_at(array(7), cast(id as int)) = 7"])
def test_a_row_at_which_a_function_raises_does_not_match(place: Place, where: str) -> None:
    """Stages keep their rules during the search, and refuse values that they cannot convert."""
    place.land("1.json", [make_order(4), make_order(1, amount="two")])
    pipeline = place.load(ORDERS)
    pipeline.run()
    found = pipeline.find(where=where)
    assert (found.read, found.count("rejected"), found.dlq.states["open"]) == (1, {"cast": 1}, 1)


def test_the_definition_that_init_writes_for_csv_can_be_searched_by_a_number(place: Place) -> None:
    """A CSV file has text in every column, and one value is not a number."""
    landing = place.folder / "landing"
    landing.mkdir()
    lines = ["order_id,customer_id", *(f"{number},{number + 40}" for number in range(1, 9)), "9,forty-two"]
    (landing / "sales.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    file = str(place.folder / "sales" / "sales.yaml")
    command = CliRunner()
    made = ["init", str(place.folder / "sales"), "--from", str(landing)]
    assert command.invoke(wherry, made, catch_exceptions=False).exit_code == 0
    Pipeline.load(file).run()
    said = command.invoke(wherry, ["find", file, "--where", "customer_id = 42"], catch_exceptions=False).stdout
    assert "1 row in 1 batch; searched 1 batch" in said
    assert "1 row could not be compared, and so did not match" in said


def test_a_condition_on_an_unknown_column_names_the_columns(place: Place) -> None:
    """A condition that raises on purpose is refused too."""
    place.land("1.json", [make_order(1), make_order(2, amount="two")])
    pipeline = place.load(ORDERS)
    pipeline.run()
    with pytest.raises(Refusal, match="--where is not valid") as raised:
        pipeline.find(where="customer = 42")
    assert "id, email, amount" in str(raised.value)
    with pytest.raises(Refusal, match="--where fails at a row"):
        pipeline.find(where="raise_error(amount) is null")


def test_the_command_prints_where_the_rows_are(place: Place) -> None:
    """It prints text for a person, and JSON with `--json`."""
    place.land("1.json", [make_order(1)])
    place.load(ORDERS).run()
    file = str(place.folder / "pipeline.yaml")
    said = CliRunner().invoke(wherry, ["find", file, "--where", "id = 1"], catch_exceptions=False).stdout
    assert "1 row in 1 batch; searched 1 batch" in said
    assert "1 row from batch 1 of lane 0 (version 1)" in said
    late = ["find", file, "--where", "id = 1", "--since", "2999-01-01", "--json"]
    found = json.loads(CliRunner().invoke(wherry, late, catch_exceptions=False).stdout)
    assert (found["version"], found["searched"], found["destinations"]["orders"]["rows"]) == (1, 0, 1)
