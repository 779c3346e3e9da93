"""One run at a time on this host: the lock ends with its process, and a process is known by more than its number."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runners.model.entry import OwnerBody
from runners.state.process_locks import (
    LockError,
    StateLock,
    end_orphan,
    end_process,
    identify_host,
    identify_process,
    is_process_alive,
    lock_path,
    note_jvm,
    sweep_locks,
)

ROOT = Path(__file__).parents[3]
HOLDER = """
import sys, subprocess
from pathlib import Path
from runners.state.process_locks import StateLock
assert StateLock(Path(sys.argv[1])).acquire()
child = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL) if sys.argv[2] == "with a child" else None
print(child.pid if child else 0, flush=True)
sys.stdin.read()
"""
FORKING = """
import os, sys
from pathlib import Path
from runners.state.process_locks import StateLock
path = Path(sys.argv[1])
lock, (asked, ask), (told, tell) = StateLock(path), os.pipe(), os.pipe()
lock.acquire()
if os.fork() == 0:
    os.write(tell, f"child {StateLock(path).acquire()} {lock.acquire()} ".encode())
    os.read(asked, 1)
    os._exit(0)
said = os.read(told, 100).decode()
lock.release()
print(said, "parent", StateLock(path).acquire())
os.write(ask, b".")
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a lock file may be."""
    return tmp_path / "state" / "lock"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing for as long as it is left alone."""
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def holder(path: Path, how: str = "") -> subprocess.Popen[str]:
    """Another process that has the lock, and waits."""
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def said_by(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_one_of_two_gets_the_lock(path: Path) -> None:
    """The other is told so at once, and gets it when the first lets go."""
    first, second = StateLock(path), StateLock(path)
    assert first.acquire()
    assert not second.acquire()
    first.release()
    assert second.acquire()
    second.release()


def test_who_has_it_may_ask_again_and_let_go_twice(path: Path) -> None:
    """Twice is once, both ways."""
    lock = StateLock(path)
    assert lock.acquire()
    assert lock.acquire()
    lock.release()
    lock.release()
    assert not lock.is_held()


@pytest.mark.promise("CN-20")
def test_a_killed_process_has_the_lock_no_more(path: Path) -> None:
    """SIGKILL is enough; nobody has to clean up."""
    process = holder(path)
    said_by(process)
    assert not StateLock(path).acquire()
    process.kill()
    process.communicate()
    lock = StateLock(path)
    assert lock.acquire()
    lock.release()


def test_a_child_that_outlives_its_parent_does_not_keep_the_lock(path: Path) -> None:
    """A JVM that was started by a run may live on when the run is gone."""
    process = holder(path, "with a child")
    child = int(said_by(process))
    process.kill()
    process.communicate()
    assert identify_process(child)["started"]
    lock = StateLock(path)
    assert lock.acquire()
    lock.release()
    os.kill(child, signal.SIGKILL)


def test_a_forked_child_neither_keeps_nor_has_the_lock(path: Path) -> None:
    """It has its parent's memory and files, and yet is another process."""
    process = subprocess.run([sys.executable, "-c", FORKING, str(path)], capture_output=True, text=True, cwd=ROOT)
    assert process.stdout.split() == ["child", "False", "False", "parent", "True"]


def test_asking_whether_it_is_held_changes_nothing(path: Path) -> None:
    """No lock is taken and no file is made."""
    assert not StateLock(path).is_held()
    assert not path.parent.exists()
    lock = StateLock(path)
    assert lock.acquire()
    assert StateLock(path).is_held()
    assert lock.is_held()
    lock.release()
    assert not StateLock(path).is_held()


def test_who_asks_is_not_taken_for_one_who_has_it(path: Path) -> None:
    """Two may ask at the same moment."""
    lock = StateLock(path)
    assert lock.acquire()
    lock.release()
    with path.open() as asker:
        fcntl.flock(asker, fcntl.LOCK_SH)
        assert not lock.is_held()


def test_nobody_is_refused_because_somebody_asks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that starts at the moment in which `status` asks gets the lock all the same."""
    path.parent.mkdir()
    path.touch()
    askers, flock = [path.open()], fcntl.flock

    def meets_an_asker(file: int, how: int) -> None:
        with askers.pop() if askers else contextlib.nullcontext(file) as asker:
            flock(asker, fcntl.LOCK_SH)
            flock(file, how)

    monkeypatch.setattr(fcntl, "flock", meets_an_asker)
    lock = StateLock(path)
    assert lock.acquire()
    lock.release()


def test_a_lock_file_that_is_cleaned_away_in_between_is_made_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock on a file that no path leads to would keep nobody out."""
    cleanings, flock = [path.unlink], fcntl.flock

    def after_cleaning(file: int, how: int) -> None:
        for clean in cleanings[:]:
            clean()
            cleanings.clear()
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", after_cleaning)
    first = StateLock(path)
    assert first.acquire()
    assert not StateLock(path).acquire()
    first.release()


def test_a_lock_that_cannot_be_had_here_is_said_in_plain_words(tmp_path: Path) -> None:
    """A file stands where the folder should be."""
    (tmp_path / "file").write_text("")
    with pytest.raises(LockError, match=r"file/lock cannot be opened: Not a directory\.") as caught:
        StateLock(tmp_path / "file" / "lock").acquire()
    assert "Make its folder writable" in caught.value.hint


def test_a_lock_file_is_not_followed_elsewhere(tmp_path: Path) -> None:
    """In a folder that all may write to, somebody else's link leads nowhere."""
    (tmp_path / "theirs").write_text("")
    (tmp_path / "lock").symlink_to(tmp_path / "theirs")
    with pytest.raises(LockError, match="lock cannot be opened"):
        StateLock(tmp_path / "lock").acquire()


def test_what_dead_runs_left_beside_a_lock_is_swept(tmp_path: Path) -> None:
    """Files of their own that nobody has locked, after an hour; but for those that owners are known by."""
    for name in ("lock", "lock-dead", "lock-lives", "lock-owner", "lock-new", "ledger"):
        (tmp_path / name).touch()
        if name != "lock-new":
            os.utime(tmp_path / name, (0, 0))
    lives = StateLock(tmp_path / "lock-lives")
    assert lives.acquire()
    sweep_locks(tmp_path / "lock", named=["lock-owner"])
    left = ["ledger", "lock", "lock-lives", "lock-new", "lock-owner"]
    assert sorted(file.name for file in tmp_path.iterdir()) == left
    lives.release()


def test_a_lock_file_that_is_not_there_says_nothing(tmp_path: Path) -> None:
    """It is not made by looking."""
    assert StateLock(tmp_path / "lock").is_held() is None
    assert list(tmp_path.iterdir()) == []


def test_states_of_other_names_have_other_lock_files() -> None:
    """The same place always has the same one, whatever stands in its name."""
    assert lock_path("main.shop.orders") == lock_path("main.shop.orders")
    assert lock_path("main.shop.orders") != lock_path("main.shop.order")
    assert lock_path("../../größe / it's").parent == lock_path("main.shop.orders").parent


def test_this_process_knows_itself() -> None:
    """By host, boot, number and beginning."""
    identity = identify_host()
    assert identity["host"] == socket.gethostname()
    assert identity["boot"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert identity["pid"] == os.getpid()
    assert is_process_alive(identity["pid"], identity["started"])


def test_a_process_is_alive_until_it_is_gone(sleeper: subprocess.Popen[bytes]) -> None:
    """One that was killed is gone, also while its parent has not noticed yet."""
    identity = identify_process(sleeper.pid)
    assert is_process_alive(**identity)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert not is_process_alive(**identity)
    sleeper.wait()
    assert not is_process_alive(**identity)
    assert not is_process_alive(sleeper.pid, "")


def test_a_number_that_was_given_away_is_another_process(sleeper: subprocess.Popen[bytes]) -> None:
    """It is not taken for the one that had it, and is not killed in its place."""
    assert not is_process_alive(sleeper.pid, "1")
    assert not is_process_alive(sleeper.pid, "")
    assert end_process(sleeper.pid, "1")
    assert not end_process(sleeper.pid, "")
    assert sleeper.poll() is None


def test_a_process_is_ended_and_gone(sleeper: subprocess.Popen[bytes]) -> None:
    """When the call returns nothing of it runs any more."""
    identity = identify_process(sleeper.pid)
    assert end_process(**identity)
    assert not is_process_alive(**identity)
    assert sleeper.wait() == -signal.SIGKILL
    assert end_process(**identity)


def test_a_process_that_does_not_go_is_said_to_be_there(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait is bounded, and its end is not taken for the process's."""
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda *_: None)
    assert not end_process(**identify_process(sleeper.pid), seconds=0.01)


def test_a_name_with_brackets_and_spaces_hides_nothing(tmp_path: Path) -> None:
    """A program may be called anything; when it began is still found."""
    program = tmp_path / "a) Z 1 (b"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([str(program), "60"])
    identity = identify_process(process.pid)
    assert int(identity["started"]) >= int(identify_host()["started"])
    process.kill()
    process.wait()


HERE = OwnerBody(**identify_host(), run="7f", jvm=None)  # type: ignore[typeddict-item]
DEAD: OwnerBody = {**HERE, "started": "1"}


def test_a_jvm_is_ended_when_its_owner_is_gone(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """It may still be writing what the owner began."""
    end_orphan({**DEAD, "jvm": identify_process(sleeper.pid)}, tmp_path / "lock")
    assert sleeper.wait() == -signal.SIGKILL


def test_a_jvm_that_started_late_is_ended_when_its_owner_is_gone(
    sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """The ledger does not know it. A note beside the lock does."""
    note_jvm(tmp_path / "lock", "7f", sleeper.pid)
    end_orphan(DEAD, tmp_path / "lock")
    assert sleeper.wait() == -signal.SIGKILL
    assert [*tmp_path.iterdir()] == []


def test_the_jvm_of_a_process_that_lives_is_left_alone(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """Its run is over, but others may be under way there; in this process it may be our own."""
    lock, jvm = tmp_path / "lock", identify_process(sleeper.pid)
    note_jvm(lock, "7f", sleeper.pid)
    end_orphan({**HERE, "jvm": jvm}, lock)
    end_orphan(HERE, lock)
    end_orphan({**DEAD, "boot": "another", "jvm": jvm}, lock)
    end_orphan({**DEAD, "run": "another"}, lock)
    assert sleeper.poll() is None


def test_a_note_of_a_jvm_that_is_not_whole_ends_nothing(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """The disk was full, for example."""
    note_jvm(tmp_path / "lock", "7f", sleeper.pid)
    (note,) = tmp_path.iterdir()
    note.write_bytes(note.read_bytes()[:5])
    end_orphan(DEAD, tmp_path / "lock")
    assert sleeper.poll() is None


def test_the_note_of_a_jvm_is_swept_once_the_jvm_is_gone(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """A run may take longer than any file is left alone for."""
    note_jvm(tmp_path / "lock", "7f", sleeper.pid)
    sweep_locks(tmp_path / "lock", older=0)
    assert [*tmp_path.iterdir()] != []
    sleeper.kill()
    sleeper.wait()
    sweep_locks(tmp_path / "lock", older=0)
    assert [*tmp_path.iterdir()] == []
