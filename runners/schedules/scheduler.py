"""Runs the pipelines of a directory when they are due, each in a thread of its own. One thread owns it, and takes
turns."""

from __future__ import annotations

import logging
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import field
from datetime import datetime, timedelta

from origins.quick_dataclass import dataclass
from runners.definitions.definition import Definition, DefinitionsFolder, Found
from runners.model.clock import Clock
from runners.model.run_report import Report
from runners.model.schedule_events import (
    Began,
    Broken,
    Draining,
    Ended,
    LeftOut,
    Mended,
    Scheduled,
    ScheduleEvent,
    ScheduleListener,
    Unscheduled,
)
from runners.model.timetable import make_timetable
from runners.schedules.due_queue import DueQueue, DueTimer
from runners.schedules.run_marks import RunMark, RunMarks
from runners.schedules.schedule_plan import ScheduleCatalog

MOST_MISSED = 1_000
"""The runs that `catch_up: all` carries at most of those that were missed in one pause."""
PAUSE = timedelta(minutes=1)
"""Between two turns that are further apart than this the scheduler slept, and what was due is missed and not late."""
TRY_AGAIN = timedelta(seconds=30)
"""When a run is tried again after another process kept it from beginning."""

log = logging.getLogger("wherry")


@dataclass(kw_only=True)
class Scheduler:
    """A directory of definitions, and the runs of them."""

    folder: DefinitionsFolder
    marks: RunMarks
    carriers: RunWorkers
    at_once: int
    """How many pipelines run at a time."""
    clock: Clock = field(default_factory=Clock)
    listeners: Sequence[ScheduleListener] = ()
    look: float = 2.0
    """How many seconds pass between two looks at the directory."""
    error: str = ""
    """Why it cannot go on; nothing while it can."""

    def __post_init__(self) -> None:
        self.agenda = DueQueue(self.at_once)
        self.roster = ScheduleCatalog()
        self.active: dict[str, Definition] = {}
        """The definitions of which runs begin: those that are scheduled and not paused."""
        self._rung: list[tuple[str, Sequence[datetime]]] = []
        self._alarm = DueTimer(lambda name, moments: self._rung.append((name, moments)))
        self._began: dict[str, float] = {}
        self._claimed: dict[str, datetime] = {}
        self._cut_off: dict[str, datetime] = {}
        """The runs that a scheduler before this one, or one beside it, began and did not end."""
        self._stopping = self._told = ""
        self._forced = False
        self._awake = self._turned = self.clock.now()
        self._looked = self.clock.elapsed()

    def run(self) -> None:
        """Go on until it is stopped and what ran has ended. Raises `Refusal` where there is no directory."""
        self.open()
        finished: Sequence[RunOutcome] = ()
        while (patience := self.take_turn(finished)) is not None:
            finished = self.carriers.wait(patience)
        self._alarm.shutdown()

    def open(self) -> None:
        """See what there is, and what was missed. Raises `Refusal` where there is no directory."""
        self._refresh(self.folder.open(), self.clock.now())

    def stop(self, reason: str, *, force: bool = False) -> None:
        """Begin nothing more. What runs finishes its batches in flight, or with `force` leaves them as they are.

        May be called from any thread and from a signal handler.
        """
        self._forced = self._forced or force
        self._stopping = self._stopping or reason
        self.carriers.wake()

    @property
    def stopping(self) -> str:
        """Why it was asked to stop; nothing while it was not."""
        return self._stopping

    def find_next(self, name: str) -> datetime | None:
        """When a pipeline is due next, if that is known."""
        return self._alarm.find_next(name)

    def take_turn(self, finished: Sequence[RunOutcome] = ()) -> float | None:
        """Do what is to be done now, after these runs; gives the seconds in which nothing is, None when it is over."""
        for carried in finished:
            self._end_run(carried)
        now = self.clock.now()
        if now - self._turned > PAUSE:
            self._awake = now
        self._turned = now
        if self._stopping:
            return self._drain()
        if self.clock.elapsed() - self._looked >= self.look:
            self._looked = self.clock.elapsed()
            self._refresh(self.folder.find_changes(), now)
        alarm = self._alarm.ring()
        while self._rung:
            self._add_due(*self._rung.pop(0))
        while (begins := self.agenda.find_next(now)) is not None:
            self._begin(*begins)
        wakes = self.agenda.find_wake_time()
        wake = None if wakes is None else (wakes - now).total_seconds()
        waits = [each for each in (self.look, alarm, wake) if each is not None]
        return max(0.0, min(waits))

    def _drain(self) -> float | None:
        if not self._told:
            self._told = self._stopping
            self._emit(Draining(reason=self._stopping))
        if not self.agenda.running:
            return None
        self.carriers.stop(self._stopping, force=self._forced)
        return min(1.0, self.look)

    def _refresh(self, found: Found | None, now: datetime) -> None:
        """The definitions may have changed, and what is paused."""
        before = self.roster
        if found is not None:
            self.roster = ScheduleCatalog.of(found)
        marks = {name: self._mark(name, now) for name in self.roster.scheduled}
        wanted = {name: each for name, each in self.roster.scheduled.items() if marks[name].paused is None}
        for name in [name for name in self.active if name not in wanted]:
            self._leave(name, marks.get(name))
        for file, message in self.roster.broken.items():
            if before.broken.get(file) != message:
                self._emit(Broken(file=file, message=message))
        for file in before.broken:
            if file not in self.roster.broken:
                self._emit(Mended(file=file))
        for name, definition in wanted.items():
            if name not in self.active:
                self._take(name, definition, marks[name], now)
            elif self.active[name].hash != definition.hash:
                self._change_definition(name, definition, now)

    def _mark(self, name: str, now: datetime) -> RunMark:
        try:
            return self.marks.get_or_make(name, now)
        except OSError as error:
            if name not in self.active:
                log.warning("The missed runs of %s cannot be found: %s", name, error.strerror)
            return RunMark(served=now)

    def _leave(self, name: str, mark: RunMark | None) -> None:
        definition = self.active.pop(name)
        self.agenda.remove(name)
        self._alarm.remove(name)
        if mark is not None:
            why = f"it is paused: {mark.paused}"
        elif name in self.roster.by_hand:
            why = "it no longer has a schedule"
        else:
            why = (
                "its definition is broken"
                if _name_file(definition) in self.roster.broken
                else "its definition is missing"
            )
        self._emit(Unscheduled(name=name, why=why))

    def _take(self, name: str, definition: Definition, mark: RunMark, now: datetime) -> None:
        """A pipeline that was not scheduled until now; what it missed since its last run is caught up."""
        schedule = definition.pipeline.schedule
        assert schedule is not None
        self.active[name] = definition
        self.agenda.put(name, schedule)
        self._emit(Scheduled(name=name, file=_name_file(definition)))
        timetable = make_timetable(schedule)
        missed: Sequence[datetime] = ()
        if timetable is None:
            other = self.marks.get(schedule.after or "")
            if other is not None and other.succeeded is not None and other.succeeded > mark.served:
                missed = [other.succeeded]
        else:
            self._alarm.put(name, timetable, now)
            if schedule.catch_up == "all":
                missed = timetable.list_between(mark.served, now, MOST_MISSED)
            else:
                last = timetable.find_last(mark.served, now)
                missed = [] if last is None else [last]
        if mark.open is not None and not self.agenda.items[name].running:
            self._cut_off[name] = mark.open
            missed = [mark.open, *missed]
        self._add(name, (), missed)

    def _change_definition(self, name: str, definition: Definition, now: datetime) -> None:
        """Another definition of the same pipeline: its times count from now."""
        before, schedule = self.active[name].pipeline.schedule, definition.pipeline.schedule
        assert schedule is not None
        self.active[name] = definition
        self.agenda.put(name, schedule)
        if schedule != before:
            timetable = make_timetable(schedule)
            if timetable is None:
                self._alarm.remove(name)
            else:
                self._alarm.put(name, timetable, now)
        self._emit(Scheduled(name=name, file=_name_file(definition)))

    def _add_due(self, name: str, moments: Sequence[datetime]) -> None:
        missed = [moment for moment in moments if moment <= self._awake]
        self._add(name, moments[len(missed) :], missed)

    def _add(self, name: str, moments: Sequence[datetime], missed: Sequence[datetime]) -> None:
        left = self.agenda.add_due(name, moments, missed=missed)
        pause = [moment for moment in left if moment in missed]
        overlap = [moment for moment in left if moment not in missed]
        if pause:
            self._emit(LeftOut(name=name, due=pause, why="it was due while no scheduler ran"))
        if overlap:
            self._emit(LeftOut(name=name, due=overlap, why="the run before it has not ended"))

    def _begin(self, name: str, due: datetime) -> None:
        if not self._claim(name, due):
            self.agenda.note_dropped(name)
            self._emit(LeftOut(name=name, due=[due], why="another scheduler began it"))
            return
        self.agenda.note_begun(name)
        self._began[name] = self.clock.elapsed()
        self._emit(Began(name=name, due=due))
        definition = self._as_it_is_now(name)
        if isinstance(definition, str):
            self._end_run(RunOutcome(name=name, status="failed", message=definition))
        else:
            self.carriers.start(name, definition)

    def _as_it_is_now(self, name: str) -> Definition | str:
        """The definition with the files that it names, read once for the run; or what is wrong with it by now."""
        known = self.active[name]
        if known.path is None:
            return known
        definition = self.folder.read(known.path.name)
        return known if isinstance(definition, Definition) and definition.pipeline.name != name else definition

    def _claim(self, name: str, due: datetime) -> bool:
        """Whether the run is ours to begin. Where that cannot be noted it is: the pipeline's own lock is left."""
        if self._claimed.get(name) == due:
            return True
        claim = self.marks.claim_again if self._cut_off.get(name) == due else self.marks.claim
        try:
            mine = claim(name, due)
        except OSError as error:
            log.warning("The run of %s cannot be noted: %s", name, error.strerror)
            mine = True
        if mine:
            self._claimed[name] = due
        return mine

    def _end_run(self, carried: RunOutcome) -> None:
        name, now = carried.name, self.clock.now()
        due = self.agenda.items[name].running
        assert due is not None
        message = carried.message
        again = False
        if carried.status == "owned" and self._cut_off.get(name) != due:
            again = self.agenda.put_off(name, now + TRY_AGAIN)
            message = f"{message} The run is {'tried again soon' if again else 'left out'}."
        else:
            self.agenda.note_ended(name)
        seconds = self.clock.elapsed() - self._began.pop(name)
        self._emit(
            Ended(name=name, due=due, status=carried.status, message=message, seconds=seconds, report=carried.report)
        )
        if not again and not carried.spark_is_gone:
            self._note_end(carried, due, now)
        if carried.status == "succeeded":
            for follower in self.agenda.list_followers(name):
                self._add(follower, [now], ())
        if carried.spark_is_gone and not self.error:
            self.error = carried.message
            self.stop("Spark has ended")

    def _note_end(self, carried: RunOutcome, due: datetime, now: datetime) -> None:
        """The run has ended; one that had to because all had to is taken up again by the next scheduler."""
        cut_off = due if carried.status == "stopped" and self._stopping else None
        try:
            self.marks.note_ended(
                carried.name, succeeded=now if carried.status == "succeeded" else None, cut_off=cut_off
            )
        except OSError as error:
            log.warning("The end of %s cannot be noted: %s", carried.name, error.strerror)

    def _emit(self, event: ScheduleEvent) -> None:
        for listener in self.listeners:
            listener(event)


