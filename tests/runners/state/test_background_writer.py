"""Nothing waits for the background writer, and lost items are counted."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from runners.state.background_writer import BackgroundWriter


def test_items_are_written_in_their_order() -> None:
    """The flush returns whether all items are written."""
    written: list[int] = []
    writer: BackgroundWriter[int] = BackgroundWriter(written.extend)
    for number in range(100):
        writer.put(number)
    assert writer.flush(30)
    assert written == list(range(100))
    assert (writer.dropped, writer.error) == (0, "")


def test_a_writer_that_hangs_takes_what_fits_and_drops_the_rest() -> None:
    """`put` always returns. Items that are neither being written nor in the queue are counted as lost."""
    hanging, go = threading.Event(), threading.Event()
    written: list[int] = []

    def write(items: Sequence[int]) -> None:
        hanging.set()
        go.wait(30)
        written.extend(items)

    writer = BackgroundWriter(write, room=3)
    writer.put(0)
    assert hanging.wait(30)
    for number in range(1, 11):
        writer.put(number)
    assert writer.dropped == 7
    assert "the queue was full" in writer.error
    assert not writer.flush(0)
    go.set()
    assert writer.flush(30)
    assert written == [0, 1, 2, 3]


def test_a_writer_that_fails_loses_its_items_and_continues() -> None:
    """The next items are tried."""
    written: list[int] = []

    def write(items: Sequence[int]) -> None:
        if 1 in items:
            raise OSError("No space left\non device")
        written.extend(items)

    writer = BackgroundWriter(write)
    for number in (0, 1, 2):
        writer.put(number)
        assert writer.flush(30)
    assert written == [0, 2]
    assert (writer.dropped, writer.error) == (1, "No space left on device")


def test_the_thread_ends_when_the_queue_is_empty_and_starts_again_later() -> None:
    """Many histories do not keep one thread each."""
    written: list[int] = []
    threads: set[threading.Thread] = set()

    def write(items: Sequence[int]) -> None:
        threads.add(threading.current_thread())
        written.extend(items)

    writer = BackgroundWriter(write)
    for number in range(3):
        writer.put(number)
        assert writer.flush(30)
        for thread in threads:
            thread.join(30)
    assert written == [0, 1, 2]
    assert len(threads) == 3
    assert not any(thread.is_alive() for thread in threads)
