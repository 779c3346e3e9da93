"""How a run waits for a store that does not answer: requests are repeated as long as `run.retry` allows."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from origins.errors import WherryError, is_store_silent
from runners.model.clock import Clock
from runners.model.entry import Entry, Settled
from runners.model.spec import RetryOptions
from runners.state.ledger import Ledger

log = logging.getLogger("wherry")

Answer = TypeVar("Answer")

_TICK = 0.2
"""How many seconds may pass until a forced stop is noticed."""


class StorePatience:
    """How long a run waits for a store. Only the thread that owns progress uses it.

    After a wait without success, no further request waits until the store has answered, because the run is about to
    end.
    """

    def __init__(
        self,
        policy: RetryOptions,
        clock: Clock,
        *,
        is_forced: Callable[[], bool] = lambda: False,
        dice: random.Random | None = None,
    ) -> None:
        self.policy = policy
        self.clock = clock
        self.is_forced = is_forced
        """Whether a person forced the run to end at once."""
        self.dice = dice or random.Random()  # noqa: S311 -- it spreads waits
        self.over = False

    def outlast(self, ask: Callable[[], Answer]) -> Answer:
        """Return what `ask` returns. It is called again while a store is away, so a repeated call must be harmless."""
        began, tried = self.clock.elapsed(), 0
        while True:
            try:
                answer = ask()
            except WherryError as error:
                if not is_store_silent(error):
                    raise
                since = self.clock.elapsed() - began
                gives_up = self.over or self.is_forced()
                pause = None if gives_up else self.policy.pause(error, tried=tried, since=since, dice=self.dice)
                if pause is None:
                    self.over = True
                    raise
                log.warning("%s Wherry asks again in %.1f s.", error.message, pause)
                tried += 1
                self._wait(pause)
            else:
                self.over = False
                return answer

    def _wait(self, seconds: float) -> None:
        until = self.clock.elapsed() + seconds
        while (left := until - self.clock.elapsed()) > 0 and not self.is_forced():
            self.clock.wait(min(left, _TICK))


class PatientLedger(Ledger):
    """A ledger that waits for its store.

    If the answer to an append was lost, the ledger itself finds out by the entries' ids whether it landed.
    """

    def __init__(self, ledger: Ledger, patience: StorePatience) -> None:
        self._ledger, self._patience = ledger, patience

    def read(self, after: int = 0) -> list[Entry]:
        return self._patience.outlast(lambda: self._ledger.read(after))

    def append(self, entries: Sequence[Entry], *, after: int) -> list[Entry]:
        return self._patience.outlast(lambda: self._ledger.append(entries, after=after))

    def compact(self, snapshot: Entry, settled: Sequence[Settled], *, after: int) -> Entry:
        return self._patience.outlast(lambda: self._ledger.compact(snapshot, settled, after=after))

    def history(self, since: str = "") -> Iterator[Settled]:
        return iter(self._patience.outlast(lambda: list(self._ledger.history(since))))

    @property
    def place(self) -> str:
        return self._ledger.place
