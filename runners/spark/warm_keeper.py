"""The process that keeps a Spark warm. It lends the Spark to one process at a time, and cleans it in between."""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from origins.errors import WherryError, list_spark_errors
from origins.spark_private import LentJvm, find_jvm, get_jvm_address
from runners.model.clock import Clock
from runners.spark.start import build_session, list_settings, start
from runners.spark.warm import (
    CLEANS,
    GOODBYE,
    NOTE,
    SOCKET,
    WarmError,
    check_peer,
    end_warm,
    is_at,
    list_warm,
    lock_folder,
    receive,
    send,
    shorten_path,
)

EVERY = 1.0
"""The seconds between two checks of the folder, the JVM and the time."""

_QUESTION = 2.0
"""How many seconds a process may take to send its question."""

_CHECK, _RENEWAL = 3.0, 120.0
"""How many seconds the JVM may take to answer, and to be cleaned."""

_THREADS = 10.0
"""How many seconds the JVM's threads may continue after the process that used it has ended."""

_MOST_IDLE = 2
"""How many other Sparks of this user stay warm. Each uses a gigabyte of memory or more."""


class KeptSpark:
    """The Spark of this process, which is lent to one process after another."""

    def __init__(self, conf: Mapping[str, str], packages: Sequence[str]) -> None:
        self._settings = list_settings(conf, packages)
        self._session = start(conf, packages)
        for _ in self.warm_up():
            pass
        self._lent = LentJvm()
        self.address = get_jvm_address()

    def is_alive(self) -> bool:
        """Whether its JVM is running."""
        jvm = find_jvm()
        return jvm is not None and jvm.poll() is None

    def check(self) -> None:
        """Return when the JVM answers. Raises an error of Spark if the JVM has ended."""
        self._lent.check()

    def renew(self) -> None:
        """Make it as clean as before it was lent. Raises an error of Spark, or `WarmError`, if that fails."""
        last = time.monotonic() + _THREADS
        while not self._lent.is_left():
            if time.monotonic() > last:
                raise WarmError("The JVM works for a process that has ended.")
            time.sleep(0.02)
        self._lent.clear(self._session)
        kill_all(list_descendants(self.address.number))
        self._session = build_session(self._settings)
        self._lent.note()

    def warm_up(self) -> Iterator[None]:
        """Make it fast, step by step. It may be lent after each step. Raises as `renew` does."""
        session = self._session.newSession()
        with tempfile.TemporaryDirectory(prefix="wherry-warm-") as folder:
            Path(folder, "rows.json").write_text('{"a": 1, "b": "x"}\n{"a": 2, "b": "3"}\n', encoding="utf-8")
            rows = session.read.schema("a long, b string").json(f"file:{folder}/rows.json")
            rows = rows.selectExpr("a", "try_cast(b as int) b").where("a > 0")
            rows.toArrow()
            yield
            rows.write.format("delta").mode("append").save(f"file:{folder}/table")
            yield
            session.read.format("delta").load(f"file:{folder}/table").toArrow()

    def kill(self) -> None:
        """End it at once."""
        jvm = find_jvm()
        if jvm is not None:
            workers = list_descendants(jvm.pid)
            jvm.kill()
            jvm.wait()
            kill_all(workers)

    def end(self) -> None:
        """End it."""
        jvm = find_jvm()
        if jvm is not None and jvm.stdin is not None:
            with contextlib.suppress(OSError):
                jvm.stdin.close()
            timer = threading.Timer(_THREADS, self.kill)
            timer.start()
            jvm.wait()
            timer.cancel()


