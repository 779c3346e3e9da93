"""When too many rows were refused: the window over a lane's last rows, and the limits of one batch."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypedDict

from destinations.dlq import ROWS, WEIGHT, Dlq, Limit, LimitAction
from origins.quick_dataclass import dataclass


class DlqSettings(TypedDict, total=False):
    """The settings of the DLQ that can be changed during a run."""

    window: int
    threshold: int
    limits: Mapping[str, str]


class WindowBody(TypedDict):
    """A window as the ledger stores it."""

    rows: int
    nacks: Sequence[int]


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

    def json(self) -> WindowBody:
        """Return the window as the ledger stores it."""
        return {"rows": self.rows, "nacks": list(self.nacks)}

    @staticmethod
    def of(value: WindowBody | None) -> NackWindow:
        """Make a window from what the ledger stores."""
        return NackWindow(rows=value["rows"], nacks=tuple(value["nacks"])) if value else NackWindow()


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
class RowWeights:
    """The weight of a batch and of its refused rows, from the rows that have a number."""

    weighed: int
    """How many rows of the batch have a number."""
    total: float
    """The sum of the absolute values of these numbers."""
    refused_weighed: int
    """How many of the refused rows have a number."""
    refused: float
    """The sum of the absolute values of these numbers."""

    def compute_share(self, *, read: int, nacked: int) -> float:
        """Return the refused rows' share of the batch's weight.

        A row without a number weighs as much as the average row with a number. If no row weighs anything, all weigh the
        same.
        """
        average = self.total / self.weighed if self.weighed else 0.0
        whole = self.total + average * max(0, read - self.weighed)
        part = self.refused + average * max(0, nacked - self.refused_weighed)
        if whole <= 0:
            whole, part = float(read), float(nacked)
        return min(1.0, part / whole) if whole else 0.0


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The verdict on a batch with refused rows."""

    window: NackWindow
    """The window after the batch."""
    tripped: TrippedLimit | None = None
    """Why the batch is not delivered, or None if it is delivered."""
    exceeded: Sequence[TrippedLimit] = ()
    """The exceeded limits that the run only reports."""


def judge_limits(
    before: NackWindow,
    dlq: Dlq,
    read: int,
    nacks: Sequence[int],
    codes: Sequence[tuple[int, str]] = (),
    weights: RowWeights | None = None,
) -> Judgement:
    """Judge a batch of `read` rows whose refused rows are at the places `nacks`.

    `codes` gives the codes of the refused rows whose codes have a limit. The window does not count rows whose code is
    counted apart. `weights` is given where rows are weighed. An excess that stops the run takes precedence over one
    that pauses it, then the earliest row decides. A batch that is not delivered has no other exceeded limits.
    """
    by_code: dict[str, list[int]] = {}
    for place, code in sorted(codes):
        by_code.setdefault(code, []).append(place)
    apart = Counter(place for code, places in by_code.items() if dlq.counts_apart(code) for place in places)
    counted = sorted((Counter(nacks) - apart).elements())
    window, first = before.advance(read, counted, dlq)
    broken = [TrippedLimit(place=first)] if first is not None else []
    for limit in dlq.list_limits() if nacks else ():
        if limit.of == WEIGHT:
            share = weights.compute_share(read=read, nacked=len(nacks)) if weights else 0.0
            if share > limit.share + _ROUNDING:
                broken.append(TrippedLimit(place=max(nacks), limit=limit, rows=len(nacks), share=share))
            continue
        places = sorted(nacks) if limit.of == ROWS else by_code.get(limit.of, [])
        allowed = int(limit.share * read + _ROUNDING)
        if len(places) > allowed:
            share = min(1.0, len(places) / read) if read else 1.0
            broken.append(TrippedLimit(place=places[allowed], limit=limit, rows=len(places), share=share))
    ending = [each for each in broken if get_action(each) != "notify"]
    if ending:
        tripped = min(ending, key=lambda each: (get_action(each) == "pause", each.place))
        return Judgement(window=window, tripped=tripped)
    highest = {each.limit.of: each for each in sorted(broken, key=_get_share) if each.limit is not None}
    return Judgement(window=window, exceeded=tuple(highest[name] for name in dlq.limits if name in highest))


_ROUNDING = 1e-9
"""The rounding error that a product of a share and a number of rows may have."""


def get_action(tripped: TrippedLimit) -> LimitAction:
    """Return what happens because of the excess. The window always stops the run."""
    return tripped.limit.action if tripped.limit is not None else "stop"


def _get_share(tripped: TrippedLimit) -> float:
    return tripped.limit.share if tripped.limit is not None else 0.0


def describe_limit(tripped: TrippedLimit, read: int, weigh: str | None) -> str:
    """Describe how much was refused, and the limit."""
    assert tripped.limit is not None
    limit = tripped.limit
    if limit.of == WEIGHT:
        share = format_share(tripped.share)
        lost = "1 refused row has" if tripped.rows == 1 else f"{tripped.rows:,} refused rows have"
        return f"its {lost} {share} of its {weigh} (limit {limit.text} of a batch)"
    were = "was" if tripped.rows == 1 else "were"
    refused = "its only row" if read == 1 else f"{tripped.rows:,} of its {read:,} rows"
    return f"{refused} {were} refused (limit {limit.text} of a batch)"


def format_share(share: float) -> str:
    """Format a share as a percentage. A share above zero never appears as zero."""
    return f"{100 * share:.1f}%" if share >= 0.001 or not share else "less than 0.1%"


def apply_config(dlq: Dlq, config: DlqSettings) -> Dlq:
    """Return the settings with the changes for the current run."""
    return replace(dlq, **config) if config else dlq
