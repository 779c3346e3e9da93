"""Maintenance of destinations beside the batches."""

from __future__ import annotations

import logging
import threading

import pytest

from destinations.destination import Written
from runners.model.tasks import Declined, GroupWritten, Landed
from runners.ways.task_executor import Maintenance


def make_landed(*names: str) -> Landed:
    """Return a write to these destinations."""
    return Landed(written={name: Written(rows=1) for name in names})


def is_always_kept(name: str) -> bool:
    """Whether a destination needs maintenance: always."""
    return True


def test_each_destination_of_a_write_is_maintained() -> None:
    """This is also true of a write for several lanes. An outcome without a write causes no maintenance."""
    kept: list[str] = []
    maintenance = Maintenance(is_always_kept, kept.append)
    maintenance.note_outcome(make_landed("a", "b"))
    maintenance.close()
    other = Maintenance(is_always_kept, kept.append)
    other.note_outcome(GroupWritten(outcomes={"0": make_landed("c"), "1": make_landed("c")}))
    other.note_outcome(Declined(reason="a row is refused", way="straight"))
    other.close()
    assert kept == ["a", "b", "c"]


def test_only_destinations_that_need_maintenance_use_a_thread() -> None:
    """The others need no Spark session for it."""
    maintenance = Maintenance(lambda name: name == "a", lambda name: kept.append(name))
    kept: list[str] = []
    maintenance.note_outcome(make_landed("a", "b"))
    maintenance.close()
    assert kept == ["a"]


def test_maintenance_delays_no_batch_and_runs_once_at_a_time() -> None:
    """During the maintenance of a destination, further writes to it start no other. The end of the run waits for it."""
    may, began, kept = threading.Event(), threading.Event(), []

    def slow(name: str) -> None:
        began.set()
        may.wait(30)
        kept.append(name)

    maintenance = Maintenance(is_always_kept, slow)
    maintenance.note_outcome(make_landed("a"))
    assert began.wait(30)
    for _ in range(5):
        maintenance.note_outcome(make_landed("a"))
    assert kept == []
    may.set()
    maintenance.close()
    assert kept == ["a"]


def test_failed_maintenance_is_logged_and_tried_again_after_the_next_write(caplog: pytest.LogCaptureFixture) -> None:
    """It fails no batch."""
    tries: list[str] = []

    def broken(name: str) -> None:
        tries.append(name)
        raise OSError("the disk is full")

    with caplog.at_level(logging.WARNING, logger="wherry"):
        for _ in range(2):
            maintenance = Maintenance(is_always_kept, broken)
            maintenance.note_outcome(make_landed("a"))
            maintenance.close()
    assert tries == ["a", "a"]
    assert "a: its maintenance failed and will be tried again: the disk is full" in caplog.text
