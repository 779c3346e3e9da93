"""Two processes that write one table take turns; shown with real processes."""

from __future__ import annotations

import errno
import fcntl
import itertools
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from destinations.destination import DestinationError
from destinations.table_lock import Breath, committing, making

HOLDER = """
import sys
from pathlib import Path
from destinations import table_lock

with getattr(table_lock, sys.argv[1])(Path(sys.argv[2])):
    print("in", flush=True)
    sys.stdin.readline()
    Path(sys.argv[2]).with_suffix(".done").touch()
"""
TRIER = """
import sys
from pathlib import Path
from destinations.table_lock import committing

with committing(Path(sys.argv[1]), patience=0.0) as held:
    print(held, flush=True)
"""
COUNTER = """
import sys
from pathlib import Path
from destinations.table_lock import committing

counter = Path(sys.argv[2])
for _ in range(100):
    with committing(Path(sys.argv[1])):
        counter.write_text(str(int(counter.read_text()) + 1))
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """The folders of a table."""
    (tmp_path / "orders" / "_delta_log").mkdir(parents=True)
    return tmp_path / "orders"


@contextmanager
def process(*words: object) -> Iterator[subprocess.Popen[str]]:
    """Another Python with these arguments, ended when the test ends."""
    command = [sys.executable, "-c", *map(str, words)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def said(child: subprocess.Popen[str]) -> str:
    """The next line that the other process says."""
    assert child.stdout is not None
    return child.stdout.readline().strip()


def gets_in(table: Path) -> bool:
    """Whether the lock is to be had at once."""
    with committing(table, patience=0.0) as held:
        return held


def test_a_table_is_held_by_one_process_at_a_time(table: Path) -> None:
    """While another process holds the table it is not to be had, and afterwards it is."""
    with process(HOLDER, "committing", table) as other:
        assert said(other) == "in"
        assert not gets_in(table)
        other.communicate("go\n")
        assert gets_in(table)


def test_a_process_that_is_killed_holds_nothing(table: Path) -> None:
    """SIGKILL frees the table."""
    with process(HOLDER, "committing", table) as other:
        assert said(other) == "in"
        other.kill()
        other.wait()
        assert gets_in(table)


def test_threads_of_one_process_go_together(table: Path) -> None:
    """Spark keeps commits of one JVM apart itself, so its threads do not wait for one another."""
    with committing(table) as first, committing(table, patience=0.0) as second:
        assert first
        assert second


def test_the_table_is_held_until_the_last_thread_has_left(table: Path) -> None:
    """The first thread that leaves does not let others in."""
    with committing(table):
        with committing(table):
            pass
        with process(TRIER, table) as other:
            assert said(other) == "False"


def test_a_process_that_waits_gets_its_turn(table: Path) -> None:
    """Threads that come later queue behind another process, however many of them there are."""
    with process(HOLDER, "committing", table) as other:
        with committing(table):
            wait_until_refused(table)
        assert said(other) == "in"
        assert not gets_in(table)


def test_nothing_is_lost_between_two_processes(table: Path, tmp_path: Path) -> None:
    """Two processes that read, add one and write back, a hundred times each, count to two hundred."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    with process(COUNTER, table, counter) as one, process(COUNTER, table, counter) as two:
        assert (one.wait(), two.wait()) == (0, 0)
    assert counter.read_text() == "200"


def test_a_table_is_made_by_one_process_at_a_time(tmp_path: Path) -> None:
    """Who makes a table that is not there yet waits for another process that does so below the same folder."""
    table = tmp_path / "not" / "yet"
    with process(HOLDER, "making", tmp_path / "not") as other:
        assert said(other) == "in"
        with ThreadPoolExecutor(1) as pool:
            seen = pool.submit(makes, table)
            other.communicate("go\n")
            assert seen.result()


