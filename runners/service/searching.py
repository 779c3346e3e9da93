"""The operation `search`: what the index finds, and why something may be missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from runners.model.text import join_some
from runners.service import messages
from runners.service.operation import Caller, Invalid
from runners.service.reading import read_moment
from runners.service.search.index import IndexUnusable, Wanted
from runners.service.search.indexer import BEHIND, BROKEN, PROTECTED, ROUND, describe_protection
from runners.service.service import Service, to_answer


def search(service: Service, caller: Caller, ask: messages.Search) -> messages.HitList:
    """Find runs, batches and refused rows by their words, their status and their time, the newest first."""
    every = service.list_definitions(caller).definitions
    now = {name: describe_protection(each.pipeline) for name, each in every.items() if ask.pipeline in ("", name)}
    wanted = Wanted(
        text=ask.text,
        pipelines=now,
        kind=ask.kind,
        status=ask.status,
        since=read_moment(ask.since, "since"),
        until=read_moment(ask.until, "until"),
        limit=ask.limit,
        **({"before": _read_cursor(ask.cursor)} if ask.cursor else {}),
    )
    try:
        then, broken = service.index.read_source(PROTECTED), service.index.read_source(BROKEN)
        missing = {name for name in now if broken.get(name) or then.get(name, now[name]) != now[name]}
        found = service.index.search(replace(wanted, pipelines=[name for name in now if then.get(name) == now[name]]))
        last = service.index.read_marks("").get(ROUND)
    except IndexUnusable as error:
        return messages.HitList(hits=[], behind=f"The index cannot be used: {error}. See the lists of each pipeline.")
    return messages.HitList(
        hits=[to_answer(messages.Hit, body) for _, body in found],
        cursor=str(found[-1][0]) if len(found) == ask.limit else "",
        behind=_describe_behind(last, service.clock.now(), sorted(missing)),
    )


def _read_cursor(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise Invalid("cursor: expected the cursor of an earlier answer.")
    return int(text)


def _describe_behind(last: str | None, now: datetime, missing: Sequence[str]) -> str:
    if last is None:
        return "The index is being made."
    if now - datetime.fromisoformat(last) > timedelta(seconds=BEHIND):
        return f"The index is behind since {last}."
    return f"The index misses what is new in {join_some(missing)}." if missing else ""
