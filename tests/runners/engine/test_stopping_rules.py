"""Why a run ends before its work is done, and since when it stops."""

from __future__ import annotations

import pytest

from runners.model.events import RunStopping
from tests.manual_clock import ManualClock
from tests.runners.engine.test_dispatcher import Bench


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def bench(clock: ManualClock) -> Bench:
    """A run with two lanes."""
    bench = Bench(lanes=2, runners=2)
    bench.dispatcher.clock = clock
    return bench


def test_the_first_reason_and_the_first_moment_count(bench: Bench, clock: ManualClock) -> None:
    """A later request changes neither."""
    began = clock.elapsed()
    bench.dispatcher.request_stop("signal SIGTERM")
    clock.move(10)
    bench.dispatcher.request_stop("the night")
    run = bench.dispatcher
    assert (run.asked_to_stop, run.stop_asked, run.forced) == ("signal SIGTERM", began, False)


def test_a_second_request_can_force_the_stop(bench: Bench) -> None:
    """No later request takes the force back."""
    for reason, force in (("signal SIGTERM", False), ("signal SIGTERM", True), ("the night", False)):
        bench.dispatcher.request_stop(reason, force=force)
    assert bench.dispatcher.forced


def test_a_run_begins_to_stop_once(bench: Bench) -> None:
    """Its reason is the first reason."""
    bench.turn()
    bench.dispatcher.request_stop("the night")
    bench.turn()
    bench.error = OSError("first")
    bench.turn("0")
    assert bench.dispatcher.stopping == "the night"
    assert [event.reason for event in bench.events if isinstance(event, RunStopping)] == ["the night"]


def test_a_stop_after_an_error_has_no_time_of_a_request(bench: Bench, clock: ManualClock) -> None:
    """Its drain begins with the first request to stop."""
    bench.turn()
    bench.error = OSError("first")
    bench.turn("0")
    assert (bench.dispatcher.stopping, bench.dispatcher.stop_asked) == ("failed", None)
    clock.move(20)
    bench.dispatcher.request_stop("the night")
    assert bench.dispatcher.stop_asked == clock.elapsed()
