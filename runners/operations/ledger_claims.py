"""What the ledger says that was carried, as an audit compares it, and whether the spans of each lane follow one
another."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from origins.batch import JSON
from runners.model.entry import Settled
from runners.model.pipeline_state import BACKFILL, PipelineState, is_aside
from runners.operations.audit_finding import ACCEPT, Finding
from runners.state.journal import collect_decided


@dataclass(frozen=True)
class LedgerClaims:
    """The ledger's side. `settled` are all batches that were ever settled, those that were rewound included."""

    state: PipelineState
    settled: Sequence[Settled]
    later: frozenset[str] = frozenset()
    """The plans that were known to the ledger when all others had been asked: what landed meanwhile is no surprise."""
    running: bool = False
    """Whether a run is at work just now."""
    changed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Of lanes that name what they are read from, what has changed since it was carried, and how."""
    whole: frozenset[str] = field(default_factory=frozenset)
    """The lanes whose batches name what they are read from, each part once (files)."""
    doubles: Sequence[str] = ()
    """The destinations in which rows that are carried again are there twice."""

    @cached_property
    def counting(self) -> Sequence[Settled]:
        """The batches that still count as carried."""
        return [each for each in self.settled if self.state.is_carried(each)]

    @cached_property
    def known(self) -> frozenset[str]:
        """The plans that the ledger knows."""
        plans = {each.plan for each in self.settled} | {plan.batch.plan for plan in self.state.open_plans}
        return frozenset(plans) | self.later

    @cached_property
    def decided(self) -> frozenset[str]:
        """The ids of refused rows that were replayed or discarded: these may be gone."""
        return collect_decided(self.settled).ids

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

    def was_moved(self, lane: str, first: int, second: int) -> bool:
        """Whether a command set the lane's offset between these two batches."""
        return any(name == lane and first <= number < second for name, number in self.state.jumps)


def list_meant_destinations(settled: Settled) -> Sequence[str]:
    """The destinations that get the batch."""
    counts = settled.counts
    delivered, branches = counts.get("delivered") or {}, counts.get("branches") or {}
    if "owed" in counts:
        return tuple(dict.fromkeys([*delivered, *counts["owed"]]))
    return tuple(delivered) if settled.lane.startswith(BACKFILL) else tuple(dict.fromkeys([*delivered, *branches]))


def count_rows_for(settled: Settled, name: str) -> int | None:
    """How many rows the destination got; None if unknown."""
    delivered = settled.counts.get("delivered") or {}
    if name in delivered:
        return delivered[name]
    branch = (settled.counts.get("branches") or {}).get(name)
    return branch["expected"] if branch else None


def count_decided_for(settled: Settled, name: str) -> int:
    """How many rows were decided for the destination; of a batch of which that was not known, all that were read."""
    branch = (settled.counts.get("branches") or {}).get(name)
    return branch["expected"] if branch else 0


def group_same_rows(settled: Iterable[Settled]) -> Mapping[str, Sequence[Settled]]:
    """The batches by what they are read from, those of backfills included."""
    found: dict[str, list[Settled]] = {}
    for each in settled:
        found.setdefault(make_rows_key(each), []).append(each)
    return found


def make_rows_key(settled: Settled) -> str:
    """What the batch is read from, so that a backfill of it has the same."""
    lane = settled.lane.partition("/")[2] if settled.lane.startswith(BACKFILL) else settled.lane
    span = settled.span
    return json.dumps([lane, span["start"], span["end"], span["parts"]], sort_keys=True)


_GAP = (
    "No command set the offset there, so the ledger was changed or joined from two states. Put the newest ledger back "
    "from a backup. See the lane's offset:  wherry offsets show FILE --json"
)
_TWICE = (
    "The rows between are in the destinations twice, except in merges. Delete them by hand. "
    'If everything is right as it is:  wherry repair FILE --accept ID --reason "…"'
)


def check_spans(said: LedgerClaims) -> Iterator[Finding]:
    """What does not follow."""
    for lane, batches in said.lanes.items():
        yield from _check_numbers(lane, batches)
        if is_aside(lane):
            continue
        counting = [each for each in batches if said.state.is_carried(each)]
        yield from _check_offsets(said, lane, counting)
    yield from _check_parts(said)
    yield from _check_changed(said)


def _check_numbers(lane: str, batches: Sequence[Settled]) -> Iterator[Finding]:
    for before, each in itertools.pairwise(batches):
        if each.number == before.number:
            yield Finding(
                code="TWICE",
                lane=lane,
                number=each.number,
                plans=[before.plan, each.plan],
                message=(
                    f"the ledger settled two batches of this number: {_format_span(before)} and {_format_span(each)}"
                ),
                repair="Two ledgers were joined, or one was changed. Put the right ledger back.",
            )


