"""What the ledger records as processed, for an audit. Checks that the spans of each lane follow one another."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from origins.batch import JSON
from runners.model.entry import Settled
from runners.model.pipeline_state import BACKFILL, PipelineState, is_aside, make_rows_key
from runners.operations.audit.finding import ACCEPT, Finding
from runners.state.journal import collect_decided


@dataclass(frozen=True)
class LedgerClaims:
    """The ledger's side of an audit. `settled` has all batches that were ever settled, including rewound batches."""

    state: PipelineState
    settled: Sequence[Settled]
    later: frozenset[str] = frozenset()
    """The plans that the ledger knew after the destinations were asked. Batches delivered meanwhile are no finding."""
    running: bool = False
    """Whether a run is active now."""
    changed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By lane, what has changed at the origin since it was processed, and how. Only for lanes in `whole`."""
    whole: frozenset[str] = field(default_factory=frozenset)
    """The lanes whose batches name the parts that they read, each part once (files)."""
    doubles: Sequence[str] = ()
    """The destinations that have rows twice after the rows are processed again."""

    @cached_property
    def counting(self) -> Sequence[Settled]:
        """The batches that still count as processed."""
        return [settled for settled in self.settled if self.state.is_carried(settled)]

    @cached_property
    def known(self) -> frozenset[str]:
        plans = {settled.plan for settled in self.settled} | {plan.batch.plan for plan in self.state.open_plans}
        return frozenset(plans) | self.later

    @cached_property
    def decided(self) -> frozenset[str]:
        """The ids of refused rows that were replayed or discarded. These rows may be missing."""
        return collect_decided(self.settled).ids

    @cached_property
    def letters(self) -> Mapping[str, Sequence[str]]:
        """The same ids by the plan that refused the rows."""
        letters: dict[str, list[str]] = {}
        for letter in self.decided:
            letters.setdefault(letter.rpartition("/")[0], []).append(letter)
        return letters

    @cached_property
    def lanes(self) -> Mapping[str, Sequence[Settled]]:
        """The batches by lane, in the order of their numbers."""
        lanes: dict[str, list[Settled]] = {}
        for settled in sorted(self.settled, key=lambda settled: settled.number):
            lanes.setdefault(settled.lane, []).append(settled)
        return lanes

    @cached_property
    def same_rows(self) -> Mapping[str, Sequence[Settled]]:
        """The batches by the rows that they read, including batches of backfills."""
        batches: dict[str, list[Settled]] = {}
        for settled in self.settled:
            batches.setdefault(make_rows_key(settled), []).append(settled)
        return batches

    def was_moved(self, lane: str, first: int, second: int) -> bool:
        """Whether a command set the lane's offset between these two batches."""
        return any(name == lane and first <= number < second for name, number in self.state.jumps)


def list_meant_destinations(settled: Settled) -> Sequence[str]:
    counts = settled.counts
    if counts.owed is not None:
        return tuple(dict.fromkeys([*counts.delivered, *counts.owed]))
    more = () if settled.lane.startswith(BACKFILL) else counts.branches
    return tuple(dict.fromkeys([*counts.delivered, *more]))


def count_rows_for(settled: Settled, name: str) -> int | None:
    """Return how many rows the destination got, or None if that is unknown."""
    if name in settled.counts.delivered:
        return settled.counts.delivered[name]
    branch = settled.counts.branches.get(name)
    return branch.expected if branch else None


def count_decided_for(settled: Settled, name: str) -> int:
    """Return how many rows were decided for the destination. If that was unknown, these are all rows read."""
    branch = settled.counts.branches.get(name)
    return branch.expected if branch else 0


_GAP = (
    "No command set the offset there, so the ledger was changed or joined from two states. Put the newest ledger back "
    "from a backup. See the lane's offset:  wherry offsets FILE --json"
)
_TWICE = (
    "The rows between are in the destinations twice, except in merges. Delete them by hand. "
    'If everything is right as it is:  wherry repair FILE --accept ID --reason "…"'
)


def check_spans(claims: LedgerClaims) -> Iterator[Finding]:
    for lane, batches in claims.lanes.items():
        for before, settled in itertools.pairwise(batches):
            if settled.number == before.number:
                spans = f"{_format_span(before)} and {_format_span(settled)}"
                message = f"the ledger settled two batches of this number: {spans}"
                repair = "Two ledgers were joined, or one was changed. Put the right ledger back."
                yield Finding.about(settled, "TWICE", message, repair, plans=[before.plan, settled.plan])
        if not is_aside(lane):
            yield from _check_offsets(claims, lane, [each for each in batches if claims.state.is_carried(each)])
    yield from _check_parts(claims)
    yield from _check_changed(claims)


