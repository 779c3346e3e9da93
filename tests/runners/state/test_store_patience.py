"""A run repeats its requests to an unavailable store. The tests use a manual clock."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from origins.store_access import StoreError
from runners.model.entry import Entry
from runners.model.spec import RetryOptions
from runners.state.delta_ledger import DeltaLedger
from runners.state.ledger import Conflict, LedgerError, Row
from runners.state.store_patience import PatientLedger, StorePatience
from tests.manual_clock import ManualClock


def make_away() -> StoreError:
    error = StoreError("The store does not answer.", hint="Check the endpoint.")
    error.is_away = True
    return error


class Store:
    """A store that is unavailable until a moment of the clock."""

    def __init__(self, clock: ManualClock, until: float) -> None:
        self.clock, self.until, self.asked = clock, until, 0

    def ask(self) -> str:
        self.asked += 1
        if self.clock.elapsed() < self.until:
            raise make_away()
        return "here"


def make_patience(clock: ManualClock, is_forced: Callable[[], bool] = lambda: False) -> StorePatience:
    """Return a patience with the default of `run.retry`."""
    return StorePatience(RetryOptions(), clock, is_forced=is_forced, dice=random.Random(1))


@pytest.mark.promise("CD-27")
def test_a_store_may_be_unavailable_for_a_minute() -> None:
    """It gets few requests."""
    clock = ManualClock()
    store = Store(clock, 60.0)
    assert make_patience(clock).outlast(store.ask) == "here"
    assert (store.asked, 60 <= clock.elapsed() < 120) == (8, True) or store.asked < 8


def test_a_store_that_stays_unavailable_is_an_error_after_a_few_minutes() -> None:
    """After that, no request waits for the store until it has answered."""
    clock = ManualClock()
    patience, store = make_patience(clock), Store(clock, 1_000.0)
    with pytest.raises(StoreError, match="does not answer"):
        patience.outlast(store.ask)
    ended = clock.elapsed()
    assert 90 < ended < 128
    with pytest.raises(StoreError):
        patience.outlast(store.ask)
    assert clock.elapsed() == ended
    clock.move(1_000)
    assert patience.outlast(store.ask) == "here"
    store.until = clock.elapsed() + 10
    assert patience.outlast(store.ask) == "here"


def test_a_run_that_must_end_at_once_stops_waiting() -> None:
    """A second signal comes in the middle of a wait."""
    clock = ManualClock()
    store = Store(clock, 1_000.0)
    with pytest.raises(StoreError):
        make_patience(clock, lambda: clock.elapsed() > 5).outlast(store.ask)
    assert clock.elapsed() < 6


@pytest.mark.parametrize("error", [Conflict("The ledger's last entry is 2."), LedgerError("It is damaged.")])
def test_any_other_error_is_raised_at_once(error: Exception) -> None:
    """It does not pass without a user."""
    clock = ManualClock()

    def ask() -> None:
        raise error

    with pytest.raises(type(error)):
        make_patience(clock).outlast(ask)
    assert clock.elapsed() == 0


class FarLedger(DeltaLedger):
    """A ledger whose store loses the answer to a commit, and then is unavailable for a while."""

    def __init__(self, path: Path, clock: ManualClock, *, lands: bool) -> None:
        super().__init__(path)
        self.clock, self.lands, self.until = clock, lands, 0.0

    def _check(self) -> None:
        if self.clock.elapsed() < self.until:
            error = LedgerError("The ledger cannot be read: the store does not answer.")
            error.is_away = True
            raise error

    def _commit(self, rows: Sequence[Row], after: int, *, replaces: bool) -> None:
        self._check()
        first, self.until = not self.until, self.until or 30.0
        if self.lands or not first:
            super()._commit(rows, after, replaces=replaces)
        self._check()

    def _read_behind(self, after: int) -> tuple[list[Entry], int]:
        self._check()
        return super()._read_behind(after)


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.promise("CD-27")
def test_an_append_with_a_lost_answer_lands_once(tmp_path: Path, *, lands: bool) -> None:
    """The lost append may or may not have landed."""
    clock = ManualClock()
    ledger = PatientLedger(FarLedger(tmp_path / "ledger", clock, lands=lands), make_patience(clock))
    landed = ledger.append([Entry(kind="plan", id="a"), Entry(kind="plan", id="b")], after=0)
    assert ([entry.seq for entry in landed], clock.elapsed() >= 30) == ([1, 2], True)
    assert [entry.id for entry in DeltaLedger(tmp_path / "ledger").read()] == ["a", "b"]


def test_an_append_is_a_conflict_if_another_process_appended_meanwhile(tmp_path: Path) -> None:
    """The run that took over wrote while the store was unavailable for this run."""
    clock = ManualClock()

    class Other(FarLedger):
        def _commit(self, rows: Sequence[Row], after: int, *, replaces: bool) -> None:
            DeltaLedger(tmp_path / "ledger").append([Entry(kind="acquire", id="other")], after=0)
            super()._commit(rows, after, replaces=replaces)

    ledger = PatientLedger(Other(tmp_path / "ledger", clock, lands=False), make_patience(clock))
    with pytest.raises(Conflict):
        ledger.append([Entry(kind="plan", id="a")], after=0)
    assert [entry.id for entry in DeltaLedger(tmp_path / "ledger").read()] == ["other"]
