"""The dead letter queue: where refused rows go, and how many are too many."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast, get_args

from destinations.capabilities import find_read_back
from destinations.destination import Destination
from destinations.discard import Discard
from origins.problems import refuse_unknown
from stages.stage import Stage, is_repeatable

DLQ = "dlq"
"""The name of the DLQ as a destination of refused rows."""
ONLY_COPY = "dlq copy"
"""The name of the copy, if a DLQ has exactly one."""
FALLBACK = "dlq fallback"
"""The name of the fallback as a destination of refused rows that the DLQ could not take."""
FILTERED = "filtered rows"
"""The name of the destination of rows that stages filtered."""
RETAIN, DEFAULT = "30d", "default"
"""How long decided rows are kept by default, and the key in `retain` for all codes without a period."""
MOST_NACKS = 10_000
"""The highest threshold."""
ROWS = "rows"
"""The name of the limit on the refused rows of a batch."""
LimitAction: TypeAlias = Literal["stop", "pause", "notify"]
"""What happens if a batch exceeds a limit.

`stop`: the run ends. `pause`: the run ends, and no run begins until a person resumes the pipeline. `notify`: the run
goes on and reports it.
"""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """How much of one batch may be refused, and what happens beyond that."""

    share: float
    """The part of the batch, from 0 to 1."""
    text: str
    """The share as it is written in the definition."""
    action: LimitAction = "stop"


@refuse_unknown
@dataclass(frozen=True, kw_only=True)
class Dlq:
    """What happens to refused rows. By default the first one stops the run, and none is stored."""

    window: int = 1
    """How many of a lane's last rows Wherry looks at. 0 means that refused rows never stop the run."""
    threshold: int = 1
    """The run stops when so many rows of the window are refused."""
    limits: Mapping[str, str] = field(default_factory=dict)
    """Which share of a batch may be refused, such as `{rows: 5%}`. `1% notify; 5% pause` also says what happens; the
    default is `stop`. `off` sets no limit."""
    retain: Mapping[str, str] | str = field(default=RETAIN, metadata={"like": "30d"})
    """How long the DLQ keeps rows that were replayed or discarded: one period, or periods by code, such as
    `{default: 30d, CAST: 7d}`. Rows that wait stay for ever."""
    budget: int | None = field(default=None, metadata={"like": "100000"})
    """How many refused rows may wait. With more the run stops before its next batch, until rows are replayed or
    discarded."""
    original: bool = True
    """Whether the DLQ keeps the row as it was read, beside the row that the refusing stage got."""
    destination: Destination | None = None
    """Where refused rows go. The default is a Delta table in the state; `discard` throws them away and counts them."""
    copy: Sequence[Destination] | Destination | None = None
    """One destination or several that get refused rows too, such as a Kafka topic. `stages` beside one of them choose
    rows of the DLQ, or change them."""
    on_failure: Literal["stop", "fallback"] = "stop"
    """What happens when the DLQ cannot take refused rows. `stop`: the run stops. `fallback`: they go to the `fallback`,
    and the run goes on."""
    fallback: Destination | None = None
    """The destination that gets refused rows while the DLQ cannot. `wherry dlq merge` brings them back into the
    DLQ."""

    def __post_init__(self) -> None:
        if self.window < 0:
            raise ValueError(f"window: expected 0 or more rows, got {self.window}")
        self._check_budget()
        if not 1 <= self.threshold <= MOST_NACKS:
            raise ValueError(f"threshold: expected 1 to {MOST_NACKS} refused rows, got {self.threshold}")
        self._check_destinations()
        self._check_fallback()
        for name, text in self.limits.items():
            if name != ROWS:
                raise ValueError(
                    f"limits.{name}: expected rows, which limits all refused rows of a batch; limits by code and by "
                    "weight are gone from Wherry"
                )
            if _parse_limits(text) is None:
                raise ValueError(
                    f"limits.{name}: expected off or a share such as 5%, 0.05, 5% pause or 1% notify; 5% stop, "
                    f"got {text!r}"
                )
        if 0 < self.window < self.threshold:
            raise ValueError(
                f"threshold: {self.threshold} refused rows never fit into a window of {self.window} rows; set a "
                "larger window, or 0 to never stop the run"
            )
        if self.list_limits() and self.window > 0 and self.threshold == 1:
            raise ValueError(
                "limits.rows: it has no effect, because the window stops the run at the first refused row; set "
                "window: 0, or a larger window and threshold"
            )

    def _check_budget(self) -> None:
        if self.budget is None:
            return
        if not isinstance(self.budget, int) or self.budget < 1:
            raise ValueError(f"budget: expected a number of rows, such as 100000, got {self.budget!r}")
        kind = "delta" if self.destination is None else self.destination.describe()["kind"]
        if kind != "delta":
            raise ValueError(f"budget: expected a DLQ of the kind delta, whose rows Wherry can count; got {kind}")

    def _check_destinations(self) -> None:
        given = {"destination": self.destination, "fallback": self.fallback}
        for option, each in [*given.items(), *(("copy", copy) for copy in self.copies)]:
            if each is not None and (each.replaces or each.ordered):
                raise ValueError(
                    f"{option}: expected a destination that only adds rows, such as delta with mode: append"
                )
        for stage in [stage for copy in self.copies for stage in copy.stages]:
            asks = stage.gathers or stage.prepares or type(stage).pin is not Stage.pin
            if stage.changes_rows or asks or not is_repeatable(stage):
                kind = type(stage).__name__.lower()
                raise ValueError(
                    f"copy: expected stages that take each row by itself, such as filter and select, got {kind}"
                )
        if self.copies and isinstance(self.destination, Discard):
            raise ValueError("copy: expected a DLQ that keeps rows, got discard; give the destination beside window")

    def _check_fallback(self) -> None:
        if self.on_failure not in ("stop", "fallback"):
            raise ValueError(f"on_failure: expected stop or fallback, got {self.on_failure!r}")
        if self.on_failure == "stop":
            if self.fallback is not None:
                raise ValueError("fallback: it has no effect; set on_failure: fallback, or remove it")
            return
        if self.fallback is None:
            raise ValueError(
                "on_failure: expected a fallback beside it, such as fallback: {delta: {path: /other/disk/refused}}"
            )
        if find_read_back(self.fallback) is None:
            raise ValueError(
                "fallback: expected a destination from which a merge can read the rows back: delta, files as parquet "
                "or json without partition_by, or kafka as json with a topic and without value, headers and "
                f"partition; got {self.fallback.describe()['kind']}"
            )
        if self.fallback.stages or getattr(self.fallback, "stamp", None) or self.fallback.by_lane:
            raise ValueError(
                "fallback: expected one place without stages and stamp, since it keeps refused rows as the DLQ does"
            )
        if self.destination is None:
            return
        kind = self.destination.describe()["kind"]
        if kind != "delta":
            raise ValueError(f"on_failure: expected a DLQ of the kind delta, since rows are merged into it; got {kind}")
        if self.destination.place == self.fallback.place:
            raise ValueError("fallback: expected another place than that of the DLQ, got the same")

    @property
    def periods(self) -> Mapping[str, str]:
        """How long rows are kept after they were replayed or discarded, by code. `default` is for all other codes."""
        given = {DEFAULT: self.retain} if isinstance(self.retain, str) else self.retain
        return {DEFAULT: RETAIN, **given}

    @property
    def copies(self) -> Sequence[Destination]:
        """The destinations that also get refused rows."""
        if self.copy is None:
            return ()
        return (self.copy,) if isinstance(self.copy, Destination) else self.copy

    @property
    def given_destinations(self) -> Sequence[Destination]:
        """The destination, the copies and the fallback that the definition gives. They are outside the state."""
        return [each for each in (self.destination, *self.copies, self.fallback) if each is not None]

    def list_limits(self) -> Sequence[Limit]:
        """Return the limits on one batch."""
        return _parse_limits(self.limits.get(ROWS, "off")) or ()


_LIMIT = re.compile(rf"((\d{{1,3}}(?:\.\d{{1,9}})?)\s*(%?))(?:\s+({'|'.join(get_args(LimitAction))}))?", re.ASCII)


def _parse_limits(text: str) -> Sequence[Limit] | None:
    """Return the limits in a text: none for `off`, None if the text is wrong."""
    if text == "off":
        return ()
    found = []
    for part in text.split(";"):
        match = _LIMIT.fullmatch(part.strip())
        share = float(match.group(2)) / (100 if match.group(3) else 1) if match else 2.0
        if match is None or share > 1:
            return None
        action = cast(LimitAction, match.group(4) or "stop")
        found.append(Limit(share=share, text=match.group(1), action=action))
    return found
