"""Explains one refused row: why, by which stage then and now, its neighbours, and its outcome today."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from destinations.dead_letters import narrow_to_ids, query_dlq, read_dead_letters, trace_replays
from destinations.delta.delta import Delta
from destinations.destination import Destination
from origins.batch import JSON, Batch
from origins.errors import WherryError, list_spark_errors
from origins.lazy import F, SparkSession, pyspark
from origins.nack import REFUSED
from origins.names import HIDDEN, get_last_part
from origins.origin import PLACE, Origin
from runners.definitions.definition import Definition
from runners.model.entry import OpenBody
from runners.model.error_kinds import classify
from runners.model.json_form import JsonForm
from runners.model.pipeline_state import is_aside
from runners.operations.pipeline_access import open_state
from runners.operations.trace import TracedRow, list_arrival_columns
from runners.operations.tracer import Tracer
from runners.running.choice import Choice, Letter
from runners.running.opening import make_chains
from runners.running.replay import DeadLetterRows, leave_to_backfills, sort
from runners.spark.own_session import put_settings_back
from runners.state.journal import Journal, list_decided
from runners.state.location import find_dlq
from runners.state.progress import read_body
from runners.ways.batch_source import list_columns, strip_lane_prefix
from runners.ways.stage_chain import name_destinations
from stages.claim_store import refers_to
from stages.rows import encode_struct

BESIDE = 2
"""How many rows are shown before the row in its file, and after it."""
_DEFINITION = "SELECT definition FROM {{table}} WHERE {ids}"
_ALIKE = "SELECT code, stage, destination, count(*) AS n FROM {table} GROUP BY code, stage, destination"


@dataclass(frozen=True, kw_only=True)
class StageHistory:
    """The stage that refused a row, in the old definition and in today's."""

    then: JSON = None
    """The stage then; None if the ledger no longer has the definition, or if a table demanded the stage."""
    now: JSON = None
    """The stage now; None if today's definition has no stage with this name."""
    known: bool = False
    """Whether the ledger still has the definition that refused the row."""


@dataclass(frozen=True, kw_only=True)
class NeighbourRow(JsonForm):
    """A row of the same file."""

    position: int
    """Its place in the batch, from 1."""
    row: JSON


@dataclass(frozen=True, kw_only=True)
class TriedRow(JsonForm):
    """The facts that need Spark: the neighbouring rows, and what today's definition does with the row."""

    today: TracedRow | None = None
    why_not: str = ""
    """Why the row cannot be tried."""
    neighbours: Sequence[NeighbourRow] = ()
    why_alone: str = ""
    """Why no neighbouring row can be shown."""

    @property
    def passes(self) -> bool:
        """Whether a destination wants the row today."""
        return self.today is not None and bool(self.today.destinations)

    def json(self) -> dict[str, JSON]:
        """Return the form that `--json` prints."""
        return {**super().json(), "why_not": self.why_not or None, "why_alone": self.why_alone or None}


