"""What is written beside is never waited for, and what is lost is counted."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from runners.state.background_writer import BackgroundWriter


def test_what_is_put_is_written_in_its_order() -> None:
    """And the flush says when all of it is."""
    written: list[int] = []
    scribe: BackgroundWriter[int] = BackgroundWriter(written.extend)
    for number in range(100):
        scribe.put(number)
    assert scribe.flush(30)
    assert written == list(range(100))
    assert (scribe.dropped, scribe.error) == (0, "")


def test_one_that_hangs_takes_what_fits_and_drops_the_rest() -> None:
    """`put` comes back each time; all but the one being written and those in the room are counted as lost."""
    hanging, go = threading.Event(), threading.Event()
    written: list[int] = []

    def write(items: Sequence[int]) -> None:
        hanging.set()
        go.wait(30)
        written.extend(items)

    scribe = BackgroundWriter(write, room=3)
    scribe.put(0)
    assert hanging.wait(30)
    for number in range(1, 11):
        scribe.put(number)
    assert scribe.dropped == 7
    assert "the queue was full" in scribe.error
    assert not scribe.flush(0)
    go.set()
    assert scribe.flush(30)
    assert written == [0, 1, 2, 3]


def test_one_that_fails_loses_what_it_had_and_goes_on() -> None:
    """The next items are tried again."""
    written: list[int] = []

    def write(items: Sequence[int]) -> None:
        if 1 in items:
            raise OSError("No space left\non device")
        written.extend(items)

    scribe = BackgroundWriter(write)
    for number in (0, 1, 2):
        scribe.put(number)
        assert scribe.flush(30)
    assert written == [0, 2]
    assert (scribe.dropped, scribe.error) == (1, "No space left on device")


def test_its_thread_ends_when_there_is_nothing_to_write_and_begins_again() -> None:
    """Many histories cost no thread each."""
    written: list[int] = []
    threads: set[threading.Thread] = set()

    def write(items: Sequence[int]) -> None:
        threads.add(threading.current_thread())
        written.extend(items)

    scribe = BackgroundWriter(write)
    for number in range(3):
        scribe.put(number)
        assert scribe.flush(30)
        for thread in threads:
            thread.join(30)
    assert written == [0, 1, 2]
    assert len(threads) == 3
    assert not any(thread.is_alive() for thread in threads)


def test_nothing_is_started_before_there_is_something_to_write() -> None:
    """And a flush of nothing does not wait."""
    before = threading.active_count()
    assert BackgroundWriter(lambda items: None).flush(0)
    assert threading.active_count() == before
