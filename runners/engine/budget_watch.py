"""Whether another batch may follow by `dlq.budget`. While nobody can tell, it asks again, and no batch is planned."""

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
    """Asks after each refused row, and again after an error that passes by itself. All times are seconds of the run's
    clock."""

    ask: Callable[[Sequence[Entry]], Exception | None] | None
    """Returns why no batch may follow those that these entries settle. It is None without a budget."""
    resting: BackOff
    """How often it asks again."""
    until: float | None = None
    """When it asks next, because it has no answer. None if it has one."""
    _tried: int = 0
    _since: float = 0.0

    def ask_first(self, now: float) -> None:
        """Ask before the first batch is planned."""
        self.until = now if self.ask is not None else None

    def check(self, settled: Sequence[Entry], now: float) -> Exception | None:
        """Return why the run ends: too many rows wait, or nobody can tell how many. None if it does not end.

        Without an answer `until` has a moment afterwards, and an answer then is about these entries too.
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
        """Ask no more: there is an answer, or nobody needs one."""
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
