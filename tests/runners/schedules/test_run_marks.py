"""The marks that a scheduler keeps for later schedulers, and for others beside it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from runners.model.errors import Refusal
from runners.schedules.run_marks import REQUESTS, SCHEDULE, ClaimResult, RunGroups, RunMark, RunMarks
from tests.databricks.volume import make_volume_environment

NOON = datetime(2026, 6, 1, 12, tzinfo=timezone.utc)
LAST = NOON + timedelta(minutes=199)
CLAIM = """
import sys
from datetime import datetime, timedelta
from pathlib import Path
from runners.schedules.run_marks import ClaimResult, RunMarks
marks = RunMarks(Path(sys.argv[1]))
noon = datetime.fromisoformat(sys.argv[2])
claims = [marks.claim("orders", noon + timedelta(minutes=number), drop_cut_off=True) for number in range(200)]
print(claims.count(ClaimResult.GRANTED))
"""


@pytest.fixture
def marks(tmp_path: Path) -> RunMarks:
    return RunMarks(tmp_path / "marks")


def end(marks: RunMarks) -> RunMarks:
    """End the process that has these marks, and return those of the next one."""
    marks.close()
    return RunMarks(marks.folder)


def test_a_run_is_claimed_once(marks: RunMarks) -> None:
    """A claim also covers all earlier due times."""
    assert marks.claim("orders", NOON) is ClaimResult.GRANTED
    assert marks.claim("orders", NOON) is ClaimResult.TAKEN
    assert marks.claim("orders", NOON - timedelta(minutes=5)) is ClaimResult.TAKEN
    marks.note_ended("orders")
    assert marks.claim("orders", NOON + timedelta(minutes=5)) is ClaimResult.GRANTED
    assert marks.claim("prices", NOON) is ClaimResult.GRANTED


def test_no_run_is_claimed_while_another_scheduler_has_one(marks: RunMarks) -> None:
    """The end of the run, or of the process, lets others claim the next one."""
    beside = RunMarks(marks.folder)
    marks.claim("orders", NOON)
    later = NOON + timedelta(minutes=5)
    assert beside.claim("orders", later) is ClaimResult.BUSY
    assert beside.find_cut_off("orders") is None
    marks.note_ended("orders")
    assert beside.claim("orders", later) is ClaimResult.GRANTED
    assert marks.claim("orders", LAST) is ClaimResult.BUSY
    beside.close()
    assert marks.find_cut_off("orders") == later


def test_a_run_that_was_cut_off_comes_before_the_next_one(marks: RunMarks) -> None:
    """The next claim waits until that run has begun again, or forgets it."""
    marks.claim("orders", NOON)
    marks = end(marks)
    assert marks.claim("orders", LAST) is ClaimResult.CUT_OFF
    assert marks.claim_again("orders", NOON) is ClaimResult.GRANTED
    marks.note_ended("orders")
    assert marks.claim("orders", LAST) is ClaimResult.GRANTED
    marks = end(marks)
    assert marks.claim("orders", LAST + timedelta(days=1), drop_cut_off=True) is ClaimResult.GRANTED


def test_a_pipeline_is_marked_when_it_is_first_seen(marks: RunMarks) -> None:
    """The mark does not change when it is seen again."""
    assert marks.get_or_make("orders", NOON) == RunMark(served=NOON)
    assert marks.get_or_make("orders", NOON + timedelta(days=1)) == RunMark(served=NOON)
    assert marks.get("prices") is None


def test_an_interrupted_run_is_claimed_again_once(marks: RunMarks) -> None:
    """A run that has ended is not claimed again. A run that was stopped with its scheduler is."""
    marks.claim("orders", NOON)
    marks = end(marks)
    assert marks.claim_again("orders", NOON - timedelta(hours=1)) is ClaimResult.TAKEN
    assert marks.claim_again("orders", NOON) is ClaimResult.GRANTED
    marks = end(marks)
    assert marks.claim_again("orders", NOON) is ClaimResult.TAKEN
    marks.note_ended("orders", cut_off=NOON)
    assert marks.claim_again("orders", NOON) is ClaimResult.GRANTED
    marks.note_ended("orders")
    marks.claim("orders", NOON + timedelta(hours=1))
    marks.note_ended("orders")
    assert marks.claim_again("orders", NOON + timedelta(hours=1)) is ClaimResult.TAKEN
    assert marks.claim_again("prices", NOON) is ClaimResult.TAKEN


def test_each_fact_of_a_mark_is_kept(marks: RunMarks) -> None:
    """These are the served time, the last success, and the reason of a pause."""
    marks.claim("orders", NOON)
    marks.note_ended("orders", succeeded=NOON + timedelta(seconds=2))
    marks.pause("orders", "a move of the disk", NOON)
    kept = RunMark(served=NOON, succeeded=NOON + timedelta(seconds=2), paused="a move of the disk")
    assert marks.get("orders") == kept
    later = NOON + timedelta(hours=1)
    marks.pause("orders", None, NOON)
    marks.claim("orders", later)
    assert marks.get("orders") == RunMark(served=later, open=later, succeeded=kept.succeeded)


def test_only_one_of_many_processes_claims_each_run(tmp_path: Path) -> None:
    """Four processes claim the same 200 runs, and no run is claimed twice."""

    def claimed(_: int) -> int:
        words = [sys.executable, "-c", CLAIM, str(tmp_path), NOON.isoformat()]
        return int(subprocess.run(words, capture_output=True, check=True, text=True).stdout)

    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(claimed, range(4)))
    assert 1 <= sum(counts) <= 200
    assert RunMarks(tmp_path).get("orders") == RunMark(served=LAST, open=LAST)


def test_an_incomplete_mark_is_written_again(tmp_path: Path) -> None:
    """A machine may have failed while the mark was written."""
    marks = RunMarks(tmp_path)
    (tmp_path / "orders.json").write_text('{"served": "2026-')
    assert marks.get_or_make("orders", NOON) == RunMark(served=NOON)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """The message states what the folder is for."""
    (tmp_path / "file").write_text("")
    with pytest.raises(Refusal, match=r"cannot note its runs.*Not a directory"):
        RunMarks(tmp_path / "file" / "marks")


def test_a_folder_without_locks_is_refused(volume_library: Path, tmp_path: Path) -> None:
    """Another scheduler could begin the same run."""
    program = CLAIM.replace("marks = ", "from origins.errors import WherryError\ntry:\n    marks = ").replace(
        "\nnoon = ", "\nexcept WherryError as error:\n    sys.exit(f'{error} {error.hint}')\nnoon = "
    )
    words = [sys.executable, "-c", program, str(tmp_path / "volume"), NOON.isoformat()]
    environment = make_volume_environment(volume_library, tmp_path / "volume", locks=False)
    done = subprocess.run(words, env={**os.environ, **environment}, capture_output=True, check=False, text=True)
    assert re.match(r"The scheduler cannot note its runs: .*\(Operation not supported\)", done.stderr)
    assert "on a disk with locks" in done.stderr


ENTER = """
import sys, time
from datetime import datetime
from pathlib import Path
from runners.schedules.run_marks import SCHEDULE, RunGroups
groups = RunGroups(Path(sys.argv[1]), {"shop": 2})
print([groups.choose(SCHEDULE, [("shop", datetime.now())]) for _ in range(3)], flush=True)
time.sleep(60)
"""

FORK = """
import os, signal, sys
from datetime import datetime
from pathlib import Path
from runners.schedules.run_marks import SCHEDULE, RunGroups
first, second = (RunGroups(Path(sys.argv[1])) for _ in range(2))
found = [each.choose(SCHEDULE, [("shop", datetime.now())]) for each in (first, second)]
child = os.fork()
if not child:
    signal.pause()
