"""How a pipeline is, as its state says: nothing is started for it, and no secret is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from destinations.dead_letters import count_dead_letters
from origins.batch import JSON
from runners.journal import Journal
from runners.offsets import open_plan
from runners.ownership import StateLock, host_identity
from runners.pipeline import Pipeline
from runners.place import Place, check_pipeline
from runners.progress import BACKFILL, State
from runners.session import obtain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def status(pipeline: Pipeline, file: str = "FILE") -> dict[str, JSON]:
    """`{"pipeline", "state", "owner", "lanes", "open", "dlq", "last_run", "next"}`; `next` is what to type."""
    place = Place.of(pipeline)

    def spark() -> SparkSession:
        return obtain(pipeline.spark.conf, pipeline.spark.packages)

    state = Journal(place.ledger(spark() if place.needs_spark else None)).state
    check_pipeline(pipeline, place, state)
    how = _how(place, state)
    refused = count_dead_letters(pipeline.dlq.destination or place.dlq(), spark)
    return {
        "pipeline": pipeline.name,
        "state": how,
        "owner": _owner(state) if how == "running" else None,
        "lanes": {
            name: {"offset": lane.offset, "number": lane.committed, "behind": None}
            for name, lane in state.lanes.items()
            if not name.startswith(BACKFILL)
        },
        "open": [open_plan(state, name) for name, lane in state.lanes.items() if lane.open],
        "dlq": {"rows": refused, "unreplayed": refused},
        "last_run": state.ended if state.owner is None else None,
        "next": _next(how, refused, file),
    }


def _how(place: Place, state: State) -> str:
    if state.owner is not None:
        elsewhere = state.owner["host"] != host_identity()["host"]
        return "running" if elsewhere or StateLock(place.lock).held() else "failed"
    if state.ended is None:
        return "never_run"
    return {"succeeded": "idle"}.get(state.ended["status"], str(state.ended["status"]))


def _owner(state: State) -> JSON:
    owner = state.owner or {}
    return {"host": owner.get("host"), "process": owner.get("pid"), "run": owner.get("run"), "since": owner.get("at")}


def _next(how: str, refused: int | None, file: str) -> str:
    if how in ("never_run", "failed", "stopped"):
        return f"wherry run {file}"
    if how == "running":
        return f"wherry status {file}"
    return f"wherry dlq show {file}" if refused else f"wherry run {file}"
