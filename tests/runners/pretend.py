"""A scheduler with a manual clock and simulated runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any

from runners.definitions.definition import Definition, DefinitionsFolder, load
from runners.model.schedule_events import ScheduleEvent
from runners.schedules.run_marks import RunGroups, RunMarks
from runners.schedules.scheduler import RunOutcome, RunThreads, Scheduler
from tests.manual_clock import ManualClock
from tests.runners.engine.toys import TOYS

BODY = "origin: {folder: {path: landing}}\ndestinations: [{table: {table: main.orders}}]\n"


def parse_utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)


@dataclass(frozen=True)
class Ran:
    """A run that began."""

    name: str
    began: datetime
    text: str
    """The definition with which it began."""


@dataclass
class PretendCarriers(RunThreads):
    """Simulated runs that only take time."""

    clock: ManualClock
    takes: dict[str, float]
    """How many seconds the runs of a pipeline take. The default is 2."""
    ends: dict[str, Callable[[str], RunOutcome]]
    """How the runs of a pipeline end. By default they succeed."""
    owners: dict[str, object]
    """The object that runs each pipeline, for all schedulers."""
    ran: list[Ran] = field(default_factory=list)
    most: int = 0
    """The largest number of runs at a time."""
    stopped: list[tuple[str, bool]] = field(default_factory=list)
    under_way: dict[str, datetime] = field(default_factory=dict)

    def start(self, name: str, definition: Definition) -> None:
        assert name not in self.under_way
        now = self.clock.now()
        self.under_way[name] = now + timedelta(seconds=self.takes.get(name, 2))
        if self.owners.setdefault(name, self) is self:
            self.ran.append(Ran(name, now, definition.text))
        else:
            self.under_way[name] = now
        self.most = max(self.most, len(self.under_way))

    def wait(self, seconds: float) -> Sequence[RunOutcome]:
        until = min([self.clock.now() + timedelta(seconds=seconds), *self.under_way.values()])
        self.clock.move(max((until - self.clock.now()).total_seconds(), 0.0))
        return self.finished()

    def finished(self) -> Sequence[RunOutcome]:
        """Return the outcomes of the runs that have ended."""
        over = [name for name, until in self.under_way.items() if until <= self.clock.now()]
        for name in over:
            del self.under_way[name]
        return [self._carried(name) for name in over]

    def wake(self) -> None:
        pass

    def stop(self, reason: str, *, force: bool) -> None:
        self.stopped.append((reason, force))

    def _carried(self, name: str) -> RunOutcome:
        if self.owners.get(name) is not self:
            return RunOutcome(name=name, status="owned", message=f"{name} is being run already.")
        del self.owners[name]
        return self.ends[name](name) if name in self.ends else RunOutcome(name=name, status="succeeded", message="done")


class World:
    """A directory of definitions, its schedulers and the clock."""

    def __init__(self, folder: Path, start: str) -> None:
        self.folder = folder
        self.clock = ManualClock(time=parse_utc(start))
        self.marks = RunMarks(folder / ".wherry" / "schedule")
        self.takes: dict[str, float] = {}
        self.ends: dict[str, Callable[[str], RunOutcome]] = {}
        self.owners: dict[str, object] = {}
        self.heard: list[ScheduleEvent] = []
        self.run_workers: list[PretendCarriers] = []
        self._schedulers: list[Scheduler] = []
        self._read: dict[str, Definition] = {}

    def define(self, name: str, schedule: str, *, more: str = "", file: str = "") -> Path:
        """Write a definition."""
        path = self.folder / (file or f"{name}.yaml")
        path.write_text(f"name: {name}\n{BODY}schedule: {schedule}\n{more}")
        return path

    def scheduler(self, *, at_once: int = 4, look: float = 20.0, limits: Mapping[str, int] | None = None) -> Scheduler:
        """Return an open scheduler of the directory, as a new process has it."""
        run_workers = PretendCarriers(self.clock, self.takes, self.ends, self.owners)
        self.run_workers.append(run_workers)
        scheduler = Scheduler(
            folder=DefinitionsFolder(path=self.folder, load=self._load),
            marks=RunMarks(self.marks.folder),
            run_workers=run_workers,
            at_once=at_once,
            groups=RunGroups(self.marks.folder / "groups", limits),
            clock=self.clock,
            listeners=[self.heard.append],
            look=look,
        )
        self._schedulers.append(scheduler)
        scheduler.open()
        return scheduler

    def go(self, scheduler: Scheduler, until: str | float) -> None:
        """Let the scheduler run until a moment, or for this many seconds."""
        end = parse_utc(until) if isinstance(until, str) else self.clock.now() + timedelta(seconds=until)
        finished: Sequence[RunOutcome] = ()
        while (patience := scheduler.take_turn(finished)) is not None and self.clock.now() < end:
            left = (end - self.clock.now()).total_seconds()
            finished = scheduler.run_workers.wait(min(patience, left))

    def kill(self) -> None:
        """End all processes and their runs."""
        self.owners.clear()
        for scheduler in self._schedulers:
            scheduler.marks.close()

    def runs(self, name: str = "") -> list[datetime]:
        """Return when runs began, of one pipeline or of all."""
        found = [ran for run_workers in self.run_workers for ran in run_workers.ran]
        return sorted(ran.began for ran in found if name in ("", ran.name))

    def list_events(self, kind: type) -> list[Any]:
        """Return the events of this kind."""
        return [event for event in self.heard if isinstance(event, kind)]

    def _load(self, path: Path) -> Definition:
        key = f"{path} {path.read_text()}"
        if key not in self._read:
            self._read[key] = load(path, kinds=TOYS, environment={})
        return self._read[key]


def make_moved(clock: ManualClock) -> type[datetime]:
    """Return a class like `datetime` whose `now` is the time of the clock."""

    class Moved(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return clock.now().astimezone(tz)

    return Moved