@dataclass(frozen=True, kw_only=True)
class RefusedRow:
    """A row of the DLQ with the facts that need no Spark. Protected columns are masked."""

    pipeline: str
    letter: Mapping[str, JSON]
    """The row as `wherry dlq show --json` prints it."""
    choice: Letter
    """The same row in the form that a replay sorts."""
    stage: StageHistory
    alike: int
    """How many other rows have the same code from the same stage or destination."""
    earlier: Sequence[str]
    """The refusals before this one, if it is a repeated refusal: the first row, then the rows of its replays."""
    definition: Definition = field(repr=False)
    as_read: JSON = field(default=None, repr=False)
    """The row as it was read, with the values of protected columns."""

    @property
    def plan(self) -> str:
        """The plan of its batch, from its id."""
        return self.choice.id.rpartition("/")[0]

    @property
    def position(self) -> int:
        """Its position in the batch, from 1. It comes from its id."""
        return int(self.choice.id.rpartition("/")[2])

    @property
    def values(self) -> Mapping[str, JSON]:
        """The values of the columns that the message names."""
        row, words = self.letter["row"], set(re.findall(r"\w+", str(self.letter["message"])))
        return {name: value for name, value in row.items() if name in words} if isinstance(row, Mapping) else {}

    @property
    def state(self) -> str:
        """Whether the row waits, was replayed or was discarded."""
        return "replayed" if self.letter["replayed"] else "discarded" if self.letter["discarded"] else "waiting"

    @property
    def refuser(self) -> str:
        """The stage or the destination that refused it."""
        return str(self.letter["stage"] or self.letter["destination"])

    def json(self, tried: TriedRow) -> dict[str, JSON]:
        """Return the form that `wherry dlq explain --json` prints."""
        stage = {"then": self.stage.then, "now": self.stage.now, "known": self.stage.known}
        facts = {"position": self.position, "values": dict(self.values), "definition": stage, "alike": self.alike}
        facts = {**facts, "earlier": list(self.earlier)}
        return {**self.letter, **facts, **tried.json()}

    @put_settings_back()
    def try_again(self) -> TriedRow:
        """Read the neighbouring rows, and pass the row through today's stages. Writes nothing."""
        tracer, (dlq, _) = Tracer.open(self.definition), find_dlq(self.definition.pipeline)
        origin = self.definition.pipeline.origins_by_name.get(self.choice.origin)
        schema = tracer.find_schema(origin) if origin else None
        if origin is None or schema is None:
            why = f"the origin '{self.choice.origin}' " + ("has no schema yet" if origin else "no longer exists")
            return TriedRow(why_not=why, why_alone=why)
        today, why_not = self._pass_stages(tracer, origin, schema, dlq)
        neighbours, why_alone = self._read_beside(tracer, origin, schema)
        return TriedRow(today=today, why_not=why_not, neighbours=neighbours, why_alone=why_alone)

    def _pass_stages(
        self, tracer: Tracer, origin: Origin, schema: str, dlq: Destination
    ) -> tuple[TracedRow | None, str]:
        pipeline, name = self.definition.pipeline, self.choice.origin
        destinations = name_destinations(pipeline.every_destination)
        found = sort(leave_to_backfills([self.choice], tracer.journal, destinations), make_chains(pipeline))
        if found.left:
            return None, next(iter(found.left))
        assert isinstance(dlq, Delta)  # another DLQ could not have been read
        ((span, names),) = found.batches[name]
        chain = tracer.make_chain(origin, schema).narrow(names)
        batch = tracer.make_replay(name, span, schema, run=str(self.letter["run"]), plan=self.plan)
        rows_read = DeadLetterRows(name=name, dlq=dlq)
        traced = tracer.trace_batch(rows_read, chain, batch, chain.pins(tracer.spark), shown=1)
        return next(traced.show_rows(pipeline)), ""

    def _read_beside(self, tracer: Tracer, origin: Origin, schema: str) -> tuple[Sequence[NeighbourRow], str]:
        """Return the rows before and after it in its file, if the file has not changed."""
        settled = next((each for each in tracer.journal.list_settled() if each.plan == self.plan), None)
        if settled is None or is_aside(settled.lane) or not origin.repeatable:
            return (), "its batch cannot be read again"
        batch = strip_lane_prefix(tracer.make_batch(settled, self.choice.origin, schema))
        try:
            origin.check(tracer.spark, batch)
            return self._collect_beside(tracer.spark, origin, batch)
        except list_spark_errors(WherryError) as error:
            if classify(error).is_session_lost:
                raise
            return (), tracer.mask_error(error)

    def _collect_beside(self, spark: SparkSession, origin: Origin, batch: Batch) -> tuple[Sequence[NeighbourRow], str]:
        frame, at = origin.fetch(spark, [batch], places=True).frame(), HIDDEN + "at"
        order = list_arrival_columns(origin.parts(batch))
        nth = F.row_number().over(pyspark.sql.Window.partitionBy(F.lit(0)).orderBy(*order))
        columns = [name for name in list_columns(batch) if name in frame.columns]
        row = F.expr(encode_struct("", frame.select(*columns).schema.json()))
        raw = F.col(REFUSED)["raw"] if REFUSED in frame.columns else F.lit(None).cast("string")
        near = frame.select(nth.alias(at), F.col(PLACE)["part"].alias("part"), raw.alias("raw"), row.alias("row"))
        near = near.where(F.col(at).between(self.position - BESIDE, self.position + BESIDE))
        found = {each[at]: each for each in near.collect()}
        own = found.get(self.position)
        if own is None or not self._is_same(own["row"], own["raw"]):
            return (), "its file was changed since it was read"
        return [
            NeighbourRow(position=number, row=self._mask_beside(each["row"], each["raw"]))
            for number, each in sorted(found.items())
            if each["part"] == own["part"]
        ], ""

    def _mask_beside(self, row: str, raw: str | None) -> JSON:
        pipeline = self.definition.pipeline
        if raw is not None:
            return pipeline.mask_nack({"stage": "origin", "message": "", "row": {"raw": raw}})["row"]
        return pipeline.mask_row(json.loads(row))

    def _is_same(self, row: str, raw: str | None) -> bool:
        """Whether this row equals the row that was read then, in the columns that both have."""
        now, then = json.loads(row) if raw is None else {"raw": raw}, self.as_read
        return not isinstance(then, Mapping) or all(
            _stands_for(each, now[name]) for name, each in then.items() if name in now
        )


