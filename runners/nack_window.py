"""The window over a lane's last rows that says when there were too many nacks."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from destinations.dlq import Dlq
from origins.batch import JSON


@dataclass(frozen=True, kw_only=True)
class NackWindow:
    """How many rows a lane has read, and where its latest nacks stood. A value: a batch gives the next one."""

    rows: int = 0
    nacks: tuple[int, ...] = ()
    """The places of the latest nacks among all rows of the lane, counted from 1; fewer than `threshold`."""

    def after(self, rows: int, nacks: Sequence[int], dlq: Dlq) -> tuple[NackWindow, int | None]:
        """The window after a batch of `rows` rows whose nacks stood at `nacks` (from 1, ascending), and the
        place in the batch of the row that trips it; None if none does."""
        end = self.rows + rows
        if dlq.window == 0:
            return NackWindow(rows=end), None
        latest, tripped = deque(self.nacks, maxlen=dlq.threshold), None
        for nack in nacks:
            latest.append(self.rows + nack)
            full = len(latest) == dlq.threshold and latest[-1] - latest[0] < dlq.window
            if full and tripped is None:
                tripped = nack
        kept = [place for place in latest if place > end - dlq.window + 1]
        return NackWindow(rows=end, nacks=tuple(kept[max(0, len(kept) - dlq.threshold + 1) :])), tripped

    def json(self) -> dict[str, JSON]:
        """As the ledger keeps it."""
        return {"rows": self.rows, "nacks": list(self.nacks)}

    @staticmethod
    def of(value: JSON) -> NackWindow:
        """From the ledger."""
        return NackWindow(rows=value["rows"], nacks=tuple(value["nacks"])) if value else NackWindow()
