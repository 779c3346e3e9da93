"""Opening a run: what waits, whether everything fits, and what the ledger keeps of it. Nothing is read yet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from destinations.destination import Destination, Identity
from origins.batch import JSON, Limits
from origins.origin import Backlog, Origin, Progress
from origins.quantities import size
from runners.dispatcher import Source
from runners.entry import Entry
from runners.errors import Refusal
from runners.journal import Journal
from runners.line import Line, passing
from runners.outcome import DLQ
from runners.pipeline import Pipeline
from runners.progress import State

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True, kw_only=True)
class Opening:
    """A definition about to be run on a session."""

    pipeline: Pipeline
    run: str
    text: str
    """The definition, whole, as the ledger keeps it."""
    hash: str
    line: Line
    destinations: Mapping[str, Destination]
    dlq: Destination
    moved: Mapping[str, str] = field(default_factory=dict)
    """Origins and destinations whose place may have changed, each with the reason."""

    def source(self, journal: Journal, spark: SparkSession) -> Source | None:
        """What this run plans from; None when nothing waits from which a schema could be told.

        Records the definition, the layout, and what each destination is, so that it can be asked later.
        """
        origin, state = self.pipeline.origin, journal.state
        check_layout(origin, self.destinations, state, self.moved)
        backlog = surveyed(origin, journal, spark)
        schema = (state.opened.get("schema") if origin.infers else None) or origin.columns(spark, backlog)
        if schema is None:
            return None
        identities = self._opened(spark, schema)
        name = origin.name or "origin"
        body = {
            "pipeline": self.pipeline.name,
            "run": self.run,
            "definition": self.text,
            "hash": self.hash,
            "schema": schema,
            "moved": dict(self.moved),
            "origin": {"name": name, "lanes": list(origin.lane_names()), "place": origin.place},
            "destinations": {
                each: {**self._named(each).describe(), "id": identity.id, "version": identity.version}
                for each, identity in identities.items()
            },
        }
        journal.record(Entry(kind="open", body=body))
        batch = self.pipeline.run_options.batch
        return Source(
            pipeline=self.pipeline.name,
            run=self.run,
            origin=name,
            definition=self.hash,
            schema=schema,
            lanes=origin.lane_names(),
            backlog=backlog,
            limits=Limits(rows=batch.rows, bytes=size(batch.bytes) if batch.bytes else None, files=batch.files),
            destinations=tuple(self.destinations),
            straight=not any(prepared_because(self.pipeline)),
        )

    def _opened(self, spark: SparkSession, schema: str) -> Mapping[str, Identity]:
        from destinations.dead_letters import schema as dead_letter_schema

        leaving = analysed(spark, schema, self.line)
        identities = {name: each.open(spark, leaving[name]) for name, each in self.destinations.items()}
        return {**identities, DLQ: self.dlq.open(spark, dead_letter_schema())}

    def _named(self, name: str) -> Destination:
        return self.dlq if name == DLQ else self.destinations[name]


def surveyed(origin: Origin, journal: Journal, spark: SparkSession) -> Backlog:
    """What waits at the origin beyond what the ledger says was carried."""
    settled = journal.settled() if origin.keeps_parts else ()
    parts = [part for batch in settled for part in batch.span["parts"]]
    offsets = {name: lane.offset for name, lane in journal.state.lanes.items()}
    return origin.survey(spark, Progress(offsets=offsets, parts=parts))


def prepared_because(pipeline: Pipeline) -> Iterator[str]:
    """Why every batch is decided and written under the state before it is delivered; nothing if a clean one is not."""
    if len(pipeline.destinations) > 1:
        yield f"there are {len(pipeline.destinations)} destinations"
    for destination in pipeline.destinations:
        if not destination.remembers and len(pipeline.destinations) == 1:
            yield f"{destination.name} cannot be asked whether it has a batch"
    if not pipeline.origin.repeatable:
        yield f"{pipeline.origin.name} may give other rows when a batch is read again"
    stages = [*pipeline.stages, *(stage for each in pipeline.destinations for stage in each.stages)]
    for stage in stages:
        if not stage.repeatable:
            yield f"{stage.name} may answer differently when it is run again"


def analysed(spark: SparkSession, schema: str, line: Line) -> Mapping[str, StructType]:
    """The schema in which rows reach each destination. Raises `StageError` that names the stage; reads nothing."""
    from pyspark.sql.types import StructType

    from stages.rows import Straight

    arriving = StructType.fromJson(json.loads(schema))
    empty = spark.createDataFrame([], arriving)
    rows = Straight.begin(empty, tuple(arriving.names), _SAMPLE, lambda frame, _: frame)
    rows = passing(rows, line.common, checked=True)
    return {name: passing(rows, steps, checked=True).schema for name, steps in line.branches.items()}


def check_layout(
    origin: Origin, destinations: Mapping[str, Destination], state: State, moved: Mapping[str, str]
) -> None:
    """Raises `Refusal` when the definition reads or writes elsewhere than the state remembers, unless told that
    the same content lies there now."""
    layout: Mapping[str, JSON] = state.opened.get("origin", {})
    if layout and layout["lanes"] != list(origin.lane_names()) and not origin.regroups:
        raise Refusal(
            f"The origin's lanes were {', '.join(layout['lanes'])} and are now {', '.join(origin.lane_names())}; "
            "its offsets belong to the lanes it had.",
            hint="Put `lanes:` back, or give the pipeline a new `name:` and `state:` to start over.",
        )
    places = {name: each.place for name, each in destinations.items()}
    before = {name: each["place"] for name, each in state.opened.get("destinations", {}).items()}
    if layout:
        places[origin.name or "origin"] = origin.place
        before[layout["name"]] = layout["place"]
    for name, place in places.items():
        if before.get(name, place) != place and name not in moved:
            raise Refusal(
                f"'{name}' was {before[name]} and is now {place}; what the state knows belongs to the first.",
                hint=f'The same content lies there now:  --moved {name} --reason "…"\n'
                "Something else does: put it back, and give the new one a `name:` of its own.",
            )


_SAMPLE: Mapping[str, str | int | datetime] = {
    "origin": "",
    "lane": "",
    "number": 0,
    "run": "",
    "batch_time": datetime(2000, 1, 1, tzinfo=timezone.utc),
}
