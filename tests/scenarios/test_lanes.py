"""Three processes on one pipeline; `python -m tests.scenarios.lane_kills --into FOLDER` is all of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.lane_kills import LOAD, Trial


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    """Files for six lanes, and nobody who carries them yet."""
    trial = Trial(tmp_path)
    yield trial
    trial.end()


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.promise("CN-26", "CN-27")
def test_a_killed_process_leaves_its_lanes_to_the_others(trial: Trial, seed: int) -> None:
    """By dice that begin with `--seed`; each row is delivered exactly once."""
    trial.prepare(60)
    dice = random.Random(seed)
    while trial.kill_somebody(dice) is None:  # it had no lanes just then, or nothing was left to carry
        trial.land(60)
    assert trial.finish() == trial.expected


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.promise("CN-28")
def test_local_lanes_of_a_killed_process_wait_until_somebody_is_told(trial: Trial) -> None:
    """The others carry their own and say whose are left; a run that is not told is refused, one that is told carries
    the rest."""
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
    assert trial.counted() == trial.expected


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.promise("CN-21", "CN-27")
def test_a_process_that_was_frozen_finds_its_lanes_with_others_and_ends(trial: Trial) -> None:
    """With its JVM: what it had begun lands not, or was found there by who took over; each row is delivered once."""
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