def test_two_names_of_one_table_are_one_lock(table: Path, tmp_path: Path) -> None:
    """A link to the table leads to the same lock, for this process and for others."""
    link = tmp_path / "link"
    link.symlink_to(table)
    with committing(table):
        assert gets_in(link)
    with process(HOLDER, "committing", table) as other:
        assert said(other) == "in"
        assert not gets_in(link)


def test_a_table_that_is_gone_is_an_error(tmp_path: Path) -> None:
    """Nothing is made in order to be locked."""
    with pytest.raises(DestinationError, match="The table is gone"), committing(tmp_path / "gone"):
        pass


def test_nothing_is_left_behind(table: Path) -> None:
    """The lock is no file: what lies in the table's folders is what lay there before."""
    assert gets_in(table)
    assert [path.name for path in table.rglob("*")] == ["_delta_log"]


def test_where_nothing_can_be_locked_one_goes_on_and_says_so(
    table: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On a file system without locks writes go on, with one warning for each folder."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with caplog.at_level(logging.WARNING, "wherry"):
        assert [gets_in(table), gets_in(table)] == [True, True]
    assert len(caplog.messages) == 2
    assert "let no other process write there" in caplog.text


def wait_until_refused(table: Path) -> None:
    """Wait until another process has queued for the table that this one holds."""
    deadline = time.monotonic() + 60
    while gets_in(table):
        assert time.monotonic() < deadline, "no other process has queued"


def makes(table: Path) -> bool:
    """Whether the other process was done when this one could make its table."""
    with making(table):
        return table.parent.with_suffix(".done").exists()


def test_who_commits_without_spark_is_alone(table: Path) -> None:
    """It waits for no thread that commits through Spark, and lets none in beside it."""
    with ThreadPoolExecutor(1) as pool, committing(table, apart=True) as held:
        assert held
        assert not pool.submit(gets_in, table).result()
        with committing(table, 0.0, apart=True) as second:
            assert not second
    with committing(table), committing(table) as beside, committing(table, apart=True) as apart:
        assert (beside, apart) == (True, False)
    with committing(table, apart=True) as held:
        assert held


def gaps(breath: Breath, *, takes: float, apart: float, commits: int) -> list[tuple[float, float]]:
    """When one that commits so often pauses, and for how long: each commit `takes` a while, and `apart` from it comes
    the next."""
    now, found = 0.0, list[tuple[float, float]]()
    for _ in range(commits):
        pause = breath.pause(now)
        found += [(now, pause)] if pause else []
        now += pause + takes
        breath.ended(now)
        now += apart
    return found


def test_commits_that_follow_one_another_leave_a_gap_now_and_then() -> None:
    """A stranger finds room after a while of commits without one, and from one gap to the next it is as long."""
    found = gaps(Breath(every=1.0, gap=0.1), takes=0.005, apart=0.015, commits=200)
    assert len(found) == 3
    assert all(pause == pytest.approx(0.085) for _, pause in found)
    assert all(1.0 <= after - before <= 1.2 for (before, _), (after, _) in itertools.pairwise([(0.0, 0.0), *found]))


def test_commits_with_room_between_them_never_pause() -> None:
    """Who has to compute for longer than a stranger needs is in nobody's way."""
    assert gaps(Breath(every=1.0, gap=0.1), takes=0.005, apart=0.11, commits=100) == []


def test_a_gap_is_one_for_all_threads() -> None:
    """Who comes in the middle of it waits for its end; behind it nobody waits at once again."""
    breath = Breath(every=1.0, gap=0.1)
    breath.pause(0.0)
    breath.ended(1.0)
    assert [breath.pause(now) for now in (1.02, 1.05, 1.1)] == pytest.approx([0.08, 0.05, 0.0])
    breath.ended(1.11)
    assert breath.pause(1.12) == 0.0


def test_what_a_gap_costs_is_a_few_percent() -> None:
    """Of a backlog of batches that take 20 ms each, with the gaps that there are."""
    commits = 1_000
    lost = sum(pause for _, pause in gaps(Breath(), takes=0.005, apart=0.015, commits=commits))
    assert 0 < lost / (commits * 0.02) < 0.06
