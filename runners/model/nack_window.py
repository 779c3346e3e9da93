"""When too many rows were refused: the window over a lane's last rows, and the limits of one batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from destinations.dlq import ROWS, Dlq, Limit, LimitAction
from origins.codec import LEFT_OUT, encode


@dataclass(frozen=True, kw_only=True)
class DlqSettings:
    """The settings of the DLQ that were changed during a run. The others are None."""

    window: int | None = field(default=None, metadata=LEFT_OUT)
    threshold: int | None = field(default=None, metadata=LEFT_OUT)
    limits: Mapping[str, str] | None = field(default=None, metadata=LEFT_OUT)


@dataclass(frozen=True, kw_only=True)
class NackWindow:
    """How many rows a lane has read, and the places of its latest nacks.

    The window is immutable: each batch gives a new one.
    """

    rows: int = 0
    nacks: tuple[int, ...] = ()
    """The places of the latest nacks among all rows of the lane, counted from 1. They are fewer than `threshold`."""

    def advance(self, rows: int, nacks: Sequence[int], dlq: Dlq) -> tuple[NackWindow, int | None]:
        """Return the window after a batch, and the place in the batch of the row that trips it, or None.

        The batch has `rows` rows. `nacks` are the places of its refused rows, ascending from 1.
        """
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


@dataclass(frozen=True, kw_only=True)
class TrippedLimit:
    """The limit that a batch exceeded, or the window if `limit` is None."""

    place: int
    """The place in the batch of the first row beyond the limit."""
    limit: Limit | None = None
    rows: int = 0
    """How many rows of the batch the limit counts."""
    share: float = 0.0
    """Their share of the batch."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The verdict on a batch with refused rows."""

    window: NackWindow
    """The window after the batch."""
    tripped: TrippedLimit | None = None
    """Why the batch is not delivered, or None if it is delivered."""
    exceeded: TrippedLimit | None = None
    """The highest exceeded limit that the run only reports."""


def judge_limits(before: NackWindow, dlq: Dlq, read: int, nacks: Sequence[int]) -> Judgement:
    """Judge a batch of `read` rows whose refused rows are at the places `nacks`, ascending from 1.

    A limit that stops the run goes before a limit that pauses it. Then the earliest row decides.
    """
    window, first = before.advance(read, nacks, dlq)
    broken = [TrippedLimit(place=first)] if first is not None else []
    for limit in dlq.list_limits():
        allowed = int(limit.share * read + _ROUNDING)
        if len(nacks) > allowed:
            share = min(1.0, len(nacks) / read) if read else 1.0
            broken.append(TrippedLimit(place=nacks[allowed], limit=limit, rows=len(nacks), share=share))
    ending = [each for each in broken if get_action(each) != "notify"]
    if ending:
        tripped = min(ending, key=lambda each: (get_action(each) == "pause", each.place))
        return Judgement(window=window, tripped=tripped)
    exceeded = max(broken, key=lambda each: each.limit.share if each.limit is not None else 0.0, default=None)
    return Judgement(window=window, exceeded=exceeded)


_ROUNDING = 1e-9
"""The rounding error that a product of a share and a number of rows may have."""


def get_action(tripped: TrippedLimit) -> LimitAction:
    """Return what happens because of the excess. The window always stops the run."""
    return tripped.limit.action if tripped.limit is not None else "stop"


def describe_limit(tripped: TrippedLimit, read: int) -> str:
    """Describe how much was refused, and the limit."""
    assert tripped.limit is not None
    were = "was" if tripped.rows == 1 else "were"
    refused = "its only row" if read == 1 else f"{tripped.rows:,} of its {read:,} rows"
    return f"{refused} {were} refused (limit {tripped.limit.text} of a batch)"


def apply_config(dlq: Dlq, config: DlqSettings) -> Dlq:
    """Return the settings with the changes for the current run. Older versions recorded other limits than `rows`."""
    if config.limits is not None:
        config = replace(config, limits={name: text for name, text in config.limits.items() if name == ROWS})
    return replace(dlq, **encode(config))
