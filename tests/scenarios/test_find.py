"""`find` shows what happened to rows, by batch, table and DLQ entry."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from runners.model.errors import Refusal
from runners.operations import find_rows
from runners.running.choice import Choice
from runners.running.replay import Replay
from runners.spark.session import obtain
from tests.scenarios.conftest import ORDERS, Place, list_files, make_order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

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


def test_protected_columns_stay_masked(place: Place) -> None:
    """They are masked in rows as read, and in rows of the DLQ."""
    place.land("1.json", [make_order(1), make_order(2, amount="two")])
    pipeline = place.load(ORDERS + "protect: [email]\n")
    pipeline.run()
    said = json.dumps(pipeline.find(where="id < 3").json())
    assert "@X.COM" not in said
    assert "***" in said


@pytest.mark.connect
def test_a_row_whose_value_cannot_be_compared_does_not_match(place: Place) -> None:
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
    found = pipeline.find(where="amount between 2 and 3 or id = 5")
    assert (found.read, found.not_compared, found.count("wanted")) == (1, 2, {"orders": 1, "large": 0})
    assert [row.row["id"] for row in found.batches[0].rows] == [2]
    assert (found.destinations["orders"].rows, sum(found.dlq.states.values()), found.dlq.why) == (1, 0, "")
    assert found.kept is not None
    assert "2 rows could not be compared" in str(found)


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
