"""The long suites go on where they were broken off; what they do in a cell has a stand-in here."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.scenarios import crashes, lane_kills, replay_kills, soak, zombies
from tests.scenarios.crash_cell import Cell

FOUND: dict[str, Any] = {"as": "expected"}
"""What lies there in the end."""


@dataclass
class Standing:
    """In the place of what a suite does: it notes what it was asked for, and may be broken off or go wrong."""

    folder: Path
    does: list[Any] = field(default_factory=list)
    breaks_at: int | None = None
    """It is broken off where it would do this, counted from 0 over all calls."""
    wrong: set[Any] = field(default_factory=set)
    prepared: int = 0
    finished: int = 0
    closed: int = 0

    def do(self, what: Any) -> list[str]:
        """One more; what is wrong with it."""
        if self.breaks_at == len(self.does):
            self.breaks_at = None
            raise KeyboardInterrupt
        self.does.append(what)
        return ["a row is missing"] if what in self.wrong else []

    # What kills ask their trial or their load for.
    expected = FOUND
    files = rows = batches = batch = 7
    members: Sequence[Any] = ()

    def prepare(self, *_: object) -> None:
        self.prepared += 1

    def finish(self, *_: object) -> dict[str, Any]:
        self.finished += 1
        return FOUND

    def close(self) -> None:
        self.closed += 1

    end = close


@pytest.fixture
def standing(tmp_path: Path) -> Standing:
    """One that does as it should."""
    return Standing(tmp_path / "kept")


Call = Callable[..., int]
"""Calls a suite with words of the command line; how it ended."""


@pytest.fixture
def crashing(standing: Standing, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The crash matrix, with four cells."""
    cells = crashes.cells()[:4]

    def run(number: int, cell: Cell, folder: Path, server: object, *, s3: str) -> crashes.Ended:
        assert cell == cells[number]
        return crashes.Ended(number=number, cell=cell, wrong=standing.do(number), seconds=1.0)

    monkeypatch.setattr(crashes, "run", run)
    monkeypatch.setattr(crashes, "cells", lambda seed: cells)
    monkeypatch.setattr(crashes, "Server", lambda folder, settings: standing)
    return called(crashes, standing, monkeypatch)