def list_descendants(process: int) -> list[int]:
    """Return the running processes that this process and its children have started."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int(entry.read_text(errors="replace").rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(entry.parent.name))
    found, todo = [], [process]
    while todo:
        todo = [child for each in todo for child in parents.get(each, [])]
        found += todo
    return found


def kill_all(processes: Sequence[int]) -> None:
    """Kill these processes, if they are still running."""
    for each in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(each, signal.SIGKILL)


class Keeper:
    """Lends a Spark until it was idle for long enough, its folder is gone, or a process that used it was killed."""

    def __init__(
        self,
        spark: KeptSpark,
        server: socket.socket,
        token: str,
        *,
        keep: float,
        cleans: Path,
        is_there: Callable[[], bool],
        clock: Clock = Clock(),  # noqa: B008  (it has no state)
    ) -> None:
        self.spark, self._server, self._token, self._keep = spark, server, token, keep
        self._cleans, self._is_there, self._clock = cleans, is_there, clock
        self._until = clock.elapsed() + keep
        self._lease: socket.socket | None = None
        self._used_by: int | None = None
        self._given_back = self._ends = self._ends_later = False
        self._waiting: list[socket.socket] = []
        self._warming: Iterator[None] | None = None

    def serve(self) -> None:
        """Answer until the Spark has to end."""
        while self._goes_on():
            self.step()

    def close(self) -> None:
        """Close its connections."""
        for each in (self._lease, *self._waiting):
            if each is not None:
                each.close()

    def step(self) -> None:
        """Handle one request.

        The process that uses the Spark comes first, because it may have been killed meanwhile.
        """
        asked = [each for each in (self._lease, self._server) if each is not None]
        ready, _, _ = select.select(asked, [], [], 0 if self._warming else EVERY)
        if self._lease in ready:
            self._read_lease()
        elif ready:
            self._accept()
        elif self._warming and not self._work_undisturbed(self._take_step):
            self._ends = True

    def _goes_on(self) -> bool:
        if self._ends or not self.spark.is_alive():
            return False
        return self._lease is not None or (self._clock.elapsed() < self._until and self._is_there())

    def lend(self, talk: socket.socket, question: Mapping[str, Any]) -> None:
        """Lend the Spark to this process, if the JVM answers."""
        if not self._within(_CHECK, self.spark.check):
            self._ends = True
            talk.close()
            return
        try:
            send(talk, {"state": "lent", "address": asdict(self.spark.address)})
        except OSError:
            talk.close()
            return
        talk.settimeout(None)
        self._lease, self._used_by, self._given_back, self._warming = talk, question.get("process"), False, None
        self._keep = question.get("keep") or self._keep

    def _read_lease(self) -> None:
        assert self._lease is not None
        try:
            received = self._lease.recv(len(GOODBYE))
        except OSError:
            received = b""
        if received:
            self._given_back = received == GOODBYE
            return
        self._lease.close()
        self._lease = self._used_by = None
        if not self._given_back:
            self.spark.kill()
            self._ends = True
        elif not self._ends_later and self._work_undisturbed(self.spark.renew):
            self._until, self._warming = self._clock.elapsed() + self._keep, self.spark.warm_up()
        else:
            self._ends = True

    def _take_step(self) -> None:
        """Take a step of the warm-up, since no process asks for the Spark."""
        assert self._warming is not None
        try:
            next(self._warming)
        except StopIteration:
            self._warming = None

    def _work_undisturbed(self, work: Callable[[], None]) -> bool:
        """Do this work, and return whether it succeeds.

        Processes that ask meanwhile see the file `cleans`, and wait longer.
        """
        with contextlib.suppress(OSError):  # the folder is gone
            self._cleans.touch()
        well = self._within(_RENEWAL, work)
        with contextlib.suppress(OSError):
            self._cleans.unlink()
        return well

    def _within(self, seconds: float, call: Callable[[], None]) -> bool:
        """Return whether the call succeeds in time. After that time the JVM is killed, which ends the call."""
        timer = threading.Timer(seconds, self.spark.kill)
        timer.daemon = True
        timer.start()
        try:
            call()
        except list_spark_errors(WherryError, AssertionError, AttributeError, TypeError, RuntimeError) as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            return False
        finally:
            timer.cancel()
        return True

    def _accept(self) -> None:
        talk, _ = self._server.accept()
        try:
            talk.settimeout(_QUESTION)
            check_peer(talk)
            question = receive(talk)
            if not hmac.compare_digest(str(question.get("token")).encode(), self._token.encode()):
                raise PermissionError("the token is another one")
            self._answer(talk, question)
        except OSError:
            talk.close()

    def _answer(self, talk: socket.socket, question: Mapping[str, Any]) -> None:
        want = question.get("want")
        if want == "lease" and self._lease is None:
            self.lend(talk, question)
            return
        if want == "stop":
            self._ends, self._ends_later = self._lease is None, True
        if question.get("keep"):
            self._keep = float(question["keep"])
            self._until = max(self._until, self._clock.elapsed() + self._keep)
        send(talk, self._describe())
        if want == "stop" and self._ends:
            self._waiting.append(talk)
        else:
            talk.close()

    def _describe(self) -> dict[str, Any]:
        idle = self._lease is None
        return {
            "state": "ending" if self._ends else "idle" if idle else "busy",
            "seconds": max(0.0, self._until - self._clock.elapsed()) if idle else None,
            "used_by": self._used_by,
            "jvm": self.spark.address.number,
        }


def main(first: int) -> None:
    """Keep the Spark that the process at the other end of this socket wants, and lend it to that process first."""
    talk = socket.socket(fileno=first)
    order = receive(talk)
    folder = Path(order["folder"])
    with lock_folder(folder) as mine:
        if not mine:
            _try_send(talk, {"state": "busy"})
            return
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        _keep(talk, order, folder, handle)
        if is_at(folder, handle):
            shutil.rmtree(folder, ignore_errors=True)


def _keep(talk: socket.socket, order: Mapping[str, Any], folder: Path, handle: int) -> None:
    token = secrets.token_hex(32)
    _write_note(folder, token)
    _end_others()
    try:
        spark = KeptSpark(order["conf"], order["packages"])
    except WherryError as error:
        _try_send(talk, {"state": "failed", "message": error.message, "hint": error.hint})
        return
    try:
        with socket.socket(socket.AF_UNIX) as server:
            with shorten_path(folder) as place:
                server.bind(f"{place}/{SOCKET}")
                os.chmod(f"{place}/{SOCKET}", 0o600)
            server.listen()
            keeper = Keeper(
                spark, server, token, keep=order["keep"], cleans=folder / CLEANS, is_there=lambda: is_at(folder, handle)
            )
            left, _, _ = select.select([talk], [], [], 0)
            if not left and order["lend"]:
                keeper.lend(talk, order)
            else:
                _try_send(talk, {"state": "idle"})
            keeper.serve()
    finally:
        spark.end()
    keeper.close()


def _try_send(talk: socket.socket, facts: Mapping[str, Any]) -> None:
    """Send facts to the process that has started this one, if it still listens."""
    with contextlib.suppress(OSError), talk:
        send(talk, facts)


def _write_note(folder: Path, token: str) -> None:
    """Record which process keeps a Spark here. Only this user can read the note."""
    (folder / SOCKET).unlink(missing_ok=True)
    (folder / NOTE).unlink(missing_ok=True)
    handle = os.open(folder / NOTE, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump({"token": token, "keeper": os.getpid(), "cwd": os.getcwd()}, file)


def _end_others() -> None:
    """End the Sparks of this user that were idle longest, if there are too many."""
    idle = sorted((each for each in list_warm() if each.state == "idle"), key=lambda each: each.seconds or 0)
    for each in idle[: -_MOST_IDLE or None]:
        end_warm(each)
