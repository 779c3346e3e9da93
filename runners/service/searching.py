"""The operation `search`: what the index finds, or what can be found without it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from origins.errors import WherryError
from runners.pipeline import Pipeline
from runners.running.choice import Choice
from runners.service import messages
from runners.service.index import Wanted
from runners.service.indexer import BEHIND, ROUND
from runners.service.operation import Caller, Invalid
from runners.service.reading import read_moment
from runners.service.service import Service, to_answer
from runners.state.location import StateLocation

_LOOKED_AT = 20
"""In how many pipelines something is found without the index."""


def search(service: Service, caller: Caller, ask: messages.Search) -> messages.HitList:
    """Find runs, batches and refused rows by their words, their status and their time, the newest first."""
    names = service.list_definitions(caller).definitions.keys()
    wanted = Wanted(
        text=ask.text,
        pipelines=[name for name in names if ask.pipeline in ("", name)],
        kind=ask.kind,
        status=ask.status,
        since=read_moment(ask.since, "since"),
        until=read_moment(ask.until, "until"),
        limit=ask.limit,
        **({"before": _read_cursor(ask.cursor)} if ask.cursor else {}),
    )
    try:
        found = service.index.search(wanted)
        last = service.index.read_marks("").get(ROUND)
    except (sqlite3.Error, OSError) as error:
        hits = sorted(_search_states(service, ask, wanted), key=lambda each: each["at"], reverse=True)
        return messages.HitList(
            hits=[to_answer(messages.Hit, each) for each in hits[: ask.limit]],
            behind=f"The index cannot be used ({error}), so only the newest runs and refused rows were looked at.",
        )
    return messages.HitList(
        hits=[to_answer(messages.Hit, body) for _, body in found],
        cursor=str(found[-1][0]) if len(found) == ask.limit else "",
        behind=_describe_behind(last, service.clock.now()),
    )


def _read_cursor(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise Invalid("cursor: expected the cursor of an earlier answer.")
    return int(text)


def _describe_behind(last: str | None, now: datetime) -> str:
    if last is None:
        return "The index is being made."
    return (
        f"The index is behind since {last}." if now - datetime.fromisoformat(last) > timedelta(seconds=BEHIND) else ""
    )


def _search_states(service: Service, ask: messages.Search, wanted: Wanted) -> Iterator[Mapping[str, Any]]:
    """Yield the newest runs and refused rows that fit, from the states of some pipelines."""
    definitions = service.list_definitions().definitions
    for name in [*wanted.pipelines][:_LOOKED_AT]:
        spec = definitions[name].pipeline
        if StateLocation.of(spec).needs_spark:
            continue
        pipeline = Pipeline.of(spec)
        try:
            yield from _search_runs(pipeline, wanted) if ask.kind in ("", "run") else ()
            yield from (
                _search_rows(pipeline, wanted) if ask.kind in ("", "row") and ask.status in ("", "refused") else ()
            )
        except WherryError:  # the state of one pipeline hides no other
            continue


def _search_runs(pipeline: Pipeline, wanted: Wanted) -> Iterator[Mapping[str, Any]]:
    words = wanted.text.lower().split()
    for run in pipeline.history.list(status=wanted.status, since=wanted.since, limit=wanted.limit):
        facts = [run[name] for name in ("run", "status", "reason", "error", "definition", "host") if run[name]]
        text, began = " ".join(facts), datetime.fromisoformat(run["started_at"])
        if all(word in text.lower() for word in words) and (wanted.until is None or began < wanted.until):
            yield {
                **{name: run[name] for name in ("pipeline", "run", "status")},
                "kind": "run",
                "name": run["run"],
                "at": run["started_at"],
                "text": text,
            }


def _search_rows(pipeline: Pipeline, wanted: Wanted) -> Iterator[Mapping[str, Any]]:
    choice = Choice(text=wanted.text.strip(), since=wanted.since, until=wanted.until)
    for row in pipeline.refused.list(wanted.limit, choice=choice):
        yield {
            "kind": "row",
            "pipeline": pipeline.name,
            "name": row["id"],
            "status": "refused",
            "run": row["run"],
            "at": row["nacked_at"],
            "text": row["message"],
        }
