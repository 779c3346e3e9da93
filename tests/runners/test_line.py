"""The stages of a pipeline in the order in which rows pass them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from destinations.destination import Destination
from destinations.memory import Memory
from runners.line import Line
from stages.filter import Filter
from stages.require import Require
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
