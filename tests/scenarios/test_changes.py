"""A definition changes between two runs while batches are open."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from destinations.delta import Delta
from destinations.delta.delta import OpenDelta
from destinations.destination import DestinationError, Written
from destinations.labels import Label
from origins.batch_rows import BatchRows
from runners.model.events import BatchPlanned, Event
from runners.model.run_report import PipelineFailed
from runners.pipeline import Pipeline
from runners.running.compatibility import OperatorOverrides
from runners.state.journal import Journal
from runners.state.location import StateLocation as State
from tests.scenarios.conftest import ORDERS, Place, make_order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]

TWO = ORDERS.replace(
    "  - delta: {path: tables/orders}\n", "  - delta: {path: tables/orders}\n  - delta: {path: tables/other}\n"
)


@dataclass(frozen=True, kw_only=True)
class Down(Delta):
    """A Delta table whose writes always fail."""

    tried: list[int] = field(default_factory=list)

    def open(self) -> OpenDown:
        return OpenDown(self)


class OpenDown(OpenDelta):
    """The open table. It counts the tries to write over all runs."""

    def write(self, spark: SparkSession, rows: BatchRows, labels: Sequence[Label]) -> Written:
        assert isinstance(self.destination, Down)
        self.destination.tried.append(1)
        raise DestinationError("the table is down")


def leave_open(place: Place, pipeline: Pipeline, down: str) -> None:
    """Run with one destination down, so that a decided batch stays open."""
    destinations = [Down(name=down, path=each.path) if each.name == down else each for each in pipeline.destinations]  # type: ignore[attr-defined]
    failed = replace(pipeline, destinations=destinations).run(check=False)
    assert failed.status == "failed"
    assert pipeline.status()["open"] != []


def plan_only(pipeline: Pipeline) -> None:
    """Run until a batch is planned and fail there, so that nothing is decided."""

    def crash(event: Event) -> None:
        assert not isinstance(event, BatchPlanned)

    assert pipeline.run(check=False, listeners=[crash]).status == "failed"
    assert pipeline.status()["open"][0]["decided"] is False


def load_two(place: Place, text: str = TWO) -> Pipeline:
    """Load the pipeline, and name its two destinations after their tables."""
    pipeline = place.load(text)
    return replace(
        pipeline, destinations=[replace(each, name=each.place.rsplit("/")[-1]) for each in pipeline.destinations]
    )


def test_a_decided_batch_is_finished_as_decided_despite_new_stages(place: Place) -> None:
    """This also holds if the destinations change their order and a new stage gives other rows."""
    place.land("a.json", [make_order(1), make_order(2, amount="x")])
    pipeline = load_two(place)
    leave_open(place, pipeline, "other")
    changed = place.load(
        TWO.replace('"amount > 0"', '"amount > 100"').replace(
            "  - filter:", '  - sql: "select * from rows"\n  - filter:'
        )
    )
    changed = replace(changed, destinations=list(reversed(pipeline.destinations)))
    report = changed.run()
    assert (report.batches, report.delivered) == (1, {"other": 1, "orders": 1})
    assert (place.ids("tables/orders"), place.ids("tables/other")) == ([1], [1])
    place.land("b.json", [make_order(3), make_order(300)])
    changed.run()
    assert (place.ids("tables/orders"), place.ids("tables/other")) == ([1, 300], [1, 300])


def test_a_batch_that_was_only_planned_uses_the_new_stages(place: Place) -> None:
    """No destination has the batch, so nothing of the old definition runs again."""
    place.land("a.json", [make_order(1), make_order(200)])
    plan_only(place.load(ORDERS))
    report = place.load(ORDERS.replace('"amount > 0"', '"amount > 100"')).run()
    assert (report.nacked, place.ids("tables/orders")) == (1, [200])


def test_a_new_path_of_an_origin_is_refused_until_the_user_explains_it(place: Place) -> None:
    """With `moved`, delivered files still count. With `fresh`, the origin is read from its beginning."""
    place.land("a.json", [make_order(1)])
    place.load(ORDERS).run()
    place.land("a.json", [make_order(1)], folder="moved")
    place.land("b.json", [make_order(2)], folder="moved")
    moved = place.load(ORDERS.replace("landing/", "moved/"))
    with pytest.raises(PipelineFailed, match="is now"):
        moved.run()
    moved.run(ruling=OperatorOverrides(moved=("files",), reason="a new disk"))
    assert place.ids("tables/orders") == [1, 2]
    place.land("a.json", [make_order(3)], folder="fresh")
    place.load(ORDERS.replace("landing/", "fresh/")).run(
        ruling=OperatorOverrides(fresh=("files",), reason="another shop")
    )
    assert place.ids("tables/orders") == [1, 2, 3]


def test_the_number_of_lanes_may_fall_while_batches_are_open(place: Place) -> None:
    """Each open batch is finished in its old lane before a new batch is planned, even if that lane no longer exists."""
    for number in (1, 4, 7):  # their names put them into three lanes
        place.land(f"{number}.json", [make_order(number)])
    pipeline = load_two(place, TWO.replace("origin:\n", "origin:\n  lanes: 3\n"))
    leave_open(place, pipeline, "other")
    assert any(each["lane"] != "0" for each in pipeline.status()["open"])
    place.land("2.json", [make_order(2)])
    report = load_two(place).run()
    assert (report.status, load_two(place).status()["open"]) == ("succeeded", [])
    assert (place.ids("tables/orders"), place.ids("tables/other")) == ([1, 2, 4, 7], [1, 2, 4, 7])


@pytest.mark.promise("CN-11", "CN-12", "CN-13", "CN-14")
def test_a_run_keeps_the_definition_that_it_began_with(place: Place) -> None:
    """The ledger keeps the whole definition. An edit of the file during the run changes nothing."""
    place.land("a.json", [make_order(1)])
    place.land("b.json", [make_order(2)])

    def edited(event: Event) -> None:
        if isinstance(event, BatchPlanned) and event.batch.number == 1:
            place.define(ORDERS.replace("lower(email)", "upper(email)"))

    pipeline = place.load(ORDERS)
    pipeline.run(listeners=[edited])
    assert sorted(row["email"] for row in place.rows("tables/orders")) == ["a1@x.com", "a2@x.com"]
    kept = json.loads(Journal(State.of(pipeline).open_ledger(None)).state.opened.definition)
    assert kept["stages"][-1] == {"with_columns": {"email": "lower(email)"}}
    assert kept["origin"]["files"]["path"] == "landing/*.json"
