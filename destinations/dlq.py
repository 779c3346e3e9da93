"""The dead letter queue: where nacked rows go, and when there are too many of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Literal, TypeAlias, cast, get_args

from destinations.destination import Destination
from destinations.discard import Discard
from origins.quick_dataclass import dataclass

DLQ = "dlq"
"""The name under which nacked rows are delivered."""
FILTERED = "filtered rows"
"""The name under which rows that stages filtered are stored."""
MOST_NACKS = 10_000
"""How high a threshold may be."""
ROWS, WEIGHT = "rows", "weight"
"""The names of the limits on all refused rows of a batch; any other name of a limit is a code."""
LimitAction: TypeAlias = Literal["stop", "pause", "notify"]
"""What happens when a batch exceeds a limit. `stop`: the run ends. `pause`: it ends, and no run begins until a person
resumes the pipeline. `notify`: the run goes on, and tells of it."""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """How much of one batch may be refused, and what happens beyond that."""

    of: str
    """`rows`, `weight`, or a code."""
    share: float
    """The part of the batch, from 0 to 1."""
    text: str
    """The share as it is written in the definition."""
    action: LimitAction = "stop"


@dataclass(frozen=True, kw_only=True)
class Dlq:
    """What happens to refused rows. By default the first one stops the run, and none is stored."""

    window: int = 1
    """How many of a lane's last rows Wherry looks at. 0 means that refused rows never stop the run."""
    threshold: int = 1
    """The run stops when so many rows of the window are refused."""
    limits: Mapping[str, str] = field(default_factory=dict)
    """Which share of a batch may be refused: of its `rows`, of their `weight`, or of its rows with a code. An example
    is `5%`. `1% notify; 5% pause` also says what happens; the default is `stop`. `off` sets no limit. The window does
    not count rows whose code has a limit."""
    weigh: str | None = field(default=None, metadata={"like": "amount"})
    """The column as read whose number is the weight of a row. `limits: {weight: 1%}` compares the refused rows with
    the batch by it."""
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
        for name, text in self.limits.items():
            if _parse_limits(name, text) is None:
                raise ValueError(
                    f"limits.{name}: expected off or a share such as 5%, 0.05, 5% pause or 1% notify; 5% stop, "
                    f"got {text!r}"
                )
        if WEIGHT in self.limits and not self.weigh:
            raise ValueError("limits.weight: name the column that weighs a row, such as weigh: amount")
        if self.weigh and WEIGHT not in self.limits:
            raise ValueError("weigh: no limit uses it; set one, such as limits: {weight: 1%}, or remove weigh")
        if 0 < self.window < self.threshold:
            raise ValueError(
                f"threshold: {self.threshold} refused rows never fit into a window of {self.window} rows; set a "
                "larger window, or 0 to never stop the run"
            )
        useless = next((limit.of for limit in self.list_limits() if limit.of in (ROWS, WEIGHT)), "")
        if useless and self.window > 0 and self.threshold == 1 and not any(map(self.counts_apart, self.limits)):
            raise ValueError(
                f"limits.{useless}: it has no effect, because the window stops the run at the first refused row; set "
                "window: 0, or a larger window and threshold"
            )

    @property
    def given_destinations(self) -> Sequence[Destination]:
        """Those that are not in the state."""
        return [each for each in (self.destination, self.copy) if each is not None]

    def list_limits(self) -> Sequence[Limit]:
        """The limits on one batch."""
        return [limit for name, text in self.limits.items() for limit in _parse_limits(name, text) or ()]

    def counts_apart(self, code: str) -> bool:
        """Whether the window leaves out rows with this code, because the code has a limit, or `off`."""
        return code in self.limits and code not in (ROWS, WEIGHT)


_LIMIT = re.compile(rf"((\d{{1,3}}(?:\.\d{{1,9}})?)\s*(%?))(?:\s+({'|'.join(get_args(LimitAction))}))?", re.ASCII)


def _parse_limits(name: str, text: str) -> Sequence[Limit] | None:
    """The limits in a text, none for `off`; None where the text is wrong."""
    if text == "off":
        return ()
    found = []
    for part in text.split(";"):
        match = _LIMIT.fullmatch(part.strip())
        share = float(match.group(2)) / (100 if match.group(3) else 1) if match else 2.0
        if match is None or share > 1:
            return None
        action = cast(LimitAction, match.group(4) or "stop")
        found.append(Limit(of=name, share=share, text=match.group(1), action=action))
    return found
