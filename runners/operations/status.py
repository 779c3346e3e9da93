"""The state of one pipeline, or of all pipelines of a folder. It starts nothing and needs no secret."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import cast

from destinations.dead_letters import count_dead_letters
from destinations.destination import DestinationError
from destinations.dlq import DLQ, FALLBACK, FILTERED
from origins.batch import JSON
from origins.capabilities import Lag, MeasuresLag
from origins.codec import encode
from origins.delta import Delta
from origins.delta_actions import VersionLog
from origins.delta_table import read_offset
from origins.dlq import DlqEntries
from origins.errors import WherryError, list_spark_errors
from origins.files.file_systems import is_local, without_scheme
from origins.files.files import Files
from origins.files.listing import FileBacklog
from origins.lazy import SparkSession
from origins.origin import Origin
from runners.definitions.definition import Definition
from runners.definitions.pipeline_graph import PipelineGraph
from runners.model.clock import Clock
from runners.model.codes import Advice, find_advice
from runners.model.entry import OwnerBody
from runners.model.errors import Refusal
from runners.model.masking import hide_secrets
from runners.model.pipeline_state import PipelineState, is_aside
from runners.model.spec import PipelineSpec
from runners.model.text import summarise_error
from runners.model.timetable import describe_times
from runners.operations.offsets import list_open
from runners.operations.pipeline_access import open_state
from runners.running.compatibility import resolve_names
from runners.running.opening import survey_origin
from runners.running.refused_budget import count_undecided
from runners.spark.own_session import make_own_session, put_settings_back
from runners.spark.session import obtain_for
from runners.state.journal import Journal
from runners.state.location import StateLocation, find_dlq
from runners.state.ownership import is_owner_alive, is_run
from runners.state.run_history import KILLED, MOST_BEGUN, WantedRuns
from runners.ways.stage_chain import name_destinations


def read_status(pipeline: PipelineSpec, file: str = "FILE", *, definition: str = "") -> dict[str, JSON]:
    """Return `{"pipeline", "state", "owner", "lanes", "open", "dlq", "last_run", "first", "next"}`.

    `next` is the command to type, and `first` is what must be changed before. If several runs share the lanes, `owners`
    has each of them, with its `lanes` and with `lives`. `differs` is true if a run uses a definition with another hash
    than `definition`. `stopping` is the reason why a person asked the active run to stop, and `forced` is true if it is
    to leave its open batches as they are. `paused` is the limit that
    keeps runs from beginning. `removed` are destinations of the last run that the definition lacks. `left_out` are
    columns of the origins that a written schema leaves out.
    """
    place, journal = open_state(pipeline)
    state = journal.state
    how = describe_state(place, state)
    refused = _count_refused(pipeline, journal)
    last = find_last_run(state, how)
    coming = _advise_next(how, last, refused)
    lags = measure_lags(pipeline, state)
    hashes = [owner.hash or definition for owner in state.owners]
    shared = any(owner.assignment != "single" for owner in state.owners)
    owners = [
        {**_describe_owner(each), "lanes": [*state.lanes_of(each.owner)], "lives": is_owner_alive(each, place, Clock())}
        for each in (state.owners if shared else ())
    ]
    return {
        "pipeline": pipeline.name,
        "state": how,
        "owner": _describe_owner(state.owner or OwnerBody()) if how == "running" else None,
        "differs": how == "running" and bool(definition) and any(known != definition for known in hashes),
        "stopping": state.stopping if how == "running" else "",
        "forced": state.forced and how == "running",
        "paused": encode(state.paused),
        **({"owners": owners} if shared else {}),
        "lanes": {
            name: {
                "offset": lane.offset,
                "number": lane.committed,
                "behind": str(lags[name]) if name in lags else None,
                "lag": {"rows": lags[name].rows, "seconds": lags[name].seconds} if name in lags else None,
            }
            for name, lane in state.lanes.items()
            if not is_aside(name)
        },
        "open": list_open(state),
        "removed": _list_removed(pipeline, state),
        "left_out": {
            name: list(columns)
            for name, origin in state.opened.origins.items()
            if (columns := origin.left_out) and name in pipeline.origins_by_name
        },
        "dlq": refused,
        "last_run": last,
        "first": coming.first,
        "next": coming.command.replace("FILE", shlex.quote(file)),
    }


def measure_known_lags(pipeline: PipelineSpec) -> Mapping[str, Lag]:
    """Return what waits in each lane, by the current state. Empty if that cannot be read."""
    try:
        return measure_lags(pipeline, open_state(pipeline)[1].state)
    except (WherryError, OSError):
        return {}


def measure_lags(pipeline: PipelineSpec, state: PipelineState) -> Mapping[str, Lag]:
    """Return what waits in each lane, for origins that know it without Spark."""
    found: dict[str, Lag] = {}
    for origin in [each for each in pipeline.every_origin if isinstance(each, MeasuresLag)]:
        lanes = {own: lane for lane, own in pipeline.lanes_of(origin).items() if lane in state.lanes}
        lags = origin.measure_lag({own: state.lanes[lane].offset for own, lane in lanes.items()})
        found.update({lanes[own]: lag for own, lag in lags.items() if own in lanes})
    return found


def _list_removed(pipeline: PipelineSpec, state: PipelineState) -> list[JSON]:
    known = {*resolve_names(name_destinations(pipeline.every_destination)), DLQ, FALLBACK, FILTERED}
    return [name for name in state.opened.destinations if name not in known]


def _count_refused(pipeline: PipelineSpec, journal: Journal) -> dict[str, JSON]:
    """Return `{"rows", "unreplayed", "fallback"}`: rows in the DLQ, waiting rows, and rows that wait in the fallback.

    `unreadable` is the reason if a DLQ with a fallback cannot be read.
    """
    dlq, spark = find_dlq(pipeline)
    fallback = sum(journal.state.fallen.values())
    try:
        refused = count_dead_letters(dlq, spark)
        waits = count_undecided(refused, dlq, spark, journal) if refused else refused
    except list_spark_errors(DestinationError) as error:
        if pipeline.dlq.fallback is None:
            raise
        reason = error.message if isinstance(error, DestinationError) else summarise_error(error)
        return {"rows": None, "unreplayed": None, "fallback": fallback, "unreadable": reason}
    return {"rows": refused, "unreplayed": waits, "fallback": fallback}


def describe_state(place: StateLocation, state: PipelineState) -> str:
    """Return `never_run`, `running`, `paused`, `idle`, or how the last run ended."""
    if state.owner is not None:
        return "running" if is_run(state, place, Clock()) else "failed"
    if state.paused is not None:
        return "paused"
    if state.ended is None:
        return "never_run"
    return {"succeeded": "idle"}.get(state.ended["status"], str(state.ended["status"]))


def _describe_owner(owner: OwnerBody) -> dict[str, JSON]:
    return {
        "host": owner.host,
        "process": owner.pid,
        "run": owner.run,
        "since": owner.at,
        "heard": owner.heard_at or None,
    }


def find_last_run(state: PipelineState, how: str) -> Mapping[str, JSON] | None:
    """Return how the last run ended, or None during a run."""
    if state.owner is None or how == "running":
        return state.ended if state.owner is None else None
    owner = state.owner
    return {
        "run": owner.run,
        "status": KILLED,
        "reason": f"process {owner.pid} on {owner.host} ended without a report",
        "at": owner.heard_at,
        "batches": None,
        "read": None,
        "error": None,
    }


def _advise_next(how: str, last: Mapping[str, JSON] | None, refused: Mapping[str, JSON]) -> Advice:
    if how == "running":
        return Advice("wherry status FILE")
    if how == "paused":
        return find_advice("PAUSED")
    if how == "failed" and last is not None and last.get("error"):
        return find_advice(last["error"]["code"])
    if refused["fallback"]:
        return Advice("wherry dlq merge FILE")
    return Advice("wherry dlq show FILE --waiting" if how == "idle" and refused["unreplayed"] else "wherry run FILE")


@put_settings_back()
def list_runs(pipeline: PipelineSpec, wanted: WantedRuns) -> list[dict[str, JSON]]:
    """Return the newest runs, the newest first. Raises `Refusal` if the pipeline keeps no run history."""
    place = StateLocation.of(pipeline)
    history = place.open_history(pipeline, lambda: make_own_session(obtain_for(pipeline)))
    if history is None:
        raise Refusal(f"{pipeline.name} keeps no run history: run.history is 0s.")
    begun = history.list_runs(WantedRuns(status="running", limit=MOST_BEGUN, archived=wanted.archived))
    if begun:  # the ledger is read after them, so that a run that begins meanwhile does not count as dead
        wanted = replace(wanted, fates=find_fates(begun, place.open_journal(pipeline).state, place))
    return history.list_runs(wanted)


def find_fates(begun: Sequence[Mapping[str, JSON]], state: PipelineState, place: StateLocation) -> Mapping[str, str]:
    """Return how these runs ended. The history has only their beginning.

    The ledger has the end of the last run that ended. A run was killed if it no longer owns the pipeline, is dead, or
    was silent for a whole lease.
    """
    alive = {owner.run for owner in state.owners if is_owner_alive(owner, place, Clock())}
    known = {state.ended["run"]: state.ended["status"]} if state.ended and "run" in state.ended else {}
    return {run["run"]: known.get(run["run"], KILLED) for run in begun if run["run"] not in alive}


def describe_pipelines(
    definitions: Mapping[str, Definition], graph: PipelineGraph, names: Sequence[str]
) -> list[dict[str, JSON]]:
    """Return a mapping for each of these pipelines.

    It has `{"pipeline", "file", "reads", "writes", "after", "schedule", "state", "last_run", "waiting"}`. `after` are
    the pipelines that feed it. `state`, `last_run` and `waiting` are None if only Spark knows them.
    """
    return [_describe_pipeline(definitions[name], graph.upstream[name]) for name in names]


def _describe_pipeline(definition: Definition, after: Collection[str]) -> dict[str, JSON]:
    pipeline = definition.pipeline
    schedule, place = pipeline.schedule, StateLocation.of(pipeline)
    state: str | None = None
    last: Mapping[str, JSON] | None = None
    waiting: Mapping[str, int] | None = None
    if not place.needs_spark:
        journal = place.open_journal(pipeline)
        state = describe_state(place, journal.state)
        last = find_last_run(journal.state, state)
        waiting = _count_unread(pipeline, journal)
    return {
        "pipeline": pipeline.name,
        "file": str(definition.path),
        "reads": [hide_secrets(origin).place for origin in pipeline.given_origins],
        "writes": [hide_secrets(destination).place for destination in pipeline.destinations],
        "after": list(after),
        "schedule": describe_times(schedule, pipeline.run_options.group) if schedule else None,
        "state": state,
        "last_run": last,
        "waiting": waiting,
    }


def _count_unread(pipeline: PipelineSpec, journal: Journal) -> Mapping[str, int] | None:
    """Return how many `files`, and how many `versions` of tables, no run has read yet; None if only Spark knows."""
    total: Counter[str] = Counter()
    for origin in pipeline.every_origin:
        try:
            unread = _count_unread_at(pipeline, origin, journal)
        except WherryError:  # for example a missing folder, which a run reports
            return None
        if unread is None:
            return None
        total.update(unread)
    return dict(total)


def _count_unread_at(pipeline: PipelineSpec, origin: Origin, journal: Journal) -> Mapping[str, int] | None:
    if isinstance(origin, Files) and origin.is_listed_here:
        waiting = survey_origin(pipeline, origin, journal, cast("SparkSession", None))
        assert isinstance(waiting, FileBacklog)
        return {"files": len(waiting.files)}
    if (
        isinstance(origin, Delta | DlqEntries)
        and origin.path
        and is_local(origin.path)
        and origin.starting_version == "beginning"
    ):
        (lane,) = pipeline.lanes_of(origin)
        offset = journal.state.get_lane(lane).offset
        versions = VersionLog(without_scheme(origin.place)).list_local_after(read_offset(offset)[0] if offset else -1)
        return {"versions": sum(version.has_news for version in versions)}
    return None
