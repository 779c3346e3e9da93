"""What callers changed: a log with callers and reasons, and the answers by key, so that a retry does it once."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import logging
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from origins.errors import WherryError
from runners.model.clock import Clock
from runners.model.errors import Refusal
from runners.service.operation import ENCODER, Ask, Caller, Invalid, KeyTaken, NotKept, Operation, Reply

_KEY = re.compile(r"[!-~]{1,200}")
_KEPT = 100_000
"""How many keys are kept. The oldest are forgotten first."""
log = logging.getLogger("wherry")


class Deeds:
    """The log of changes and the keys, in a folder. Any number of threads and servers may use it."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.log = folder / "audit.jsonl"
        self._clock = clock
        self._file = folder / "keys.sqlite"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._open() as keys:
                keys.execute(
                    "CREATE TABLE IF NOT EXISTS keys "
                    "(name TEXT PRIMARY KEY, asked TEXT NOT NULL, answer BLOB, at TEXT NOT NULL) STRICT"
                )
        except (OSError, sqlite3.Error) as error:
            raise Refusal(
                f"The server cannot keep what callers change: {folder} ({error}).",
                hint="Make the folder writable, or remove a broken keys.sqlite from it.",
            ) from error

    def carry_out(
        self, operation: Operation, caller: Caller, ask: Ask, key: str, act: Callable[[], Reply]
    ) -> msgspec.Raw | Reply:
        """Do this change once for its key, and log it. A repeated request gets the first answer.

        The log has the change before it is done, and its outcome. A refused change frees its key. Raise `Invalid`
        without a key, and `NotKept` if the change cannot be logged. Raise `KeyTaken` if the key was for another
        request, or if the first one has not ended, or if its end is not known.
        """
        if not _KEY.fullmatch(key):
            raise Invalid(
                f"{operation.name} changes something, so it needs a key of 1 to 200 letters without spaces.",
                hint="Send the header Idempotency-Key, such as a new UUID for each change.",
            )
        name = json.dumps([caller.name, key])
        given = msgspec.to_builtins(ask)
        asked = hashlib.sha256(f"{operation.name} {json.dumps(given)}".encode()).hexdigest()
        who = {"who": caller.name, "did": operation.name, "key": key}
        with _refuse_unkept():
            known = self._claim(name, asked)
        if known is not None:
            return known
        try:
            with _refuse_unkept():
                self._note({**who, "with": _name_definitions(given)})
            answer = act()
        except WherryError as error:
            self._end({**who, "refused": error.message}, partial(self._forget, name))
            raise
        except BaseException as error:
            self._end({**who, "failed": type(error).__name__}, lambda: None)
            raise
        self._end({**who, "done": True}, partial(self._keep, name, ENCODER.encode(answer)))
        return answer

    def _end(self, line: Mapping[str, Any], settle_key: Callable[[], None]) -> None:
        """Note how a change ended. The change stays as it is if that cannot be noted."""
        for note in (settle_key, partial(self._note, line)):
            try:
                note()
            except (OSError, sqlite3.Error) as error:
                log.error("The end of a change of %s cannot be noted: %s. It was: %s", line["who"], error, line)

    def _claim(self, name: str, asked: str) -> msgspec.Raw | None:
        """Claim the key for a request. Return the answer that it has, or None if the request is to be done now."""
        with self._open() as keys:
            at = self._clock.now().isoformat()
            made = keys.execute("INSERT OR IGNORE INTO keys VALUES (?, ?, NULL, ?)", (name, asked, at)).rowcount
            if made:
                return None
            before, answer = keys.execute("SELECT asked, answer FROM keys WHERE name = ?", (name,)).fetchone()
        if before != asked:
            raise KeyTaken("This idempotency key belongs to another request.", hint="Use a new key for each change.")
        if answer is None:
            raise KeyTaken(
                "The first request with this key has not ended, or its server ended meanwhile.",
                hint="See what it did, and repeat it with a new key if it did nothing.",
            )
        return msgspec.Raw(answer)

    def _keep(self, name: str, answer: bytes) -> None:
        with self._open() as keys:
            keys.execute("UPDATE keys SET answer = ? WHERE name = ?", (answer, name))
            oldest = "SELECT rowid FROM keys ORDER BY rowid DESC LIMIT -1 OFFSET ?"
            keys.execute(f"DELETE FROM keys WHERE rowid IN ({oldest})", (_KEPT,))

    def _forget(self, name: str) -> None:
        with self._open() as keys:
            keys.execute("DELETE FROM keys WHERE name = ?", (name,))

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(sqlite3.connect(self._file, timeout=10.0)) as connection, connection:
            yield connection

    def _note(self, facts: Mapping[str, Any]) -> None:
        """Add a line to the log, or nothing. JSON escapes what a caller sends, so that a line is always one line."""
        at = self._clock.now().isoformat(timespec="milliseconds")
        line = (json.dumps({"at": at, **facts}) + "\n").encode()
        with self.log.open("ab", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # another server may use the folder
            size = os.fstat(file.fileno()).st_size
            try:
                if file.write(line) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file.fileno())
            except OSError:
                os.ftruncate(file.fileno(), size)
                raise


def make_etag(content: bytes) -> str:
    """Return the hash that names the content of a definition."""
    return hashlib.sha256(content).hexdigest()[:32]


def _name_definitions(given: Any) -> Any:
    """Return what a caller sent with the hashes of definitions in their place: one may have a secret by mistake."""
    if not isinstance(given, dict):
        return given
    return {
        name: make_etag(value.encode())
        if name == "definition" and value and isinstance(value, str)
        else _name_definitions(value)
        for name, value in given.items()
    }


@contextlib.contextmanager
def _refuse_unkept() -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise NotKept(
            f"Nothing was changed: the server cannot log the change ({error}).",
            hint="Give the folder .wherry/server space and write permission.",
        ) from error
