"""Runs the pipelines of a directory when they are due, each in a separate thread.

One thread owns the scheduler, and takes turns.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

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
    Waits,
)
from runners.model.timetable import make_timetable
from runners.schedules.due_queue import DueQueue, DueTimer
from runners.schedules.run_marks import ClaimResult, RunGroups, RunMark, RunMarks
from runners.schedules.schedule_plan import ScheduleCatalog, name_file

MOST_MISSED = 1_000
"""How many of the runs that were missed in one pause `catch_up: all` carries at most."""
PAUSE = timedelta(minutes=1)
"""If two turns are further apart, the scheduler was suspended. What was due meanwhile is then missed, and not late."""
TRY_AGAIN = timedelta(seconds=30)
"""When a run is tried again after another process kept it from beginning."""

log = logging.getLogger("wherry")


@dataclass(kw_only=True)
class Scheduler:
    """A directory of definitions, and their runs."""

    folder: DefinitionsFolder
    marks: RunMarks
    run_workers: RunThreads
    at_once: int
    """How many pipelines run at the same time."""
    groups: RunGroups = field(default_factory=RunGroups)
    """How many pipelines of a group run at the same time."""
    clock: Clock = field(default_factory=Clock)
    listeners: Sequence[ScheduleListener] = ()
    look: float = 2.0
    """How many seconds pass between two looks at the directory."""
    error: str = ""
    """Why the scheduler cannot continue. Empty while it can."""

    def __post_init__(self) -> None:
        self.due_queue = DueQueue(self.at_once, self.groups)
        self.schedule_catalog = ScheduleCatalog()
        self.active: dict[str, Definition] = {}
        """The definitions whose runs begin: they are scheduled and not paused."""
        self._rung: list[tuple[str, Sequence[datetime]]] = []
        self._alarm = DueTimer(lambda name, moments: self._rung.append((name, moments)))
        self._began: dict[str, float] = {}
        self._claimed: dict[str, datetime] = {}
        self._cut_off: dict[str, datetime] = {}
        """The runs that an earlier or a parallel scheduler began and did not end."""
        self._followed: dict[str, datetime] = {}
        """The last success of another pipeline after which each pipeline was due."""
        self._waits: dict[str, datetime] = {}
        """When the last run of each pipeline was due that waited for its group."""
        self._stopping = self._announced_stop = ""
        self._forced = False
        self._awake = self._turned = self.clock.now()
        self._looked = self.clock.elapsed()

    def run(self) -> None:
        """Work until the scheduler is stopped and all runs have ended.

        Raise `Refusal` if the directory does not exist.
        """
        self.open()
        finished: Sequence[RunOutcome] = ()
        while (patience := self.take_turn(finished)) is not None:
            finished = self.run_workers.wait(patience)
        self._alarm.shutdown()

    def open(self) -> None:
        """Read the definitions, and find out what was missed. Raise `Refusal` if the directory does not exist."""
        self._refresh(self.folder.open(), self.clock.now())
        named = {each.pipeline.run_options.group for each in self.schedule_catalog.definitions.values()}
        for group in self.groups.limits.keys() - named:
            there = ", ".join(sorted(filter(None, named))) or "none"
            log.warning("The limit of the group %s has no effect: no pipeline names it. Groups here: %s", group, there)

    def stop(self, reason: str, *, force: bool = False) -> None:
        """Begin no further run. Current runs finish their batches in flight, or with `force` leave them as they are.

        Any thread and a signal handler may call this.
        """
        self._forced = self._forced or force
        self._stopping = self._stopping or reason
        self.run_workers.wake()

    def take_turn(self, finished: Sequence[RunOutcome] = ()) -> float | None:
        """Do everything that is due now, after these runs ended.

        Return for how many seconds there is nothing to do, or None when everything has ended.
        """
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
        while (item := self.due_queue.find_next(now)) is not None and item.ready <= now:
            self._begin(item.name, item.waiting[0])
        # `item` is the first that is not ready
        for each in self.due_queue.passed:
            due, mark = each.waiting[0], self.marks.get(each.name)
            if self._waits.get(each.name) != due and mark is not None and mark.served < due:
                self._waits[each.name] = due
                self._emit(Waits(name=each.name, due=due, group=str(each.group)))
        wake = None if item is None else (item.ready - now).total_seconds()
        waits = [each for each in (self.look, alarm, wake) if each is not None]
        return max(0.0, min(waits))

    def _drain(self) -> float | None:
        if not self._announced_stop:
            self._announced_stop = self._stopping
            self._emit(Draining(reason=self._stopping))
        if not self.due_queue.running:
            self.marks.close()
            return None
        self.run_workers.stop(self._stopping, force=self._forced)
        return min(1.0, self.look)

    def _refresh(self, found: Found | None, now: datetime) -> None:
        """Take in changes of the definitions and of the paused pipelines."""
        before = self.schedule_catalog
        if found is not None:
            self.schedule_catalog = ScheduleCatalog.of(found)
        marks = {name: self._mark(name, now) for name in self.schedule_catalog.scheduled}
        wanted = {name: each for name, each in self.schedule_catalog.scheduled.items() if marks[name].paused is None}
        for name in [name for name in self.active if name not in wanted]:
            self._leave(name, marks.get(name))
        for file, message in self.schedule_catalog.broken.items():
            if before.broken.get(file) != message:
                self._emit(Broken(file=file, message=message))
        for file in before.broken:
            if file not in self.schedule_catalog.broken:
                self._emit(Mended(file=file))
        for name, definition in wanted.items():
            if name not in self.active:
                self._take(name, definition, marks[name], now)
            elif self.active[name].hash != definition.hash:
                self._change_definition(name, definition, now)
            self._take_over(name, marks)

    def _mark(self, name: str, now: datetime) -> RunMark:
        try:
            return self.marks.get_or_make(name, now)
        except OSError as error:
            if name not in self.active:
                log.warning("The missed runs of %s cannot be found: %s", name, error.strerror)
            return RunMark(served=now)

    def _leave(self, name: str, mark: RunMark | None) -> None:
        definition = self.active.pop(name)
        self.due_queue.remove(name)
        self._alarm.remove(name)
        if mark is not None:
            why = f"it is paused: {mark.paused}"
        elif name in self.schedule_catalog.by_hand:
            why = "it no longer has a schedule"
        else:
            is_broken = name_file(definition) in self.schedule_catalog.broken
            why = f"its definition is {'broken' if is_broken else 'missing'}"
        self._emit(Unscheduled(name=name, why=why))

    def _take(self, name: str, definition: Definition, mark: RunMark, now: datetime) -> None:
        """Schedule a pipeline that was not scheduled before. Runs that it missed since its last run are caught up."""
        schedule = definition.pipeline.schedule
        assert schedule is not None
        self.active[name] = definition
        self.due_queue.put(name, schedule, definition.pipeline.run_options.group)
        timetable = make_timetable(schedule)
        self._alarm.put(name, timetable, now)
        self._emit(Scheduled(name=name, file=name_file(definition), next=self._alarm.find_next(name)))
        missed: Sequence[datetime] = ()
        if timetable is None:
            other = self.marks.get(schedule.after or "")
            if other is not None and other.succeeded is not None and other.succeeded > mark.served:
                missed = [other.succeeded]
                self._followed[name] = other.succeeded
        else:
            missed = timetable.list_between(mark.served, now, MOST_MISSED if schedule.catch_up == "all" else 1)
        self._add(name, (), missed)

    def _take_over(self, name: str, marks: Mapping[str, RunMark]) -> None:
        """Add what a killed scheduler leaves behind: its run, and the run after its success."""
        mark, other = marks[name], marks.get(self.due_queue.items[name].schedule.after or "")
        if mark.open is not None:
            self._add_cut_off(name)
        succeeded = None if other is None else other.succeeded
        if succeeded is not None and succeeded > max(mark.served, self._followed.get(name, mark.served)):
            self._followed[name] = succeeded
            self._add(name, [succeeded], ())

    def _add_cut_off(self, name: str) -> None:
        """Add the run that was cut off, if there is one. With `once`, a run that waits makes up for it."""
        item = self.due_queue.items[name]
        how = item.schedule.catch_up
        due = None if item.running or how == "none" or (how == "once" and item.waiting) else self._find_cut_off(name)
        if due is not None and due not in item.waiting:
            self._cut_off[name] = due
            self.due_queue.put_first(name, due)

    def _find_cut_off(self, name: str) -> datetime | None:
        try:
            return self.marks.find_cut_off(name)
        except OSError as error:
            log.warning("Whether a run of %s was cut off cannot be found: %s", name, error.strerror)
            return None

    def _change_definition(self, name: str, definition: Definition, now: datetime) -> None:
        """Replace the definition of a pipeline. The times of a new schedule count from now."""
        before, schedule = self.active[name].pipeline.schedule, definition.pipeline.schedule
        assert schedule is not None
        self.active[name] = definition
        self.due_queue.put(name, schedule, definition.pipeline.run_options.group)
        if schedule != before:
            self._alarm.put(name, make_timetable(schedule), now)
        self._emit(Scheduled(name=name, file=name_file(definition), next=self._alarm.find_next(name)))

    def _add_due(self, name: str, moments: Sequence[datetime]) -> None:
        missed = [moment for moment in moments if moment <= self._awake]
        self._add(name, moments[len(missed) :], missed)

    def _add(self, name: str, moments: Sequence[datetime], missed: Sequence[datetime]) -> None:
        left = self.due_queue.add_due(name, moments, missed=missed)
        pause = [moment for moment in left if moment in missed]
        overlap = [moment for moment in left if moment not in missed]
        if pause:
            self._emit(LeftOut(name=name, due=pause, why="it was due while no scheduler ran"))
        if overlap:
            self._emit(LeftOut(name=name, due=overlap, why="the run before it has not ended"))

    def _begin(self, name: str, due: datetime) -> None:
        claim = self._claim(name, due)
        if claim is not ClaimResult.GRANTED:
            self._give_way(name, due, claim)
            return
        began, definition, item = self.clock.elapsed(), self._read_definition(name), self.due_queue.items[name]
        if not isinstance(definition, str) and definition.pipeline.run_options.group != item.entered:
            item.group = definition.pipeline.run_options.group  # it changed since the last look
            self.due_queue.give_way(name)
            return
        self.due_queue.note_begun(name)
        self._began[name] = began
        self._emit(Began(name=name, due=due))
        if isinstance(definition, str):
            self._end_run(RunOutcome(name=name, status="failed", message=definition))
        else:
            self.run_workers.start(name, definition)

    def _give_way(self, name: str, due: datetime, claim: ClaimResult) -> None:
        """Let the first waiting run of this pipeline wait, or leave it out, because of another scheduler."""
        self.due_queue.give_way(name)
        item, now, is_busy = self.due_queue.items[name], self.clock.now(), claim is ClaimResult.BUSY
        if claim is ClaimResult.CUT_OFF:
            self._add_cut_off(name)
            return
        if is_busy and self.due_queue.hold_first(name, now + timedelta(seconds=self.look)):
            return
        self.due_queue.note_dropped(name)
        why = "the run before it has not ended" if is_busy else "another scheduler began it"
        self._emit(LeftOut(name=name, due=[due], why=why))
        timetable = None if is_busy or item.waiting else make_timetable(item.schedule)
        if timetable is not None:  # with `skip`, a run that was due meanwhile was left out for this one
            self._add(name, timetable.list_between(max(due, self._awake), now, 1), ())

    def _read_definition(self, name: str) -> Definition | str:
        """Return the present definition for a run, or what is wrong with it. The files that it names are read once."""
        known = self.active[name]
        if known.path is None:
            return known
        definition = self.folder.read(known.path.name)
        return known if isinstance(definition, Definition) and definition.pipeline.name != name else definition

    def _claim(self, name: str, due: datetime) -> ClaimResult:
        """Claim a run.

        If the claim cannot be recorded, it counts as granted. The pipeline's lock then still prevents a second run.
        """
        if self._claimed.get(name) == due:
            return ClaimResult.GRANTED
        try:
            if self._cut_off.get(name) == due:
                claim = self.marks.claim_again(name, due)
            else:
                is_once = self.due_queue.items[name].schedule.catch_up != "all"
                claim = self.marks.claim(name, due, drop_cut_off=is_once)
        except OSError as error:
            log.warning("The run of %s cannot be noted: %s", name, error.strerror)
            claim = ClaimResult.GRANTED
        if claim is ClaimResult.GRANTED:
            self._claimed[name] = due
        return claim

    def _end_run(self, carried: RunOutcome) -> None:
        name, now = carried.name, self.clock.now()
        due = self.due_queue.items[name].running
        assert due is not None
        message = carried.message
        again = False
        if carried.status == "owned" and self._cut_off.get(name) != due:
            again = self.due_queue.put_off(name, now + TRY_AGAIN)
            message = f"{message} The run is {'tried again soon' if again else 'left out'}."
        else:
            self.due_queue.note_ended(name)
        if not again:
            self._claimed.pop(name, None)
        seconds = self.clock.elapsed() - self._began.pop(name)
        self._emit(
            Ended(name=name, due=due, status=carried.status, message=message, seconds=seconds, report=carried.report)
        )
        if not again and not carried.spark_is_gone:
            self._note_end(carried, due, now)
        if carried.status == "succeeded":
            for follower in self.due_queue.list_followers(name):
                self._followed[follower] = now
                self._add(follower, [now], ())
        if carried.spark_is_gone and not self.error:
            self.error = carried.message
            self.stop("Spark has ended")

    def _note_end(self, carried: RunOutcome, due: datetime, now: datetime) -> None:
        """Record that a run has ended. The next scheduler continues a run that ended because all runs had to end."""
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


@dataclass(frozen=True, kw_only=True)
class RunOutcome:
    """The outcome of a run."""

    name: str
    status: str
    """`succeeded`, `failed`, `stopped`, or `owned` if another process has the pipeline."""
    message: str
    report: Report | None = None
    spark_is_gone: bool = False
    """Whether Spark has ended, so that no other run can work here either."""


Stop = Callable[[str, bool], None]
"""Asks a run to stop. It gets the reason, and whether batches in flight are left as they are.

