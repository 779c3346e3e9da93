"""What the ledger says that was carried, as an audit compares it with what is there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from origins.batch import JSON
from runners.dlq.letters import decided_in
from runners.ledgers.entry import Settled
from runners.plan import Plan
from runners.state import BACKFILL, State


@dataclass(frozen=True)
class Said:
    """The ledger's side. `settled` are all batches that were ever settled, those that were rewound included."""

    state: State
    settled: Sequence[Settled]
    later: frozenset[str] = frozenset()
    """The plans that were known to the ledger when all others had been asked: what landed meanwhile is no surprise."""
    running: bool = False
    """Whether somebody is at work just now."""
    changed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Of lanes that name what they are read from, what has changed since it was carried, and how."""
    whole: frozenset[str] = field(default_factory=frozenset)
    """The lanes whose batches name what they are read from, each part once (files)."""
    doubles: Sequence[str] = ()
    """The destinations in which rows that are carried again are there twice."""

    @cached_property
    def counting(self) -> Sequence[Settled]:
        """The batches that still count as carried."""
        return [each for each in self.settled if self.state.carried(each)]

    @cached_property
    def known(self) -> frozenset[str]:
        """The plans that the ledger knows."""
        plans = {each.plan for each in self.settled} | {plan.batch.plan for plan in self.state.open_plans}
        return frozenset(plans) | self.later

    @cached_property
    def decided(self) -> frozenset[str]:
        """The ids of refused rows on which somebody decided: these may be gone."""
        return decided_in(self.settled).ids

    @cached_property
    def letters(self) -> Mapping[str, Sequence[str]]:
        """The same by the plan that refused them."""
        found: dict[str, list[str]] = {}
        for each in self.decided:
            found.setdefault(each.rpartition("/")[0], []).append(each)
        return found

    @cached_property
    def lanes(self) -> Mapping[str, Sequence[Settled]]:
        """The batches by lane, in the order of their numbers."""
        found: dict[str, list[Settled]] = {}
        for each in sorted(self.settled, key=lambda each: each.number):
            found.setdefault(each.lane, []).append(each)
        return found

    def open_in(self, lane: str) -> Plan | None:
        """The batch of a lane that is on its way."""
        return self.state.lane(lane).open

    def jumped(self, lane: str, first: int, second: int) -> bool:
        """Whether somebody set the lane's offset between these two batches."""
        return any(name == lane and first <= number < second for name, number in self.state.jumps)


def meant_for(settled: Settled) -> Sequence[str]:
    """The destinations that get the batch."""
    counts = settled.counts
    delivered, branches = counts.get("delivered") or {}, counts.get("branches") or {}
    if "owed" in counts:
        return tuple(dict.fromkeys([*delivered, *counts["owed"]]))
    return tuple(delivered) if settled.lane.startswith(BACKFILL) else tuple(dict.fromkeys([*delivered, *branches]))


def rows_for(settled: Settled, name: str) -> int | None:
    """How many rows the destination got; None where nobody could say."""
    delivered: Mapping[str, JSON] = settled.counts.get("delivered") or {}
    if name in delivered:
        rows: int | None = delivered[name]
        return rows
    branch: Mapping[str, JSON] = (settled.counts.get("branches") or {}).get(name) or {}
    return branch.get("expected")


def decided_for(settled: Settled, name: str) -> int:
    """How many rows were decided for the destination; of a batch of which that was not known, all that were read."""
    branch: Mapping[str, JSON] = (settled.counts.get("branches") or {}).get(name) or {}
    rows: int = branch.get("expected", 0)
    return rows


def same_rows(settled: Iterable[Settled]) -> Mapping[str, Sequence[Settled]]:
    """The batches by what they are read from, those of backfills included."""
    found: dict[str, list[Settled]] = {}
    for each in settled:
        found.setdefault(rows_of(each), []).append(each)
    return found


def rows_of(settled: Settled) -> str:
    """What the batch is read from, so that a backfill of it has the same."""
    lane = settled.lane.partition("/")[2] if settled.lane.startswith(BACKFILL) else settled.lane
    span = settled.span
    return json.dumps([lane, span["start"], span["end"], span["parts"]], sort_keys=True)
