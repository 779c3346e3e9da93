"""Runs the pipelines of a directory when they are due. One thread owns it: each turn looks, rings, and begins runs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from runners.clock import Clock
from runners.definitions.definition import Definition
from runners.schedules.agenda import Agenda
from runners.schedules.alarm import Alarm
from runners.schedules.carriers import Carried, Carriers
from runners.schedules.definitions_folder import DefinitionsFolder
from runners.schedules.marks import Mark, Marks
from runners.schedules.roster import Found, Roster
from runners.schedules.schedule_events import (
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
from runners.schedules.timetable import timetable_of

MOST_MISSED = 1_000
"""The runs that `catch_up: all` carries at most of those that were missed in one pause."""
PAUSE = timedelta(minutes=1)
"""Between two turns that are further apart than this the scheduler slept, and what was due is missed and not late."""
TRY_AGAIN = timedelta(seconds=30)
"""When a run is tried again that somebody else's run of the pipeline kept from beginning."""

log = logging.getLogger("wherry")


@dataclass(kw_only=True)
class Scheduler:
    """A directory of definitions, and the runs of them."""

    folder: DefinitionsFolder
    marks: Marks
    carriers: Carriers
    at_once: int
    """How many pipelines run at a time."""
    clock: Clock = field(default_factory=Clock)
    listeners: Sequence[ScheduleListener] = ()
    look: float = 2.0
    """How many seconds lie between two looks at the directory."""
    error: str = ""
    """Why it cannot go on; nothing while it can."""

    def __post_init__(self) -> None:
        self.agenda = Agenda(self.at_once)
        self.roster = Roster()
        self.active: dict[str, Definition] = {}
        """The definitions of which runs begin: those that are scheduled and not paused."""
        self._rung: list[tuple[str, Sequence[datetime]]] = []
        self._alarm = Alarm(lambda name, moments: self._rung.append((name, moments)))
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
        finished: Sequence[Carried] = ()
        while (patience := self.turn(finished)) is not None:
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

    def next(self, name: str) -> datetime | None:
        """When a pipeline is due next, if that is known."""
        return self._alarm.next(name)

    def turn(self, finished: Sequence[Carried] = ()) -> float | None:
        """Do what is to be done now, after these runs; gives the seconds in which nothing is, None when it is over."""
        for carried in finished:
            self._end(carried)
        now = self.clock.now()
        if now - self._turned > PAUSE:
            self._awake = now
        self._turned = now
        if self._stopping:
            return self._drain()
        if self.clock.elapsed() - self._looked >= self.look:
            self._looked = self.clock.elapsed()
            self._refresh(self.folder.changed(), now)
        alarm = self._alarm.ring()
        while self._rung:
            self._due(*self._rung.pop(0))
        while (found := self.agenda.next(now)) is not None:
            self._begin(*found)
        wakes = self.agenda.wakes()
        waits = [self.look, *([] if alarm is None else [alarm]), *([] if wakes is None else [_seconds(wakes - now)])]
        return max(0.0, min(waits))

    def _drain(self) -> float | None:
        if not self._told:
            self._told = self._stopping
            self._say(Draining(reason=self._stopping))
        if not self.agenda.running:
            return None
        self.carriers.stop(self._stopping, force=self._forced)
        return min(1.0, self.look)

    def _refresh(self, found: Found | None, now: datetime) -> None:
        """The definitions may have changed, and what is paused."""
        before = self.roster
        if found is not None:
            self.roster = Roster.of(found)
        marks = {name: self._mark(name, now) for name in self.roster.scheduled}
        wanted = {name: each for name, each in self.roster.scheduled.items() if marks[name].paused is None}
        for name in [name for name in self.active if name not in wanted]:
            self._leave(name, marks.get(name))
        for file, message in self.roster.broken.items():
            if before.broken.get(file) != message:
                self._say(Broken(file=file, message=message))
        for file in before.broken:
            if file not in self.roster.broken:
                self._say(Mended(file=file))
        for name, definition in wanted.items():
            if name not in self.active:
                self._take(name, definition, marks[name], now)
            elif self.active[name].hash != definition.hash:
                self._change(name, definition, now)

    def _mark(self, name: str, now: datetime) -> Mark:
        try:
            return self.marks.seen(name, now)
        except OSError as error:
            if name not in self.active:
                log.warning("What %s missed cannot be looked up: %s", name, error.strerror)
            return Mark(served=now)

    def _leave(self, name: str, mark: Mark | None) -> None:
        definition = self.active.pop(name)
        self.agenda.remove(name)
        self._alarm.remove(name)
        if mark is not None:
            why = f"it is paused: {mark.paused}"
        elif name in self.roster.by_hand:
            why = "it has no schedule any more"
        else:
            why = "its definition is broken" if _file(definition) in self.roster.broken else "its definition is gone"
        self._say(Unscheduled(name=name, why=why))

    def _take(self, name: str, definition: Definition, mark: Mark, now: datetime) -> None:
        """A pipeline that was not scheduled until now; what it missed since its last run is caught up."""
        schedule = definition.pipeline.schedule
        assert schedule is not None
        self.active[name] = definition
        self.agenda.put(name, schedule)
        self._say(Scheduled(name=name, file=_file(definition)))
        timetable = timetable_of(schedule)
        missed: Sequence[datetime] = ()
        if timetable is None:
            other = self.marks.of(schedule.after or "")
            if other is not None and other.succeeded is not None and other.succeeded > mark.served:
                missed = [other.succeeded]
        else:
            self._alarm.put(name, timetable, now)
            if schedule.catch_up == "all":
                missed = timetable.between(mark.served, now, MOST_MISSED)
            else:
                last = timetable.last(mark.served, now)
                missed = [] if last is None else [last]
        if mark.open is not None and not self.agenda.items[name].running:
            self._cut_off[name] = mark.open
            missed = [mark.open, *missed]
        self._add(name, (), missed)

    def _change(self, name: str, definition: Definition, now: datetime) -> None:
        """Another definition of the same pipeline: its times count from now."""
        before, schedule = self.active[name].pipeline.schedule, definition.pipeline.schedule
        assert schedule is not None
        self.active[name] = definition
        self.agenda.put(name, schedule)
        if schedule != before:
            timetable = timetable_of(schedule)
            if timetable is None:
                self._alarm.remove(name)
            else:
                self._alarm.put(name, timetable, now)
        self._say(Scheduled(name=name, file=_file(definition)))

    def _due(self, name: str, moments: Sequence[datetime]) -> None:
        missed = [moment for moment in moments if moment <= self._awake]
        self._add(name, moments[len(missed) :], missed)

    def _add(self, name: str, moments: Sequence[datetime], missed: Sequence[datetime]) -> None:
        left = self.agenda.due(name, moments, missed=missed)
        pause = [moment for moment in left if moment in missed]
        overlap = [moment for moment in left if moment not in missed]
        if pause:
            self._say(LeftOut(name=name, due=pause, why="it was due while nothing was scheduled here"))
        if overlap:
            self._say(LeftOut(name=name, due=overlap, why="the run before it has not ended"))

    def _begin(self, name: str, due: datetime) -> None:
        if not self._claim(name, due):
            self.agenda.dropped(name)
            self._say(LeftOut(name=name, due=[due], why="another scheduler has begun it"))
            return
        self.agenda.begun(name)
        self._began[name] = self.clock.elapsed()
        self._say(Began(name=name, due=due))
        definition = self._as_it_is_now(name)
        if isinstance(definition, str):
            self._end(Carried(name=name, status="failed", message=definition))
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
            log.warning("That %s is run cannot be noted: %s", name, error.strerror)
            mine = True
        if mine:
            self._claimed[name] = due
        return mine

    def _end(self, carried: Carried) -> None:
        name, now = carried.name, self.clock.now()
        due = self.agenda.items[name].running
        assert due is not None
        message = carried.message
        again = False
        if carried.status == "owned" and self._cut_off.get(name) != due:
            again = self.agenda.put_off(name, now + TRY_AGAIN)
            message = f"{message} It is {'tried again soon' if again else 'left out'}."
        else:
            self.agenda.ended(name)
        seconds = self.clock.elapsed() - self._began.pop(name)
        self._say(
            Ended(name=name, due=due, status=carried.status, message=message, seconds=seconds, report=carried.report)
        )
        if not again and not carried.spark_is_gone:
            self._note(carried, due, now)
        if carried.status == "succeeded":
            for follower in self.agenda.followers(name):
                self._add(follower, [now], ())
        if carried.spark_is_gone and not self.error:
            self.error = carried.message
            self.stop("Spark is gone")

    def _note(self, carried: Carried, due: datetime, now: datetime) -> None:
        """The run has ended; one that had to because all had to is taken up again by the next scheduler."""
        cut_off = due if carried.status == "stopped" and self._stopping else None
        try:
            self.marks.ended(carried.name, succeeded=now if carried.status == "succeeded" else None, cut_off=cut_off)
        except OSError as error:
            log.warning("That %s has ended cannot be noted: %s", carried.name, error.strerror)

    def _say(self, event: ScheduleEvent) -> None:
        for listener in self.listeners:
            listener(event)


def _file(definition: Definition) -> str:
    return definition.path.name if definition.path else definition.pipeline.name


def _seconds(length: timedelta) -> float:
    return length.total_seconds()
