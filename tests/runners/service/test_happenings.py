"""What happens in runs and in the schedule, for all watchers."""

from __future__ import annotations

import threading
from datetime import datetime, timezone

import pytest

from runners.model.events import RunStarted
from runners.model.schedule_events import Began, Draining
from runners.service.happenings import MOST_OF_ONE, MOST_WATCHERS, Happenings
from runners.service.operation import Caller, Right, TooMuch
from tests.manual_clock import ManualClock

ALL = Caller(name="anna", right=Right.READ)
SOME = Caller(name="sam", right=Right.READ, pipelines=frozenset({"items"}))
NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


@pytest.fixture
def happenings() -> Happenings:
    """What happens in a server that just began."""
    return Happenings(ManualClock())


def test_a_watcher_hears_what_happens_from_now_on(happenings: Happenings) -> None:
    """The first thing that comes says that the watch has begun."""
    happenings(Began(name="orders", due=NOON))
    watch = happenings.watch(ALL)
    happenings(Began(name="items", due=NOON))
    happenings.of("orders", {})(RunStarted(pipeline="orders", run="r1", waiting={}))
    found = [next(watch) for _ in range(3)]
    assert [each.event for each in found] == ["watching", "began", "run_started"]
    assert [each.pipeline for each in found] == ["", "items", "orders"]


def test_a_watcher_hears_nothing_of_other_pipelines(happenings: Happenings) -> None:
    """What is about all pipelines is for callers of all. A watch may be of one pipeline."""
    some, one = happenings.watch(SOME), happenings.watch(ALL, "orders")
    for event in (Began(name="orders", due=NOON), Draining(reason="asked to end"), Began(name="items", due=NOON)):
        happenings(event)
    happenings.end()
    assert [each.pipeline for each in some] == ["", "items"]
    assert [each.pipeline for each in one] == ["", "orders"]


def test_secrets_are_hidden(happenings: Happenings) -> None:
    """A fact that has one shows its reference."""
    watch = happenings.watch(ALL)
    event = RunStarted(pipeline="orders", run="r1", waiting={"files": "at hunter2-of-the-lake"})  # type: ignore[dict-item]
    happenings.of("orders", {"hunter2-of-the-lake": "${secret:LAKE}"})(event)
    next(watch)
    assert "hunter2" not in str(next(watch))


def test_a_slow_reader_learns_that_it_missed_something(happenings: Happenings) -> None:
    """No run waits for it. What comes later comes."""
    watch = happenings.watch(ALL)
    for _ in range(2_500):
        happenings(Began(name="orders", due=NOON))
    happenings.end()
    events = [each.event for each in watch]
    assert events[0] == "missed"
    assert len(events) < 1_001


def test_watches_are_few(happenings: Happenings) -> None:
    """One caller cannot take all of them. A watch that ends makes room."""
    own = [happenings.watch(ALL) for _ in range(MOST_OF_ONE)]
    with pytest.raises(TooMuch, match="of anna"):
        happenings.watch(ALL)
    for number in range(MOST_WATCHERS - MOST_OF_ONE):
        happenings.watch(Caller(name=f"caller {number}", right=Right.READ))
    with pytest.raises(TooMuch):
        happenings.watch(SOME)
    own[0].close()
    happenings.watch(SOME)


def test_a_watch_ends_while_its_reader_waits(happenings: Happenings) -> None:
    """The reader gets the end at once. Ending it again does nothing."""
    watch = happenings.watch(ALL)
    next(watch)
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append((next(watch, None) is None and "ended") or "something"))
    reader.start()
    watch.close()
    watch.close()
    reader.join(5)
    assert found == ["ended"]
    assert next(watch, None) is None
