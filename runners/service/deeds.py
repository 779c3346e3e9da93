"""What callers changed: a log of who did what and why, and the answers by key, so that a retry does it once."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from runners.model.clock import Clock
from runners.service.operation import ENCODER, Answer, Ask, Caller, Invalid, KeyTaken, Operation

A = TypeVar("A", bound=Answer)
_LONGEST_KEY = 200
_KEPT = 100_000
"""How many keys are kept. The oldest are forgotten first."""


class Deeds:
    """The log of changes and the keys, in a folder. Any number of threads and servers may use it."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "audit.jsonl"
        self._clock = clock
        self._file = folder / "keys.sqlite"
        self._lock = threading.Lock()
        with self._open() as keys:
            keys.execute(
                "CREATE TABLE IF NOT EXISTS keys "
                "(name TEXT PRIMARY KEY, asked TEXT NOT NULL, answer BLOB, at TEXT NOT NULL) STRICT"
            )

    def carry_out(
        self, operation: Operation, caller: Caller, ask: Ask, key: str, act: Callable[[], Answer]
    ) -> msgspec.Raw | Answer:
        """Do this change once for its key, and log it. A repeated request gets the first answer.

        Raise `Invalid` without a key. Raise `KeyTaken` if the key was for another request, or if the first one has not
        ended, or if nobody knows how it ended.
        """
        if not key or len(key) > _LONGEST_KEY or not key.isprintable():
            raise Invalid(
                f"{operation.name} changes something, so it needs a key of 1 to {_LONGEST_KEY} letters.",
                hint="Send the header Idempotency-Key, such as a new UUID for each change.",
            )
        name = json.dumps([caller.name, key])
        asked = hashlib.sha256(f"{operation.name} {json.dumps(msgspec.to_builtins(ask))}".encode()).hexdigest()
        known = self._claim(name, asked)
        if known is not None:
            return known
        try:
            answer = act()
        except BaseException as error:
            self._forget(name)
            self._note(operation, caller, ask, key, refused=str(error).partition("\n")[0])
            raise
        self._note(operation, caller, ask, key)
        self._keep(name, ENCODER.encode(answer))
        return answer

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

    def _note(self, operation: Operation, caller: Caller, ask: Ask, key: str, *, refused: str = "") -> None:
        """Add a line to the log. JSON escapes whatever a caller sends, so that a line is always one line."""
        line = {
            "at": self._clock.now().isoformat(timespec="milliseconds"),
            "who": caller.name,
            "did": operation.name,
            "with": msgspec.to_builtins(ask),
            "key": key,
            **({"refused": refused} if refused else {}),
        }
        with self._lock, self.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
