"""A warm Spark: which process may borrow it, and when it ends. These tests start no Spark."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from origins.secret import SecretText
from origins.spark_private import JvmAddress
from runners.model.spec import SparkOptions
from runners.spark import session, warm, warm_keeper
from runners.spark.late import LateSession
from runners.spark.start import SparkMissing
from runners.spark.warm import (
    CLEANS,
    GOODBYE,
    NOTE,
    SOCKET,
    WarmError,
    ask,
    attach,
    begin_use,
    end_use,
    end_warm,
    find_base,
    find_obstacle,
    keep_warm,
    list_jvm_environment,
    list_warm,
    lock_folder,
    name_folder,
    read_keep,
    receive,
    send,
    shorten_path,
)
from runners.spark.warm_keeper import Keeper, KeptSpark
from tests.manual_clock import ManualClock

TOKEN = "right"  # noqa: S105
ADDRESS = {"port": 1, "secret": "s", "number": 2}


class Lent(KeptSpark):
    """A double of the Spark that is lent."""

    def __init__(self) -> None:
        self.address = JvmAddress(**ADDRESS)  # type: ignore[arg-type]
        self.alive = threading.Event()
        self.alive.set()
        self.ended = threading.Event()
        self.renewals = 0
        self.during: Callable[[], object] = lambda: None
        self.freezes = self.stays_at_work = False
        self.warmed: list[int] = []
        self.breaks_at: int | None = None

    def is_alive(self) -> bool:
        return self.alive.is_set()

    def check(self) -> None:
        if self.freezes:
            self.ended.wait(60)
            raise ConnectionResetError

    def renew(self) -> None:
        self.during()
        if self.stays_at_work:
            raise WarmError("it works")
        self.renewals += 1

    def warm_up(self) -> Iterator[None]:
        for step in range(3):
            if step == self.breaks_at:
                raise ConnectionResetError
            self.warmed.append(step)
            yield

    def kill(self) -> None:
        self.alive.clear()
        self.ended.set()

    def end(self) -> None:
        self.kill()


class Kept:
    """A keeper in a thread with a double of Spark, and the requests of other processes."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        self.folder, self.spark, self.clock = folder, Lent(), ManualClock()
        self.is_there = True
        self.server = socket.socket(socket.AF_UNIX)
        with shorten_path(folder) as place:
            self.server.bind(f"{place}/{SOCKET}")
        self.server.listen()
        write_note(folder)
        self.keeper = Keeper(
            self.spark,
            self.server,
            TOKEN,
            keep=60,
            cleans=folder / CLEANS,
            is_there=lambda: self.is_there,
            clock=self.clock,
        )
        self.thread = threading.Thread(target=self.keeper.serve, daemon=True)

    def begin(self) -> None:
        """Start to answer."""
        self.thread.start()

    def close(self) -> None:
        """End the keeper."""
        self.spark.kill()
        with contextlib.suppress(RuntimeError):  # the thread was not started
            self.thread.join()
        self.keeper.close()
        self.server.close()

    def borrow(self) -> tuple[socket.socket, Any]:
        """Ask for the lease."""
        return ask(self.folder, {"want": "lease", "keep": 60, "process": 7})

    def look(self) -> Any:
        """Return the state of the Spark."""
        talk, answer = ask(self.folder, {"want": "status"})
        talk.close()
        return answer["state"]

    def has_ended(self) -> bool:
        """Whether the keeper ends within 30 seconds."""
        self.thread.join(30)
        return not self.thread.is_alive()