def _stands_for(then: JSON, now: JSON) -> bool:
    """Whether a value is unchanged, or has the content to which a reference in its place refers."""
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        return then.keys() == now.keys() and all(_stands_for(each, now[name]) for name, each in then.items())
    if isinstance(then, list) and isinstance(now, list):
        return len(then) == len(now) and all(map(_stands_for, then, now))
    return then == now or (isinstance(then, str) and isinstance(now, str) and refers_to(then, now))


def load_refused_row(definition: Definition, id_: str, *, reveal: bool = False) -> RefusedRow:
    """Return a row of the DLQ with the facts that need no Spark, unless the DLQ is in a catalog.

    Raises `Refusal` for an id that the DLQ does not have.
    """
    pipeline = definition.pipeline
    journal, (dlq, spark) = open_state(pipeline)[1], find_dlq(pipeline)
    (choice,) = Choice(ids=(id_,)).list_letters(dlq, spark)
    decided = list_decided(journal)
    (own,) = read_dead_letters(dlq, spark, ids=[id_], replayed=decided.replayed, discarded=decided.discarded)
    (hash_,) = (each["definition"] for each in query_dlq(dlq, spark, _DEFINITION.format(ids=narrow_to_ids([id_]))))
    earlier = trace_replays(dlq, spark, [own])[id_]
    own["first"] = next(iter(earlier), None)
    letter = own if reveal else pipeline.protection.mask_nack(own)
    by = ("code", "stage", "destination")
    alike = sum(each["n"] for each in query_dlq(dlq, spark, _ALIKE) if all(each[name] == own[name] for name in by))
    return RefusedRow(
        pipeline=pipeline.name,
        letter=letter,
        choice=choice,
        stage=_find_stage(definition, journal, str(hash_), choice.stage, choice.origin),
        alike=alike - 1,
        earlier=earlier,
        definition=definition,
        as_read=own["original"],
    )


def _find_stage(definition: Definition, journal: Journal, hash_: str, stage: str, origin: str) -> StageHistory:
    bodies = [journal.state.opened, *(read_body(entry, OpenBody) for entry in journal.tail if entry.kind == "open")]
    texts = {body.hash: body.definition for body in bodies if body.hash} | {definition.hash: definition.text}
    then = json.loads(texts[hash_]) if hash_ in texts else None
    return StageHistory(
        then=None if then is None else name_stages(then, origin).get(stage),
        now=name_stages(json.loads(definition.text), origin).get(stage),
        known=then is not None,
    )


def name_stages(definition: Mapping[str, Any], origin: str) -> Mapping[str, JSON]:
    """Return the stages for the rows of this origin from a definition in JSON, by their names in a run."""
    found: dict[str, JSON] = {}
    names: Counter[str] = Counter()

    def add(stages: Sequence[Mapping[str, JSON]], prefix: str) -> None:
        for stage in stages:
            name = prefix + str(stage.get("name") or next(iter(stage)))
            names[name] += 1
            found[name if names[name] == 1 else f"{name}#{names[name]}"] = stage

    for each in definition.get("origins", ()):
        own = each.get("name") or next(iter(each))
        if origin == own or origin.startswith(f"{own}/"):
            add(each.get("stages", ()), "")
    add(definition.get("origin", {}).get("stages", ()), "")
    add(definition.get("stages", ()), "")
    for each in definition["destinations"]:
        add(each.get("stages", ()), f"{_name_destination(each)}/")
    return found


def _name_destination(destination: Mapping[str, Any]) -> str:
    """Return the name of a destination in a definition: the given name, or the last part of its place."""
    options = next(iter(destination.values()))
    place = next((options[name] for name in ("path", "table", "topic") if options.get(name)), "")
    return str(destination.get("name") or get_last_part(str(place)) or next(iter(destination)))
