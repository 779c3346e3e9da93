"""Several simulated servers that share one schedule, while dice kill, freeze and restart them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from runners.definitions.definition import Definition, DefinitionsFolder, load
from runners.model.clock import Clock
from runners.model.schedule_events import Began, ScheduleEvent
from runners.schedules.run_marks import ClaimResult, RunGroups, RunMark, RunMarks
from runners.schedules.scheduler import RunOutcome, RunThreads, Scheduler
from tests.manual_clock import ManualClock
from tests.runners.engine.toys import TOYS
from tests.runners.pretend import BODY, parse_utc

POINTS = ("before a mark", "in a mark", "after a mark", "before a start", "after a start")
"""Where a kill can strike within a turn. Other kills strike between two turns."""


class Killed(BaseException):
    """The process is killed at this point."""


@dataclass
class Attempt:
    """A run that a server began."""

    name: str
    due: datetime
    server: Server
    began: datetime
    until: datetime
    """When its work is done. A frozen server moves it."""
    ended: datetime | None = None
    """When its end was recorded. None while it works, and for ever if its server was killed."""
    started: bool = True
    """False if the server was killed between the claim and the start."""


@dataclass(kw_only=True)
class ServerClock(Clock):
    """The clock of one server. It differs from the true time."""

    true: ManualClock
    ahead: float

    def now(self) -> datetime:
        return self.true.now() + timedelta(seconds=self.ahead)

    def elapsed(self) -> float:
        return self.true.elapsed()


class MortalMarks(RunMarks):
    """Marks whose process may be killed while it writes one."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.here.folder / ".wherry" / "schedule")
        self._server, self._strike = server, server.strike

    def claim(self, name: str, due: datetime, *, drop_cut_off: bool = False) -> ClaimResult:
        try:
            return super().claim(name, due, drop_cut_off=drop_cut_off)
        except Killed:
            self._note_claimed(name, due, now_open=due)
            raise

    def claim_again(self, name: str, due: datetime) -> ClaimResult:
        try:
            return super().claim_again(name, due)
        except Killed:
            self._note_claimed(name, due, now_open=None)
            raise

    def _note_claimed(self, name: str, due: datetime, now_open: datetime | None) -> None:
        """Count the run as begun if the mark says so, although the process was killed before it could start it."""
        mark, now = self.get(name), self._server.here.clock.now()
        if mark is not None and mark.served >= due and mark.open == now_open:
            self._server.here.attempts.append(Attempt(name, due, self._server, now, now, started=False))

    def put(self, name: str, mark: RunMark) -> None:
        self._strike("before a mark")
        try:
            self._strike("in a mark")
        except Killed:
            (self.folder / f".{name}.1").write_text('{"served": "2026-')
            raise
        super().put(name, mark)
        self._strike("after a mark")