def _check_offsets(said: LedgerClaims, lane: str, batches: Sequence[Settled]) -> Iterator[Finding]:
    end: JSON = None
    number, ends = 0, {_format_offset(None)}
    for each in batches:
        start = each.span["start"]
        if _format_offset(start) != _format_offset(end) and not said.was_moved(lane, number, each.number):
            again = _format_offset(start) in ends
            behind = (
                f"after batch {number}, which ends at {_format_offset(end)}" if number else "at the lane's beginning"
            )
            yield Finding(
                code="OVERLAP" if again else "GAP",
                lane=lane,
                number=each.number,
                plans=[each.plan],
                message=f"it begins at {_format_offset(start)}, not {behind}: "
                + ("the rows between were processed twice" if again else "the rows between were never processed"),
                repair=_TWICE if again else f"{_GAP}\n{ACCEPT}",
            )
        end, number = each.span["end"], each.number
        ends.add(_format_offset(end))
    offset = said.state.get_lane(lane).offset
    last = said.state.get_lane(lane).number
    if batches and _format_offset(offset) != _format_offset(end) and not said.was_moved(lane, number, last + 1):
        yield Finding(
            code="GAP",
            lane=lane,
            number=number,
            plans=[batches[-1].plan],
            message=f"the lane's offset is {_format_offset(offset)}, and its last batch ends at {_format_offset(end)}",
            repair=f"{_GAP}\n{ACCEPT if lane in said.whole else _suggest_going_back(lane, end)}",
        )


def _check_parts(said: LedgerClaims) -> Iterator[Finding]:
    """A file that two batches of an origin have carried."""
    seen: dict[str, Settled] = {}
    for lane in sorted(said.whole):
        origin = lane.rpartition("/")[0]
        for each in said.lanes.get(lane, ()):
            for part in each.span["parts"] if said.state.is_carried(each) else ():
                before = seen.setdefault(f"{origin}\n{_format_offset(part)}", each)
                if before is not each:
                    yield Finding(
                        code="OVERLAP",
                        lane=lane,
                        number=each.number,
                        plans=[each.plan],
                        message=f"it has {_get_name(part)}, which batch {before.number} of lane {before.lane} had "
                        "already",
                        repair=_TWICE,
                    )
                    break


def _check_changed(said: LedgerClaims) -> Iterator[Finding]:
    """Files that are not any more what was carried."""
    for lane, changed in said.changed.items():
        for each in said.lanes[lane] if changed else ():
            names = (
                [name for name in map(_get_name, each.span["parts"]) if name in changed]
                if said.state.is_carried(each)
                else []
            )
            if names:
                more = f" and {len(names) - 1} more" if len(names) > 1 else ""
                yield Finding(
                    code="ORIGIN_CHANGED",
                    lane=lane,
                    number=each.number,
                    plans=[each.plan],
                    message=f"{names[0]}{more} changed after it was processed: {changed[names[0]]}",
                    repair=_suggest_repair(said, each),
                )


def _get_name(part: JSON) -> str:
    """A part that is a file begins with its name."""
    return str(part[0])


def _suggest_going_back(lane: str, end: JSON) -> str:
    """What carries all that is behind this offset, and nothing else."""
    where, offset = shlex.quote(lane), shlex.quote(_format_offset(end))
    command = f'wherry offsets set FILE --lane {where} --offset {offset} --reason "…"'
    return f"Or process only the rows that were left out:  {command}"


def _suggest_repair(said: LedgerClaims, settled: Settled) -> str:
    """What to do about files that changed after they were carried. Batches with the same advice are one finding."""
    new = (
        "Wherry does not read it again. Put the new rows into a file of their own for the next run.\n"
        "Or replace its old rows by its new ones:  wherry redo FILE --file NAME"
    )
    behind = [
        each for each in said.lanes[settled.lane] if each.number >= settled.number and said.state.is_carried(each)
    ]
    rewind = (
        f'Or process it and all later batches again:  wherry offsets rewind FILE --batches {len(behind)} --reason "…"'
    )
    if said.doubles:
        rewind = f"Do not rewind: {' and '.join(said.doubles)} would have its rows, and rows of later batches, twice."
    return f"{new}\n{rewind}\n{ACCEPT}"


def _format_span(settled: Settled) -> str:
    return f"{_format_offset(settled.span['start'])} to {_format_offset(settled.span['end'])}"


def _format_offset(offset: JSON) -> str:
    return json.dumps(offset, sort_keys=True, ensure_ascii=False)
