"""One run at a time on this host. The lock ends with its process, and a process is known by its number and start."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from origins.spark_private import STARTER
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
    sweep_locks,
)
from tests.databricks.volume import make_volume_environment

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
REFUSED = """
import sys
from pathlib import Path
from runners.state.process_locks import LockError, StateLock
Path(sys.argv[1]).mkdir()
lock = StateLock(Path(sys.argv[1], "lock"))
for action in (lock.acquire, lock.is_held):
    try:
        action()
    except LockError as error:
        print(error, error.hint, sep="\\n", end="\\n---\\n" if action == lock.acquire else "\\n")
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

WORDS_OF_JVM = ["org.apache.spark.deploy.SparkSubmit", "pyspark-shell"]
ENVIRONMENT_OF_JVM = {"_PYSPARK_DRIVER_CONN_INFO_PATH": "/gone"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a lock file."""
    return tmp_path / "state" / "lock"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """Return a process that only sleeps."""
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


MakeProcess = Callable[[list[str], dict[str, str]], subprocess.Popen[bytes]]
"""Starts a process with these words and variables. With those of a JVM, it looks like a JVM of Python."""


@pytest.fixture
def start_process() -> Iterator[MakeProcess]:
    """Return a function that starts a process, which ends with the test."""
    with contextlib.ExitStack() as stack:

        def start(words: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
            command = ["sh", "-c", "read line", "sh", *words]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, **environment})
            stack.callback(process.communicate)
            stack.callback(process.kill)
            while not Path(f"/proc/{process.pid}/environ").read_bytes():
                continue  # for a moment, a process that was just started has no words and no variables
            return process

        yield start


def make_environment(owner: OwnerBody) -> dict[str, str]:
    """Return the variables of a JVM that the process of this owner started."""
    return {**ENVIRONMENT_OF_JVM, STARTER: f"{owner.pid} {owner.started}"}


def start_holder(path: Path, how: str = "") -> subprocess.Popen[str]:
    """Start another process that has the lock, and waits."""
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_only_one_of_two_gets_the_lock(path: Path) -> None:
    """The other is refused at once, and gets the lock when the first releases it."""
    first, second = StateLock(path), StateLock(path)
    assert first.acquire()
    assert not second.acquire()
    first.release()
    assert second.acquire()
    second.release()


@pytest.mark.promise("CN-20")
def test_a_killed_process_no_longer_has_the_lock(path: Path) -> None:
    """SIGKILL is enough, and no cleanup is needed."""
    process = start_holder(path)
    read_line(process)
    assert not StateLock(path).acquire()
    process.kill()
    process.communicate()
    lock = StateLock(path)
    assert lock.acquire()
    lock.release()


def test_a_child_that_outlives_its_parent_does_not_keep_the_lock(path: Path) -> None:
    """A JVM that a run started may outlive the run."""
    process = start_holder(path, "with a child")
    child = int(read_line(process))
    process.kill()
    process.communicate()
    assert identify_process(child).started
    lock = StateLock(path)
    assert lock.acquire()
    lock.release()
    os.kill(child, signal.SIGKILL)


def test_a_forked_child_neither_keeps_nor_has_the_lock(path: Path) -> None:
    """It has the memory and files of its parent, but is another process."""
    process = subprocess.run([sys.executable, "-c", FORKING, str(path)], capture_output=True, text=True, cwd=ROOT)
    assert process.stdout.split() == ["child", "False", "False", "parent", "True"]


def test_a_check_of_the_lock_changes_nothing(path: Path) -> None:
    """It takes no lock and makes no file."""
    assert not StateLock(path).is_held()
    assert not path.parent.exists()
    lock = StateLock(path)
    assert lock.acquire()
    assert StateLock(path).is_held()
    assert lock.is_held()
    lock.release()
    assert not StateLock(path).is_held()


def test_a_process_that_checks_the_lock_does_not_count_as_its_holder(path: Path) -> None:
    """Two processes may check at the same moment."""
    lock = StateLock(path)
    assert lock.acquire()
    lock.release()
    with path.open() as asker:
        fcntl.flock(asker, fcntl.LOCK_SH)
        assert not lock.is_held()


def test_a_lock_file_that_is_deleted_during_the_acquisition_is_made_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock on a deleted file would keep no process out."""
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


def test_a_lock_that_cannot_be_opened_is_reported_plainly(tmp_path: Path) -> None:
    """A file is where the folder should be."""
    (tmp_path / "file").write_text("")
    with pytest.raises(LockError, match=r"file/lock cannot be opened: Not a directory\.") as caught:
        StateLock(tmp_path / "file" / "lock").acquire()
    assert "Make its folder writable" in caught.value.hint


def test_a_file_system_without_locks_is_reported_plainly(volume_library: Path, tmp_path: Path) -> None:
    """Some volumes refuse locks. The error is the same for a run and for a command that only asks about it."""
    environment = make_volume_environment(volume_library, tmp_path / "volume", locks=False)
    program = [sys.executable, "-c", REFUSED, str(tmp_path / "volume")]
    done = subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    acquired, looked = done.stdout.split("---\n")
    assert acquired == looked
    assert f"{tmp_path}/volume/lock cannot be locked: Operation not supported." in acquired
    assert "state: {schema: main.wherry}" in acquired


def test_a_lock_file_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """In a folder that all users may write to, another user may have made the link."""
    (tmp_path / "theirs").write_text("")
    (tmp_path / "lock").symlink_to(tmp_path / "theirs")
    with pytest.raises(LockError, match="lock cannot be opened"):
        StateLock(tmp_path / "lock").acquire()


def test_lock_files_of_dead_runs_are_swept(tmp_path: Path) -> None:
    """These are unlocked files that are at least an hour old. Files that belong to an owner are kept."""
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


def test_a_missing_lock_file_gives_no_answer(tmp_path: Path) -> None:
    """The check does not make the file."""
    assert StateLock(tmp_path / "lock").is_held() is None
    assert list(tmp_path.iterdir()) == []


def test_states_with_other_names_have_other_lock_files() -> None:
    """One place always has the same file, for any characters in its name."""
    assert lock_path("main.shop.orders") == lock_path("main.shop.orders")
    assert lock_path("main.shop.orders") != lock_path("main.shop.order")
    assert lock_path("../../größe / it's").parent == lock_path("main.shop.orders").parent


def test_a_process_is_alive_until_it_is_gone(sleeper: subprocess.Popen[bytes]) -> None:
    """A killed process counts as gone even before its parent collects it."""
    identity = identify_process(sleeper.pid)
    assert is_process_alive(identity.pid, identity.started)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert not is_process_alive(identity.pid, identity.started)
    sleeper.wait()
    assert not is_process_alive(identity.pid, identity.started)
    assert not is_process_alive(sleeper.pid, "")


def test_a_reused_process_number_is_another_process(sleeper: subprocess.Popen[bytes]) -> None:
    """It is not mistaken for the earlier process, and is not killed in its place."""
    assert not is_process_alive(sleeper.pid, "1")
    assert not is_process_alive(sleeper.pid, "")
    assert end_process(sleeper.pid, "1")
    assert not end_process(sleeper.pid, "")
    assert sleeper.poll() is None


def test_a_program_name_with_brackets_and_spaces_is_read_correctly(tmp_path: Path) -> None:
    """A program may have any name, and its start is still found."""
    program = tmp_path / "a) Z 1 (b"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([str(program), "60"])
    identity = identify_process(process.pid)
    assert int(identity.started) >= int(identify_host().started)
    process.kill()
    process.wait()


HERE = OwnerBody(**vars(identify_host()), run="7f")
DEAD = replace(HERE, started="1")


def test_a_jvm_that_the_ledger_knows_is_ended_when_its_owner_is_gone(start_process: MakeProcess) -> None:
    """The program of its owner started it. The JVM may still be writing."""
    jvm = start_process(WORDS_OF_JVM, ENVIRONMENT_OF_JVM)
    end_orphan(replace(DEAD, jvm=identify_process(jvm.pid)))
    assert jvm.wait() == -signal.SIGKILL


def test_a_jvm_that_its_owner_started_is_ended_when_the_owner_is_gone(start_process: MakeProcess) -> None:
    """The ledger does not know this JVM, but its environment names the owner's process."""
    jvm = start_process(WORDS_OF_JVM, make_environment(DEAD))
    end_orphan(DEAD)
    assert jvm.wait() == -signal.SIGKILL


@pytest.mark.parametrize(
    "owner",
    [HERE, replace(DEAD, boot="another"), replace(DEAD, started="2"), replace(DEAD, pid=1)],
    ids=["alive", "before the boot", "a reused number", "another process"],
)
def test_the_jvm_of_another_process_is_left_alone(start_process: MakeProcess, owner: OwnerBody) -> None:
    """While its own process is alive, other runs may use it. It may also be the JVM of this process."""
    jvms = [start_process(WORDS_OF_JVM, make_environment(each)) for each in (HERE, DEAD)]
    end_orphan(owner)
    assert [jvm.poll() for jvm in jvms] == [None, None]


@pytest.mark.parametrize(
    ("words", "environment"),
    [([], {}), (WORDS_OF_JVM, {}), ([], ENVIRONMENT_OF_JVM)],
    ids=["neither", "words", "environment"],
)
def test_only_a_jvm_of_spark_is_ended(
    start_process: MakeProcess, words: list[str], environment: dict[str, str]
) -> None:
    """Neither a ledger nor a variable makes Wherry end any other process. A JVM has both the words and the variable."""
    process = start_process(words, {**environment, STARTER: make_environment(DEAD)[STARTER]})
    end_orphan(replace(DEAD, jvm=identify_process(process.pid)))
    assert process.poll() is None


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_lock_that_is_no_file_is_refused_at_once(path: Path, make: Callable[[Path], None]) -> None:
    """To open a pipe may take for ever."""
    path.parent.mkdir()
    make(path)
    code = "import sys; from pathlib import Path; from runners.state.process_locks import StateLock as Lock;"
    for ask in ("is_held", "acquire"):
        words = [sys.executable, "-c", f"{code} Lock(Path(sys.argv[1])).{ask}()", str(path)]
        done = subprocess.run(words, cwd=ROOT, timeout=30, capture_output=True, text=True, check=False)
        assert "it is not a regular file" in done.stderr


PLACE = "from runners.state.process_locks import lock_path; print(lock_path('s3://bucket/state'))"


def find_place(**given: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **given}
    return subprocess.run([sys.executable, "-c", PLACE], cwd=ROOT, env=environment, capture_output=True, text=True)


def test_the_lock_of_a_state_in_a_store_is_in_a_folder_of_this_user(tmp_path: Path) -> None:
    """Other users cannot enter it."""
    folder = Path(find_place(TMPDIR=str(tmp_path)).stdout).parent
    assert folder == tmp_path / f"wherry-{os.geteuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("take", ["theirs", "open", "link"])
def test_a_folder_that_another_user_took_is_not_used(tmp_path: Path, take: str) -> None:
    """Wherry then uses a folder in the home, and reports it if there is none either."""
    temporary, home = tmp_path / "temporary", tmp_path / "home"
    (tmp_path / "aside").mkdir(mode=0o700)
    temporary.mkdir()
    home.mkdir()
    squatted = temporary / f"wherry-{os.geteuid()}"
    if take == "link":
        squatted.symlink_to(tmp_path / "aside")
    else:
        squatted.mkdir(mode=0o700)
        squatted.chmod(0o777 if take == "open" else 0o700)
    if take == "theirs":
        if os.geteuid() != 0:
            pytest.skip("only root can give a folder away")
        os.chown(squatted, 65534, 65534)
    given = {"TMPDIR": str(temporary), "HOME": str(home)}
    assert find_place(**given).stdout.startswith(str(home / ".cache" / "wherry" / "locks-"))
    (tmp_path / "file").touch()
    assert "only this user can enter" in find_place(**{**given, "HOME": str(tmp_path / "file")}).stderr
    assert [*squatted.iterdir()] == []
