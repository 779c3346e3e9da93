"""Whether the state still fits a changed definition, and what a person decides if Wherry cannot know."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from destinations.capabilities import KnowsNewest
from destinations.destination import Destination, OpenDestination
from destinations.dlq import DLQ, FALLBACK
from origins.capabilities import KeepsParts, KnowsPlace
from origins.lazy import SparkSession
from origins.names import list_given_paths
from origins.origin import Origin
from origins.problems import refuse_unknown
from origins.store_access import canonicalise
from runners.model.entry import DestinationBody, Entry, OpenBody, OriginBody
from runners.model.errors import Refusal, check_reason
from runners.model.masking import hide_secrets
from runners.model.pipeline_state import PipelineState
from runners.model.planned_batch import PlannedBatch
from runners.model.spec import PipelineSpec
from runners.state.journal import Journal, find_newest_label
from runners.state.ledger import LedgerError
from runners.state.progress import apply_entries
from stages.mask import Mask

Recognises = Callable[[str], bool]
"""Whether the state knows this origin or destination, even if its place changed. The stored content decides."""


def make_recogniser(
    pipeline: PipelineSpec, destinations: Mapping[str, Destination], journal: Journal, spark: SparkSession
) -> Recognises:
    """Return a function that looks in a place for content that the state knows."""
    state, origins = journal.state, pipeline.origins_by_name

    def recognise(name: str) -> bool:
        if name in origins:
            origin, lanes = origins[name], [lane for lane in state.lanes if pipeline.owns(origins[name], lane)]
            offsets = [state.lanes[lane].offset for lane in lanes]
            return isinstance(origin, KnowsPlace) and origin.is_still(spark, offsets)
        called = name if name in state.identities else destinations[name].was or ""
        known = state.identities.get(called)
        return known is not None and destinations[name].is_still(spark, known, find_newest_label(journal, called))

    return recognise


def check_layout(
    pipeline: PipelineSpec,
    destinations: Mapping[str, Destination],
    state: PipelineState,
    ruling: OperatorOverrides,
    recognises: Recognises = lambda name: False,
) -> None:
    """Raises `Refusal` if the definition reads or writes in other places than the state remembers.

    A place counts as the same if it moved together with the state, or if `recognises` finds its content.
    """
    origins = pipeline.origins_by_name
    home, elsewhere = _DefinitionHome.of(pipeline, state.opened), list[_MovedPlace]()
    salts = mark_salts(pipeline)
    ruling.check({*origins, *destinations, *salts, DLQ, *([FALLBACK] if pipeline.dlq.fallback else [])})
    _check_salts(state.opened.salts, salts, ruling)
    before = state.opened.origins
    for name, origin in origins.items():
        if name in before and name not in ruling.fresh:
            _check_lanes(pipeline, origin, before[name].lanes)
            elsewhere += _compare_place(name, before[name], origin, home)
    elsewhere += _check_names(pipeline, before, origins, ruling, home)
    written = state.opened.destinations
    for name, destination in destinations.items():
        known = written.get(name) or written.get(destination.was or "")
        if known and name not in ruling.fresh:
            elsewhere += _compare_place(name, known, destination, home)
    asked = [each for each in elsewhere if each.name not in ruling.moved and not recognises(each.name)]
    if asked:
        raise _refuse_moved(asked)


_ELSEWHERE = "If `state:` was changed, change it back: only the old state knows which batches were delivered.\n"


def check_newest(
    journal: Journal,
    pipeline: str,
    destinations: Mapping[str, Destination],
    opened: Mapping[str, OpenDestination],
    ruling: OperatorOverrides,
) -> None:
    """Raises `LedgerError` if a destination has a batch that the ledger never planned: the ledger is not the newest."""
    for name, destination in destinations.items():
        place = None if name in ruling.fresh else opened[name]
        label = place.newest(pipeline) if isinstance(place, KnowsNewest) else None
        if label is None or label.destination not in (name, destination.was):
            continue
        lane, number = label.lane, label.number
        if number <= journal.state.get_lane(lane).number:
            continue
        planned = apply_entries(journal.ledger.read(journal.state.seq), journal.state).get_lane(lane).number
        if number > planned:
            raise LedgerError(
                f"'{name}' has batch {number} of lane {lane} of this pipeline, but the ledger has planned "
                f"{f'up to {planned}' if planned else 'none'}. The ledger is lost, or was replaced by an older copy.",
                hint=(_ELSEWHERE if journal.state.ended is None else "")
                + "Put the newest ledger back. Wherry wrote nothing, since rows could be delivered twice. To see the "
                "extra batches:  wherry audit FILE\n"
                f'If rows may be there twice, or {name} was emptied:  wherry run FILE --fresh {name} --reason "…"',
            )


def _check_lanes(pipeline: PipelineSpec, origin: Origin, before: Sequence[str]) -> None:
    now = list(pipeline.lanes_of(origin))
    if list(before) != now and not (isinstance(origin, KeepsParts) and ("/" in before[0]) == ("/" in now[0])):
        raise Refusal(
            f"The lanes of '{origin.name}' were {', '.join(before)} and are now {', '.join(now)}; its offsets belong "
            "to the old lanes.",
            hint="Put the old lanes back, or start over with a new `name:` and `state:`.",
        )


@dataclass(frozen=True, kw_only=True)
class _DefinitionHome:
    """Whether the definition's folder moved together with the state in it. Then the paths relative to it moved too."""

    same: bool = False
    """Whether the state has the same path as before, relative to the definition."""
    before: str = ""
    """The definition's former folder. Only for a state that was written before Wherry recorded paths as given."""
    now: str = ""

    @staticmethod
    def of(pipeline: PipelineSpec, opened: OpenBody) -> _DefinitionHome:
        """Return this from the place of the state in the definition, and its place when the last run opened."""
        state = pipeline.state if isinstance(pipeline.state, str) else ""
        given = list_given_paths([state])
        if not given:
            return _DefinitionHome()
        if opened.state != "":
            return _DefinitionHome(same=opened.state == given[0])
        kept = json.loads(opened.definition or "{}").get("state")
        tail = f"{os.sep}{given[0]}"
        if not isinstance(kept, str) or not kept.endswith(tail):
            return _DefinitionHome()
        now = os.path.abspath(state).removesuffix(tail)
        return _DefinitionHome(same=True, before=kept.removesuffix(tail), now=now)

    def has(self, known: OriginBody | DestinationBody, end: Origin | Destination) -> bool:
        """Whether an origin or destination has the same path as the state knows, relative to the definition."""
        if not self.same or not end.given_paths:
            return False
        if known.given is not None:
            return tuple(known.given) == tuple(end.given_paths)
        place = hide_secrets(end).place
        return bool(place.startswith(self.now) and known.place == self.before + place.removeprefix(self.now))


