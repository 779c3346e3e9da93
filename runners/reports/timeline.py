"""When each lane was at work in a run, and on what: from events alone, and of a bounded size."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

from origins.batch import JSON
from runners.clock import Clock
from runners.events import BatchSettled, Event

MOST_LANES = 30
"""So many lanes have a timeline: those that were at work first."""
MOST_PARTS = 40
"""Into so many parts a lane's timeline falls at most; then two neighbours become one."""


@dataclass
class Timeline:
    """A listener that remembers where the time went; seconds count from its beginning."""

    clock: Clock
    lanes: dict[str, list[dict[str, JSON]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._began = self.clock.elapsed()

    def __call__(self, event: Event) -> None:
        if not isinstance(event, BatchSettled) or event.owed:
            return
        lane = event.batch.lane
        if lane not in self.lanes and len(self.lanes) >= MOST_LANES:
            return
        parts = self.lanes.setdefault(lane, [])
        end = self.clock.elapsed() - self._began
        took = sum(event.seconds.values())
        spent = {phase: seconds for phase, seconds in event.seconds.items() if seconds}
        parts.append({"start": max(0.0, end - took), "end": end, "batches": 1, "spent": spent})
        if len(parts) > MOST_PARTS:
            self.lanes[lane] = [_joined(*pair) for pair in itertools.zip_longest(parts[::2], parts[1::2])]

    def json(self) -> dict[str, JSON]:
        """By lane, the parts in their order: `start`, `end`, `batches`, and where their time went as `spent`."""
        return {lane: [_rounded(part) for part in parts] for lane, parts in self.lanes.items()}


def _joined(first: Mapping[str, JSON], second: Mapping[str, JSON] | None) -> dict[str, JSON]:
    if second is None:
        return dict(first)
    phases = {**first["spent"], **second["spent"]}
    spent = {phase: first["spent"].get(phase, 0.0) + second["spent"].get(phase, 0.0) for phase in phases}
    return {
        "start": first["start"],
        "end": second["end"],
        "batches": first["batches"] + second["batches"],
        "spent": spent,
    }


def _rounded(part: Mapping[str, JSON]) -> dict[str, JSON]:
    spent = {phase: round(seconds, 3) for phase, seconds in part["spent"].items()}
    return {**part, "start": round(part["start"], 3), "end": round(part["end"], 3), "spent": spent}
