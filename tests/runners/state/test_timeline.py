"""The work of each lane over time, in a limited number of parts."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from runners.state.run_history import MOST_LANES, MOST_PARTS, Timeline
from tests.manual_clock import ManualClock
from tests.runners.command_line.test_carrying import make_settled


def test_a_part_is_a_batch_from_its_plan_to_its_settle() -> None:
    """It ends now, and its length is the time of the batch. A batch that is still owed has no part yet."""
    clock = ManualClock()
    timeline = Timeline(clock)
    clock.move(10)
    batch = replace(make_settled(read=1), seconds={"plan": 1.0, "write": 3.0, "dlq": 0.0})
    timeline(replace(batch, owed=("copy",)))
    timeline(batch)
    assert timeline.json() == {"0": [{"start": 6.0, "end": 10.0, "batches": 1, "spent": {"plan": 1.0, "write": 3.0}}]}


@pytest.mark.parametrize("batches", [MOST_PARTS, MOST_PARTS + 1, 10_000])
def test_many_batches_share_few_parts(batches: int) -> None:
    """No batch and no second is lost, and the parts stay in order."""
    clock = ManualClock()
    timeline = Timeline(clock)
    for _ in range(batches):
        clock.move(2)
        timeline(replace(make_settled(read=1), seconds={"write": 1.5}))
    parts = timeline.json()["0"]
    assert MOST_PARTS / 2 <= len(parts) <= MOST_PARTS
    assert sum(part["batches"] for part in parts) == batches
    assert sum(part["spent"]["write"] for part in parts) == batches * 1.5
    assert (parts[0]["start"], parts[-1]["end"]) == (0.5, batches * 2.0)
    assert all(before["end"] <= after["start"] for before, after in itertools.pairwise(parts))


def test_only_the_first_lanes_have_a_timeline() -> None:
    """A run with thousands of lanes does not keep thousands of timelines."""
    timeline = Timeline(ManualClock())
    for lane in range(1_000):
        timeline(make_settled(read=1, lane=str(lane)))
    assert list(timeline.json()) == [str(lane) for lane in range(MOST_LANES)]