@pytest.fixture
def freezing(standing: Standing, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The frozen runs, with four cells."""

    class Trial:
        def __init__(self, folder: Path, cell: int) -> None:
            self.cell = cell

        def run(self) -> zombies.Ended:
            ids = [4] if standing.do(self.cell) else [row for rows in zombies.ROWS for row in rows]
            how: dict[str, Any] = {"write": "raised", "status": "failed", "code": "FENCED", "taker": "succeeded"}
            return zombies.Ended(cell=self.cell, ids=ids, offset_moved=False, **how)

    monkeypatch.setattr(zombies, "Trial", Trial)
    monkeypatch.setattr(zombies, "CELLS", zombies.CELLS[:4])
    return called(zombies, standing, monkeypatch)


@pytest.fixture
def soaking(standing: Standing, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The soak."""

    def kill(dice: Any, server: object) -> soak.Kill:
        standing.do(dice.random())
        return soak.Kill(who="Python", events=1, last="BatchSettled", after=0.5)

    monkeypatch.setattr(soak, "Load", lambda folder, rows, batches: standing)
    monkeypatch.setattr(standing, "kill", kill, raising=False)
    monkeypatch.setattr(soak, "Server", lambda folder: standing)
    return called(soak, standing, monkeypatch)


@pytest.fixture
def replaying(standing: Standing, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The kills among replays."""

    def kill(dice: Any) -> replay_kills.Kill:
        standing.do(dice.random())
        return replay_kills.Kill(events=1, last="BatchSettled", after=0.5, left=7)

    monkeypatch.setattr(replay_kills, "Trial", lambda folder, rows, batch, fixed: standing)
    monkeypatch.setattr(standing, "kill", kill, raising=False)
    return called(replay_kills, standing, monkeypatch)


@pytest.fixture
def sharing(standing: Standing, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The kills among processes that share lanes."""

    def kill(dice: Any) -> lane_kills.Kill:
        standing.do(dice.random())
        return lane_kills.Kill(last="BatchSettled", lanes=["0"], open=1, seconds=1.0, takers=1)

    monkeypatch.setattr(lane_kills, "Trial", lambda folder: standing)
    monkeypatch.setattr(standing, "kill_somebody", kill, raising=False)
    return called(lane_kills, standing, monkeypatch)


def called(suite: ModuleType, standing: Standing, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The suite as its command line calls it."""

    def call(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["suite", "--into", str(standing.folder), *words])
        return int(suite.main())

    return call


@pytest.fixture(params=["crashing", "freezing"])
def in_cells(request: pytest.FixtureRequest) -> Call:
    """Each suite that has cells."""
    call: Call = request.getfixturevalue(request.param)
    return call


@pytest.fixture(params=["soaking", "replaying", "sharing"])
def in_kills(request: pytest.FixtureRequest) -> Call:
    """Each suite that kills by dice."""
    call: Call = request.getfixturevalue(request.param)
    return call


def told(standing: Standing, how: str) -> str:
    """What the suite wrote for a person."""
    (file,) = standing.folder.glob(how)
    return file.read_text(encoding="utf-8")


def test_cells_go_on_where_they_were_broken_off(standing: Standing, in_cells: Call) -> None:
    """Each is run once, but for the one in which it was; the table has all of them."""
    standing.breaks_at = 2
    with pytest.raises(KeyboardInterrupt):
        in_cells()
    assert re.findall(r"^\| (\d+) \|", told(standing, "*.md"), re.MULTILINE) == ["0", "1"]
    assert (in_cells(), standing.does) == (0, [0, 1, 2, 3])
    assert re.findall(r"^\| (\d+) \|", told(standing, "*.md"), re.MULTILINE) == ["0", "1", "2", "3"]
    assert (in_cells(), standing.does) == (0, [0, 1, 2, 3])


def test_a_cell_that_went_wrong_stays_wrong_until_it_is_run_once_more(standing: Standing, in_cells: Call) -> None:
    """However often the others are right; only this one is run again."""
    standing.wrong = {1}
    assert [in_cells(), in_cells()] == [1, 1]
    assert "WRONG" in told(standing, "*.md")
    standing.wrong = set()
    assert (in_cells("--only", "1"), standing.does) == (0, [0, 1, 2, 3, 1])
    assert "WRONG" not in told(standing, "*.md")


def test_the_matrix_runs_in_slices(standing: Standing, crashing: Call) -> None:
    """It is not done before its last one, and Spark is ended behind each."""
    assert [crashing("--most", "3"), crashing("--most", "3")] == [1, 0]
    assert (standing.does, standing.closed) == ([0, 1, 2, 3], 2)
    assert told(standing, "*.md").startswith("4 of 4 cells were run, 4 are right.")


def test_kills_go_on_where_they_were_broken_off(standing: Standing, in_kills: Call) -> None:
    """Those that were done count; all is looked at behind the last one, and only then."""
    standing.breaks_at = 2
    with pytest.raises(KeyboardInterrupt):
        in_kills("--kills", "5", "--seed", "3")
    assert (len(standing.does), standing.finished) == (2, 0)
    assert (in_kills("--kills", "5"), len(standing.does), standing.finished) == (0, 5, 1)
    assert told(standing, "*.md").count("BatchSettled") == 5
    assert "seed 3" in told(standing, "*.md")
    assert told(standing, "*.md").rstrip().endswith("each row exactly once.")
    assert (in_kills("--kills", "5"), len(standing.does)) == (0, 5)


@pytest.mark.parametrize("suite", ["soaking", "replaying"])
def test_the_dice_do_not_depend_on_where_it_was_broken_off(
    standing: Standing, suite: str, request: pytest.FixtureRequest
) -> None:
    """A seed gives the same kills in one call and in two."""
    call: Call = request.getfixturevalue(suite)
    call("--kills", "4", "--seed", "3")
    whole, standing.does, standing.folder = standing.does, [], standing.folder.with_name("anew")
    standing.breaks_at = 2
    with pytest.raises(KeyboardInterrupt):
        call("--kills", "4", "--seed", "3")
    call("--kills", "4")
    assert standing.does == whole


def test_the_soak_runs_in_slices(standing: Standing, soaking: Call) -> None:
    """It is not done before its last kill, and Spark is ended behind each."""
    assert [soaking("--kills", "5", "--most", "3"), soaking("--kills", "5", "--most", "3")] == [1, 0]
    assert (len(standing.does), standing.finished, standing.closed) == (5, 1, 2)


def test_a_load_that_is_not_as_expected_ends_with_1(
    standing: Standing, in_kills: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though every kill was done, and it says what was expected."""
    monkeypatch.setattr(standing, "expected", {"as": "promised"})
    assert in_kills("--kills", "2") == 1
    assert "WRONG, expected {'as': 'promised'}" in told(standing, "*.md")


def test_what_is_kept_is_whole_wherever_a_suite_is_killed(
    standing: Standing, in_cells: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was written in part only is not the one that is read."""
    assert in_cells() == 0
    write = Path.write_text

    def in_part(file: Path, text: str, **how: Any) -> int:
        write(file, text[: len(text) // 2], **how)
        raise KeyboardInterrupt

    (notes,) = standing.folder.glob("*.json")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", in_part)
        with pytest.raises(KeyboardInterrupt):
            in_cells("--only", "2")
    assert len(json.loads(notes.read_text())) == 4
    assert in_cells() == 0
