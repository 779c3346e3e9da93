"""The stages of a pipeline in the order in which rows pass them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone

import pytest

from destinations.destination import Destination
from destinations.memory import Memory
from origins.batch import Batch, Span
from runners.line import Common, Differs, Line, labels_of
from stages.deduplicate import Deduplicate
from stages.filter import Filter
from stages.require import Require
from stages.sql import Sql
from stages.stage import Stage

OLD, NEW = Require({"old": "true"}, name="demands"), Require({"new": "true"}, name="demands")


def told(line: Line) -> list[tuple[int, str, Stage]]:
    """The steps in their order."""
    return [(step.number, step.name, step.stage) for step in line.steps]


@pytest.mark.parametrize(
    ("destinations", "before", "now"),
    [
        ({"a": Memory(stages=[Filter("y")])}, {"a": [OLD]}, {"a": [NEW]}),
        ({"a": Memory(stages=[Filter("y")]), "b": Memory()}, {"a": [OLD]}, {"a": [OLD], "b": [NEW]}),
        ({"a": Memory(), "b": Memory(stages=[Filter("y")])}, {"a": [OLD], "b": [OLD]}, {"b": [NEW]}),
        ({"a": Memory(), "b": Memory()}, {"a": [OLD]}, {}),
    ],
)
def test_what_destinations_demand_may_change(
    destinations: Mapping[str, Destination],
    before: Mapping[str, Sequence[Stage]],
    now: Mapping[str, Sequence[Stage]],
) -> None:
    """The line is the one that there would be if they had always demanded that."""
    stages = [Filter("x")]
    changed = Line.of(stages, destinations, before).demanding(now)
    assert changed == Line.of(stages, destinations, now)
    assert told(changed) == told(Line.of(stages, destinations, now))


def test_what_is_the_same_for_all_batches_may_be_asked_of_them_together() -> None:
    """A label that differs is no answer for any of them, in whatever way it is asked for."""
    span, time = Span(start=None, end=1), datetime(2026, 1, 1, tzinfo=timezone.utc)
    one = Batch(pipeline="p", run="r", origin="o", lane="0", number=7, plan="x", span=span, schema="{}", time=time)
    labels = Common([one, replace(one, lane="1", plan="y")])
    told = labels_of(one)
    assert {name: labels[name] for name in told if name != "lane"} == {
        "origin": "o",
        "number": 7,
        "run": "r",
        "batch_time": time,
    }
    for ask in (lambda: labels["lane"], lambda: labels.get("lane"), lambda: dict(labels)):
        with pytest.raises(Differs, match="lane"):
            ask()


@pytest.mark.parametrize(
    ("stages", "alone"),
    [
        ([Filter("x"), Require({"y": "true"})], True),
        ([Filter("x"), Deduplicate(keys=["id"])], False),
        ([Sql("select * from rows")], False),
    ],
)
def test_rows_of_several_batches_pass_side_by_side_where_no_stage_looks_beyond_a_row(
    stages: Sequence[Stage], alone: bool
) -> None:
    """One that compares rows would compare those of other batches too."""
    assert Line.of(stages, {"orders": Memory()}).by_row is alone
