"""Which pipeline is run next: what is due waits here for its turn. Pure: it is told the time, and starts nothing."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from origins.quantities import seconds
from runners.pipeline import ScheduleOptions


@dataclass
class Item:
    """One pipeline: what of it waits, and what runs."""

    name: str
    schedule: ScheduleOptions
    waiting: deque[datetime] = field(default_factory=deque)
    """The moments at which runs were due that have not begun."""
    running: datetime | None = None
    """When the run was due that is under way."""
    held: datetime | None = None
    """Until when nothing of it begins: somebody else has the pipeline."""
    gone: bool = False
    """Whether it is forgotten once its run has ended."""

    @property
    def busy(self) -> bool:
        """Whether a run is under way, or waits."""
        return self.running is not None or bool(self.waiting)

    @property
    def ready(self) -> datetime:
        """When the first that waits may begin."""
        due = self.waiting[0]
        return max(due + _later(self.name, due, seconds(self.schedule.jitter)), self.held or due)


class Agenda:
    """What is due and what runs, of many pipelines; a pipeline runs once at a time, and `at_once` of them do."""

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self.items: dict[str, Item] = {}

    @property
    def running(self) -> Sequence[Item]:
        """Those of which a run is under way."""
        return [item for item in self.items.values() if item.running is not None]

    def put(self, name: str, schedule: ScheduleOptions) -> None:
        """A pipeline, or a new schedule of one that is there; what waits and what runs stays."""
        item = self.items.setdefault(name, Item(name, schedule))
        item.schedule, item.gone = schedule, False

    def remove(self, name: str) -> None:
        """Nothing of the pipeline begins any more; what runs ends first."""
        item = self.items.get(name)
        if item is not None:
            item.waiting.clear()
            item.gone = True
            if item.running is None:
                del self.items[name]

    def due(self, name: str, moments: Sequence[datetime], *, missed: Sequence[datetime] = ()) -> Sequence[datetime]:
        """Runs are due; those that were `missed` in a pause are caught up first, as the schedule says.

        Gives the moments at which nothing will be run.
        """
        item = self.items[name]
        how = item.schedule.catch_up
        kept = list(missed) if how == "all" else list(missed[-1:]) if how == "once" else []
        left = [moment for moment in missed if moment not in kept]
        item.waiting.extend(kept)
        for moment in moments:
            if item.busy and item.schedule.on_overlap == "skip":
                left.append(moment)
            else:
                item.waiting.append(moment)
        return left

    def next(self, now: datetime) -> tuple[str, datetime] | None:
        """The run that begins now, and when it was due; None when there is none, or no room for it."""
        if len(self.running) >= self.at_once:
            return None
        able = [item for item in self._able() if item.ready <= now]
        first = min(able, key=lambda item: (item.ready, item.name), default=None)
        return None if first is None else (first.name, first.waiting[0])

    def wakes(self) -> datetime | None:
        """When something that waits may begin, if there is room for it then."""
        if len(self.running) >= self.at_once:
            return None
        return min((item.ready for item in self._able()), default=None)

    def begun(self, name: str) -> None:
        """The first that waits is under way."""
        item = self.items[name]
        item.running = item.waiting.popleft()

    def dropped(self, name: str) -> None:
        """The first that waits is not run."""
        self.items[name].waiting.popleft()

    def ended(self, name: str) -> None:
        """The run has ended."""
        item = self.items[name]
        item.running = None
        if item.gone:
            del self.items[name]

    def put_off(self, name: str, until: datetime) -> bool:
        """The run did not take place, for somebody else has the pipeline. Whether it waits for another try."""
        item = self.items[name]
        due, waits = item.running, item.schedule.on_overlap == "queue" and not item.gone
        self.ended(name)
        if waits and due is not None:
            item.waiting.appendleft(due)
            item.held = until
        return waits

    def followers(self, name: str) -> Sequence[str]:
        """Those that run after this one."""
        return [item.name for item in self.items.values() if item.schedule.after == name and not item.gone]

    def _able(self) -> Sequence[Item]:
        return [item for item in self.items.values() if item.waiting and item.running is None]


def _later(name: str, due: datetime, most: float) -> timedelta:
    """By how much later this run begins: the same for whoever asks."""
    dice = hashlib.sha256(f"{name} {due.timestamp()}".encode()).digest()
    return timedelta(seconds=most * int.from_bytes(dice[:6], "big") / (1 << 48))
