"""Entries of older formats as this version writes them. What an older wherry did not know of has its default."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from origins.batch import JSON
from runners.ledgers.entry import FORMAT, Entry

Body = Mapping[str, JSON]


def migrated(entry: Entry) -> Entry:
    """The entry in the format of today."""
    if entry.format == FORMAT:
        return entry
    change = _CHANGES.get(entry.kind)
    return replace(entry, format=FORMAT, body=change(entry.body) if change else entry.body)


def _plan(body: Body) -> Body:
    decision = body.get("decision")
    return {"pins": {}, "first": False, **body, "decision": decision and _decision(decision)}


def _decision(body: Body) -> Body:
    return {"sections": 1, "bases": {}, **body}


def _opened(body: Body) -> Body:
    """There was one origin, and its schema stood beside it."""
    if not body or "origins" in body:
        return body
    origin = body.get("origin") or {"name": "origin", "lanes": ["0"], "place": ""}
    schema = body.get("schema")
    return {**body, "origins": {origin["name"]: {"lanes": origin["lanes"], "place": origin["place"], "schema": schema}}}


def _snapshot(body: Body) -> Body:
    lanes = {name: _lane(lane) for name, lane in body["lanes"].items()}
    shared = {"held": {}, "done": [], "owners": _owners(body)}
    return {"midway": False, "backfills": {}, **shared, **body, "opened": _opened(body["opened"]), "lanes": lanes}


def _owners(body: Body) -> list[Body]:
    """There was one at most, and when it was heard stood beside it."""
    seq, at = body.get("heard", (0, ""))
    return [{**body["owner"], "heard": seq, "heard_at": at}] if body.get("owner") else []


def _lane(lane: Body) -> Body:
    return {**lane, **{name: lane[name] and _plan(lane[name]) for name in ("open", "told")}}


_CHANGES: Mapping[str, Callable[[Body], Body]] = {
    "open": _opened,
    "plan": _plan,
    "prepared": _decision,
    "snapshot": _snapshot,
}
