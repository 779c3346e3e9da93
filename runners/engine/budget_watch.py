"""Whether `dlq.budget` allows another batch. While that is not known, Wherry asks again and plans no batch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from origins.errors import WherryError, list_spark_errors
from origins.quick_dataclass import dataclass
from runners.engine.work_in_flight import BackOff
from runners.model.entry import Entry
from runners.model.errors import Fenced
from runners.model.text import summarise_error
from runners.state.ledger import LedgerError

log = logging.getLogger("wherry")


@dataclass
class BudgetWatch:
    """Asks after each batch with refused rows, and again after an error that passes by itself.

    All times are seconds of the run's clock.
    """

    ask: Callable[[Sequence[Entry]], Exception | None] | None
    """Returns why no batch may follow those that these entries settle. It is None without a budget."""
    resting: BackOff
    """How often it asks again."""
    until: float | None = None
    """When it asks next. None if the last question was answered."""
    _tried: int = 0
    _since: float = 0.0

    def ask_first(self, now: float) -> None:
        """Ask before the first batch is planned."""
        self.until = now if self.ask is not None else None

    def check(self, settled: Sequence[Entry], now: float) -> Exception | None:
        """Return why the run ends: too many rows wait, or their number cannot be found out. None if the run continues.

        If there is no answer yet, `until` is set. The next answer then covers these entries too.
        """
        if self.ask is None or (not settled if self.until is None else self.until > now):
            return None
        try:
            error = self.ask(settled)
        except (Fenced, LedgerError):
            raise
        except list_spark_errors(WherryError) as failed:
            return self._postpone(failed, now)
        self.give_up()
        return error

    def give_up(self) -> None:
        """Stop asking: there is an answer, or no answer is needed."""
        self.until, self._tried = None, 0

    def _postpone(self, error: Exception, now: float) -> Exception | None:
        self._since = self._since if self._tried else now
        retry, dice = self.resting.retry, self.resting.dice
        pause = retry.pause(error, tried=self._tried, since=now - self._since, dice=dice)
        if pause is None:
            self.give_up()
            return error
        self._tried += 1
        self.until = now + pause
        log.warning(
            "Wherry cannot count the refused rows that wait: %s. It plans no batch, and asks again in %.1f s.",
            summarise_error(error).rstrip("."),
            pause,
        )
        return None
