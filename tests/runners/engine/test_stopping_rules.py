"""Why a run ends before its work does, and since when."""

from __future__ import annotations

from runners.engine.dispatcher import StoppingRules


def test_the_first_reason_and_the_first_moment_count() -> None:
    """Whoever asks later changes neither."""
    stops = StoppingRules()
    stops.request("signal SIGTERM", 10, force=False)
    stops.request("the night", 20, force=False)
    assert (stops.asked, stops.asked_at, stops.forced) == ("signal SIGTERM", 10, False)


def test_who_asks_twice_may_force_it() -> None:
    """Nobody takes that back."""
    stops = StoppingRules()
    stops.request("signal SIGTERM", 10, force=False)
    stops.request("signal SIGTERM", 20, force=True)
    stops.request("the night", 30, force=False)
    assert stops.forced


def test_a_run_begins_to_stop_once() -> None:
    """With the reason that came first."""
    stops = StoppingRules()
    assert [stops.begin("the night", 10), stops.begin("failed", None)] == [True, False]
    assert (stops.reason, stops.asked_at) == ("the night", 10)


def test_a_stop_that_nobody_asked_for_was_never_asked_for() -> None:
    """Its drain begins when somebody does."""
    stops = StoppingRules()
    stops.begin("failed", None)
    assert stops.asked_at is None
    stops.request("the night", 20, force=False)
    assert stops.asked_at == 20


def test_an_error_is_kept_once() -> None:
    """In the order in which they came."""
    stops = StoppingRules()
    first, second = ValueError("first"), ValueError("second")
    for error in (first, second, first):
        stops.add_error(error)
    assert stops.errors == [first, second]