@dataclass(frozen=True, kw_only=True)
class _MovedPlace:
    """An origin or a destination whose place differs from the place that the state remembers."""

    name: str
    before: str
    now: str


def _compare_place(
    name: str, known: OriginBody | DestinationBody, end: Origin | Destination, home: _DefinitionHome
) -> list[_MovedPlace]:
    now = hide_secrets(end).place
    same = canonicalise_all(known.place) == canonicalise_all(now) or home.has(known, end)
    return [] if same else [_MovedPlace(name=name, before=known.place, now=now)]


def canonicalise_all(place: str) -> str:
    """Return a place, which may be several paths, with each path in its canonical form."""
    return ", ".join(map(canonicalise, place.split(", ")))


def _refuse_moved(parts: Sequence[_MovedPlace]) -> Refusal:
    """Return the error with all places that changed, and one command for all of them."""
    moves = [f"'{each.name}' was {each.before} and is now {each.now}" for each in parts]
    moved, fresh = (" ".join(f"{option} {each.name}" for each in parts) for option in ("--moved", "--fresh"))
    apart = "; you can combine both options" if len(parts) > 1 else ""
    return Refusal(
        f"{'; '.join(moves)}; the state belongs to the old {'places' if len(parts) > 1 else 'place'}.",
        hint="If the new place has the same content:  wherry run FILE " + moved + ' --reason "…"\n'
        f"If it has other content{apart}:  wherry run FILE " + fresh + ' --reason "…"',
    )


def _check_names(
    pipeline: PipelineSpec,
    before: Mapping[str, OriginBody],
    origins: Mapping[str, Origin],
    ruling: OperatorOverrides,
    home: _DefinitionHome,
) -> list[_MovedPlace]:
    """Check the names of origins that are gone or new.

    A pipeline's only origin may change its name. Raises `Refusal` if one of several origins is gone and another is new,
    because it may have been renamed.
    """
    gone = [name for name in before if name not in origins]
    new = [name for name in origins if name not in before and name not in ruling.fresh]
    if not gone or not new:
        return []
    if pipeline.origin is not None and len(before) == 1:
        _check_lanes(pipeline, pipeline.origin, before[gone[0]].lanes)
        return _compare_place(new[0], before[gone[0]], pipeline.origin, home)
    raise Refusal(
        f"The origin{'s' * (len(gone) > 1)} {', '.join(gone)} {'are' if len(gone) > 1 else 'is'} gone and "
        f"{', '.join(new)} {'are' if len(new) > 1 else 'is'} new; the ledger keeps progress by name.",
        hint=f'To read a new origin from its beginning:  wherry run FILE --fresh {new[0]} --reason "…"\n'
        "If it is the same origin, put its old name back.",
    )


def mark_salts(pipeline: PipelineSpec) -> Mapping[str, list[str]]:
    """Return a mark of each salt that a stage hashes with, by `STAGE.salt`, in the form that the ledger keeps.

    A mark shows whether a salt has changed. It is too short to confirm a guess of the salt.
    """
    ends: list[Origin | Destination] = [*pipeline.given_origins, *pipeline.destinations]
    stages = [*pipeline.stages, *(stage for end in ends for stage in end.stages)]
    found: dict[str, list[str]] = {}
    for stage in stages:
        if isinstance(stage, Mask) and stage.salt:
            mark = hmac.new(stage.salt.encode(), b"wherry: which salt it is", hashlib.sha256).hexdigest()[:_MARK]
            found.setdefault(f"{stage.name}.salt", []).append(mark)
    return found


