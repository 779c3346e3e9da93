"""The locks with which Delta in a JVM and this process keep their commits apart."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from destinations.delta.lock import SparkCommits
from origins.errors import clean_up_by
from origins.lazy import SparkSession, py4j_errors
from origins.spark_private import get_hadoop_settings, get_java_session, get_jvm, keep_connection, keeps_threads_apart
from origins.spark_settings import COMMIT_LOCK, LOG_STORE, LOG_STORE_FILES

_STORES = tuple(
    f"{package}.{name}LogStore"
    for package in ("io.delta.storage", "org.apache.spark.sql.delta.storage")
    for name in ("Local", "HDFS")
)

_LOCKED = {COMMIT_LOCK.key: ("true",), LOG_STORE.key: ("", *_STORES), LOG_STORE_FILES.key: ("", *_STORES)}
"""The settings with which Delta locks a table's log in its JVM for a commit on a local disk.

The first value is the default.
"""

_PATIENCE = 60
"""How long a commit waits for another commit of the JVM, in seconds."""


class JvmCommits(SparkCommits):
    """Holds commits with the locks of Delta's `DeltaLog`.

    Each commit of Delta holds the lock of its table's `DeltaLog` from the check that a version is free until it has
    taken the version. A JVM has one `DeltaLog` for a folder, shared by all its sessions, after its first use of the
    table.

    If no session in the JVM has used a table, Wherry does not load its log. That would take two seconds in a new JVM.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark, self._classes, self._session = spark, get_jvm(spark), get_java_session(spark)
        self._places: dict[Path, Any] = {}

    def can_be_held(self) -> bool:
        settings = self._session.sessionState().conf()
        known = all(settings.getConfString(key, values[0]) in values for key, values in _LOCKED.items())
        return known and self._logs is not None and self._does_write_plainly()

    @contextlib.contextmanager
    def hold(self, table: Path) -> Iterator[None]:
        log = self._find_log(table)
        with self._hold_log(log, table):
            yield
        newer = self._find_log(table)
        if newer is not None and (log is None or not newer.equals(log)):
            with self._hold_log(newer, table):
                pass  # commits that began before it have ended now, and commits that begin later see what was done

    def _does_write_plainly(self) -> bool:
        """Whether the settings of Hadoop, which a session does not show, write files in the default way."""
        hadoop = get_hadoop_settings(self._spark)
        plain = hadoop.getPropsWithPrefix("parquet.").isEmpty()
        return bool(plain and hadoop.get("fs.permissions.umask-mode") in ("022", "0022"))

    @functools.cached_property
    def _logs(self) -> Any:
        """The logs that Delta has open in the JVM, by their places.

        It is None if the threads of this process change threads of the JVM, which own its locks. It is also None if
        this version of Delta is not known here.
        """
        if not keeps_threads_apart(self._spark):
            return None
        try:
            delta = getattr(self._classes.org.apache.spark.sql.delta, "DeltaLog$")
            return getattr(delta, "MODULE$").getOrCreateCache(self._session.sessionState().conf())
        except (py4j_errors.Py4JError, TypeError):
            return None

    def _find_log(self, table: Path) -> Any:
        """Return the table's log, if it is open in the JVM."""
        return self._logs.getIfPresent(self._make_log_key(table))

    def _make_log_key(self, table: Path) -> Any:
        if table not in self._places:
            key = getattr(self._classes.org.apache.spark.sql.delta, "DeltaLog$DeltaLogCacheKey")
            none = self._classes.org.apache.spark.api.python.PythonUtils.toScalaMap(self._classes.java.util.HashMap())
            self._places[table] = key(self._classes.org.apache.hadoop.fs.Path(f"file:{table}/_delta_log"), none)
        return self._places[table]

    @contextlib.contextmanager
    def _hold_log(self, log: Any, table: Path) -> Iterator[None]:
        if log is None:
            yield
            return
        with keep_connection():
            lock = log.snapshotLock()
            if not lock.tryLock(_PATIENCE, self._classes.java.util.concurrent.TimeUnit.SECONDS):
                raise TimeoutError(f"a commit of Spark's into {table} has not ended for {_PATIENCE} seconds")
            with clean_up_by(lock.unlock):
                yield
