"""How a pipeline is, as its state says: nothing is started for it, and no secret is needed."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from destinations.dead_letters import asked, count_dead_letters
from destinations.destination import Destination
from origins.batch import JSON
from runners.clock import Clock
from runners.codes import Advice, advice
from runners.dlq.letters import decided
from runners.journal import Journal
from runners.offsets import open_plan
from runners.owners.taking import lives, owner_lives
from runners.pipeline import Pipeline
from runners.place import Place, check_pipeline
from runners.reports.run_history import KILLED
from runners.session import obtain
from runners.state import State, is_aside

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def status(pipeline: Pipeline, file: str = "FILE", *, definition: str = "") -> dict[str, JSON]:
    """`{"pipeline", "state", "owner", "lanes", "open", "dlq", "last_run", "first", "next"}`; `next` is what to type,
    and `first` what has to be changed before. Where several runs share the lanes, `owners` has each of them, with its
    `lanes` and whether it `lives`. `differs` says that one goes by another definition than the one of which this is the
    hash, and `stopping` why somebody asked the run under way to stop."""
    place = Place.of(pipeline)

    def spark() -> SparkSession:
        return obtain(pipeline.spark.conf, pipeline.spark.packages)

    journal = Journal(place.ledger(spark() if place.needs_spark else None))
    state = journal.state
    check_pipeline(pipeline, place, state)
    how = _how(place, state)
    dlq = pipeline.dlq.destination or place.dlq()
    refused = count_dead_letters(dlq, spark)
    waits = _waits(refused, dlq, spark, journal) if refused else refused
    last = _last_run(state, how)
    coming = _next(how, last, waits)
    return {
        "pipeline": pipeline.name,
        "state": how,
        "owner": _owner(state.owner or {}) if how == "running" else None,
        "differs": how == "running" and _differs(state, definition),
        "stopping": state.stopping if how == "running" else "",
        **({"owners": _owners(state, place)} if _is_shared(state) else {}),
        "lanes": {
            name: {"offset": lane.offset, "number": lane.committed, "behind": None}
            for name, lane in state.lanes.items()
            if not is_aside(name)
        },
        "open": [open_plan(state, name) for name, lane in state.lanes.items() if lane.open],
        "dlq": {"rows": refused, "unreplayed": waits},
        "last_run": last,
        "first": coming.first,
        "next": coming.command.replace("FILE", shlex.quote(file)),
    }


def _waits(refused: int, dlq: Destination, spark: Callable[[], SparkSession], journal: Journal) -> int:
    """How many of the of the DLQ nobody carried again or discarded."""
    known = decided(journal).ids
    if not known:
        return refused
    return sum(row["id"] not in known for row in asked(dlq, spark, "SELECT id FROM {table}"))


def _how(place: Place, state: State) -> str:
    if state.owner is not None:
        return "running" if lives(state, place, Clock()) else "failed"
    if state.ended is None:
        return "never_run"
    return {"succeeded": "idle"}.get(state.ended["status"], str(state.ended["status"]))


def _differs(state: State, definition: str) -> bool:
    """Whether one of those who run it is known to go by another definition."""
    return bool(definition) and any(owner.get("hash", definition) != definition for owner in state.owners)


def _owner(owner: Mapping[str, JSON]) -> dict[str, JSON]:
    return {
        "host": owner.get("host"),
        "process": owner.get("pid"),
        "run": owner.get("run"),
        "since": owner.get("at"),
        "heard": owner.get("heard_at") or None,
    }


def _is_shared(state: State) -> bool:
    return any(owner.get("assignment", "single") != "single" for owner in state.owners)


def _owners(state: State, place: Place) -> list[JSON]:
    return [
        {
            **_owner(owner),
            "lanes": list(state.lanes_of(owner["owner"])),
            "lives": owner_lives(owner, place, Clock()),
        }
        for owner in state.owners
    ]


def _last_run(state: State, how: str) -> Mapping[str, JSON] | None:
    """How the last run ended; while one is under way nothing."""
    if state.owner is None or how == "running":
        return state.ended if state.owner is None else None
    owner = state.owner
    return {
        "run": owner.get("run"),
        "status": KILLED,
        "reason": f"process {owner.get('pid')} on {owner.get('host')} ended without a word",
        "at": owner.get("heard_at"),
        "batches": None,
        "read": None,
        "error": None,
    }


def _next(how: str, last: Mapping[str, JSON] | None, refused: int | None) -> Advice:
    if how == "running":
        return Advice("wherry status FILE")
    if how == "failed" and last is not None and last.get("error"):
        return advice(last["error"]["code"])
    return Advice("wherry dlq show FILE" if how == "idle" and refused else "wherry run FILE")
