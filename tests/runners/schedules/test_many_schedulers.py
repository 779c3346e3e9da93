"""Three servers share a schedule under kills. Each due run begins once, or is left out as its schedule allows."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from tests.runners.pretend import make_moved
from tests.runners.schedules.many import Attempt, Servers

STARTS = ("2026-03-28T12:00", "2026-03-07T18:00", "2026-10-24T12:00", "2026-10-31T18:00")
"""Half a day before the clocks change in Vienna, in New York, in Vienna and in New York."""
KILLS, HOURS = 30, 24
MINUTE, SKEW = timedelta(minutes=1), timedelta(seconds=5)
"""`SKEW` is by how much two servers may differ about a moment: by their clocks, and by turns that come late."""
QUIET = timedelta(hours=1)
"""The last part of a simulation, in which runs may still wait."""
VIENNA, NEW_YORK = ZoneInfo("Europe/Vienna"), ZoneInfo("America/New_York")


def is_each(minutes: int) -> Callable[[datetime], bool]:
    return lambda moment: moment.timestamp() // 60 % minutes == 0


def is_half_past(zone: ZoneInfo) -> Callable[[datetime], bool]:
    return lambda moment: moment.astimezone(zone).minute == 30


def is_night(zone: ZoneInfo) -> Callable[[datetime], bool]:
    """Whether clocks show 02:30 for the first time, or jump over it."""

    def fits(moment: datetime) -> bool:
        here, before = moment.astimezone(zone), (moment - MINUTE).astimezone(zone)
        jumped = (before.hour, before.minute, here.hour, here.minute) == (1, 59, 3, 0)
        return jumped or ((here.hour, here.minute) == (2, 30) and here.fold == 0)

    return fits


DUE: Mapping[str, Callable[[datetime], bool]] = {
    "five": is_each(5),
    "quarter": is_each(15),
    "quarter_skips": is_each(15),
    "spread": is_each(10),
    "vienna": is_half_past(VIENNA),
    "vienna_night": is_night(VIENNA),
    "york": is_half_past(NEW_YORK),
    "york_night": is_night(NEW_YORK),
}
"""Whether a pipeline is due in a minute."""
FOLLOWS = {"behind": "quarter", "last": "behind"}
SKIPS = {"five", "quarter_skips", "behind", "last"}
"""The pipelines whose runs are left out during another."""
ONCE = {"five", *FOLLOWS}
"""The pipelines of which one run makes up for all that a server missed."""


QUEUED = {"quarter", "spread", "vienna", "vienna_night", "york", "york_night"}
"""The pipelines of which no run is left out."""


def define_all(here: Servers, more: str = "") -> None:
    """Write the definitions. The pipelines of `QUEUED` get `more`."""
    here.define("five", "{every: 5m}", takes=(2, 400))
    here.define("quarter", "{every: 15m, catch_up: all, on_overlap: queue}", takes=(5, 1_200), more=more)
    here.define("quarter_skips", "{every: 15m, catch_up: all}", takes=(5, 1_000))
    here.define("spread", "{every: 10m, catch_up: all, on_overlap: queue, jitter: 2m}", takes=(2, 300), more=more)
    for name, zone in (("vienna", "Europe/Vienna"), ("york", "America/New_York")):
        given = f"time_zone: {zone}, catch_up: all, on_overlap: queue"
        here.define(name, f'{{cron: "30 * * * *", {given}}}', takes=(60, 1_800), more=more)
        here.define(f"{name}_night", f'{{cron: "30 2 * * *", {given}}}', takes=(600, 3_000), more=more)
    here.define("behind", "{after: quarter}")
    here.define("last", "{after: behind}")


def simulate(folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch, more: str = "") -> Servers:
    here = Servers(folder, STARTS[seed % len(STARTS)], random.Random(seed))
    monkeypatch.setattr("apscheduler.schedulers.base.datetime", make_moved(here))  # type: ignore[arg-type]
    define_all(here, more)
    for _ in range(here.count):
        here.open()
    here.go(here.start + timedelta(hours=HOURS), here.draw_troubles(HOURS, KILLS))
    here.finish_kills(KILLS)
    here.go(here.clock.now() + timedelta(hours=2))
    return here


def find_faults(here: Servers) -> Sequence[str]:
    """Return the runs that began too often, not at all, or without being due."""
    tries: defaultdict[str, defaultdict[datetime, list[Attempt]]] = defaultdict(lambda: defaultdict(list))
    for attempt in here.attempts:
        tries[attempt.name][attempt.due].append(attempt)
    faults = [
        f"{name} of {due}: {fault}"
        for name, runs in tries.items()
        for due, attempts in runs.items()
        for fault in find_faults_of_run(here, name, attempts)
    ]
    for name, fits in DUE.items():
        due = list_due(here, fits)
        faults += [f"{name} of {each}: was not due" for each in tries[name] if each not in due]
        faults += [f"{name} of {each}: is lost" for each in due if is_lost(here, name, each, tries[name])]
    for name, upstream in FOLLOWS.items():
        ends = sorted(each.ended for each in here.attempts if each.name == upstream and each.ended is not None)
        begun = [*tries[name]]
        faults += [f"{name} of {due}: was not due" for due in begun if not any(abs(due - end) < SKEW for end in ends)]
        left = [end for end in ends if not any(abs(due - end) < SKEW for due in begun)]
        faults += [f"{name} after {end}: is lost" for end in left if is_lost(here, name, end, tries[name])]
    return faults


def find_faults_of_run(here: Servers, name: str, attempts: Sequence[Attempt]) -> Iterator[str]:
    """Yield what is wrong with the attempts of one run. It may begin twice, if the first attempt was cut off."""
    *before, last = attempts
    if len(attempts) > 2 or any(each.ended or each.server in here.live for each in before):
        yield f"began {len(attempts)} times"
    followed = any(each.name == name and each.due > last.due for each in here.attempts)
    if not before and last.ended is None and last.server not in here.live and not (name in ONCE and followed):
        yield "was cut off and did not begin again"


def list_due(here: Servers, fits: Callable[[datetime], bool]) -> set[datetime]:
    """Return the moments at which a pipeline is due."""
    minutes = (here.clock.now() - here.start) // MINUTE
    return {moment for number in range(minutes + 2) if fits(moment := here.start + number * MINUTE)}


def is_lost(here: Servers, name: str, due: datetime, runs: Mapping[datetime, Sequence[Attempt]]) -> bool:
    """Whether a run should have begun and did not.

    It may be left out if another was under way, or if one makes up for it after a server was away.
    """
    if due in runs or not here.start < due < here.clock.now() - QUIET:
        return False
    spans = ((each[0].began - SKEW, (each[-1].ended or due) + SKEW) for each in runs.values())
    if name in SKIPS and any(began <= due <= ended for began, ended in spans):
        return False
    later = min((each for each in runs if each > due), default=None)
    return name not in ONCE or later is None or not runs[later][0].server.was_away(due)


@pytest.mark.parametrize("seed", [0, 3])
def test_three_servers_begin_each_run_once_under_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """In a day around a change of clocks, 30 kills strike at any point and servers freeze for minutes."""
    here = simulate(tmp_path, seed, monkeypatch)
    assert find_faults(here) == [], f"seed {seed}"
    assert here.kills >= KILLS
    assert len(here.attempts) > 500


def test_three_servers_share_the_limit_of_a_group_under_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No run of the group is lost, and other pipelines do not wait for it. Two of it work at a time at most."""
    here = simulate(tmp_path, 0, monkeypatch, "run: {group: shop}\n")
    assert find_faults(here) == []
    assert max(len(each & QUEUED) for each in here.together) == 2
    assert max(len(each) for each in here.together) > 3


@pytest.mark.long
def test_three_servers_begin_each_run_once_with_other_dice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """These are 20 more days, around every change of clocks."""
    for seed in range(1_000, 1_020):
        folder = tmp_path / str(seed)
        folder.mkdir()
        assert find_faults(simulate(folder, seed, monkeypatch)) == [], f"seed {seed}"
