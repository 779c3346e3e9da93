"""The stages of a pipeline in the order in which rows pass them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone

import pytest

from destinations.delta import Delta
from destinations.destination import Destination
from destinations.memory import Memory
from origins.batch import Batch, Span
from origins.generate import Generate
from runners.ways.grouped import Grouped
from runners.ways.stage_chain import CommonLabels, StageChain, make_labels
from runners.ways.way import Candidate
from stages.deduplicate import Deduplicate
from stages.filter import Filter
from stages.require import Require
from stages.sql import Sql
from stages.stage import Stage

OLD, NEW = Require({"old": "true"}, name="demands"), Require({"new": "true"}, name="demands")


def told(line: StageChain) -> list[tuple[int, str, Stage]]:
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
    changed = StageChain.of(stages, destinations, before).with_demands(now)
    assert changed == StageChain.of(stages, destinations, now)
    assert told(changed) == told(StageChain.of(stages, destinations, now))


def test_what_is_the_same_for_all_batches_may_be_asked_of_them_together() -> None:
    """A label that differs is noted, in whatever way it is asked for."""
    span, time = Span(start=None, end=1), datetime(2026, 1, 1, tzinfo=timezone.utc)
    one = Batch(pipeline="p", run="r", origin="o", lane="0", number=7, plan="x", span=span, schema="{}", time=time)
    labels = CommonLabels([one, replace(one, lane="1", plan="y")])
    told = make_labels(one)
    assert {name: labels[name] for name in told if name != "lane"} == {
        "origin": "o",
        "number": 7,
        "run": "r",
        "batch_time": time,
    }
    assert labels.differing == []
    for ask in (lambda: labels["lane"], lambda: labels.get("lane"), lambda: dict(labels)):
        labels.differing.clear()
        ask()
        assert labels.differing == ["lane"]


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
    table = Delta(path="orders")
    chain = StageChain.of(stages, {"orders": table})
    candidate = Candidate(origin=Generate(), chain=chain, destinations=[table], lanes=2)
    assert (Grouped().why_not(candidate) == "") is alone
