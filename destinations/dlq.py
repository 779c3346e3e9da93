"""The dead letter queue: where nacked rows go, and when there are too many of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from destinations.destination import Destination


@dataclass(frozen=True, kw_only=True)
class Dlq:
    """What becomes of nacked rows. By default the first one stops the run, and nothing is stored."""

    window: int = 1
    """The run stops when the nacks in the last `window` rows of a lane reach `threshold`; 0 never stops it."""
    threshold: int = 1
    retain: str = field(default="30d", metadata={"like": "30d"})
    """How long rows stay in the DLQ before `wherry dlq` may drop them."""
    original: bool = True
    """Whether the row as it was read is kept beside the row as it stood before the stage that refused it."""
    destination: Destination | None = None
    """Where nacked rows go; None is a Delta table in the state. `Discard()` throws them away, counted."""

    def __post_init__(self) -> None:
        if self.window < 0:
            raise ValueError(f"window: expected 0 or more rows, got {self.window}")
        if not 1 <= self.threshold <= 10_000:
            raise ValueError(f"threshold: expected 1 to 10000 nacks, got {self.threshold}")
        if self.destination is not None and (self.destination.replaces or self.destination.ordered):
            raise ValueError("destination: expected one to which rows are only added, such as delta with mode: append")
        if 0 < self.window < self.threshold:
            raise ValueError(
                f"threshold: {self.threshold} nacks never fit into a window of {self.window} rows; "
                "make the window at least as large, or 0 if nothing should stop the run"
            )