It may be called again.
"""
Carrier = Callable[[Definition, Callable[[Stop], None]], RunOutcome]
"""Carries a pipeline. It passes on how the run is stopped, as soon as the run can be stopped."""


class RunThreads:
    """Carries out runs of definitions as threads of this process."""

    def __init__(self, carry: Carrier) -> None:
        self._carry = carry
        self._ended: queue.SimpleQueue[RunOutcome | None] = queue.SimpleQueue()
        self._stops: dict[str, Stop] = {}

    def start(self, name: str, definition: Definition) -> None:
        """Begin a run. The scheduler never calls this while another run of the same name works."""
        thread = threading.Thread(target=self._work, args=(name, definition), name=f"wherry-run-{name}", daemon=True)
        thread.start()

    def wait(self, seconds: float) -> Sequence[RunOutcome]:
        """Wait for the first run to end, for `wake`, or for the time to pass. Return the runs that have ended."""
        try:
            ended = [self._ended.get(timeout=seconds)]
        except queue.Empty:
            return []
        while not self._ended.empty():
            ended.append(self._ended.get())
        return [each for each in ended if each is not None]

    def wake(self) -> None:
        """End the current wait, or the next wait. A signal handler may call this."""
        self._ended.put(None)

    def stop(self, reason: str, *, force: bool) -> None:
        """Ask all runs to stop. Batches in flight finish, or with `force` are left as they are."""
        for stop in list(self._stops.values()):
            stop(reason, force)

    def _work(self, name: str, definition: Definition) -> None:
        def keep_stop(stop: Stop) -> None:
            self._stops[name] = stop

        try:
            carried = self._carry(definition, keep_stop)
        except BaseException as error:  # noqa: BLE001 -- the edge of the thread: the other runs continue
            carried = RunOutcome(name=name, status="failed", message=f"{type(error).__name__}: {error}")
        self._stops.pop(name, None)
        self._ended.put(carried)