_MARK = 8
"""The length of a salt's mark. One in four thousand million other salts has the same mark."""


def _check_salts(before: Mapping[str, Sequence[str]], now: Mapping[str, list[str]], ruling: OperatorOverrides) -> None:
    for name, marks in now.items():
        if name in before and list(before[name]) != marks and name not in ruling.fresh:
            stage = name.removesuffix(".salt")
            raise Refusal(
                f"The salt of the stage '{stage}' has changed since the last run: values would get other hashes than "
                "in the delivered rows.",
                hint="Put the old salt back.\n"
                f'To use new hashes from now on:  wherry run FILE --fresh {name} --reason "…"',
            )


def start_over(
    pipeline: PipelineSpec, journal: Journal, ruling: OperatorOverrides, *, stand: Collection[str] = ()
) -> None:
    """Set the lanes of origins that are read whole or are `fresh` back to their beginning.

    An origin in `stand` keeps its lanes, unless it is `fresh`. Batch numbers continue, so that no destination mistakes
    a new batch for an old batch.
    """
    state = journal.state
    for name, origin in pipeline.origins_by_name.items():
        if (origin.read != "whole" or name in stand) and name not in ruling.fresh:
            continue
        lanes = {lane: each for lane, each in state.lanes.items() if pipeline.owns(origin, lane) and each.committed}
        if lanes:
            body = {
                "lanes": {lane: {"offset": None} for lane in lanes},
                "forgotten": [[lane, 1, each.number] for lane, each in lanes.items()],
                "who": "wherry",
                "reason": f"{name} is read whole" if origin.read == "whole" else ruling.reason,
            }
            journal.record(Entry(kind="set", body=body))


def resolve_names(destinations: Mapping[str, Destination]) -> Mapping[str, str]:
    """Return the destinations' current names by all names that they have or had."""
    was = {each.was: name for name, each in destinations.items() if each.was}
    return {**was, **{name: name for name in destinations}}


def waive(journal: Journal, destinations: Mapping[str, Destination], ruling: OperatorOverrides) -> None:
    """Drop the open batches of destinations that a person forgets.

    Raises `Refusal` for a destination of an open batch that is missing and that the person does not forget. If a batch
    waits for no other destination, Wherry cancels it and plans its rows again.
    """
    known = resolve_names(destinations)
    for plan in journal.state.open_plans:
        gone = [name for name in plan.destinations if name not in known]
        for name in gone:
            if name not in ruling.forget:
                raise Refusal(
                    f"Batch {plan.batch.number} of lane {plan.batch.lane} is open and waits for the destination "
                    f"'{name}', which the definition no longer has.",
                    hint="Put the destination back until the batch is finished. If it was renamed, set "
                    f"`was: {name}` at its new name.\n"
                    f'To drop the batch there:  wherry run FILE --forget {name} --reason "…"',
                )
        if plan.decision is not None and set(plan.destinations) - {*gone, *ruling.forget}:
            gone = [name for name in plan.destinations if name in {*gone, *ruling.forget}]
        if gone:
            journal.record(*_list_waived(plan, gone, ruling))


def _list_waived(plan: PlannedBatch, gone: list[str], ruling: OperatorOverrides) -> Iterator[Entry]:
    batch = plan.batch
    body = {"forget": gone, "reason": ruling.reason}
    yield Entry(kind="waive", lane=batch.lane, plan=batch.plan, body=body)
    if set(plan.destinations) == set(gone):
        yield Entry(kind="cancel", lane=batch.lane, plan=batch.plan)


@refuse_unknown
@dataclass(frozen=True, kw_only=True)
class OperatorOverrides:
    """A person's decisions for one run."""

    moved: tuple[str, ...] = ()
    """Origins and destinations at a new place, with the same content."""
    fresh: tuple[str, ...] = ()
    """Origins and destinations whose place has other content now.

    Wherry reads such an origin from its beginning. Such a destination gets rows from the next batch on.
    """
    forget: tuple[str, ...] = ()
    """Destinations that get no open batch any more, because they are gone or refuse the decided rows."""
    assume: Literal["", "delivered", "missing"] = ""
    """Whether an open batch counts as delivered or as missing if its destination cannot say whether it has it."""
    reason: str = ""

    def __post_init__(self) -> None:
        if self:
            check_reason(self.reason, "This option")

    def __bool__(self) -> bool:
        return bool(self.moved or self.fresh or self.forget or self.assume)

    def check(self, names: set[str]) -> None:
        """Raises `Refusal` for a moved or fresh name that is not among these names."""
        for name in (*self.moved, *self.fresh):
            if name not in names:
                raise Refusal(f"Nothing has the name '{name}'; there are: {', '.join(sorted(names))}.")
