"""The list of pipelines, kept ready."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import pytest

from runners.service.overview import FRESH, Overview
from tests.manual_clock import ManualClock


def read_when(allowed: threading.Event, began: threading.Event, numbers: itertools.count[int]) -> Callable[[], int]:
    """Return a function that returns the next number as soon as it is allowed to."""

    def read() -> int:
        number = next(numbers)
        began.set()
        assert allowed.wait(10)
        return number

    return read


def test_a_list_is_read_once_while_it_is_fresh() -> None:
    """Readers within its time get the same list."""
    clock, numbers = ManualClock(), itertools.count()
    overview = Overview(read=lambda: next(numbers), clock=clock)
    assert overview.get() == 0
    clock.move(FRESH - 0.1)
    assert overview.get() == 0


def test_an_old_list_is_given_while_it_is_read_again() -> None:
    """The reader does not wait. Only one reading begins."""
    clock, allowed, began = ManualClock(), threading.Event(), threading.Event()
    allowed.set()
    overview = Overview(read=read_when(allowed, began, itertools.count()), clock=clock)
    overview.get()
    allowed.clear()
    began.clear()
    clock.move(FRESH)
    assert [overview.get() for _ in range(5)] == [0] * 5
    assert began.wait(10)
    allowed.set()
    wait_until(lambda: overview.get() == 1)


def test_a_change_lets_the_next_reader_wait_for_a_new_list() -> None:
    """A list that was begun before the change is not kept."""
    allowed, began = threading.Event(), threading.Event()
    overview = Overview(read=read_when(allowed, began, itertools.count()), clock=ManualClock())
    found: list[int] = []
    reader = threading.Thread(target=lambda: found.append(overview.get()))
    reader.start()
    assert began.wait(10)
    overview.expire()
    allowed.set()
    reader.join(10)
    assert (found, overview.get()) == ([0], 1)


def test_a_reading_that_fails_leaves_no_old_list_behind() -> None:
    """The first reader and all later ones get the error."""
    clock, broken = ManualClock(), threading.Event()

    def read() -> str:
        if broken.is_set():
            raise OSError("gone")
        return "list"

    overview = Overview(read=read, clock=clock)
    assert overview.get() == "list"
    broken.set()
    clock.move(FRESH)
    overview.get()

    def fails() -> bool:
        try:
            return overview.get() == "never"
        except OSError:
            return True

    wait_until(fails)
    with pytest.raises(OSError, match="gone"):
        overview.get()


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until this is true, for ten seconds at most."""
    waiting = threading.Event()
    for _ in range(1_000):
        if holds():
            return
        waiting.wait(0.01)
    raise AssertionError("it did not become true")
