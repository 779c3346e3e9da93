"""What changed between two runs: whether the state still belongs to what the definition reads and writes."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from destinations.destination import Destination
from destinations.dlq import DLQ
from origins.batch import JSON
from origins.given_path import list_given_paths
from origins.origin import Origin
from runners.definitions.secrets import hide_secrets
from runners.errors import Refusal
from runners.journal import Journal
from runners.ledgers.entry import Entry
from runners.ledgers.ledger import LedgerError
from runners.pipeline import Pipeline
from runners.plan import Plan
from runners.progress import fold_all
from runners.ruling import Ruling
from runners.state import State
from stages.mask import Mask

Recognises = Callable[[str], bool]
"""Whether an origin or a destination is the one that the state knows, wherever it was: what is there says so itself."""


def check_layout(
    pipeline: Pipeline,
    destinations: Mapping[str, Destination],
    state: State,
    ruling: Ruling,
    recognises: Recognises = lambda name: False,
) -> None:
    """Raises `Refusal` when the definition reads or writes elsewhere than the state remembers, unless told what lies
    there now. What moved together with the state, or is recognised, is the same."""
    origins = {origin.name or "origin": origin for origin in pipeline.every_origin}
    home, elsewhere = _Home.of(pipeline, state.opened), list[_Elsewhere]()
    salts = mark_salts(pipeline)
    ruling.check({*origins, *destinations, *salts, DLQ})
    _check_salts(state.opened.get("salts", {}), salts, ruling)
    before: Mapping[str, JSON] = state.opened.get("origins", {})
    for name, origin in origins.items():
        if name in before and name not in ruling.fresh:
            _check_lanes(pipeline, origin, before[name]["lanes"])
            elsewhere += _compare_place(name, before[name], origin, home)
    elsewhere += _check_names(pipeline, before, origins, ruling, home)
    written: Mapping[str, JSON] = state.opened.get("destinations", {})
    for name, destination in destinations.items():
        known = written.get(name) or written.get(destination.was or "")
        if known and name not in ruling.fresh:
            elsewhere += _compare_place(name, known, destination, home)
    asked = [each for each in elsewhere if each.name not in ruling.moved and not recognises(each.name)]
    if asked:
        raise _refuse_moved(asked)


_ELSEWHERE = (
    "If `state:` names another place than it did, put that back: what was carried is known there, and nowhere else.\n"
)


def check_newest(journal: Journal, pipeline: str, destinations: Mapping[str, Destination], ruling: Ruling) -> None:
    """Raises `LedgerError` when a destination has a batch that the ledger never planned: it is not the newest one."""
    for name, destination in destinations.items():
        label = None if name in ruling.fresh else destination.newest(pipeline)
        if label is None or label["destination"] not in (name, destination.was):
            continue
        lane, number = label["lane"], label["number"]
        if number <= journal.state.lane(lane).number:
            continue
        planned = fold_all(journal.ledger.read(journal.state.seq), journal.state).lane(lane).number
        if number > planned:
            raise LedgerError(
                f"'{name}' has batch {number} of lane {lane} of this pipeline, and the ledger has planned "
                f"{f'up to {planned}' if planned else 'none'}: it is lost, or an older one was put in its place.",
                hint=(_ELSEWHERE if journal.state.ended is None else "")
                + "Put the newest ledger back; nothing was written, and without it rows would come twice. What is "
                "there beyond it is told by  wherry audit FILE\n"
                f'If rows may come twice, or {name} was emptied:  --fresh {name} --reason "…"',
            )


def _check_lanes(pipeline: Pipeline, origin: Origin, before: list[str]) -> None:
    now = list(pipeline.lanes_of(origin))
    if before != now and not (origin.regroups and ("/" in before[0]) == ("/" in now[0])):
        raise Refusal(
            f"The lanes of '{origin.name}' were {', '.join(before)} and are now {', '.join(now)}; "
            "its offsets belong to the lanes it had.",
            hint="Put them back, or give the pipeline a new `name:` and `state:` to start over.",
        )


@dataclass(frozen=True, kw_only=True)
class _Home:
    """Whether the folder of the definition moved with the state in it, so that what was given relative to it did."""

    same: bool = False
    """Whether the state lies where it lay, as seen from the definition."""
    before: str = ""
    """Where the definition was, of a state that was written before paths were recorded as they were given."""
    now: str = ""

    @staticmethod
    def of(pipeline: Pipeline, opened: Mapping[str, JSON]) -> _Home:
        """By where the definition keeps its state, and where it kept it when the last run opened."""
        state = pipeline.state if isinstance(pipeline.state, str) else ""
        given = list_given_paths([state])
        if not given:
            return _Home()
        if "state" in opened:
            return _Home(same=opened["state"] == given[0])
        kept = json.loads(opened.get("definition") or "{}").get("state")
        tail = f"{os.sep}{given[0]}"
        if not isinstance(kept, str) or not kept.endswith(tail):
            return _Home()
        now = os.path.abspath(state).removesuffix(tail)
        return _Home(same=True, before=kept.removesuffix(tail), now=now)

    def has(self, known: Mapping[str, JSON], end: Origin | Destination) -> bool:
        """Whether an end that the state knows is in its old place, as seen from the definition."""
        if not self.same or not end.given:
            return False
        if "given" in known:
            return bool(known["given"] == list(end.given))
        place = hide_secrets(end).place
        return bool(place.startswith(self.now) and known["place"] == self.before + place.removeprefix(self.now))


@dataclass(frozen=True, kw_only=True)
class _Elsewhere:
    """An origin or a destination whose place is another one than the state remembers."""

    name: str
    before: str
    now: str


def _compare_place(name: str, known: Mapping[str, JSON], end: Origin | Destination, home: _Home) -> list[_Elsewhere]:
    now = hide_secrets(end).place
    same = known["place"] == now or home.has(known, end)
    return [] if same else [_Elsewhere(name=name, before=known["place"], now=now)]


def _refuse_moved(parts: Sequence[_Elsewhere]) -> Refusal:
    """All that lies elsewhere, and one command for all of it."""
    said = [f"'{each.name}' was {each.before} and is now {each.now}" for each in parts]
    moved, fresh = (" ".join(f"{option} {each.name}" for each in parts) for option in ("--moved", "--fresh"))
    apart = "; where it is some of each, name each by its own option" if len(parts) > 1 else ""
    return Refusal(
        f"{'; '.join(said)}; what the state knows belongs to the {'places' if len(parts) > 1 else 'place'} of before.",
        hint="The same content is there now:  wherry run FILE " + moved + ' --reason "…"\n'
        f"Something else is{apart}:  wherry run FILE " + fresh + ' --reason "…"',
    )


def _check_names(
    pipeline: Pipeline, before: Mapping[str, JSON], origins: Mapping[str, Origin], ruling: Ruling, home: _Home
) -> list[_Elsewhere]:
    """An only origin may change its name; among several, one that is new while another is gone was perhaps renamed."""
    gone = [name for name in before if name not in origins]
    new = [name for name in origins if name not in before and name not in ruling.fresh]
    if not gone or not new:
        return []
    if pipeline.origin is not None and len(before) == 1:
        _check_lanes(pipeline, pipeline.origin, before[gone[0]]["lanes"])
        return _compare_place(new[0], before[gone[0]], pipeline.origin, home)
    raise Refusal(
        f"The origin{'s' * (len(gone) > 1)} {', '.join(gone)} {'are' if len(gone) > 1 else 'is'} gone and "
        f"{', '.join(new)} {'are' if len(new) > 1 else 'is'} new; progress belongs to a name.",
        hint=f'A new one, to be read from its beginning:  --fresh {new[0]} --reason "…"\n'
        "The same one: put its name back.",
    )


def mark_salts(pipeline: Pipeline) -> Mapping[str, list[str]]:
    """By `STAGE.salt` a mark of each salt that a stage hashes with, as the ledger keeps it.

    It tells whether a salt is the one of before. It is too short to confirm what somebody guesses the salt to be.
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
"""The characters of a salt's mark: one in four thousand million other salts has the same."""


