"""Housekeeping beside the batches."""

from __future__ import annotations

import logging
import threading

import pytest

from destinations.destination import Written
from runners.model.tasks import Declined, GroupWritten, Landed
from runners.ways.task_executor import Maintenance


def landed(*names: str) -> Landed:
    """A write to these destinations."""
    return Landed(written={name: Written(rows=1) for name in names})


def always(name: str) -> bool:
    """Every destination keeps house."""
    return True


def test_whoever_was_written_to_keeps_house() -> None:
    """Each destination of a write, or of one for several lanes; nobody behind an outcome without a write."""
    kept: list[str] = []
    upkeep = Maintenance(always, kept.append)
    upkeep.note_outcome(landed("a", "b"))
    upkeep.close()
    other = Maintenance(always, kept.append)
    other.note_outcome(GroupWritten(landed={"0": landed("c"), "1": landed("c")}))
    other.note_outcome(Declined(reason="a row is refused", way="straight"))
    other.close()
    assert kept == ["a", "b", "c"]


def test_where_there_is_nothing_to_do_no_thread_is_busy() -> None:
    """Not even a Spark session is made for it."""
    upkeep = Maintenance(lambda name: name == "a", lambda name: kept.append(name))
    kept: list[str] = []
    upkeep.note_outcome(landed("a", "b"))
    upkeep.close()
    assert kept == ["a"]


def test_no_batch_waits_for_it_and_nobody_is_asked_twice_at_once() -> None:
    """While one keeps house, further writes to it ask for nothing; the end of the run waits."""
    may, began, kept = threading.Event(), threading.Event(), []

    def slow(name: str) -> None:
        began.set()
        may.wait(30)
        kept.append(name)

    upkeep = Maintenance(always, slow)
    upkeep.note_outcome(landed("a"))
    assert began.wait(30)
    for _ in range(5):
        upkeep.note_outcome(landed("a"))
    assert kept == []
    may.set()
    upkeep.close()
    assert kept == ["a"]


def test_what_goes_wrong_is_logged_and_tried_again_behind_the_next_write(caplog: pytest.LogCaptureFixture) -> None:
    """No batch fails for it."""
    tries: list[str] = []

    def broken(name: str) -> None:
        tries.append(name)
        raise OSError("the disk is full")

    with caplog.at_level(logging.WARNING, logger="wherry"):
        for _ in range(2):
            upkeep = Maintenance(always, broken)
            upkeep.note_outcome(landed("a"))
            upkeep.close()
    assert tries == ["a", "a"]
    assert "a: its maintenance failed and will be tried again: the disk is full" in caplog.text
