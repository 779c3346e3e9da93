"""Whether too many rows of a batch were refused: by the window, or by the limit that a code has of its own. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from destinations.dlq import Dlq
from origins.batch import JSON
from runners.nack_window import NackWindow


@dataclass(frozen=True, kw_only=True)
class Tripped:
    """Which row of the batch was one too many; `code` is the one whose own limit it was, or nothing for the window."""

    place: int
    code: str = ""
    rows: int = 0
    """How many rows of the batch have that code."""


def judged(
    before: NackWindow, dlq: Dlq, read: int, nacks: Sequence[int], codes: Sequence[tuple[int, str]]
) -> tuple[NackWindow, Tripped | None]:
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
    window, first = before.after(read, counted, dlq)
    tripped = [Tripped(place=first)] if first is not None else []
    for code, places in own.items():
        allowed = int((dlq.share(code) or 0.0) * read + 1e-9)
        if len(places) > allowed:
            tripped.append(Tripped(place=places[allowed], code=code, rows=len(places)))
    return window, min(tripped, key=lambda each: each.place, default=None)


def changed(dlq: Dlq, config: Mapping[str, JSON]) -> Dlq:
    """The settings with what somebody changed for the run that is under way."""
    return replace(dlq, **config) if config else dlq
