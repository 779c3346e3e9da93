"""A local Spark that starts when something is first asked of it: a run that needs none is over before a JVM is up."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from destinations.delta.lock import SparkCommits, get_commits
from origins.spark_private import has_context, name_jobs
from runners.model.errors import WorkCancelled
from runners.spark.start import note_start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LateSpark:
    """The Spark of a run. All sessions that are made of it start the same JVM, once."""

    def __init__(self, begin: Callable[[], SparkSession], settings: Mapping[str, str]) -> None:
        self._begin = begin
        self.settings = settings
        """What the session will be started with."""
        self.on_start: list[Callable[[], None]] = []
        """Called once the JVM is there, before it does anything for a run."""
        self.gives_up: dict[str, Callable[[], bool]] = {}
        """For work whose name begins like this, what says that it does not wait for the JVM any longer."""
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
        """Start it in a thread of its own, for work that will need it. An error is raised where it is needed."""
        with self._starting:
            start = self._start
            if start is None:
                with contextlib.suppress(ImportError):  # where it is needed, the start says that it is missing
                    import_module("pyspark.sql")  # two threads that import it at the same time can stop each other
                start = self._start = Future()
                threading.Thread(target=self._run, args=[start], name="wherry-spark-start", daemon=True).start()
            return start

    def get(self, group: str = "") -> SparkSession:
        """The session, once it is up and no commit is under way that began without it. Raises `WorkCancelled` as soon
        as the work of this group is cancelled, or gives up before the JVM is there."""
        self._check(group, waits=not self.is_up)
        start = self.start_ahead()
        while not wait([start], OFTEN).done:
            self._check(group, waits=True)
        self._check(group, waits=False)
        return start.result()

    def _run(self, start: Future[SparkSession]) -> None:
        try:
            session = self._begin()
            for call in tuple(self.on_start):
                call()
            with self._commits:
                self._commits.wait_for(lambda: not self._under_way)
                self._session = session
        except BaseException as error:  # noqa: BLE001 -- the edge of the thread: whoever needs the session raises it
            self._start = None  # another run of this process tries again
            start.set_exception(error)
        else:
            start.set_result(session)

    @contextlib.contextmanager
    def commit_without(self) -> Iterator[bool]:
        """While in here the JVM, if there is none yet, does nothing; False where this process has one, of any run."""
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
        """Let nothing of this group begin any more; False if the JVM is up, where the group has to be cancelled."""
        with self._commits:
            self._cancelled.add(group)
            return self._session is None

    def _check(self, group: str, *, waits: bool) -> None:
        stops = [stops for name, stops in [*self.gives_up.items()] if waits and group.startswith(name)]
        if group in self._cancelled or any(stop() for stop in stops):
            raise WorkCancelled("the run was stopped before Spark was up")


OFTEN = 0.1
"""The seconds between two looks whether work still waits for the JVM."""


class LateSession:
    """One session of a `LateSpark`. Whatever is asked of it but its settings starts the JVM."""

    def __init__(self, spark: LateSpark, make: Callable[[SparkSession], SparkSession]) -> None:
        self.late = spark
        self.make = make
        """Makes the session of the one that was started."""
        self._own = dict(spark.settings)
        self._set: dict[str, str] = {}
        self._made: SparkSession | None = None
        self._making = threading.Lock()
        self._thread = threading.local()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.start(), name)

    @property
    def conf(self) -> Any:
        """The settings. Once the JVM is up they are asked of it, so that one that is frozen does not answer."""
        return self.start().conf if self.late.is_up else LateSettings(self)

    def start(self) -> SparkSession:
        """The session itself. Raises `WorkCancelled` for work that was cancelled before it could begin."""
        group, pool = getattr(self._thread, "tag", ("", ""))
        if self._made is None:
            given = self.late.get(group)
            with self._making, note_start():
                if self._made is None:
                    made = self.make(given)
                    for key, value in self._set.items():
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

    def get_setting(self, key: str) -> str | None:
        """A setting as it will be."""
        return self._set.get(key, self._own.get(key))

    def list_settings(self) -> Mapping[str, str]:
        """All settings that are not Spark's defaults."""
        return {**self._own, **self._set}

    def change_setting(self, key: str, value: str | None) -> None:
        """Change a setting, or take it back."""
        if value is None:
            self._set.pop(key, None)
        else:
            self._set[key] = value


class LateSettings:
    """The settings of a session that has not been started."""

    def __init__(self, session: LateSession) -> None:
        self._session = session

    def get(self, key: str, *default: str | None) -> str | None:
        """As Spark answers: with a default, what is not set is that default."""
        found = self._session.get_setting(key)
        if found is not None:
            return found
        return default[0] if default else self._session.start().conf.get(key)

    def set(self, key: str, value: str | int | bool) -> None:
        """Set it now, and in Spark once that has been started."""
        self._session.change_setting(key, str(value).lower() if isinstance(value, bool) else str(value))

    def unset(self, key: str) -> None:
        """Take it back."""
        self._session.change_setting(key, None)

    @property
    def getAll(self) -> Mapping[str, str]:  # noqa: N802 -- as pyspark calls it
        """All settings that are not Spark's defaults."""
        return self._session.list_settings()


class LateCommits(SparkCommits):
    """The commits of a JVM that may not be there yet."""

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