def _check_salts(before: Mapping[str, JSON], now: Mapping[str, list[str]], ruling: Ruling) -> None:
    for name, marks in now.items():
        if name in before and before[name] != marks and name not in ruling.fresh:
            stage = name.removesuffix(".salt")
            raise Refusal(
                f"The salt of the stage '{stage}' is another than in the run before: a value would get another hash "
                "than it has in the rows that were carried.",
                hint="Put the salt of before back.\n"
                f'If values are to get new hashes from here on:  wherry run FILE --fresh {name} --reason "…"',
            )


def start_over(pipeline: Pipeline, journal: Journal, ruling: Ruling, *, stand: Collection[str] = ()) -> None:
    """Put the lanes of origins that are read whole, or that are new in an old place, back to their beginning; not those
    that `stand` as they were carried.

    Numbers go on, so that no destination takes what comes for what it has.
    """
    state = journal.state
    for origin in pipeline.every_origin:
        name = origin.name or "origin"
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


def resolved(destinations: Mapping[str, Destination]) -> Mapping[str, str]:
    """The names of destinations by all names that they have or had."""
    was = {each.was: name for name, each in destinations.items() if each.was}
    return {**was, **{name: name for name in destinations}}


def waive(journal: Journal, destinations: Mapping[str, Destination], ruling: Ruling) -> None:
    """See to it that all destinations of which an open batch waits are there, or are forgotten on a person's word.

    A batch that waits for nobody else is cancelled, and its rows are planned anew.
    """
    known = resolved(destinations)
    for plan in journal.state.open_plans:
        gone = [name for name in plan.destinations if name not in known]
        for name in gone:
            if name not in ruling.forget:
                raise _waits_for(plan, name)
        if plan.decision is not None and set(plan.destinations) - {*gone, *ruling.forget}:
            gone = [name for name in plan.destinations if name in {*gone, *ruling.forget}]
        if gone:
            journal.record(*_waived(plan, gone, ruling))


def _waived(plan: Plan, gone: list[str], ruling: Ruling) -> Iterator[Entry]:
    batch = plan.batch
    body = {"forget": gone, "reason": ruling.reason}
    yield Entry(kind="waive", lane=batch.lane, plan=batch.plan, body=body)
    if set(plan.destinations) == set(gone):
        yield Entry(kind="cancel", lane=batch.lane, plan=batch.plan)


def _waits_for(plan: Plan, name: str) -> Refusal:
    return Refusal(
        f"Batch {plan.batch.number} of lane {plan.batch.lane} is open and waits for the destination '{name}', "
        "which the definition no longer has.",
        hint=f"Put it back until that batch is finished; or, if it was renamed, give the new one `was: {name}`.\n"
        f'If it is to get that batch no more:  --forget {name} --reason "…"',
    )