def _check_offsets(claims: LedgerClaims, lane: str, batches: Sequence[Settled]) -> Iterator[Finding]:
    end: JSON = None
    number, ends = 0, {_format_offset(None)}
    for settled in batches:
        start = settled.span.start
        if _format_offset(start) != _format_offset(end) and not claims.was_moved(lane, number, settled.number):
            begins = f"it begins at {_format_offset(start)}"
            behind = (
                f"after batch {number}, which ends at {_format_offset(end)}" if number else "at the lane's beginning"
            )
            if _format_offset(start) in ends:
                message = f"{begins}, not {behind}: the rows between were processed twice"
                yield Finding.about(settled, "OVERLAP", message, _TWICE)
            else:
                message = f"{begins}, not {behind}: the rows between were never processed"
                yield Finding.about(settled, "GAP", message, f"{_GAP}\n{ACCEPT}")
        end, number = settled.span.end, settled.number
        ends.add(_format_offset(end))
    state = claims.state.get_lane(lane)
    moved = claims.was_moved(lane, number, state.number + 1)
    if batches and _format_offset(state.offset) != _format_offset(end) and not moved:
        offset = _format_offset(state.offset)
        message = f"the lane's offset is {offset}, and its last batch ends at {_format_offset(end)}"
        repair = f"{_GAP}\n{ACCEPT if lane in claims.whole else _suggest_going_back(lane, end)}"
        yield Finding.about(batches[-1], "GAP", message, repair)


def _check_parts(claims: LedgerClaims) -> Iterator[Finding]:
    """Yield a finding for each file that two batches of an origin processed."""
    seen: dict[str, Settled] = {}
    for lane in sorted(claims.whole):
        origin = lane.rpartition("/")[0]
        for settled in claims.lanes.get(lane, ()):
            for part in settled.span.parts if claims.state.is_carried(settled) else ():
                before = seen.setdefault(f"{origin}\n{_format_offset(part)}", settled)
                if before is not settled:
                    which = f"batch {before.number} of lane {before.lane}"
                    message = f"it has {_get_name(part)}, which {which} had already"
                    yield Finding.about(settled, "OVERLAP", message, _TWICE)
                    break


def _check_changed(claims: LedgerClaims) -> Iterator[Finding]:
    """Yield a finding for each file that changed after it was processed."""
    for lane, changed in claims.changed.items():
        for settled in claims.lanes[lane] if changed else ():
            names = [name for name in map(_get_name, settled.span.parts) if name in changed]
            if names and claims.state.is_carried(settled):
                more = f" and {len(names) - 1} more" if len(names) > 1 else ""
                message = f"{names[0]}{more} changed after it was processed: {changed[names[0]]}"
                yield Finding.about(settled, "ORIGIN_CHANGED", message, _suggest_repair(claims, settled, names[0]))


def _get_name(part: JSON) -> str:
    """Return the name of a part that is a file. The part begins with it."""
    return str(part[0])


def _suggest_going_back(lane: str, end: JSON) -> str:
    """Return the command that processes only the rows after this offset."""
    where, offset = shlex.quote(lane), shlex.quote(_format_offset(end))
    command = f'wherry offsets FILE --lane {where} --offset {offset} --reason "…"'
    return f"Or process only the rows that were left out:  {command}"


def _suggest_repair(claims: LedgerClaims, settled: Settled, name: str) -> str:
    """Return the advice about files that changed after processing. Batches with the same advice become one finding."""
    new = (
        "Wherry does not read it again. Put the new rows into a file of their own for the next run.\n"
        f"Or replace its old rows by its new ones:  wherry redo FILE --file {shlex.quote(name)}"
    )
    lane = [each for each in claims.lanes[settled.lane] if claims.state.is_carried(each)]
    back = sum(each.number >= settled.number for each in lane)
    rewind = f'Or process it and all later batches again:  wherry offsets FILE --back {back} --reason "…"'
    if claims.doubles:
        rewind = f"Do not rewind: {' and '.join(claims.doubles)} would have its rows, and rows of later batches, twice."
    return f"{new}\n{rewind}\n{ACCEPT}"


def _format_span(settled: Settled) -> str:
    return f"{_format_offset(settled.span.start)} to {_format_offset(settled.span.end)}"


def _format_offset(offset: JSON) -> str:
    return json.dumps(offset, sort_keys=True, ensure_ascii=False)