class MortalRuns(RunThreads):
    """Simulated runs of one server, which end with it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.under_way: dict[str, Attempt] = {}
        self.refused: list[str] = []
        """The pipelines that did not begin here, because another server has them."""

    def start(self, name: str, definition: Definition) -> None:
        here, now = self._server.here, self._server.here.clock.now()
        seconds = here.draw_seconds(name)
        attempt = Attempt(name, self._server.due[name], self._server, now, now + timedelta(seconds=seconds))
        try:
            self._server.strike("before a start")
        except Killed:
            attempt.started = False
            here.attempts.append(attempt)
            raise
        if here.find_owner(name) is not None:
            self.refused.append(name)
            return
        here.attempts.append(attempt)
        self.under_way[name] = attempt
        here.together.append({each for server in here.live for each in server.runs.under_way})
        self._server.strike("after a start")

    def finished(self) -> Sequence[RunOutcome]:
        """Return the outcomes of the runs that have ended."""
        over = [name for name, each in self.under_way.items() if each.until <= self._server.here.clock.now()]
        self._server.ending.update({name: self.under_way.pop(name) for name in over})
        owned = [RunOutcome(name=name, status="owned", message="") for name in self.refused]
        self.refused.clear()
        return [*owned, *(RunOutcome(name=name, status="succeeded", message="done") for name in over)]


class Server:
    """A process with a scheduler."""

    def __init__(self, here: Servers, ahead: float, look: float) -> None:
        self.here = here
        self.opened = here.clock.now()
        self.frozen: list[tuple[datetime, datetime]] = []
        """From when until when it was frozen."""
        self.doom = ""
        self.due: dict[str, datetime] = {}
        self.ending: dict[str, Attempt] = {}
        self.runs = MortalRuns(self)
        self.clock = ServerClock(true=here.clock, ahead=ahead)
        self.marks = MortalMarks(self)
        self.scheduler = Scheduler(
            folder=DefinitionsFolder(path=here.folder, load=here.load),
            marks=self.marks,
            run_workers=self.runs,
            at_once=here.at_once,
            groups=RunGroups(self.marks.folder / "groups", {"shop": 2}),
            clock=self.clock,
            listeners=[self._listen],
            look=look,
        )
        here.now_of = self.clock
        self.scheduler.open()
        self.wake = here.clock.now()

    def strike(self, point: str) -> None:
        """Kill the process if it is doomed at this point."""
        if point == self.doom:
            raise Killed

    def take_turn(self, late: float) -> None:
        """Take a turn of the scheduler, and note when the next one is due."""
        here = self.here
        here.now_of = self.clock
        patience = self.scheduler.take_turn(self.runs.finished())
        for attempt in self.ending.values():
            attempt.ended = here.clock.now()
        self.ending.clear()
        assert patience is not None
        ends = [each.until for each in self.runs.under_way.values()] + [here.clock.now() for _ in self.runs.refused]
        self.wake = min([here.clock.now() + timedelta(seconds=patience), *ends]) + timedelta(seconds=late)

    def freeze(self, seconds: float) -> None:
        """Stop the process and its runs for so many seconds."""
        now, pause = self.here.clock.now(), timedelta(seconds=seconds)
        self.frozen.append((now, now + pause))
        self.wake = max(self.wake, now + pause)
        for attempt in self.runs.under_way.values():
            attempt.until += pause

    def was_away(self, moment: datetime) -> bool:
        """Whether the process did not work at this moment."""
        second = timedelta(seconds=2)
        away = [(self.opened - timedelta(days=2), self.opened), *self.frozen]
        return any(start - second <= moment <= end + second for start, end in away)

    def _listen(self, event: ScheduleEvent) -> None:
        self.here.heard.append((self.here.clock.now(), self, event))
        if isinstance(event, Began):
            self.due[event.name] = event.due


class Servers:
    """A folder of definitions and the servers that share it. One thread steps them in an order that dice choose."""

    def __init__(self, folder: Path, start: str, dice: random.Random, *, count: int = 3, at_once: int = 4) -> None:
        self.folder, self.dice, self.count, self.at_once = folder, dice, count, at_once
        self.start = parse_utc(start)
        self.clock = ManualClock(time=self.start)
        self.now_of: Clock = self.clock
        """The clock of the server that works now."""
        self.attempts: list[Attempt] = []
        self.together: list[set[str]] = []
        """The pipelines that had a run, at each moment at which one began."""
        self.heard: list[tuple[datetime, Server, ScheduleEvent]] = []
        self.live: list[Server] = []
        self.kills = 0
        self.long: dict[str, tuple[float, float]] = {}
        """The shortest and the longest run of a pipeline in seconds. Other runs take a few seconds."""
        self._returns: list[datetime] = []
        self._read: dict[str, Definition] = {}

    def now(self) -> datetime:
        """Return the time as the server that works now sees it."""
        return self.now_of.now()

    def define(self, name: str, schedule: str, *, more: str = "", takes: tuple[float, float] = (1, 8)) -> None:
        """Write a definition."""
        (self.folder / f"{name}.yaml").write_text(f"name: {name}\n{BODY}schedule: {schedule}\n{more}")
        self.long[name] = takes

    def draw_seconds(self, name: str) -> float:
        """Return how long a run takes. One in eight takes the longest time."""
        shortest, longest = self.long[name]
        return longest if self.dice.random() < 1 / 8 else self.dice.uniform(shortest, (2 * shortest + longest) / 3)

    def find_owner(self, name: str) -> Server | None:
        """Return the server that runs this pipeline."""
        return next((each for each in self.live if name in each.runs.under_way), None)

    def load(self, path: Path) -> Definition:
        key = path.read_text()
        if key not in self._read:
            self._read[key] = load(path, kinds=TOYS, environment={})
        return self._read[key]

    def open(self) -> Server:
        """Start a server. Its clock is off by up to half a second."""
        server = Server(self, self.dice.uniform(-0.5, 0.5), self.dice.choice([30.0, 55.0]))
        self.live.append(server)
        return server

    def kill(self, server: Server) -> None:
        """End a process as SIGKILL does. Another one starts in its place later."""
        self.live.remove(server)
        for attempt in server.ending.values():
            mark = server.marks.get(attempt.name)
            if mark is not None and mark.succeeded == server.clock.now():
                attempt.ended = self.clock.now()
        server.marks.close()
        for name in server.scheduler.due_queue.items:
            server.scheduler.due_queue.give_way(name)
        self.kills += 1
        self._returns.append(self.clock.now() + timedelta(seconds=self.dice.choice([1, 30, 300, 900, 1_500])))

    def step(self) -> None:
        """Let the server with the next turn take it."""
        moments = [*self._returns, *(each.wake for each in self.live)]
        self.clock.move(max(0.0, (min(moments) - self.clock.now()).total_seconds()))
        if self._returns and min(self._returns) <= self.clock.now():
            self._returns.remove(min(self._returns))
            self.open()
            return
        server = min(self.live, key=lambda each: each.wake)
        try:
            server.take_turn(self.dice.choice([0, 0, 0, 0.01, 0.2, 3]))
        except Killed:
            self.kill(server)

    def go(self, until: datetime, troubles: Iterable[tuple[datetime, Callable[[], None]]] = ()) -> None:
        """Let the servers work, and let each trouble happen at its moment."""
        coming = iter(troubles)
        moment, trouble = next(coming, (until, None))
        while self.clock.now() < until:
            self.step()
            while trouble is not None and moment <= self.clock.now():
                trouble()
                moment, trouble = next(coming, (until, None))

    def draw_troubles(self, hours: float, kills: int) -> Iterator[tuple[datetime, Callable[[], None]]]:
        """Yield so many kills, and as many freezes, at moments of the next hours."""
        seconds = sorted((self.dice.uniform(0, hours * 3_600), each % 2) for each in range(2 * kills))
        for after, freezes in seconds:
            yield self.start + timedelta(seconds=after), self._freeze_one if freezes else self._doom_one

    def _freeze_one(self) -> None:
        if self.live:
            self.dice.choice(self.live).freeze(self.dice.choice([5, 50, 200, 900]))

    def _doom_one(self) -> None:
        """Kill a server: now, or at one of the points, or where it is when it is doomed again."""
        if not self.live:
            self._returns.append(self.clock.now())
            self.step()
        busy = [each for each in self.live if each.runs.under_way] or self.live
        server = self.dice.choice([*self.live, *busy])
        point = self.dice.choice([*POINTS, "now", "now", "now"])
        if point == "now" or server.doom:
            self.kill(server)
        else:
            server.doom = point

    def finish_kills(self, kills: int) -> None:
        """Kill the servers that are still doomed, and more until there were so many kills."""
        for server in [each for each in self.live if each.doom]:
            self.kill(server)
        while self.kills < kills:
            self.go(self.clock.now() + timedelta(minutes=2))
            self.kill(self.live[0])
