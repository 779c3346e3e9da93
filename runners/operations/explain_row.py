"""Explains one refused row: why it was refused, and its outcome today."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from destinations.dead_letters import query_dlq, read_dead_letters, trace_replays
from destinations.delta.delta import Delta
from destinations.destination import Destination
from origins.batch import JSON
from origins.codec import JsonForm
from origins.origin import Origin
from runners.definitions.definition import Definition
from runners.model.spec import PipelineSpec
from runners.operations.pipeline_access import open_state
from runners.operations.trace import TracedRow, show_text
from runners.operations.tracer import Tracer
from runners.running.choice import Choice, Letter
from runners.running.opening import make_chains
from runners.running.replay import DeadLetterRows, leave_to_backfills, sort
from runners.spark.own_session import put_settings_back
from runners.state.journal import list_decided
from runners.state.location import find_dlq
from runners.ways.stage_chain import name_destinations

_ALIKE = "SELECT code, stage, destination, count(*) AS n FROM {table} GROUP BY code, stage, destination"


@dataclass(frozen=True, kw_only=True)
class TriedRow(JsonForm):
    """What today's definition does with the row. This needs Spark."""

    today: TracedRow | None = None
    why_not: str = ""
    """Why the row cannot be tried."""
    steps: Sequence[Mapping[str, JSON]] = ()
    """`{"stage", "outcome", "row"}` for each step that the row reached: first as it was read, then after each stage."""

    @property
    def passes(self) -> bool:
        """Whether a destination wants the row today."""
        return self.today is not None and bool(self.today.destinations)

    def json(self) -> dict[str, JSON]:
        """Return the form that `--json` prints."""
        return {**super().json(), "why_not": self.why_not or None}


@dataclass(frozen=True, kw_only=True)
class RefusedRow:
    """A row of the DLQ with the facts that need no Spark. Protected columns are masked."""

    pipeline: str
    letter: Mapping[str, JSON]
    """The row as `wherry dlq show --json` prints it."""
    choice: Letter
    """The same row in the form that a replay sorts."""
    alike: int
    """How many other rows have the same code from the same stage or destination."""
    earlier: Sequence[str]
    """The refusals before this one, if it is a repeated refusal: the first row, then the rows of its replays."""
    definition: Definition | None = field(default=None, repr=False)
    """None for a row that a server has tried."""

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
        facts = {"position": self.position, "values": dict(self.values), "alike": self.alike}
        return {**self.letter, **facts, "earlier": list(self.earlier), **tried.json()}

    @put_settings_back()
    def try_again(self) -> TriedRow:
        """Pass the row through today's stages. Writes nothing."""
        assert self.definition is not None
        pipeline = self.definition.pipeline
        tracer, (dlq, _) = Tracer.open(self.definition), find_dlq(pipeline)
        origin = pipeline.origins_by_name.get(self.choice.origin)
        schema = tracer.find_schema(origin) if origin else None
        if origin is None or schema is None:
            why = f"the origin '{self.choice.origin}' " + ("has no schema yet" if origin else "no longer exists")
            return TriedRow(why_not=why)
        return self._pass_stages(pipeline, tracer, origin, schema, dlq)

    def _pass_stages(
        self, pipeline: PipelineSpec, tracer: Tracer, origin: Origin, schema: str, dlq: Destination
    ) -> TriedRow:
        name = self.choice.origin
        destinations = name_destinations(pipeline.every_destination)
        found = sort(leave_to_backfills([self.choice], tracer.journal, destinations), make_chains(pipeline))
        if found.left:
            return TriedRow(why_not=next(iter(found.left)))
        assert isinstance(dlq, Delta)  # another DLQ could not have been read
        ((span, names),) = found.batches[name]
        chain = tracer.make_chain(origin, schema).narrow(names)
        batch = tracer.make_replay(name, span, schema, run=str(self.letter["run"]), plan=self.plan)
        rows_read = DeadLetterRows(name=name, dlq=dlq)
        traced = tracer.trace_batch(rows_read, chain, batch, chain.pins(tracer.spark), shown=1)
        row, section = traced.list_rows()[0], traced.trace.sections[0]
        steps = [
            {"stage": step.name, "outcome": outcome, "row": show_text(row, step.column, pipeline)}
            for step in section.snapshots
            if (outcome := row.find_outcome(step))
        ]
        return TriedRow(today=next(traced.show_rows(pipeline)), steps=steps)


def load_refused_row(definition: Definition, id_: str, *, reveal: bool = False) -> RefusedRow:
    """Return a row of the DLQ with the facts that need no Spark, unless the DLQ is in a catalog.

    Raises `Refusal` for an id that the DLQ does not have.
    """
    pipeline = definition.pipeline
    journal, (dlq, spark) = open_state(pipeline)[1], find_dlq(pipeline)
    (choice,) = Choice(ids=(id_,)).list_letters(dlq, spark)
    decided = list_decided(journal)
    (own,) = read_dead_letters(dlq, spark, ids=[id_], replayed=decided.replayed, discarded=decided.discarded)
    earlier = trace_replays(dlq, spark, [own])[id_]
    own["first"] = next(iter(earlier), None)
    letter = own if reveal else pipeline.protection.mask_nack(own)
    by = ("code", "stage", "destination")
    alike = sum(each["n"] for each in query_dlq(dlq, spark, _ALIKE) if all(each[name] == own[name] for name in by))
    return RefusedRow(
        pipeline=pipeline.name, letter=letter, choice=choice, alike=alike - 1, earlier=earlier, definition=definition
    )
