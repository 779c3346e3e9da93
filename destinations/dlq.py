"""The dead letter queue: where nacked rows go, and when there are too many of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from destinations.destination import Destination
from destinations.discard import Discard

DLQ = "dlq"
"""The name under which nacked rows are delivered."""
FILTERED = "filtered rows"
"""The name under which rows that stages filtered are stored."""
MOST_NACKS = 10_000
"""How high a threshold may be."""


@dataclass(frozen=True, kw_only=True)
class Dlq:
    """What happens to refused rows. By default the first one stops the run, and none is stored."""

    window: int = 1
    """How many of a lane's last rows Wherry looks at. 0 means that refused rows never stop the run."""
    threshold: int = 1
    """The run stops when so many rows of the window are refused."""
    limits: Mapping[str, str] = field(default_factory=dict)
    """For each code, which share of a batch's rows may be refused with it, for example `5%`. `off` sets no limit. The
    window does not count these rows."""
    retain: str = field(default="30d", metadata={"like": "30d"})
    """How long the DLQ keeps rows that were replayed or discarded. Rows that wait stay for ever."""
    original: bool = True
    """Whether the DLQ keeps the row as it was read, beside the row that the refusing stage got."""
    destination: Destination | None = None
    """Where refused rows go. The default is a Delta table in the state; `discard` throws them away and counts them."""
    copy: Destination | None = None
    """A destination that gets every refused row too, such as a Kafka topic."""

    def __post_init__(self) -> None:
        if self.window < 0:
            raise ValueError(f"window: expected 0 or more rows, got {self.window}")
        if not 1 <= self.threshold <= MOST_NACKS:
            raise ValueError(f"threshold: expected 1 to {MOST_NACKS} refused rows, got {self.threshold}")
        for option in ("destination", "copy"):
            given = getattr(self, option)
            if given is not None and (given.replaces or given.ordered):
                raise ValueError(
                    f"{option}: expected a destination that only adds rows, such as delta with mode: append"
                )
        if self.copy is not None and isinstance(self.destination, Discard):
            raise ValueError("copy: expected a DLQ that keeps rows, got discard; give the destination beside window")
        for code, limit in self.limits.items():
            if _parse_share(limit) is None:
                raise ValueError(
                    f"limits.{code}: expected off or a share of the rows such as 5% or 0.05, got {limit!r}"
                )
        if 0 < self.window < self.threshold:
            raise ValueError(
                f"threshold: {self.threshold} refused rows never fit into a window of {self.window} rows; set a "
                "larger window, or 0 to never stop the run"
            )

    @property
    def given_destinations(self) -> Sequence[Destination]:
        """Those that are not in the state."""
        return [each for each in (self.destination, self.copy) if each is not None]

    def share(self, code: str) -> float | None:
        """Which part of a batch's rows may be refused with this code; None if the window counts it."""
        limit = self.limits.get(code)
        return None if limit is None else _parse_share(limit)


_SHARE = re.compile(r"(\d{1,3}(?:\.\d{1,9})?)\s*(%?)", re.ASCII)


def _parse_share(limit: str) -> float | None:
    """The limit as a part of one; None for what is none."""
    if limit == "off":
        return 1.0
    match = _SHARE.fullmatch(limit)
    if match is None:
        return None
    share = float(match.group(1)) / (100 if match.group(2) else 1)
    return share if share <= 1 else None
