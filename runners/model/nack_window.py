"""The window over a lane's last rows that says when there were too many nacks."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

from destinations.dlq import Dlq


class DlqSettings(TypedDict, total=False):
    """The settings of the DLQ that can be changed while a run is under way."""

    window: int
    threshold: int
    limits: Mapping[str, str]


class WindowBody(TypedDict):
    """A window as the ledger keeps it."""

    rows: int
    nacks: Sequence[int]


@dataclass(frozen=True, kw_only=True)
class NackWindow:
    """How many rows a lane has read, and where its latest nacks stood. A value: a batch gives the next one."""

    rows: int = 0
    nacks: tuple[int, ...] = ()
    """The places of the latest nacks among all rows of the lane, counted from 1; fewer than `threshold`."""

    def advance(self, rows: int, nacks: Sequence[int], dlq: Dlq) -> tuple[NackWindow, int | None]:
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

    def json(self) -> WindowBody:
        """As the ledger keeps it."""
        return {"rows": self.rows, "nacks": list(self.nacks)}

    @staticmethod
    def of(value: WindowBody | None) -> NackWindow:
        """From the ledger."""
        return NackWindow(rows=value["rows"], nacks=tuple(value["nacks"])) if value else NackWindow()


@dataclass(frozen=True, kw_only=True)
class TrippedLimit:
    """Which row of the batch was one too many; `code` is the one whose own limit it was, or nothing for the window."""

    place: int
    code: str = ""
    rows: int = 0
    """How many rows of the batch have that code."""


def judge_limits(
    before: NackWindow, dlq: Dlq, read: int, nacks: Sequence[int], codes: Sequence[tuple[int, str]]
) -> tuple[NackWindow, TrippedLimit | None]:
    """The window after a batch of `read` rows whose nacks stood at `nacks`, and what tripped, the earliest row first.

    `codes` says why each of them was refused, where a code has a limit of its own: such a row is not counted in the
    window, and trips when more than its share of the batch's rows have that code.
    """
    own: dict[str, list[int]] = {}
    for place, code in sorted(codes):
        if dlq.share(code) is not None:
            own.setdefault(code, []).append(place)
    apart = Counter(place for places in own.values() for place in places)
    counted = sorted((Counter(nacks) - apart).elements())
    window, first = before.advance(read, counted, dlq)
    tripped = [TrippedLimit(place=first)] if first is not None else []
    for code, places in own.items():
        allowed = int((dlq.share(code) or 0.0) * read + 1e-9)
        if len(places) > allowed:
            tripped.append(TrippedLimit(place=places[allowed], code=code, rows=len(places)))
    return window, min(tripped, key=lambda each: each.place, default=None)


def apply_config(dlq: Dlq, config: DlqSettings) -> Dlq:
    """The settings with the changes for the run that is under way."""
    return replace(dlq, **config) if config else dlq