first.leave("shop")
found.append(second.choose(SCHEDULE, [("shop", datetime.now())]))
os.kill(child, signal.SIGKILL)
print(found)
"""


def test_servers_of_a_folder_share_the_limit_of_a_group(tmp_path: Path) -> None:
    """Another group has room meanwhile. The end of a run lets any of the servers begin one."""
    first, second = (RunGroups(tmp_path / "groups", {"shop": 2}) for _ in range(2))
    assert first.choose(SCHEDULE, [("shop", NOON)]) == 0
    assert second.choose(REQUESTS, [("shop", NOON)]) == 0
    assert second.choose(SCHEDULE, [("shop", NOON), ("shop", LAST), ("warehouse", LAST)]) == 2
    assert first.choose(SCHEDULE, [("shop", NOON), ("warehouse", NOON), (None, LAST)]) == 2
    first.leave("shop")
    assert second.choose(SCHEDULE, [("shop", NOON)]) == 0


def test_a_killed_process_makes_room_in_its_groups(tmp_path: Path) -> None:
    """The system frees its locks."""
    groups = RunGroups(tmp_path, {"shop": 2})
    command = [sys.executable, "-c", ENTER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "[0, 0, None]\n"
        assert groups.choose(SCHEDULE, [("shop", NOON)]) is None
        process.kill()
    assert [groups.choose(SCHEDULE, [("shop", NOON)]) for _ in range(3)] == [0, 0, None]


def test_a_forked_child_keeps_no_room(tmp_path: Path) -> None:
    """The run has ended, and the child that it left behind has the lock's file open."""
    command = [sys.executable, "-c", FORK, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "[0, None, 0]\n"


def test_a_limit_that_cannot_be_shared_holds_in_this_process(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file is in the way of the folder. The log says so."""
    (tmp_path / "groups").write_text("")
    groups = RunGroups(tmp_path / "groups", {"shop": 2})
    assert [groups.choose(SCHEDULE, [("shop", NOON)]) for _ in range(3)] == [0, 0, None]
    assert "Other servers cannot see a run of the group shop" in caplog.text
    groups.leave("shop")
    assert groups.choose(SCHEDULE, [("shop", NOON)]) == 0


@pytest.mark.parametrize("most", [0, -1])
def test_a_group_without_a_run_is_refused(most: int) -> None:
    """A pause keeps a pipeline from running."""
    with pytest.raises(Refusal, match="at least 1 run"):
        RunGroups(limits={"shop": most})
