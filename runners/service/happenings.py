"""What happens in the runs and in the schedule of a server, for all its watchers."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from runners.listeners import log_lines
from runners.model.clock import Clock
from runners.model.events import Event, Listener
from runners.model.masking import without
from runners.model.schedule_events import ScheduleEvent
from runners.schedules import schedule_log
from runners.service.messages import Happening
from runners.service.operation import Caller, TooMuch

MOST_WATCHERS, MOST_OF_ONE = 200, 50
"""How many watches there are at a time, and how many of them one caller may have."""
_MOST_WAITING = 1_000
"""How many happenings wait for a slow reader. It misses more."""
STILL_HERE = 10.0
"""After how many quiet seconds a watcher hears that the server is still here."""


class Happenings:
    """Passes on what happens. A run never waits for a watcher."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._watches: set[Watch] = set()

    def of(self, pipeline: str, secrets: Mapping[str, str]) -> Listener:
        """Return a listener for the runs of a pipeline."""

        def listener(event: Event) -> None:
            facts = without(secrets, dict(log_lines.make_facts(event)))
            self._pass_on(str(facts["event"]), pipeline, facts)

        return listener

    def __call__(self, event: ScheduleEvent) -> None:
        """Pass on what happens in the schedule."""
        facts = msgspec.to_builtins(schedule_log.make_facts(event))
        self._pass_on(str(facts["event"]), getattr(event, "name", ""), facts)

    def watch(self, caller: Caller, pipeline: str = "") -> Watch:
        """Return what happens from now on, as far as the caller may see it. Raise `TooMuch` if too many watch."""
        watch = Watch(self, caller.name, lambda name: caller.may_see(name) and pipeline in ("", name))
        with self._lock:
            own = sum(each.by == caller.name for each in self._watches)
            if len(self._watches) >= MOST_WATCHERS or own >= MOST_OF_ONE:
                raise TooMuch(
                    f"This server has {len(self._watches)} watches, {own} of them of {caller.name}.",
                    hint="End a watch, or try again later.",
                )
            self._watches.add(watch)
        watch.put(self.make("watching", "", None))
        return watch

    def leave(self, watch: Watch) -> None:
        """Pass nothing more on to this watch."""
        with self._lock:
            self._watches.discard(watch)

    def end(self) -> None:
        """Let all watches end."""
        with self._lock:
            watches = list(self._watches)
        for watch in watches:
            watch.close()

    def _pass_on(self, event: str, pipeline: str, facts: Any) -> None:
        happening = self.make(event, pipeline, facts)
        with self._lock:
            watches = [each for each in self._watches if each.wants(pipeline)]
        for watch in watches:
            watch.put(happening)

    def make(self, event: str, pipeline: str, facts: Any) -> Happening:
        """Return a happening of now."""
        at = self._clock.now().isoformat(timespec="milliseconds")
        return Happening(event=event, at=at, pipeline=pipeline, facts=facts)


class Watch(Iterator[Happening]):
    """What happens, for one watcher. `next` waits for it; after ten quiet seconds it says that the server is there."""

    def __init__(self, happenings: Happenings, by: str, wants: Callable[[str], bool]) -> None:
        self.by = by
        """The name of the caller."""
        self.wants = wants
        self._happenings = happenings
        self._waiting: queue.Queue[Happening | None] = queue.Queue(_MOST_WAITING)
        self._closed = False

    def put(self, happening: Happening | None) -> None:
        """Let this come next. A slow reader gets a notice in the place of everything that waits."""
        try:
            self._waiting.put_nowait(happening)
        except queue.Full:
            with contextlib.suppress(queue.Empty):
                while True:
                    self._waiting.get_nowait()
            with contextlib.suppress(queue.Full):
                self._waiting.put_nowait(happening and self._happenings.make("missed", "", None))

    def __next__(self) -> Happening:
        try:
            happening = self._waiting.get(block=not self._closed, timeout=STILL_HERE)
        except queue.Empty:
            happening = None if self._closed else self._happenings.make("still_here", "", None)
        if happening is None:
            raise StopIteration
        return happening

    def close(self) -> None:
        """End it after what has happened so far. Any thread may call this."""
        self._happenings.leave(self)
        if not self._closed:
            self._closed = True
            self.put(None)
