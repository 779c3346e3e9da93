"""The stages of a pipeline in the order in which rows pass through them."""

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
from runners.ways.stage_chain import CommonLabels, StageChain, make_labels
from runners.ways.straight import Grouped
from runners.ways.way import Candidate
from stages.conditions import Filter, Require
from stages.deduplicate import Deduplicate
from stages.sql import Sql
from stages.stage import Stage

OLD, NEW = Require({"old": "true"}, name="demands"), Require({"new": "true"}, name="demands")


def list_steps(line: StageChain) -> list[tuple[int, str, Stage]]:
    """Return the steps in their order."""
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
def test_the_demands_of_destinations_may_change(
    destinations: Mapping[str, Destination],
    before: Mapping[str, Sequence[Stage]],
    now: Mapping[str, Sequence[Stage]],
) -> None:
    """The chain is the same as if the destinations had always had these demands."""
    stages = [Filter("x")]
    changed = StageChain.of(stages, destinations, before).with_demands(now)
    assert changed == StageChain.of(stages, destinations, now)
    assert list_steps(changed) == list_steps(StageChain.of(stages, destinations, now))


def test_labels_that_are_common_to_all_batches_may_be_used_together() -> None:
    """A label that differs is noted, for every way to read it."""
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
def test_batches_are_written_together_if_each_stage_needs_only_one_row(stages: Sequence[Stage], alone: bool) -> None:
    """A stage that compares rows would also compare rows of other batches."""
    table = Delta(path="orders")
    chain = StageChain.of(stages, {"orders": table})
    candidate = Candidate(origin=Generate(), chain=chain, destinations=[table], lanes=2)
    assert (Grouped().why_not(candidate) == "") is alone
