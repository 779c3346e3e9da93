"""The queue of due runs with groups, against a tiny model, in many random orders."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

import pytest

from runners.model.spec import ScheduleOptions
from runners.schedules.due_queue import DueItem, DueQueue
from runners.schedules.run_marks import REQUESTS, SCHEDULE, RunGroups

NOON = datetime(2026, 6, 1, 12, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)
LIMITS = {"warehouse": 2, "shop": 1}
GROUPS = ("warehouse", "shop", "unlimited", None)
"""`unlimited` has no number, so one run at a time."""
EVERY = ScheduleOptions(every="5m", on_overlap="queue", catch_up="all")
AT_ONCE = 4


def get_limit(group: str | None) -> int:
    return AT_ONCE if group is None else LIMITS.get(group, 1)


@dataclass
class Model:
    """What a queue with groups promises, in lists."""

    waiting: list[tuple[datetime, str]] = field(default_factory=list)
    groups: dict[str, str | None] = field(default_factory=dict)
    running: dict[str, str | None] = field(default_factory=dict)
    """The group of each run as it was at its beginning."""

    def begin(self) -> list[str]:
        """Begin all that may begin, the oldest first. Return their names."""
        begun = []
        for due, name in sorted(self.waiting):
            used, group = Counter(self.running.values()), self.groups[name]
            if len(self.running) < AT_ONCE and name not in self.running and used[group] < get_limit(group):
                self.running[name] = group
                self.waiting.remove((due, name))
                begun.append(name)
        return begun


class Both:
    """A queue and its model, which get the same."""

    def __init__(self, dice: random.Random) -> None:
        self.dice, self.model, self.now = dice, Model(), NOON
        self.queue = DueQueue(AT_ONCE, RunGroups(limits=LIMITS))
        self.begun: list[tuple[str, str]] = []
        """What began in the queue and in the model."""

    def put(self, name: str) -> None:
        """Add a pipeline, or give it another group."""
        self.model.groups[name] = group = self.dice.choice(GROUPS)
        self.queue.put(name, EVERY, group)

    def add_due(self, name: str) -> None:
        self.model.waiting.append((self.now, name))
        self.queue.add_due(name, [self.now])

    def remove(self, name: str) -> None:
        """Let the pipeline be paused, and come back without its waiting runs."""
        self.model.waiting = [each for each in self.model.waiting if each[1] != name]
        self.queue.remove(name)
        self.put(name)

    def end_one(self) -> None:
        for name in self.dice.sample(sorted(self.model.running), min(1, len(self.model.running))):
            del self.model.running[name]
            self.queue.note_ended(name)

    def begin(self) -> None:
        names = [*self._begin_queue()]
        self.begun += zip(names, self.model.begin(), strict=True)

    def _begin_queue(self) -> Iterator[str]:
        while (item := self.queue.find_next(self.now)) is not None and item.ready <= self.now:
            self.queue.note_begun(item.name)
            yield item.name

    def step(self) -> None:
        """Do something, and begin what may begin then."""
        self.now += SECOND
        name = self.dice.choice("abcdefgh")
        deeds = [self.add_due] * 5 + [self.remove, self.put]
        self.dice.choice([lambda: self.dice.choice(deeds)(name), self.end_one])()
        self.begin()


def is_held_back(item: DueItem, queue: DueQueue) -> bool:
    """Whether a run waits that has room in its group."""
    used = sum(each.entered == item.group for each in queue.running)
    return bool(item.waiting) and item.running is None and used < get_limit(item.group)


@pytest.mark.parametrize("seed", range(100))
def test_the_oldest_run_whose_group_has_room_is_next_in_any_order_of_events(seed: int) -> None:
    """No group has too many runs, and a full group holds up no other pipeline. Each run begins in the end."""
    both = Both(random.Random(seed))
    for name in "abcdefgh":
        both.put(name)
    for _ in range(300):
        both.step()
        used = Counter(item.entered for item in both.queue.running)
        assert all(count <= get_limit(group) for group, count in used.items())
        assert len(both.queue.running) == AT_ONCE or not any(
            is_held_back(item, both.queue) for item in both.queue.items.values()
        )
    while both.model.running:
        both.end_one()
        both.begin()
    assert [ours for ours, _ in both.begun] == [theirs for _, theirs in both.begun]
    assert not any(item.waiting for item in both.queue.items.values())


@pytest.mark.parametrize("seed", range(100))
def test_requests_and_the_schedule_take_turns_in_the_order_of_waiting(seed: int) -> None:
    """In a group, no run overtakes a run that was refused and waits longer."""
    dice, groups = random.Random(seed), RunGroups(limits=LIMITS)
    since = {who: sorted(NOON + dice.randrange(900) * SECOND for _ in range(20)) for who in (SCHEDULE, REQUESTS)}
    order: list[datetime] = []
    assert [groups.choose(REQUESTS, [("shop", NOON - SECOND)]), *ask_both(groups, since)] == [0, None, None]
    groups.leave("shop")
    while since[SCHEDULE] or since[REQUESTS]:
        begun = [
            since[who].pop(at)
            for who in dice.sample([SCHEDULE, REQUESTS], 2)
            if (at := groups.choose(who, [("shop", each) for each in since[who]])) is not None
        ]
        order += begun
        ask_both(groups, since)
        groups.leave("shop")
    assert order == sorted(order)
    assert len(order) == 40


def ask_both(groups: RunGroups, since: dict[str, list[datetime]]) -> Sequence[int | None]:
    """Let both ask, while the group is full."""
    return [groups.choose(who, [("shop", each) for each in waiting]) for who, waiting in since.items()]


def test_a_run_that_waits_no_longer_holds_up_no_other() -> None:
    """The pipeline was paused, or all its server's workers are busy."""
    groups = RunGroups()
    assert groups.choose(SCHEDULE, [("shop", NOON)]) == 0
    assert groups.choose(SCHEDULE, [("shop", NOON)]) is None
    groups.leave("shop")
    assert groups.choose(REQUESTS, [("shop", NOON + SECOND)]) is None
    assert groups.choose(SCHEDULE, []) is None
    assert groups.choose(REQUESTS, [("shop", NOON + SECOND)]) == 0
