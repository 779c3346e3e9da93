"""Housekeeping beside the batches."""

from __future__ import annotations

import logging
import threading

import pytest

from destinations.destination import Written
from runners.outcome import Landed, Refused, Shared
from runners.upkeep import Upkeep


def landed(*names: str) -> Landed:
    """A write to these destinations."""
    return Landed(written={name: Written(rows=1) for name in names})


def always(name: str) -> bool:
    """Every destination keeps house."""
    return True


def test_whoever_was_written_to_keeps_house() -> None:
    """Each destination of a write, or of one for several lanes; nobody behind an outcome without a write."""
    kept: list[str] = []
    upkeep = Upkeep(always, kept.append)
    upkeep.behind(landed("a", "b"))
    upkeep.close()
    other = Upkeep(always, kept.append)
    other.behind(Shared(landed={"0": landed("c"), "1": landed("c")}))
    other.behind(Refused())
    other.close()
    assert kept == ["a", "b", "c"]


def test_where_there_is_nothing_to_do_no_thread_is_busy() -> None:
    """Not even a Spark session is made for it."""
    upkeep = Upkeep(lambda name: name == "a", lambda name: kept.append(name))
    kept: list[str] = []
    upkeep.behind(landed("a", "b"))
    upkeep.close()
    assert kept == ["a"]


def test_no_batch_waits_for_it_and_nobody_is_asked_twice_at_once() -> None:
    """While one keeps house, further writes to it ask for nothing; the end of the run waits."""
    may, began, kept = threading.Event(), threading.Event(), []

    def slow(name: str) -> None:
        began.set()
        may.wait(30)
        kept.append(name)

    upkeep = Upkeep(always, slow)
    upkeep.behind(landed("a"))
    assert began.wait(30)
    for _ in range(5):
        upkeep.behind(landed("a"))
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
            upkeep = Upkeep(always, broken)
            upkeep.behind(landed("a"))
            upkeep.close()
    assert tries == ["a", "a"]
    assert "a: its housekeeping failed and will be tried again: the disk is full" in caplog.text