def _name_file(definition: Definition) -> str:
    return definition.path.name if definition.path else definition.pipeline.name


@dataclass(frozen=True, kw_only=True)
class RunOutcome:
    """How a run went."""

    name: str
    status: str
    """`succeeded`, `failed`, `stopped`, or `owned` where another process has the pipeline."""
    message: str
    report: Report | None = None
    spark_is_gone: bool = False
    """Whether nothing else can be carried here either."""


Stop = Callable[[str, bool], None]
"""Asks a run to stop: why, and whether what is in flight is left as it is. Twice is once."""
Carry = Callable[[Definition, Callable[[Stop], None]], RunOutcome]
"""Carries a pipeline, and says how it is stopped as soon as it can be."""


class RunWorkers(ABC):
    """Takes definitions and carries them."""

    @abstractmethod
    def start(self, name: str, definition: Definition) -> None:
        """Begin a run. It is never begun while another of its name is under way."""

    @abstractmethod
    def wait(self, seconds: float) -> Sequence[RunOutcome]:
        """The runs that have ended; waits for the first, for `wake`, or for the time to pass."""

    @abstractmethod
    def wake(self) -> None:
        """End the wait that is under way, or the next one. May be called from a signal handler."""

    @abstractmethod
    def stop(self, reason: str, *, force: bool) -> None:
        """Ask all runs to stop; what is in flight finishes, or with `force` is left as it is."""


