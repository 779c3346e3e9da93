"""Whether a batch that could not be carried is tried again, and after how long. Pure: a policy and numbers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from origins.quantities import seconds
from runners.causes import passing
from runners.pipeline import RetryOptions

FOR_EVER = -1


@dataclass(frozen=True, kw_only=True)
class Retry:
    """What the definition says about trying again; all times in seconds."""

    attempts: int = 7
    """How often the same batch is tried again; -1 is for ever, 0 never."""
    wait: float = 1.0
    """How long the first wait is; each later one is twice as long."""
    most: float = 300.0
    """How long a wait is at most."""
    within: float = 3_600.0
    """After how long since the first error nothing is tried any more."""
    also: Sequence[str] = ()
    """Words in an error that mean that it passes by itself, beside those that are known."""

    def pause(self, error: Exception, *, tried: int, since: float, dice: random.Random) -> float | None:
        """How long to wait before the batch is tried again, which was so often, since so long; None if it is not.

        Up to a fifth of the wait is left to chance, so that many pipelines do not come back at the same moment.
        """
        if (tried >= self.attempts and self.attempts != FOR_EVER) or passing(error, self.also) is None:
            return None
        full = min(self.most, self.wait * 2.0 ** min(tried, 60))
        pause = full * (1 - 0.2 * dice.random())
        return pause if since + pause <= self.within else None


NEVER = Retry(attempts=0)


def policy(options: RetryOptions) -> Retry:
    """As the definition has it."""
    times = {name: seconds(getattr(options, name)) for name in ("wait", "most", "within")}
    return Retry(attempts=options.attempts, also=options.also, **times)
