"""Two processes that write one table take turns, shown with real processes."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow
import pytest
from deltalake import write_deltalake

from destinations.delta import lock as table_lock
from destinations.delta.lock import ForeignWrites, YieldPause, hold_making_lock, hold_table
from destinations.destination import DestinationError

HOLDER = """
import sys
from pathlib import Path
from destinations.delta import lock as table_lock

with getattr(table_lock, sys.argv[1])(Path(sys.argv[2])):
    print("in", flush=True)
    sys.stdin.readline()
    Path(sys.argv[2]).with_suffix(".done").touch()
"""
TRIER = """
import sys
from pathlib import Path
from destinations.delta.lock import hold_table

with hold_table(Path(sys.argv[1]), patience=0.0) as held:
    print(held, flush=True)
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """The folders of a table."""
    (tmp_path / "orders" / "_delta_log").mkdir(parents=True)
    return tmp_path / "orders"


@contextmanager
def start_process(*words: object) -> Iterator[subprocess.Popen[str]]:
    """Start another Python process with these arguments, and end it after the block."""
    command = [sys.executable, "-c", *map(str, words)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def read_line(child: subprocess.Popen[str]) -> str:
    """Return the next line of the other process."""
    assert child.stdout is not None
    return child.stdout.readline().strip()


def is_free(table: Path) -> bool:
    """Return whether the lock is free."""
    with hold_table(table, patience=0.0) as held:
        return held


def test_a_table_is_held_by_one_process_at_a_time(table: Path) -> None:
    """No other process gets the table until the holder has left."""
    with start_process(HOLDER, "hold_table", table) as other:
        assert read_line(other) == "in"
        assert not is_free(table)
        other.communicate("go\n")
        assert is_free(table)


def test_a_killed_process_holds_no_lock(table: Path) -> None:
    """SIGKILL frees the table."""
    with start_process(HOLDER, "hold_table", table) as other:
        assert read_line(other) == "in"
        other.kill()
        other.wait()
        assert is_free(table)


def test_threads_of_one_process_hold_a_table_together(table: Path) -> None:
    """Spark keeps the commits of one JVM apart, so its threads need not wait for one another."""
    with hold_table(table) as first, hold_table(table, patience=0.0) as second:
        assert first
        assert second


def test_in_a_store_wherrys_commits_and_sparks_take_turns() -> None:
    """Spark may replace a version in S3 that Wherry took in the meantime."""
    url = "s3a://bucket/orders"
    with hold_table(url), hold_table(url, patience=0.0, apart=True) as beside:
        assert not beside
    with hold_table(url, apart=True), hold_table(url, patience=0.0) as beside:
        assert not beside
    with hold_table(url, patience=0.0, apart=True) as alone:
        assert alone


def test_a_table_is_held_until_the_last_thread_has_left(table: Path) -> None:
    """The table remains held after the first thread has left."""
    with hold_table(table):
        with hold_table(table):
            pass
        with start_process(TRIER, table) as other:
            assert read_line(other) == "False"


def test_a_waiting_process_gets_its_turn(table: Path) -> None:
    """Later threads queue behind another process."""
    with start_process(HOLDER, "hold_table", table) as other:
        with hold_table(table):
            wait_until_refused(table)
        assert read_line(other) == "in"
        assert not is_free(table)


def test_a_table_is_made_by_one_process_at_a_time(tmp_path: Path) -> None:
    """A process that makes a table waits for another process that makes one below the same folder."""
    table = tmp_path / "not" / "yet"
    with start_process(HOLDER, "hold_making_lock", tmp_path / "not") as other:
        assert read_line(other) == "in"
        with ThreadPoolExecutor(1) as pool:
            seen = pool.submit(is_done_first, table)
            other.communicate("go\n")
            assert seen.result()


def test_two_paths_of_one_table_share_a_lock(table: Path, tmp_path: Path) -> None:
    """A link to the table leads to the same lock, in this process and in others."""
    link = tmp_path / "link"
    link.symlink_to(table)
    with hold_table(table):
        assert is_free(link)
    with start_process(HOLDER, "hold_table", table) as other:
        assert read_line(other) == "in"
        assert not is_free(link)


def test_a_missing_table_is_an_error(tmp_path: Path) -> None:
    """The lock makes no folder."""
    with pytest.raises(DestinationError, match="is missing"), hold_table(tmp_path / "gone"):
        pass


def test_without_file_locks_writes_continue_with_a_warning(
    table: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Wherry warns once for each folder on a file system without locks."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with caplog.at_level(logging.WARNING, "wherry"):
        assert [is_free(table), is_free(table)] == [True, True]
    assert len(caplog.messages) == 2
    assert "no other process may write there" in caplog.text


def wait_until_refused(table: Path) -> None:
    """Wait until another process has queued for the table that this process holds."""
    deadline = time.monotonic() + 60
    while is_free(table):
        assert time.monotonic() < deadline, "no other process has queued"


def is_done_first(table: Path) -> bool:
    """Return whether the other process was done when this process could make its table."""
    with hold_making_lock(table):
        return table.parent.with_suffix(".done").exists()


def test_a_commit_without_spark_holds_the_table_alone(table: Path) -> None:
    """It does not wait for a thread that commits through Spark, and lets no other thread in."""
    with ThreadPoolExecutor(1) as pool, hold_table(table, apart=True) as held:
        assert held
        assert not pool.submit(is_free, table).result()
        with hold_table(table, 0.0, apart=True) as second:
            assert not second
    with hold_table(table), hold_table(table) as beside, hold_table(table, apart=True) as apart:
        assert (beside, apart) == (True, False)
    with hold_table(table, apart=True) as held:
        assert held


def test_a_pause_is_made_only_if_another_writer_waits() -> None:
    """Wherry checks for one at intervals.

    The pause is shared by all threads, and the next one does not follow at once.
    """
    looks = iter([False, True, False])
    breath = YieldPause(lambda: next(looks), every=0.3, gap=0.5)
    assert [breath.pause(now) for now in (0.0, 0.1, 0.29)] == [0.0, 0.0, 0.0]
    assert [breath.pause(now) for now in (0.5, 0.7, 1.0, 1.2)] == pytest.approx([0.5, 0.3, 0.0, 0.0])
    assert breath.pause(1.4) == 0.0


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A table with one file."""
    write_deltalake(tmp_path / "table", pyarrow.table({"id": [1]}))
    return tmp_path / "table"


def test_a_file_uncommitted_at_two_checks_belongs_to_a_waiting_writer(shared: Path) -> None:
    """Files that existed before, or are committed in the meantime, do not count."""
    strangers = ForeignWrites(shared)
    assert strangers.wait() is False
    write_deltalake(shared, pyarrow.table({"id": [2]}), mode="append")
    (shared / "part-a.parquet").touch()
    assert [strangers.wait(), strangers.wait()] == [False, True]
    (shared / "_delta_log" / f"{2:020}.json").write_text('{"add":{"path":"part-a.parquet"}}\n')
    assert [strangers.wait(), strangers.wait()] == [False, False]


def test_lines_of_a_log_end_only_where_json_ends_them(shared: Path) -> None:
    """A text in a line may have characters that end a line for Python."""
    strangers = ForeignWrites(shared)
    strangers.wait()
    stats = json.dumps({"numRecords": 1, "minValues": {"v": "a\u2028\x85b"}}, ensure_ascii=False)
    added = {"add": {"path": "part-a.parquet", "stats": stats}}
    (shared / "part-a.parquet").touch()
    (shared / "_delta_log" / f"{1:020}.json").write_text(json.dumps(added, ensure_ascii=False), encoding="utf-8")
    assert [strangers.wait(), strangers.wait()] == [False, False]


def test_a_file_that_is_never_committed_causes_few_waits(shared: Path) -> None:
    """The process that wrote it may have been killed."""
    strangers = ForeignWrites(shared)
    strangers.wait()
    (shared / "part-a.parquet").touch()
    assert [strangers.wait() for _ in range(8)] == [False, True, True, True, False, False, False, False]


def test_commits_without_spark_pause_for_a_waiting_writer(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The holder checks for a waiting writer before each commit."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(table_lock.ForeignWrites, "wait", lambda self: True)
    with hold_table(shared, apart=True) as held:
        assert held
    assert slept == [pytest.approx(0.5, abs=0.1)]
