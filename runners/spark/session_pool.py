"""The Spark sessions of a run.

Each thread that works for the run has a separate session. All their work can be cancelled with one name.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from origins.errors import clean_up_by, list_spark_errors
from origins.lazy import SparkSession
from origins.spark_private import cancel_jobs, cut_calls, cut_client, name_jobs
from origins.spark_settings import BLOCK_SIZE, PAGE_CHECK, READ_BATCH
from origins.spark_versions import is_connect
from runners.spark.late import LateSession
from runners.spark.own_session import make_own_session
from runners.spark.session import get_session_identity, make_impatient

_PLANNING, _ENDING = "-plans", "-ends"
"""The suffixes for the group names of the dispatcher's thread."""


_FOR_LARGE_ROWS = {BLOCK_SIZE: str(16 << 20), PAGE_CHECK: "1", READ_BATCH: "8"}
"""The settings with which Spark holds few rows of a parquet file at a time.

By default it writes 100 rows before it checks their size, and reads 4,096.
"""


@dataclass
class SessionPool:
    """The Spark sessions of a run, which are made when threads ask for them."""

    spark: SparkSession
    group: str
    """The name with which all their work can be cancelled."""
    pool: str = ""
    """The pool of the fair scheduler for their work. If it is empty, Spark uses the default pool."""
    time_zone: str = "UTC"
    beside: int = 1
    """How many helper threads each thread may have for the same task."""
    _has_large_rows: bool = False
    _local: threading.local = field(default_factory=threading.local)
    _all: list[SparkSession] = field(default_factory=list)
    _threads: set[int] = field(default_factory=set)
    """The threads that work for the run."""
    _pools: list[ThreadPoolExecutor] = field(default_factory=list)

    @contextlib.contextmanager
    def use_session(self) -> Iterator[SparkSession]:
        """Give this thread's session, for work that is cancelled with the rest."""
        self.note_thread()
        session: SparkSession | None = getattr(self._local, "session", None)
        if session is None or self._local.life is not get_session_identity(self.spark):
            session = make_own_session(self.spark, self.time_zone)
            make_impatient(session)
            self._local.session, self._local.life = session, get_session_identity(self.spark)
            self._all.append(session)
            if self._has_large_rows:
                _fit_large_rows(session)
        with self.tag_thread(session):
            yield session

    def fit_large_rows(self) -> None:
        """Prepare all sessions for rows with values of many MiB."""
        if not self._has_large_rows:
            self._has_large_rows = True
            for session in tuple(self._all):
                _fit_large_rows(session)

    @contextlib.contextmanager
    def tag_thread(self, session: SparkSession) -> Iterator[None]:
        """Let this thread's work in that session in this block be cancelled with the rest."""
        self.note_thread()
        with tag_work(session, self.group, self.pool):
            yield

    def replace_session(self) -> None:
        """Give this thread another session for its next task, because the server has forgotten its session."""
        self._local.session = None

    def get_helpers(self) -> ThreadPoolExecutor:
        """Return the helper threads of this thread."""
        pool: ThreadPoolExecutor | None = getattr(self._local, "pool", None)
        if pool is None:
            pool = self._local.pool = ThreadPoolExecutor(self.beside, "wherry-beside")
            self._pools.append(pool)
        return pool

    @contextlib.contextmanager
    def cancel_planning(self) -> Iterator[None]:
        """Make this thread's work on Spark in this block cancellable with the rest. Later work of the thread is not."""

        def tag_again() -> None:
            with tag_work(self.spark, self.group + _ENDING, self.pool):
                pass

        with clean_up_by(tag_again), tag_work(self.spark, self.group + _PLANNING, self.pool):
            yield

    def cancel(self) -> None:
        """Cancel all work of Spark in these sessions. Another thread may call it."""
        cancel(self.spark, self.group + _PLANNING)
        for session in (self.spark, *tuple(self._all)):
            cancel(session, self.group)

    def note_thread(self) -> None:
        """Note that this thread works for the run until its end."""
        self._threads.add(threading.get_ident())

    def cut_calls(self) -> None:
        """Let the calls to Spark fail for which the run's threads wait. Another thread may call it.

        Spark may be planning, which cannot be cancelled. It begins no job of the run after that.
        """
        if not is_connect(self.spark):
            cut_calls(self._threads)
            return
        for session in (self.spark, *tuple(self._all)):
            cut_client(session)

    def close(self) -> None:
        """Stop the helper threads."""
        for pool in self._pools:
            pool.shutdown()


def _fit_large_rows(session: SparkSession) -> None:
    for setting, value in _FOR_LARGE_ROWS.items():
        with contextlib.suppress(*list_spark_errors()):  # a service may refuse such a setting, and has more memory
            setting.write(session, value)


@contextlib.contextmanager
def tag_work(spark: SparkSession, group: str, pool: str = "") -> Iterator[None]:
    """Name the work that this thread starts on Spark in this block, so that another thread can cancel it.

    Work of different pools shares the cores fairly if Spark does so (`spark.scheduler.mode`). The server of Spark
    Connect has no pools.
    """
    if is_connect(spark):
        spark.addTag(group)

        def remove_tag() -> None:
            if group in spark.getTags():  # a session that took another session's place has no tags
                spark.removeTag(group)

        with clean_up_by(remove_tag):
            yield
    else:
        if isinstance(spark, LateSession):
            spark.tag(group, pool)
        else:
            name_jobs(spark, group, pool)
        yield


def cancel(spark: SparkSession, group: str) -> None:
    """Cancel the work that `tag_work` named, so that none of it still runs. On classic Spark, none can begin later."""
    if is_connect(spark):
        if not spark.client.is_closed:  # if its server has forgotten it, none of its work still runs
            spark.interruptTag(group)
    elif not (isinstance(spark, LateSession) and spark.late.cancel(group)):
        cancel_jobs(spark, group)
