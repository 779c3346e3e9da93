"""Whether the spans of each lane follow one another: nothing left out between two batches, and nothing read twice."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Iterator, Sequence

from origins.batch import JSON
from runners.audits.finding import ACCEPT, Finding
from runners.audits.said import Said
from runners.ledgers.entry import Settled
from runners.state import is_aside

_GAP = (
    "Nobody set the offset there, so the ledger was changed or put together from two states. Put the newest ledger "
    "back from a backup. Where the lane is:  wherry offsets show FILE --json"
)
_TWICE = (
    "The rows between are in the destinations twice, unless these merge. Take them out by hand; "
    'if it is right as it is:  wherry repair FILE --accept ID --reason "…"'
)


def spans_of(said: Said) -> Iterator[Finding]:
    """What does not follow."""
    for lane, batches in said.lanes.items():
        yield from _numbers(lane, batches)
        if is_aside(lane):
            continue
        counting = [each for each in batches if said.state.carried(each)]
        yield from _chain(said, lane, counting)
    yield from _parts(said)
    yield from _changed(said)


def _numbers(lane: str, batches: Sequence[Settled]) -> Iterator[Finding]:
    for before, each in itertools.pairwise(batches):
        if each.number == before.number:
            yield Finding(
                code="TWICE",
                lane=lane,
                number=each.number,
                plans=[before.plan, each.plan],
                message=f"the ledger settled two batches of this number: {_span(before)} and {_span(each)}",
                repair="Two ledgers were put together, or one was written in. Put the right one back.",
            )


def _chain(said: Said, lane: str, batches: Sequence[Settled]) -> Iterator[Finding]:
    end: JSON = None
    number, ends = 0, {_text(None)}
    for each in batches:
        start = each.span["start"]
        if _text(start) != _text(end) and not said.jumped(lane, number, each.number):
            again = _text(start) in ends
            behind = f"behind batch {number}, which ends at {_text(end)}" if number else "at the lane's beginning"
            yield Finding(
                code="OVERLAP" if again else "GAP",
                lane=lane,
                number=each.number,
                plans=[each.plan],
                message=f"it begins at {_text(start)} and not {behind}: "
                + ("what lies between was carried twice" if again else "what lies between was never carried"),
                repair=_TWICE if again else f"{_GAP}\n{ACCEPT}",
            )
        end, number = each.span["end"], each.number
        ends.add(_text(end))
    offset = said.state.lane(lane).offset
    last = said.state.lane(lane).number
    if batches and _text(offset) != _text(end) and not said.jumped(lane, number, last + 1):
        yield Finding(
            code="GAP",
            lane=lane,
            number=number,
            plans=[batches[-1].plan],
            message=f"the lane's offset is {_text(offset)}, and its last batch ends at {_text(end)}",
            repair=f"{_GAP}\n{ACCEPT if lane in said.whole else _goes_back(lane, end)}",
        )


def _parts(said: Said) -> Iterator[Finding]:
    """A file that two batches of an origin have carried."""
    seen: dict[str, Settled] = {}
    for lane in sorted(said.whole):
        origin = lane.rpartition("/")[0]
        for each in said.lanes.get(lane, ()):
            for part in each.span["parts"] if said.state.carried(each) else ():
                before = seen.setdefault(f"{origin}\n{_text(part)}", each)
                if before is not each:
                    yield Finding(
                        code="OVERLAP",
                        lane=lane,
                        number=each.number,
                        plans=[each.plan],
                        message=f"it carried {part[0]}, which batch {before.number} of lane {before.lane} had carried",
                        repair=_TWICE,
                    )
                    break


def _changed(said: Said) -> Iterator[Finding]:
    """Files that are not any more what was carried."""
    for lane, changed in said.changed.items():
        for each in said.lanes[lane] if changed else ():
            names = [part[0] for part in each.span["parts"] if part[0] in changed] if said.state.carried(each) else []
            if names:
                more = f" and {len(names) - 1} more" if len(names) > 1 else ""
                yield Finding(
                    code="ORIGIN_CHANGED",
                    lane=lane,
                    number=each.number,
                    plans=[each.plan],
                    message=f"{names[0]}{more} changed after it was carried: {changed[names[0]]}",
                    repair=_again(said, each),
                )


def _goes_back(lane: str, end: JSON) -> str:
    """What carries all that is behind this offset, and nothing else."""
    where, offset = shlex.quote(lane), shlex.quote(_text(end))
    command = f'wherry offsets set FILE --lane {where} --offset {offset} --reason "…"'
    return f"Or carry what was left out, and nothing else:  {command}"


def _again(said: Said, settled: Settled) -> str:
    """What to do about a file that changed after it was carried."""
    new = "It is not read again by itself. Put the rows that are new into a file of their own: the next run carries it."
    behind = [each for each in said.lanes[settled.lane] if each.number >= settled.number and said.state.carried(each)]
    rewind = f'Or carry it and all behind it again:  wherry offsets rewind FILE --batches {len(behind)} --reason "…"'
    if said.doubles:
        rewind = (
            f"Do not rewind: {' and '.join(said.doubles)} would have its rows, and those of the batches behind, twice."
        )
    return f"{new}\n{rewind}\n{ACCEPT}"


def _span(settled: Settled) -> str:
    return f"{_text(settled.span['start'])} to {_text(settled.span['end'])}"


def _text(offset: JSON) -> str:
    return json.dumps(offset, sort_keys=True, ensure_ascii=False)
