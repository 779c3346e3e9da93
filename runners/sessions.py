"""The Spark sessions of a run: each thread that works for it has one of its own, and all that they do can be cancelled
under one name."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runners.reconnecting import impatient
from runners.session import cancel, life, named_work
from runners.session import own as own_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PLANNING, _ENDING = "-plans", "-ends"
"""What the work of the dispatcher's own thread is called, behind the name of all others."""


@dataclass
class Sessions:
    """Made as threads ask for them."""

    spark: SparkSession
    group: str
    """The name under which all that is done in them can be cancelled."""
    pool: str = ""
    """With whom its work shares the cores fairly; nothing: with whoever else is in no pool."""
    time_zone: str = "UTC"
    beside: int = 1
    """How many threads may work beside each, for the same task."""
    _local: threading.local = field(default_factory=threading.local)
    _all: list[SparkSession] = field(default_factory=list)
    _pools: list[ThreadPoolExecutor] = field(default_factory=list)

    @contextlib.contextmanager
    def own(self) -> Iterator[SparkSession]:
        """This thread's session, for work that is cancelled with the rest."""
        session: SparkSession | None = getattr(self._local, "session", None)
        if session is None or self._local.life is not life(self.spark):
            session = own_session(self.spark, self.time_zone)
            impatient(session)
            self._local.session, self._local.life = session, life(self.spark)
            self._all.append(session)
        with self.named(session):
            yield session

    @contextlib.contextmanager
    def named(self, session: SparkSession) -> Iterator[None]:
        """What this thread does in that session is cancelled with the rest."""
        with named_work(session, self.group, self.pool):
            yield

    def lose(self) -> None:
        """This thread gets another session for its next task: the server has forgotten the one that it had."""
        self._local.session = None

    def helpers(self) -> ThreadPoolExecutor:
        """The threads beside this one."""
        pool: ThreadPoolExecutor | None = getattr(self._local, "pool", None)
        if pool is None:
            pool = self._local.pool = ThreadPoolExecutor(self.beside, "wherry-beside")
            self._pools.append(pool)
        return pool

    @contextlib.contextmanager
    def planning(self) -> Iterator[None]:
        """What this thread asks of Spark in here is cancelled with the rest; what it asks later is not."""
        try:
            with named_work(self.spark, self.group + _PLANNING, self.pool):
                yield
        finally:
            with named_work(self.spark, self.group + _ENDING, self.pool):
                pass

    def cancel(self) -> None:
        """Cancel all that Spark is doing in them. May be called from another thread."""
        cancel(self.spark, self.group + _PLANNING)
        for session in (self.spark, *tuple(self._all)):
            cancel(session, self.group)

    def close(self) -> None:
        """Let the threads go that work beside others."""
        for pool in self._pools:
            pool.shutdown()
