"""How large batches are made, so that each takes about as long as was asked for. Pure: a policy and its figures."""

from __future__ import annotations

from dataclasses import replace

from origins.batch import Limits

FIRST = 1 / 16
"""The share of the limits that a lane's first batch is given: how long it will take nobody knows."""
LEAST = 1 / 65_536
"""The least share; of a limit there is always one."""
NEAR = (0.7, 1.2)
"""A batch that took this much of what was asked for is as large as it should be."""
SHRINK, GROW = 1 / 8, 2.0
"""How much smaller and larger than the last batch the next one may be."""


class Pace:
    """The share of the limits that each lane's next batch is given; all of them where nothing was asked for."""

    def __init__(self, target: float = 0.0) -> None:
        self.target = target
        """How many seconds a batch is to take; 0: as long as it does."""
        self.shares: dict[str, float] = {}

    def limits(self, lane: str, most: Limits) -> Limits:
        """What the lane's next batch may hold."""
        if not self.target:
            return most
        share = self.shares.get(lane, FIRST)
        return replace(most, **{name: _part(limit, share) for name, limit in vars(most).items()})

    def took(self, lane: str, seconds: float, *, full: bool) -> None:
        """A batch took so long. One that was not full says nothing of how much larger the next one could be."""
        used = seconds / self.target if self.target else 1.0
        if NEAR[0] <= used <= NEAR[1] or (used < 1 and not full):
            return
        share = self.shares.get(lane, FIRST) * min(GROW, max(SHRINK, 1 / used if used else GROW))
        self.shares[lane] = min(1.0, max(LEAST, share))


def _part(limit: int | None, share: float) -> int | None:
    return None if limit is None else max(1, int(limit * share))