def write_note(folder: Path, **given: Any) -> None:
    """Write the note of a keeper."""
    note = {"token": TOKEN, "keeper": os.getpid(), "cwd": str(folder), **given}
    handle = os.open(folder / NOTE, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        json.dump(note, file)


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the private folder of this user for one test."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv(warm.VARIABLE, raising=False)
    monkeypatch.setattr(warm, "has_jvm", lambda: False)
    monkeypatch.setattr(warm_keeper, "EVERY", 0.01)
    base = find_base(make=True)
    assert base is not None
    return base


@pytest.fixture
def kept(base: Path) -> Iterator[Kept]:
    """Return a keeper that ends with the test."""
    kept = Kept(base / name_folder({}, ()))
    yield kept
    kept.close()


@pytest.fixture
def serving(kept: Kept) -> Kept:
    """Return the keeper after it has started to answer."""
    kept.begin()
    return kept


class Attaches:
    """A double of the connection to the JVM and of the start of a keeper."""

    def __init__(self) -> None:
        self.to: list[JvmAddress] = []
        self.environment: Any = None
        self.started: list[Path] = []
        self.held: list[socket.socket] = []

    def attach(self, there: JvmAddress, environment: Any) -> Any:
        """Note the address. Return a double of a session."""
        self.to.append(there)
        self.environment = environment
        return "a session"

    def start(self, folder: Path, conf: Any, packages: Any, *, keep: float, lend: bool = True) -> Any:
        """Note the folder. Return the connection of a keeper that has failed."""
        self.started.append(folder)
        here, there = socket.socketpair()
        there.close()
        return here, {}


@pytest.fixture
def attaches(monkeypatch: pytest.MonkeyPatch) -> Iterator[Attaches]:
    """Replace the connection to a JVM and the start of a keeper, in a process without a lease."""
    stands = Attaches()
    monkeypatch.setattr(warm, "attach_jvm", stands.attach)
    monkeypatch.setattr(warm, "start_keeper", stands.start)
    monkeypatch.setattr(warm, "silence_loggers", lambda: None)
    monkeypatch.setattr(warm, "_hold", stands.held.append)
    yield stands
    for each in stands.held:
        each.close()


def test_a_process_borrows_the_spark(serving: Kept, attaches: Attaches) -> None:
    """It gets the address of the JVM, and holds the lease."""
    assert attach({}, (), 60) is not None
    assert [each.port for each in attaches.to] == [1]
    assert len(attaches.held) == 1
    assert serving.look() == "busy"


def test_a_process_without_the_option_borrows_a_warm_spark_too(serving: Kept, attaches: Attaches) -> None:
    """Another process has chosen to keep the Spark."""
    assert attach({}, (), None) is not None


def test_a_second_process_starts_a_separate_spark(serving: Kept, attaches: Attaches) -> None:
    """The Spark is lent to one process at a time."""
    first, _ = serving.borrow()
    assert attach({}, (), 60) is None
    assert attaches.started == []
    first.close()


def test_a_process_with_other_settings_starts_a_separate_spark(serving: Kept, attaches: Attaches) -> None:
    """Without the option it starts no keeper."""
    assert attach({"spark.sql.shuffle.partitions": "7"}, (), None) is None
    assert attaches.started == []


def test_a_returned_spark_is_cleaned_and_lent_again(serving: Kept) -> None:
    """It is cleaned only after its process has ended."""
    first, _ = serving.borrow()
    first.sendall(GOODBYE)
    assert serving.look() == "busy"
    assert serving.spark.renewals == 0
    first.close()
    second, answer = serving.borrow()
    assert answer == {"state": "lent", "address": ADDRESS}
    assert serving.spark.renewals == 1
    second.close()


def test_a_process_waits_while_a_spark_is_cleaned(serving: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """This is faster than starting another Spark."""
    monkeypatch.setattr(warm, "ANSWERS", 0.05)
    cleans, goes_on = threading.Event(), threading.Event()
    serving.spark.during = lambda: [cleans.set(), goes_on.wait(60)]  # type: ignore[func-returns-value]
    first, _ = serving.borrow()
    first.sendall(GOODBYE)
    first.close()
    cleans.wait(60)
    assert [each.state for each in list_warm_at(serving)] == ["cleaning"]
    threading.Timer(0.2, goes_on.set).start()
    second, answer = serving.borrow()
    assert answer["state"] == "lent"
    second.close()


def test_an_idle_spark_is_warmed_up(kept: Kept) -> None:
    """It is warmed up in steps. A process that asks gets it after the current step."""
    _lend_and_clean(kept)
    assert kept.spark.warmed == []
    kept.keeper.step()
    kept.keeper.step()
    assert kept.spark.warmed == [0, 1]
    with socket.socket(socket.AF_UNIX) as comes, shorten_path(kept.folder) as place:
        comes.connect(f"{place}/{SOCKET}")
        send(comes, {"want": "lease", "token": TOKEN, "process": 7})
        kept.keeper.step()
        assert receive(comes)["state"] == "lent"
    assert kept.spark.warmed == [0, 1]


def test_a_keeper_ends_if_its_jvm_ends_during_the_warm_up(kept: Kept) -> None:
    """No process gets a broken Spark."""
    kept.spark.breaks_at = 1
    _lend_and_clean(kept)
    kept.begin()
    assert kept.has_ended()


def _lend_and_clean(kept: Kept) -> None:
    """Let a process use the Spark and return it."""
    lease, other = socket.socketpair()
    kept.keeper.lend(lease, {})
    other.recv(65_536)
    other.sendall(GOODBYE)
    kept.keeper.step()
    other.close()
    kept.keeper.step()
    assert kept.spark.renewals == 1


def test_the_jvm_of_a_killed_process_ends(serving: Kept) -> None:
    """Its last write may still be in progress."""
    first, _ = serving.borrow()
    first.close()
    assert serving.has_ended()
    assert not serving.spark.alive.is_set()
    assert serving.spark.renewals == 0


def test_the_jvm_of_a_killed_process_ends_before_the_next_request_is_answered(kept: Kept) -> None:
    """The keeper may sleep when the process is killed and another process comes."""
    lease, other = socket.socketpair()
    kept.keeper.lend(lease, {})
    with socket.socket(socket.AF_UNIX) as comes, shorten_path(kept.folder) as place:
        comes.connect(f"{place}/{SOCKET}")
        other.close()
        kept.keeper.step()
    assert not kept.spark.alive.is_set()


def test_a_spark_that_cannot_be_cleaned_ends(serving: Kept) -> None:
    """A thread of the JVM may still work for the ended process."""
    serving.spark.stays_at_work = True
    first, _ = serving.borrow()
    first.sendall(GOODBYE)
    first.close()
    assert serving.has_ended()


def test_a_keeper_ends_with_its_jvm(serving: Kept) -> None:
    """The process that uses the JVM gets an error from it."""
    serving.spark.kill()
    assert serving.has_ended()


def test_a_jvm_that_does_not_answer_is_killed_and_not_lent(
    kept: Kept, attaches: Attaches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process starts a separate Spark."""
    monkeypatch.setattr(warm_keeper, "_CHECK", 0.01)
    kept.spark.freezes = True
    kept.begin()
    assert attach({}, (), 60) is None
    assert kept.has_ended()
    assert attaches.to == []


def test_a_process_does_not_wait_for_a_frozen_keeper(
    kept: Kept, attaches: Attaches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts a separate Spark, but no second keeper."""
    monkeypatch.setattr(warm, "ANSWERS", 0.05)
    assert attach({}, (), 60) is None
    assert attaches.started == []


def test_a_socket_without_a_keeper_is_ignored(kept: Kept, attaches: Attaches) -> None:
    """With the option, the process starts a new keeper."""
    kept.server.close()
    assert attach({}, (), 60) is None
    assert attaches.started == [kept.folder]
    assert attach({}, (), None) is None
    assert attaches.started == [kept.folder]


def test_a_spark_that_ends_during_the_handover_is_not_used(
    serving: Kept, attaches: Attaches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process starts a separate Spark."""

    def fail(there: JvmAddress, environment: Any) -> Any:
        raise ConnectionRefusedError

    monkeypatch.setattr(warm, "attach_jvm", fail)
    assert attach({}, (), 60) is None
    assert serving.has_ended()


def test_a_process_that_has_a_jvm_keeps_it(serving: Kept, attaches: Attaches, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Spark was stopped, and starts again in that JVM."""
    monkeypatch.setattr(warm, "has_jvm", lambda: True)
    assert attach({}, (), 60) is None


def test_the_variable_forbids_a_warm_spark(serving: Kept, attaches: Attaches) -> None:
    """An existing warm Spark is not used either."""
    assert attach({}, (), 0.0) is None


@pytest.mark.parametrize(
    "said", [b'{"want": "lease", "token": "wrong"}\n', b'{"want": "lease"}\n', b"hello\n", b"[]\n"]
)
def test_a_process_without_the_token_gets_nothing(serving: Kept, said: bytes) -> None:
    """The connection ends, and other processes can still use the Spark."""
    with socket.socket(socket.AF_UNIX) as talk, shorten_path(serving.folder) as place:
        talk.connect(f"{place}/{SOCKET}")
        talk.sendall(said)
        with pytest.raises(ConnectionError):
            receive(talk)
    assert serving.look() == "idle"


def test_another_user_gets_nothing(serving: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system reports the user at the other end of a socket."""
    theirs = os.geteuid() + 1
    talk, other = socket.socketpair()
    monkeypatch.setattr(os, "geteuid", lambda: theirs)
    with talk, other, pytest.raises(PermissionError, match="another user"):
        warm.check_peer(talk)


def test_a_spark_ends_after_its_idle_time(serving: Kept) -> None:
    """The time starts again when the Spark is returned."""
    first, _ = serving.borrow()
    serving.clock.move(1_000)
    assert serving.look() == "busy"
    first.sendall(GOODBYE)
    first.close()
    assert serving.look() == "idle"
    serving.clock.move(59)
    assert serving.look() == "idle"
    serving.clock.move(2)
    assert serving.has_ended()


def test_a_spark_ends_when_its_folder_is_removed(serving: Kept) -> None:
    """The system removes the user's folder at logout. A process that uses the Spark ends first."""
    first, _ = serving.borrow()
    serving.is_there = False
    assert serving.look() == "busy"
    first.sendall(GOODBYE)
    first.close()
    assert serving.has_ended()


def test_a_spark_that_is_asked_to_stop_ends_after_its_process(serving: Kept) -> None:
    """An idle Spark ends at once."""
    first, _ = serving.borrow()
    (found,) = list_warm_at(serving)
    assert end_warm(found) == "busy"
    assert serving.spark.alive.is_set()
    first.sendall(GOODBYE)
    first.close()
    assert serving.has_ended()
    assert serving.spark.renewals == 0


def list_warm_at(kept: Kept) -> list[warm.WarmSpark]:
    """List the warm Sparks while the folder of this keeper is locked, like that of a live process."""
    handle = os.open(kept.folder, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        return list_warm()
    finally:
        os.close(handle)


def test_the_list_names_the_process_that_uses_a_spark(serving: Kept) -> None:
    """For an idle Spark it shows the remaining time."""
    (idle,) = list_warm_at(serving)
    assert (idle.state, idle.seconds, idle.used_by, idle.jvm) == ("idle", 60.0, None, 2)
    first, _ = serving.borrow()
    (busy,) = list_warm_at(serving)
    assert (busy.state, busy.seconds, busy.used_by) == ("busy", None, 7)
    first.close()


def test_the_list_removes_the_folder_of_a_dead_keeper(kept: Kept) -> None:
    """A live keeper has locked its folder."""
    assert list_warm() == []
    assert not kept.folder.exists()


def test_a_folder_has_only_one_keeper(base: Path) -> None:
    """A second keeper finds the folder locked."""
    folder = base / "one"
    folder.mkdir()
    with lock_folder(folder) as mine, lock_folder(folder) as second:
        assert (mine, second) == (True, False)
    with lock_folder(folder) as again:
        assert again


def test_a_frozen_keeper_is_killed_when_it_is_asked_to_stop(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds the lock of its folder, so no other process is killed."""
    monkeypatch.setattr(warm, "ANSWERS", 0.05)
    folder = base / "one"
    folder.mkdir(mode=0o700)
    process = os.fork()
    if process == 0:
        with lock_folder(folder):
            write_note(folder)
            signal.pause()
        os._exit(0)
    handle = os.pidfd_open(process)
    spark = warm.WarmSpark(
        state="frozen", folder="", seconds=None, used_by=None, keeper=process, jvm=None, memory=None, place=str(folder)
    )
    with socket.socket(socket.AF_UNIX) as server, shorten_path(folder) as place:
        server.bind(f"{place}/{SOCKET}")
        server.listen()
        while not (folder / NOTE).exists() or not (folder / NOTE).read_text():
            select.select([handle], [], [], 0.01)
        assert end_warm(spark) == "ended"
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
    os.close(handle)


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_folder_that_other_users_can_enter_is_not_used(
    base: Path, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is true of the folder of the session and of the home."""
    monkeypatch.setenv("HOME", str(base.parent / "nowhere"))
    base.chmod(mode)
    assert find_base() is None


def test_a_folder_of_another_user_is_not_used(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This happens after `sudo` with the variables of the first user."""
    monkeypatch.setenv("HOME", str(base.parent / "nowhere"))
    theirs = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: theirs)
    assert find_base() is None


def test_a_symbolic_link_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may lead to any folder."""
    home = tmp_path / "home"
    (home / ".cache" / "wherry").mkdir(parents=True)
    (tmp_path / "private").mkdir(mode=0o700)
    (home / ".cache" / "wherry" / "warm").symlink_to(tmp_path / "private")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setenv("HOME", str(home))
    assert find_base(make=True) is None


def test_the_home_is_used_if_there_is_no_session_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only this user can enter the new folder."""
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    found = find_base(make=True)
    assert found == tmp_path / ".cache" / "wherry" / "warm"
    assert found.stat().st_mode & 0o777 == 0o700


def test_a_note_that_other_users_can_read_is_not_trusted(serving: Kept, attaches: Attaches) -> None:
    """They may know its token."""
    (serving.folder / NOTE).chmod(0o644)
    assert attach({}, (), 60) is None
    assert attaches.started == []


def test_a_broken_note_is_not_trusted(serving: Kept, attaches: Attaches) -> None:
    """The process starts a separate Spark."""
    (serving.folder / NOTE).write_text("{")
    assert attach({}, (), 60) is None


def test_a_folder_with_a_long_name_works(base: Path) -> None:
    """The address of a socket is limited to about a hundred characters."""
    kept = Kept(base / ("x" * 200))
    kept.begin()
    assert kept.look() == "idle"
    kept.close()


CHANGES: dict[str, Callable[[pytest.MonkeyPatch, Path], object]] = {
    "version": lambda patch, _: patch.setattr(warm, "find_version", lambda: "9.9"),
    "java": lambda patch, path: patch.setattr(warm, "find_java", lambda: Path(os.__file__)),
    "folder": lambda patch, path: patch.chdir(path),
    "path": lambda patch, _: patch.setenv("PATH", f"{os.environ['PATH']}:/other"),
    "cloud": lambda patch, _: patch.setenv("AWS_REGION", "eu-north-1"),
    "python": lambda patch, _: patch.setattr(sys, "executable", "/other/python"),
    "user": lambda patch, _: patch.setattr(os, "geteuid", lambda: 77),
    "umask": lambda patch, _: patch.setattr(warm, "_read_umask", lambda: "0077"),
    "machine": lambda patch, _: patch.setattr(socket, "gethostname", lambda: "other"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_processes_in_other_environments_do_not_share_a_spark(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of the folder differs."""
    before = name_folder({}, ())
    assert name_folder({}, ()) == before
    CHANGES[change](monkeypatch, tmp_path)
    assert name_folder({}, ()) != before


def test_processes_with_other_settings_do_not_share_a_spark() -> None:
    """This includes processes with other JARs."""
    assert len({name_folder({}, ()), name_folder({"spark.a": "1"}, ()), name_folder({}, ("a:b:1",))}) == 3


def test_a_variable_for_functions_is_not_passed_to_the_jvm(
    serving: Kept, attaches: Attaches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process gives its functions separate variables, and all processes share a Spark."""
    monkeypatch.setenv("SHOP_PASSWORD", "hunter2")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter3")
    monkeypatch.setenv("PYTHONPATH", "/mine")
    assert {"SHOP_PASSWORD", "AWS_SECRET_ACCESS_KEY", "PYTHONPATH"} & set(list_jvm_environment()) == set()
    assert attach({}, (), 60) is not None
    wanted = {"SHOP_PASSWORD": "hunter2", "AWS_SECRET_ACCESS_KEY": "hunter3", "PYTHONPATH": "/mine"}
    assert wanted.items() <= attaches.environment.items()
    assert "PATH" not in attaches.environment


@pytest.mark.parametrize(
    ("options", "variable", "obstacle"),
    [
        (SparkOptions(), "", ""),
        (SparkOptions(conf={"spark.sql.mapKeyDedupPolicy": "LAST_WIN"}), "AWS_SECRET_ACCESS_KEY", ""),
        (SparkOptions(packages=("a:b:1",)), "SHOP_PASSWORD", ""),
        (SparkOptions(packages=("a:b:1",)), "AWS_WEB_IDENTITY_TOKEN_FILE", ""),
        (
            SparkOptions(packages=("a:b:1",)),
            "AWS_SECRET_ACCESS_KEY",
            "Spark may read a secret from the environment, AWS_SECRET_ACCESS_KEY",
        ),
        (
            SparkOptions(),
            "HADOOP_CREDSTORE_PASSWORD",
            "Spark may read a secret from the environment, HADOOP_CREDSTORE_PASSWORD",
        ),
        (SparkOptions(conf={"spark.master": "local[1]"}), "", "the definition names a master"),
        (SparkOptions(conf={"spark.a.password": "x"}), "", "spark.conf holds a secret, spark.a.password"),
        (SparkOptions(conf={"spark.a": SecretText("x", "${secret:X}")}), "", "spark.conf holds a secret, spark.a"),
    ],
)
def test_a_spark_with_a_secret_is_not_kept(
    options: SparkOptions, variable: str, obstacle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason names the setting or the variable, and not the secret."""
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "HADOOP_CONF_DIR", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable or "UNUSED", "hunter2")
    assert find_obstacle(options) == obstacle


@pytest.mark.parametrize(
    ("given", "written", "seconds"),
    [("", "0s", None), ("", "15m", 900.0), ("2m", "0s", 120.0), ("2m", "15m", 120.0), ("0s", "15m", 0.0)],
)
def test_the_variable_overrides_the_definition(
    given: str, written: str, seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user of a machine knows how much it can keep."""
    monkeypatch.setenv(warm.VARIABLE, given)
    assert read_keep(SparkOptions(keep_warm=written)) == seconds


def test_a_variable_without_a_duration_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has an example."""
    monkeypatch.setenv(warm.VARIABLE, "yes")
    with pytest.raises(WarmError, match=r"WHERRY_WARM: expected a duration such as .*, got 'yes'"):
        read_keep(SparkOptions())


def test_one_log_line_explains_why_a_spark_is_not_kept(caplog: pytest.LogCaptureFixture) -> None:
    """It appears once in each process."""
    session._log_obstacle.cache_clear()
    options = SparkOptions(keep_warm="15m", conf={"spark.a.password": "x"})
    assert session._read_keep(options) == session._read_keep(options) == 0.0
    assert caplog.messages == ["This Spark does not stay warm: spark.conf holds a secret, spark.a.password."]


def test_a_run_that_needs_no_spark_borrows_none(
    serving: Kept, attaches: Attaches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Spark is borrowed only when it would be started."""
    monkeypatch.setattr(session, "is_given", lambda: False)
    given = session.obtain(SparkOptions(keep_warm="15m"))
    assert isinstance(given, LateSession)
    assert serving.look() == "idle"


@pytest.fixture
def lease(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Return the keeper's end of the connection of a process with a lease and without an unfinished run."""
    here, there = socket.socketpair()
    monkeypatch.setattr(warm, "_LEASES", [there.detach()])
    monkeypatch.setattr(warm, "_UNFINISHED", set())
    monkeypatch.setattr(warm, "leave_jvm", lambda: None)
    here.setblocking(False)
    yield here
    here.close()
    for each in warm._LEASES:
        os.close(each)


def test_a_process_returns_the_spark(lease: socket.socket) -> None:
    """It does so at its end, after its runs have released their pipelines."""
    begin_use("one")
    end_use("one")
    warm._say_goodbye()
    assert lease.recv(100) == GOODBYE


def test_a_process_with_an_unfinished_run_does_not_return_the_spark(lease: socket.socket) -> None:
    """A later run ends the JVM that the unfinished run recorded, so no other process may have it."""
    begin_use("one")
    warm._say_goodbye()
    end_use("one")
    with pytest.raises(BlockingIOError):
        lease.recv(100)


def test_a_forked_child_has_no_lease(lease: socket.socket) -> None:
    """Otherwise the keeper would assume that the parent is alive."""
    process = os.fork()
    if process == 0:
        os._exit(len(warm._LEASES))
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    assert len(warm._LEASES) == 1


def test_an_existing_warm_spark_is_not_started_again(serving: Kept, attaches: Attaches) -> None:
    """Its idle time changes to the new duration."""
    assert keep_warm(SparkOptions(), 600.0) == "warm"
    serving.clock.move(599)
    assert serving.look() == "idle"
    assert attaches.started == []


def test_a_spark_that_fails_to_start_reports_the_reason(
    base: Path, attaches: Attaches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message comes from the keeper."""

    def fail(*_: Any, **__: Any) -> Any:
        here, there = socket.socketpair()
        there.close()
        return here, {"state": "failed", "message": "no JARs", "hint": "look"}

    monkeypatch.setattr(warm, "start_keeper", fail)
    monkeypatch.setattr(warm, "check_java", lambda: "Java 17")
    with pytest.raises(SparkMissing, match="no JARs") as found:
        keep_warm(SparkOptions(), 60.0)
    assert found.value.hint == "look"


def test_a_machine_without_java_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error comes before a keeper is started."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkMissing, match="Java is missing"):
        keep_warm(SparkOptions(), 60.0)


def test_a_machine_without_java_lends_no_spark(
    base: Path, attaches: Attaches, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The start of a separate Spark reports what is missing."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert attach({}, (), 60) is None


def test_a_keeper_that_cannot_start_spark_reports_the_reason_and_leaves_nothing(
    base: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is a separate process, which has no Java here."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    talk, answer = warm.start_keeper(base / "one", {}, (), keep=60.0)
    talk.close()
    warm._KEEPERS.pop().wait(60)
    assert (answer["state"], answer["hint"][:22]) == ("failed", "Spark needs Java 17 or")
    assert "JAVA_HOME is" in answer["message"]
    assert list(base.iterdir()) == []


def test_a_second_keeper_ends_at_once(base: Path) -> None:
    """The first keeper holds the folder."""
    folder = base / "one"
    folder.mkdir(mode=0o700)
    with lock_folder(folder):
        talk, answer = warm.start_keeper(folder, {}, (), keep=60.0)
        talk.close()
        warm._KEEPERS.pop().wait(60)
    assert answer == {"state": "busy"}


def test_messages_are_received_as_they_were_sent() -> None:
    """They go in both directions."""
    here, there = socket.socketpair()
    with here, there:
        send(here, {"a": 1})
        assert receive(there) == {"a": 1}
        send(there, {"b": "ü\n"})
        assert receive(here) == {"b": "ü\n"}
