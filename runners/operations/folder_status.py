"""How the pipelines of a folder are, one beside the other: nothing is started for it, and no secret is needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from origins.batch import JSON
from origins.delta import Delta
from origins.delta_actions import VersionLog
from origins.delta_table import read_offset
from origins.errors import WherryError
from origins.files.files import Files
from origins.files.listing import FileBacklog, is_local, without_scheme
from origins.origin import Origin
from runners.definitions.definition import Definition
from runners.definitions.pipeline_graph import PipelineGraph
from runners.model.masking import hide_secrets
from runners.model.spec import PipelineSpec
from runners.model.timetable import describe_times
from runners.operations.status import describe_state, find_last_run
from runners.running.opening import survey_origin
from runners.state.journal import Journal
from runners.state.location import StateLocation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def describe_pipelines(
    definitions: Mapping[str, Definition], graph: PipelineGraph, names: Sequence[str]
) -> list[dict[str, JSON]]:
    """`{"pipeline", "file", "reads", "writes", "after", "schedule", "state", "last_run", "waiting"}` of each of these.

    `after` are the pipelines that feed it. `state`, `last_run` and `waiting` are None where only Spark knows.
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
        waiting = count_waiting(pipeline, journal)
    return {
        "pipeline": pipeline.name,
        "file": str(definition.path),
        "reads": [hide_secrets(each).place for each in pipeline.given_origins],
        "writes": [hide_secrets(each).place for each in pipeline.destinations],
        "after": list(after),
        "schedule": describe_times(schedule) if schedule else None,
        "state": state,
        "last_run": last,
        "waiting": waiting,
    }


def count_waiting(pipeline: PipelineSpec, journal: Journal) -> Mapping[str, int] | None:
    """How many `files`, and how many `versions` of tables, no run has read yet; None where only Spark knows."""
    found: Counter[str] = Counter()
    for origin in pipeline.every_origin:
        try:
            counted = _count_at(pipeline, origin, journal)
        except WherryError:  # a folder that is not there: a run says so
            return None
        if counted is None:
            return None
        found.update(counted)
    return dict(found)


def _count_at(pipeline: PipelineSpec, origin: Origin, journal: Journal) -> Mapping[str, int] | None:
    if isinstance(origin, Files) and is_local(origin.path):
        waiting = survey_origin(pipeline, origin, journal, cast("SparkSession", None))
        assert isinstance(waiting, FileBacklog)
        return {"files": len(waiting.files)}
    if isinstance(origin, Delta) and origin.path and is_local(origin.path) and origin.starting_version == "beginning":
        (lane,) = pipeline.lanes_of(origin)
        offset = journal.state.get_lane(lane).offset
        versions = VersionLog(without_scheme(origin.place)).list_local_after(read_offset(offset)[0] if offset else -1)
        return {"versions": sum(version.has_news for version in versions)}
    return None
