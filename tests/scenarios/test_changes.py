"""A definition that changes between two runs, with batches left open."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import pytest

from destinations.delta import Delta
from destinations.delta.delta import OpenDelta
from destinations.destination import DestinationError, Label, Written
from origins.batch_rows import BatchRows
from runners.model.events import BatchPlanned, Event
from runners.model.run_report import PipelineFailed
from runners.pipeline import Pipeline
from runners.running.compatibility import OperatorOverrides
from runners.state.journal import Journal
from runners.state.location import StateLocation as State
from tests.scenarios.conftest import ORDERS, Place, order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]

TWO = ORDERS.replace(
    "  - delta: {path: tables/orders}\n", "  - delta: {path: tables/orders}\n  - delta: {path: tables/other}\n"
)


@dataclass(frozen=True, kw_only=True)
class Down(Delta):
    """A Delta table that cannot be written."""

    tried: list[int] = field(default_factory=list)

    def open(self) -> OpenDown:
        return OpenDown(self)


class OpenDown(OpenDelta):
    """It is open, and counts for all runs how often a write was tried."""

    def write(self, spark: SparkSession, rows: BatchRows, labels: Sequence[Label]) -> Written:
        assert isinstance(self.destination, Down)
        self.destination.tried.append(1)
        raise DestinationError("the table is down")


@dataclass(frozen=True, kw_only=True)
class Dying(Delta):
    """A Delta table whose write lands, and the process dies before anybody hears of it."""

    def open(self) -> OpenDying:
        return OpenDying(self)


class OpenDying(OpenDelta):
    """It is open, and its first write is its last."""

    def write(self, spark: SparkSession, rows: BatchRows, labels: Sequence[Label]) -> Written:
        super().write(spark, rows, labels)
        raise RuntimeError("the process is dying")


def left_open(place: Place, pipeline: Pipeline, down: str) -> None:
    """Run with one destination down: a batch that is decided stays open."""
    destinations = [Down(name=down, path=each.path) if each.name == down else each for each in pipeline.destinations]  # type: ignore[attr-defined]
    failed = replace(pipeline, destinations=destinations).run(check=False)
    assert failed.status == "failed"
    assert pipeline.status()["open"] != []


def planned_only(pipeline: Pipeline) -> None:
    """Run until a batch is planned, and fail there: nothing is decided."""

    def crash(event: Event) -> None:
        assert not isinstance(event, BatchPlanned)

    assert pipeline.run(check=False, listeners=[crash]).status == "failed"
    assert pipeline.status()["open"][0]["decided"] is False


def two(place: Place, text: str = TWO) -> Pipeline:
    """Two destinations; the names are given."""
    pipeline = place.load(text)
    return replace(
        pipeline, destinations=[replace(each, name=each.place.rsplit("/")[-1]) for each in pipeline.destinations]
    )


def test_a_decided_batch_is_finished_as_it_was_decided_whatever_the_stages_are_now(place: Place) -> None:
    """Also when destinations stand in another order and another stage gives other rows."""
    place.land("a.json", [order(1), order(2, amount="x")])
    pipeline = two(place)
    left_open(place, pipeline, "other")
    changed = place.load(
        TWO.replace('"amount > 0"', '"amount > 100"').replace(
            "  - filter:", '  - sql: "select * from rows"\n  - filter:'
        )
    )
    changed = replace(changed, destinations=list(reversed(pipeline.destinations)))
    report = changed.run()
    assert (report.batches, report.delivered) == (1, {"other": 1, "orders": 1})
    assert (place.ids("tables/orders"), place.ids("tables/other")) == ([1], [1])
    place.land("b.json", [order(3), order(300)])
    changed.run()
    assert (place.ids("tables/orders"), place.ids("tables/other")) == ([1, 300], [1, 300])


def test_a_batch_that_was_only_planned_is_planned_anew_under_the_new_stages(place: Place) -> None:
    """Nobody has it, so nothing of the old definition is run again."""
    place.land("a.json", [order(1), order(200)])
    planned_only(place.load(ORDERS))
    report = place.load(ORDERS.replace('"amount > 0"', '"amount > 100"')).run()
    assert (report.nacked, place.ids("tables/orders")) == (1, [200])


def test_a_new_destination_takes_part_from_the_next_batch(place: Place) -> None:
    """What was carried before it came is not brought to it."""
    place.land("a.json", [order(1)])
    place.load(ORDERS).run()
    place.land("b.json", [order(2)])
    place.load(TWO).run()
    assert (place.ids("tables/orders"), place.ids("tables/other")) == ([1, 2], [2])


def test_a_destination_that_is_gone_is_waited_for_or_forgotten(place: Place) -> None:
    """An open batch that names it stops the run until somebody says why it may go."""
    place.land("a.json", [order(1)])
    pipeline = two(place)
    left_open(place, pipeline, "other")
    alone = replace(pipeline, destinations=pipeline.destinations[:1])
    refused = alone.run(check=False)
    assert refused.error is not None
    assert "waits for the destination 'other'" in refused.error.message
    report = alone.run(ruling=OperatorOverrides(forget=("other",), reason="nobody reads it"))
    assert (report.status, report.delivered, place.ids("tables/orders")) == ("succeeded", {"orders": 1}, [1])


def test_how_a_run_makes_batches_changes_with_the_next_batch(place: Place) -> None:
    """What was carried stays as it was."""
    place.land("a.json", [order(1)])
    place.load(ORDERS).run()
    for number in (2, 3, 4):
        place.land(f"{number}.json", [order(number)])
    report = place.load(ORDERS.replace("batch: {files: 1}", "batch: {files: 2}, runners: 1")).run()
    assert (report.batches, place.ids("tables/orders")) == (2, [1, 2, 3, 4])


def test_a_renamed_destination_is_asked_under_its_old_name(place: Place) -> None:
    """It has the batch once, though the batch was open under the name that it had."""
    place.land("a.json", [order(1)])
    pipeline = two(place)
    left_open(place, pipeline, "other")
    first, second = pipeline.destinations
    renamed = replace(pipeline, destinations=[replace(first, name="sales", was="orders"), second])
    report = renamed.run()
    assert report.delivered == {"sales": 1, "other": 1}
    assert (place.ids("tables/orders"), place.ids("tables/other")) == ([1], [1])


def test_another_place_is_refused_until_told_what_lies_there(place: Place) -> None:
    """The same content: what was carried counts. Something else: an origin is read from its beginning."""
    place.land("a.json", [order(1)])
    place.load(ORDERS).run()
    place.land("a.json", [order(1)], folder="moved")
    place.land("b.json", [order(2)], folder="moved")
    moved = place.load(ORDERS.replace("landing/", "moved/"))
    with pytest.raises(PipelineFailed, match="is now"):
        moved.run()
    moved.run(ruling=OperatorOverrides(moved=("files",), reason="a new disk"))
    assert place.ids("tables/orders") == [1, 2]
    place.land("a.json", [order(3)], folder="fresh")
    place.load(ORDERS.replace("landing/", "fresh/")).run(
        ruling=OperatorOverrides(fresh=("files",), reason="another shop")
    )
    assert place.ids("tables/orders") == [1, 2, 3]


def test_a_destination_that_moved_under_an_open_batch_has_it_once(place: Place) -> None:
    """It is asked where it is now, for it is the same table by its id."""
    place.land("a.json", [order(1)])
    left_open(place, two(place), "other")
    (place.folder / "tables/orders").rename(place.folder / "tables/moved")
    place.land("b.json", [order(2)])
    moved = two(place, TWO.replace("- delta: {path: tables/orders}", "- delta: {path: tables/moved}"))
    moved = replace(moved, destinations=[replace(moved.destinations[0], name="orders"), moved.destinations[1]])
    assert moved.run().read == 2
    assert (place.ids("tables/moved"), place.ids("tables/other")) == ([1, 2], [1, 2])


def test_lanes_that_have_open_batches_may_be_fewer(place: Place) -> None:
    """Each is finished in the lane that it had, also in one that is no more, before anything is planned."""
    for number in (1, 4, 7):  # by their names they belong to three lanes
        place.land(f"{number}.json", [order(number)])
    pipeline = two(place, TWO.replace("origin:\n", "origin:\n  lanes: 3\n"))
    left_open(place, pipeline, "other")
    assert any(each["lane"] != "0" for each in pipeline.status()["open"])
    place.land("2.json", [order(2)])
    report = two(place).run()
    assert (report.status, two(place).status()["open"]) == ("succeeded", [])
    assert (place.ids("tables/orders"), place.ids("tables/other")) == ([1, 2, 4, 7], [1, 2, 4, 7])


def test_lanes_change_while_no_batch_is_lost_or_carried_twice(place: Place) -> None:
    """Progress is kept file by file; lanes only group them."""
    for number in range(1, 5):
        place.land(f"{number}.json", [order(number)])
    place.load(ORDERS).run()
    for number in range(5, 9):
        place.land(f"{number}.json", [order(number)])
    place.load(origin__lanes="3").run()
    assert place.ids("tables/orders") == list(range(1, 9))


@pytest.mark.variant
def test_a_destination_that_cannot_say_is_assumed_to_have_what_a_person_says(place: Place) -> None:
    """The table was restored under an open batch, so neither yes nor no is sure."""
    cases: list[tuple[Literal["delivered", "missing"], list[int]]] = [("delivered", [1]), ("missing", [1, 2])]
    for assume, expected in cases:
        text = ORDERS.replace("name: orders", f"name: {assume}").replace("tables/orders", f"tables/{assume}")
        place.land("a.json", [order(1)])
        pipeline = place.load(text)
        pipeline.run()
        place.land("b.json", [order(2)])
        (table,) = pipeline.destinations
        assert replace(pipeline, destinations=[Dying(path=table.place)]).run(check=False).status == "failed"
        place.spark.sql(f"restore table delta.`{table.place}` to version as of 1")
        asked = pipeline.run(check=False)
        assert asked.error is not None
        assert "--assume" in asked.error.hint
        pipeline.run(ruling=OperatorOverrides(assume=assume, reason="I looked"))
        assert place.ids(f"tables/{assume}") == expected
        (place.folder / "landing/b.json").unlink()


@pytest.mark.promise("CN-11", "CN-12", "CN-13", "CN-14")
def test_a_run_goes_by_the_definition_that_it_began_with(place: Place) -> None:
    """It is kept whole in the ledger, and an edit of the file meanwhile touches nothing."""
    place.land("a.json", [order(1)])
    place.land("b.json", [order(2)])

    def edited(event: Event) -> None:
        if isinstance(event, BatchPlanned) and event.batch.number == 1:
            place.define(ORDERS.replace("lower(email)", "upper(email)"))

    pipeline = place.load(ORDERS)
    pipeline.run(listeners=[edited])
    assert sorted(row["email"] for row in place.rows("tables/orders")) == ["a1@x.com", "a2@x.com"]
    kept = json.loads(Journal(State.of(pipeline).open_ledger(None)).state.opened["definition"])
    assert kept["stages"][-1] == {"with_columns": {"email": "lower(email)"}}
    assert kept["origin"]["files"]["path"] == "landing/*.json"


def test_an_origin_that_is_read_whole_is_read_by_every_run(place: Place) -> None:
    """With numbers that go on, so that no destination takes a batch for one that it has."""
    place.land("a.json", [order(1)])
    text = ORDERS.replace("stages:", "  read: whole\nstages:", 1)
    assert place.load(text).run().read == 1
    place.land("b.json", [order(2)])
    assert place.load(text).run().read == 2
    assert place.ids("tables/orders") == [1, 1, 2]
