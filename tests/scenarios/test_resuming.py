"""The long suites continue after an interruption. A double replaces their work in each cell."""

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
"""The final result."""


@dataclass
class Standing:
    """A double for the work of a suite. It records its calls, and may be interrupted or report an error."""

    folder: Path
    does: list[Any] = field(default_factory=list)
    breaks_at: int | None = None
    """The call at which it is interrupted, counted from 0 over all calls."""
    wrong: set[Any] = field(default_factory=set)
    prepared: int = 0
    finished: int = 0
    closed: int = 0

    def do(self, what: Any) -> list[str]:
        """Record a call, and return what is wrong with it."""
        if self.breaks_at == len(self.does):
            self.breaks_at = None
            raise KeyboardInterrupt
        self.does.append(what)
        return ["a row is missing"] if what in self.wrong else []

    # The attributes that the kills use of their trial or their load.
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
    """Provide a double that works correctly."""
    return Standing(tmp_path / "kept")


Call = Callable[..., int]
"""Calls a suite with words of the command line, and returns its exit code."""


@pytest.fixture
def crashing(standing: Standing, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Provide the crash matrix with four cells."""
    cells = crashes.make_cells()[:4]

    def run(number: int, cell: Cell, folder: Path, server: object, *, s3: str) -> crashes.Ended:
        assert cell == cells[number]
        return crashes.Ended(number=number, cell=cell, wrong=standing.do(number), seconds=1.0)

    monkeypatch.setattr(crashes, "run_cell", run)
    monkeypatch.setattr(crashes, "make_cells", lambda seed: cells)
    monkeypatch.setattr(crashes, "Server", lambda folder, settings: standing)
    return make_call(crashes, standing, monkeypatch)


@pytest.fixture
def freezing(standing: Standing, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Provide the frozen runs with four cells."""

    class Trial:
        def __init__(self, folder: Path, cell: int) -> None:
            self.cell = cell

        def run(self) -> zombies.Ended:
            ids = [4] if standing.do(self.cell) else [row for rows in zombies.ROWS for row in rows]
            how: dict[str, Any] = {"write": "raised", "status": "failed", "code": "FENCED", "taker": "succeeded"}
            return zombies.Ended(cell=self.cell, ids=ids, offset_moved=False, **how)

    monkeypatch.setattr(zombies, "Trial", Trial)
    monkeypatch.setattr(zombies, "CELLS", zombies.CELLS[:4])
    return make_call(zombies, standing, monkeypatch)


@pytest.fixture
def soaking(standing: Standing, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Provide the soak."""

    def kill(dice: Any, server: object) -> soak.Kill:
        standing.do(dice.random())
        return soak.Kill(who="Python", events=1, last="BatchSettled", after=0.5)

    monkeypatch.setattr(soak, "Load", lambda folder, rows, batches: standing)
    monkeypatch.setattr(standing, "kill", kill, raising=False)
    monkeypatch.setattr(soak, "Server", lambda folder: standing)
    return make_call(soak, standing, monkeypatch)


@pytest.fixture
def replaying(standing: Standing, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Provide the kills during replays."""

    def kill(dice: Any) -> replay_kills.Kill:
        standing.do(dice.random())
        return replay_kills.Kill(events=1, last="BatchSettled", after=0.5, left=7)

    monkeypatch.setattr(replay_kills, "Trial", lambda folder, rows, batch, fixed: standing)
    monkeypatch.setattr(standing, "kill", kill, raising=False)
    return make_call(replay_kills, standing, monkeypatch)


@pytest.fixture
def sharing(standing: Standing, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Provide the kills of processes that share lanes."""

    def kill(dice: Any) -> lane_kills.Kill:
        standing.do(dice.random())
        return lane_kills.Kill(last="BatchSettled", lanes=["0"], open=1, seconds=1.0, takers=1)

    monkeypatch.setattr(lane_kills, "Trial", lambda folder, to: standing)
    monkeypatch.setattr(standing, "kill_somebody", kill, raising=False)
    return make_call(lane_kills, standing, monkeypatch)


def make_call(suite: ModuleType, standing: Standing, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Return a function that calls the suite as its command line does."""

    def call(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["suite", "--into", str(standing.folder), *words])
        return int(suite.main())

    return call


@pytest.fixture(params=["crashing", "freezing"])
def in_cells(request: pytest.FixtureRequest) -> Call:
    """Provide each suite that has cells."""
    call: Call = request.getfixturevalue(request.param)
    return call


@pytest.fixture(params=["soaking", "replaying", "sharing"])
def in_kills(request: pytest.FixtureRequest) -> Call:
    """Provide each suite that kills at random."""
    call: Call = request.getfixturevalue(request.param)
    return call


def read_report(standing: Standing, how: str) -> str:
    """Return the text that the suite wrote for people."""
    (file,) = standing.folder.glob(how)
    return file.read_text(encoding="utf-8")


def test_cells_continue_after_an_interruption(standing: Standing, in_cells: Call) -> None:
    """Each cell is run once, and the interrupted one is run again. The table has all of them."""
    standing.breaks_at = 2
    with pytest.raises(KeyboardInterrupt):
        in_cells()
    assert re.findall(r"^\| (\d+) \|", read_report(standing, "*.md"), re.MULTILINE) == ["0", "1"]
    assert (in_cells(), standing.does) == (0, [0, 1, 2, 3])
    assert re.findall(r"^\| (\d+) \|", read_report(standing, "*.md"), re.MULTILINE) == ["0", "1", "2", "3"]
    assert (in_cells(), standing.does) == (0, [0, 1, 2, 3])


def test_a_wrong_cell_stays_wrong_until_it_is_run_again(standing: Standing, in_cells: Call) -> None:
    """With `--only`, only this cell is run again."""
    standing.wrong = {1}
    assert [in_cells(), in_cells()] == [1, 1]
    assert "WRONG" in read_report(standing, "*.md")
    standing.wrong = set()
    assert (in_cells("--only", "1"), standing.does) == (0, [0, 1, 2, 3, 1])
    assert "WRONG" not in read_report(standing, "*.md")


def test_kills_continue_after_an_interruption(standing: Standing, in_kills: Call) -> None:
    """Earlier kills count. The result is checked only after the last kill."""
    standing.breaks_at = 2
    with pytest.raises(KeyboardInterrupt):
        in_kills("--kills", "5", "--seed", "3")
    assert (len(standing.does), standing.finished) == (2, 0)
    assert (in_kills("--kills", "5"), len(standing.does), standing.finished) == (0, 5, 1)
    assert read_report(standing, "*.md").count("BatchSettled") == 5
    assert "seed 3" in read_report(standing, "*.md")
    assert read_report(standing, "*.md").rstrip().endswith("each row exactly once.")
    assert (in_kills("--kills", "5"), len(standing.does)) == (0, 5)


def test_a_wrong_final_result_exits_with_1(standing: Standing, in_kills: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds although every kill was done. The report shows the expected result."""
    monkeypatch.setattr(standing, "expected", {"as": "promised"})
    assert in_kills("--kills", "2") == 1
    assert "WRONG, expected {'as': 'promised'}" in read_report(standing, "*.md")


def test_the_kept_file_is_whole_after_an_interruption(
    standing: Standing, in_cells: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partly written file does not replace the previous one."""
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