class RunThreads(RunWorkers):
    """Runs as threads of this process."""

    def __init__(self, carry: Carry) -> None:
        self._carry = carry
        self._ended: queue.SimpleQueue[RunOutcome | None] = queue.SimpleQueue()
        self._stops: dict[str, Stop] = {}

    def start(self, name: str, definition: Definition) -> None:
        thread = threading.Thread(target=self._work, args=(name, definition), name=f"wherry-run-{name}", daemon=True)
        thread.start()

    def wait(self, seconds: float) -> Sequence[RunOutcome]:
        try:
            ended = [self._ended.get(timeout=seconds)]
        except queue.Empty:
            return []
        while not self._ended.empty():
            ended.append(self._ended.get())
        return [each for each in ended if each is not None]

    def wake(self) -> None:
        self._ended.put(None)

    def stop(self, reason: str, *, force: bool) -> None:
        for stop in list(self._stops.values()):
            stop(reason, force)

    def _work(self, name: str, definition: Definition) -> None:
        def stoppable(stop: Stop) -> None:
            self._stops[name] = stop

        try:
            carried = self._carry(definition, stoppable)
        except BaseException as error:  # noqa: BLE001 -- the edge of the thread: the other runs go on
            carried = RunOutcome(name=name, status="failed", message=f"{type(error).__name__}: {error}")
        self._stops.pop(name, None)
        self._ended.put(carried)
