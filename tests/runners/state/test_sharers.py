"""Three processes on one ledger of this disk, some of which are killed, without Spark."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runners.state.progress import apply_entries
from tests.runners.state.sharer import LANES, ROWS, locate_state

KILLS = 4


class Sharers:
    """Three processes that share the lanes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.alive = [self.start() for _ in range(3)]

    def start(self) -> subprocess.Popen[str]:
        """Start one more process."""
        command = [sys.executable, "-m", "tests.runners.state.sharer", str(self.folder)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def kill_one(self, dice: random.Random) -> None:
        """Kill a process after some of its events, and start another one."""
        process = self.alive.pop(dice.randrange(3))
        assert process.stdout is not None
        for _ in range(dice.randint(1, 30)):
            process.stdout.readline()
        process.kill()
        process.communicate()
        self.alive.append(self.start())

    def finish(self) -> list[int]:
        """Let all processes end. Return their exit codes."""
        for process in self.alive:
            process.communicate(timeout=300)
        return [process.returncode for process in self.alive]


@pytest.fixture
def sharers(tmp_path: Path) -> Iterator[Sharers]:
    """Return three started processes."""
    sharers = Sharers(tmp_path)
    yield sharers
    for process in sharers.alive:
        process.kill()
        process.communicate()


@pytest.mark.promise("CN-20", "CN-26", "CN-27")
def test_processes_that_share_lanes_deliver_each_row_once_if_some_are_killed(sharers: Sharers, seed: int) -> None:
    """The dice begin with `--seed`. The spans of each lane have no gap and no overlap."""
    dice = random.Random(seed)
    for _ in range(KILLS):
        sharers.kill_one(dice)
    assert sharers.finish() == [0, 0, 0]
    landed = [json.loads(file.read_text()) for file in (sharers.folder / "landed").iterdir()]
    for lane in LANES:
        spans = sorted((start, end) for of, start, end in landed if of == lane)
        assert [0, *(end for _, end in spans)] == [*(start for start, _ in spans), ROWS]
    state = apply_entries(locate_state(sharers.folder).open_ledger(None).read())
    assert (state.owners, state.held, state.open_plans) == ((), {}, ())
