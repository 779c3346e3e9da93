"""The Spark sessions of a run: each thread that works for it has one of its own, and all that they do can be cancelled
under one name."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from typing import TYPE_CHECKING

from origins.errors import list_spark_errors
from origins.quick_dataclass import dataclass
from origins.spark_private import cancel_jobs, name_jobs
from runners.spark.late import LateSession
from runners.spark.session import is_connect, make_impatient, make_own_session, session_identity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_PLANNING, _ENDING = "-plans", "-ends"
"""What the work of the dispatcher's own thread is called, behind the name of all others."""


_FOR_LARGE_ROWS = {
    "parquet.block.size": str(16 << 20),
    "parquet.page.size.row.check.min": "1",
    "spark.sql.parquet.columnarReaderBatchSize": "8",
}
"""With these Spark holds few rows of a parquet file at a time. By default it writes 100 before it looks how large they
are, and reads 4,096."""


@dataclass
class SessionPool:
    """Made as threads ask for them."""

    spark: SparkSession
    group: str
    """The name under which all that is done in them can be cancelled."""
    pool: str = ""
    """The fair scheduler's pool for its work; empty: the default pool."""
    time_zone: str = "UTC"
    beside: int = 1
    """How many threads may work beside each, for the same task."""
    _has_large_rows: bool = False
    _local: threading.local = field(default_factory=threading.local)
    _all: list[SparkSession] = field(default_factory=list)
    _pools: list[ThreadPoolExecutor] = field(default_factory=list)

    @contextlib.contextmanager
    def use_session(self) -> Iterator[SparkSession]:
        """This thread's session, for work that is cancelled with the rest."""
        session: SparkSession | None = getattr(self._local, "session", None)
        if session is None or self._local.life is not session_identity(self.spark):
            session = make_own_session(self.spark, self.time_zone)
            make_impatient(session)
            self._local.session, self._local.life = session, session_identity(self.spark)
            self._all.append(session)
            if self._has_large_rows:
                _fit_large_rows(session)
        with self.tag_thread(session):
            yield session

    def fit_large_rows(self) -> None:
        """From now on rows may have values of many MiB."""
        if not self._has_large_rows:
            self._has_large_rows = True
            for session in tuple(self._all):
                _fit_large_rows(session)

    @contextlib.contextmanager
    def tag_thread(self, session: SparkSession) -> Iterator[None]:
        """What this thread does in that session is cancelled with the rest."""
        with tag_work(session, self.group, self.pool):
            yield

    def replace_session(self) -> None:
        """This thread gets another session for its next task: the server has forgotten the one that it had."""
        self._local.session = None

    def get_helpers(self) -> ThreadPoolExecutor:
        """The threads beside this one."""
        pool: ThreadPoolExecutor | None = getattr(self._local, "pool", None)
        if pool is None:
            pool = self._local.pool = ThreadPoolExecutor(self.beside, "wherry-beside")
            self._pools.append(pool)
        return pool

    @contextlib.contextmanager
    def cancel_planning(self) -> Iterator[None]:
        """What this thread asks of Spark in here is cancelled with the rest; what it asks later is not."""
        try:
            with tag_work(self.spark, self.group + _PLANNING, self.pool):
                yield
        finally:
            with tag_work(self.spark, self.group + _ENDING, self.pool):
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


def _fit_large_rows(session: SparkSession) -> None:
    for key, value in _FOR_LARGE_ROWS.items():
        with contextlib.suppress(*list_spark_errors()):  # a service may allow no such setting, and has more memory
            session.conf.set(key, value)


@contextlib.contextmanager
def tag_work(spark: SparkSession, group: str, pool: str = "") -> Iterator[None]:
    """Name the work that this thread starts on Spark in here, so that another thread can cancel it.

    Work of different pools shares the cores fairly if Spark does so (`spark.scheduler.mode`). The server of Spark
    Connect has no pools.
    """
    if is_connect(spark):
        spark.addTag(group)
        try:
            yield
        finally:
            if group in spark.getTags():  # a session that took another one's place has none
                spark.removeTag(group)
    else:
        if isinstance(spark, LateSession):
            spark.tag(group, pool)
        else:
            name_jobs(spark, group, pool)
        yield


def cancel(spark: SparkSession, group: str) -> None:
    """Cancel what `tag_work` named; nothing is left running of it. On classic Spark nothing of it can begin later."""
    if is_connect(spark):
        if not spark.client.is_closed:  # of one that its server has forgotten nothing is left running
            spark.interruptTag(group)
    elif not (isinstance(spark, LateSession) and spark.late.cancel(group)):
        cancel_jobs(spark, group)
