"""Three processes share one pipeline. `python -m tests.scenarios.lane_kills --into FOLDER` runs the whole suite."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.lane_kills import LOAD, Trial


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    """Provide a trial without a running process."""
    trial = Trial(tmp_path)
    yield trial
    trial.end()


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.promise("CN-26", "CN-27")
def test_a_killed_process_leaves_its_lanes_to_the_others(trial: Trial, seed: int) -> None:
    """The random choices begin with `--seed`. Each row is delivered exactly once."""
    trial.prepare(60)
    dice = random.Random(seed)
    while trial.kill_somebody(dice) is None:  # it had no lanes then, or no work was left
        trial.land(60)
    assert trial.finish() == trial.expected


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.promise("CN-28")
def test_local_lanes_of_a_killed_process_wait_for_a_take_over(trial: Trial) -> None:
    """The other process finishes its lanes and names the remaining ones. A new run is refused, and a run with
    `--take-over` delivers the rest."""
    trial.assignment = "local_only"
    trial.prepare(200)
    first, second = trial.start(), trial.start()
    trial.await_shares(first, second)
    lanes, name = trial.kill(first)
    assert second.process.wait(LOAD) == 1
    assert "no other run takes them over by itself" in (trial.folder / "errors.log").read_text()
    state = trial.state()
    assert len(state.done) + len(lanes) == 6
    assert lanes
    assert {lane for lane, held in state.held.items() if held.owner == name} == set(lanes)
    untold = trial.start()
    assert (untold.process.wait(LOAD), untold.told) == (1, [])
    told = trial.start("--take-over", "it was killed")
    assert told.process.wait(LOAD) == 0
    assert trial.count_all() == trial.expected


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.promise("CN-21", "CN-27")
def test_a_frozen_process_loses_its_lanes_and_ends(trial: Trial) -> None:
    """Its JVM is frozen too. Its open batches do not land later, or other processes have found them, so each row is
    delivered once."""
    trial.prepare(120)
    first, second = trial.start(), trial.start()
    trial.await_shares(first, second)
    with trial.frozen(first) as (lanes, name):
        trial.await_passed_on(lanes, name)
    assert lanes
    assert first.process.wait(LOAD) == 1
    assert "Another process took this pipeline over" in (trial.folder / "errors.log").read_text()
    trial.members.remove(first)
    assert trial.finish() == trial.expected
