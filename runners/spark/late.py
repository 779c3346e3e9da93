"""A local Spark that starts when it is first used. A run that needs no Spark ends before a JVM has started."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from importlib import import_module
from pathlib import Path
from typing import Any

from destinations.delta.lock import SparkCommits, get_commits
from origins.lazy import SparkSession
from origins.spark_private import has_context, name_jobs
from runners.model.errors import WorkCancelled
from runners.spark.start import note_start


class LateSpark:
    """The Spark of a run. All its sessions share one JVM, which is started once."""

    def __init__(self, begin: Callable[[], SparkSession], settings: Mapping[str, str]) -> None:
        self._begin = begin
        self.settings = settings
        """The settings with which the session will be started."""
        self.gives_up: dict[str, Callable[[], bool]] = {}
        """By the prefix of a group name, a function that returns whether its work stops waiting for the JVM."""
        self._session: SparkSession | None = None
        self._start: Future[SparkSession] | None = None
        self._starting = threading.Lock()
        self._commits = threading.Condition()
        self._under_way = 0
        self._cancelled: set[str] = set()

    @property
    def is_up(self) -> bool:
        """Whether it has been started."""
        return self._session is not None

    def start_ahead(self) -> Future[SparkSession]:
        """Start it in a separate thread, for work that will need it. An error is raised where the session is needed."""
        with self._starting:
            start = self._start
            if start is None:
                with contextlib.suppress(ImportError):  # where it is needed, the start reports that it is missing
                    import_module("pyspark.sql")  # two threads that import it at the same time can block each other
                start = self._start = Future()
                threading.Thread(target=self._run, args=[start], name="wherry-spark-start", daemon=True).start()
            return start

    def get(self, group: str = "") -> SparkSession:
        """Return the session, once it is started and no commit that began without it is in progress.

        Raises `WorkCancelled` as soon as the work of this group is cancelled, or gives up before the JVM has started.
        """
        self._check(group, waits=not self.is_up)
        start = self.start_ahead()
        while not wait([start], OFTEN).done:
            self._check(group, waits=True)
        self._check(group, waits=False)
        return start.result()

    def _run(self, start: Future[SparkSession]) -> None:
        try:
            session = self._begin()
            with self._commits:
                self._commits.wait_for(lambda: not self._under_way)
                self._session = session
        except BaseException as error:  # noqa: BLE001 -- the edge of the thread: code that needs the session raises it
            self._start = None  # another run of this process tries again
            start.set_exception(error)
        else:
            start.set_result(session)

    @contextlib.contextmanager
    def commit_without(self) -> Iterator[bool]:
        """In this block, keep a JVM that has not started yet from doing anything.

        Give False if this process already has a JVM, started by any run.
        """
        with self._commits:
            alone = not self.is_up and not has_context()
            self._under_way += alone
        try:
            yield alone
        finally:
            with self._commits:
                self._under_way -= alone
                self._commits.notify_all()

    def cancel(self, group: str) -> bool:
        """Let no work of this group begin any more.

        Return False if the JVM is running, where the group must be cancelled.
        """
        with self._commits:
            self._cancelled.add(group)
            return self._session is None

    def _check(self, group: str, *, waits: bool) -> None:
        stops = [stops for name, stops in [*self.gives_up.items()] if waits and group.startswith(name)]
        if group in self._cancelled or any(stop() for stop in stops):
            raise WorkCancelled("the run was stopped before Spark was up")


OFTEN = 0.1
"""The seconds between two checks whether work still waits for the JVM."""


class LateSession:
    """A session of a `LateSpark`. Any use of it, except for its settings, starts the JVM."""

    def __init__(self, spark: LateSpark, make: Callable[[SparkSession], SparkSession]) -> None:
        self.late = spark
        self.make = make
        """Makes this session from the session that was started."""
        self._settings = LateSettings(self, spark.settings)
        self._made: SparkSession | None = None
        self._making = threading.Lock()
        self._thread = threading.local()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.start(), name)

    @property
    def conf(self) -> Any:
        """The settings. If the JVM is running, they come from the JVM, so a frozen JVM does not answer."""
        return self.start().conf if self.late.is_up else self._settings

    def start(self) -> SparkSession:
        """Return the real session. Raises `WorkCancelled` for work that was cancelled before it could begin."""
        group, pool = getattr(self._thread, "tag", ("", ""))
        if self._made is None:
            given = self.late.get(group)
            with self._making, note_start():
                if self._made is None:
                    made = self.make(given)
                    for key, value in self._settings.changed.items():
                        made.conf.set(key, value)
                    self._made = made
        if group:
            self.tag(group, pool)
        return self._made

    def tag(self, group: str, pool: str) -> None:
        """Name what this thread starts from now on."""
        if self._made is not None:
            name_jobs(self._made, group, pool)
        self._thread.tag = (group, pool) if self._made is None else ("", "")


class LateSettings:
    """The settings of a session that has not been started."""

    def __init__(self, session: LateSession, given: Mapping[str, str]) -> None:
        self._session, self._given = session, given
        self.changed: dict[str, str] = {}
        """The settings to set in Spark once Spark has been started."""

    def get(self, key: str, *default: str | None) -> str | None:
        """Return a setting as Spark does: if it is not set and there is a default, return the default."""
        found = self.getAll.get(key)
        if found is not None:
            return found
        return default[0] if default else self._session.start().conf.get(key)

    def set(self, key: str, value: str | int | bool) -> None:
        """Set it now, and in Spark once Spark has been started."""
        self.changed[key] = str(value).lower() if isinstance(value, bool) else str(value)

    def unset(self, key: str) -> None:
        """Remove the setting."""
        self.changed.pop(key, None)

    @property
    def getAll(self) -> Mapping[str, str]:  # noqa: N802 -- the name in pyspark
        """All settings that are not Spark's defaults."""
        return {**self._given, **self.changed}


class LateCommits(SparkCommits):
    """The commits of a JVM that may not have started yet."""

    def __init__(self, session: LateSession) -> None:
        self._session = session

    def can_be_held(self) -> bool:
        with self._session.late.commit_without() as alone:
            return alone or get_commits(self._session.start()).can_be_held()

    @contextlib.contextmanager
    def hold(self, table: Path) -> Iterator[None]:
        with self._session.late.commit_without() as alone:
            if alone:
                yield
                return
            with get_commits(self._session.start()).hold(table):
                yield
