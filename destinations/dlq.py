"""The dead letter queue: where nacked rows go, and when there are too many of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from destinations.destination import Destination

DLQ = "dlq"
"""The name under which nacked rows are delivered."""
MOST_NACKS = 10_000
"""How high a threshold may be."""


@dataclass(frozen=True, kw_only=True)
class Dlq:
    """What becomes of nacked rows. By default the first one stops the run, and nothing is stored."""

    window: int = 1
    """The run stops when the nacks in the last `window` rows of a lane reach `threshold`; 0 never stops it."""
    threshold: int = 1
    limits: Mapping[str, str] = field(default_factory=dict)
    """By code, how large a share of a batch's rows may be refused with it, such as 5%; they are not counted in the
    window then. `off`: as many as there are."""
    retain: str = field(default="30d", metadata={"like": "30d"})
    """How long rows stay in the DLQ that were carried again or discarded; those that wait stay for ever."""
    original: bool = True
    """Whether the row as it was read is kept beside the row as it stood before the stage that refused it."""
    destination: Destination | None = None
    """Where nacked rows go; None is a Delta table in the state. `Discard()` throws them away, counted."""

    def __post_init__(self) -> None:
        if self.window < 0:
            raise ValueError(f"window: expected 0 or more rows, got {self.window}")
        if not 1 <= self.threshold <= MOST_NACKS:
            raise ValueError(f"threshold: expected 1 to {MOST_NACKS} nacks, got {self.threshold}")
        if self.destination is not None and (self.destination.replaces or self.destination.ordered):
            raise ValueError("destination: expected one to which rows are only added, such as delta with mode: append")
        for code, limit in self.limits.items():
            if _share(limit) is None:
                raise ValueError(
                    f"limits.{code}: expected off or a share of the rows such as 5% or 0.05, got {limit!r}"
                )
        if 0 < self.window < self.threshold:
            raise ValueError(
                f"threshold: {self.threshold} nacks never fit into a window of {self.window} rows; "
                "make the window at least as large, or 0 if nothing should stop the run"
            )

    def share(self, code: str) -> float | None:
        """Which part of a batch's rows may be refused with this code; None for one that the window counts."""
        limit = self.limits.get(code)
        return None if limit is None else _share(limit)


_SHARE = re.compile(r"(\d{1,3}(?:\.\d{1,9})?)\s*(%?)", re.ASCII)


def _share(limit: str) -> float | None:
    """The limit as a part of one; None for what is none."""
    if limit == "off":
        return 1.0
    found = _SHARE.fullmatch(limit)
    if found is None:
        return None
    share = float(found.group(1)) / (100 if found.group(2) else 1)
    return share if share <= 1 else None
