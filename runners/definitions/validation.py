"""What a definition will do, in plain words, without starting anything."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from destinations.destination import Destination
from destinations.discard import Discard
from origins.batch import JSON
from origins.files import Files
from origins.listing import place_of
from origins.origin import Origin, Progress
from origins.quantities import seconds
from runners.clock import Clock
from runners.definitions.definition import Definition
from runners.definitions.kinds import Kinds, kind_of
from runners.definitions.options import options_of
from runners.definitions.secrets import hide_secrets, warn_of_short_secrets
from runners.line import named
from runners.mixing import check_mixing, keys_twice, splits_of
from runners.opening import analysed, line_of, prepared_because
from runners.pipeline import BatchOptions, Pipeline, SchemaState
from runners.protected import check_protected
from runners.schedules.schedule_words import due_times, in_words, told
from runners.session import obtain, own
from runners.sharing import MOST
from stages.deduplicate import Deduplicate
from stages.stage import Stage


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What will happen when the pipeline is run; every sentence is for a person."""

    pipeline: str
    hash: str
    origins: tuple[Mapping[str, JSON], ...]
    """Name, kind, place, lanes and stages of each."""
    stages: tuple[str, ...]
    destinations: tuple[Mapping[str, JSON], ...]
    """Name, kind, place and guarantee of each."""
    batches: tuple[str, ...]
    """When a batch is full, and how many are carried at a time."""
    way: str
    """`straight` or `prepared`."""
    because: tuple[str, ...]
    """Why it is prepared; nothing when it is straight."""
    delivery: str
    dead_letters: tuple[str, ...]
    restart: tuple[str, ...]
    state: str
    schedule: tuple[str, ...]
    """When it runs by itself; nothing when it does not."""
    next: tuple[str, ...]
    """The next three times of that, in UTC."""
    notes: tuple[str, ...]
    """What is easily overlooked."""

    def json(self) -> dict[str, JSON]:
        """As `--json` prints it."""
        return dataclasses.asdict(self)


def explain(definition: Definition, kinds: Kinds | None = None, clock: Clock | None = None) -> Explanation:
    """What the definition will do. Reads nothing but the definition, and the clock where it has a schedule."""
    pipeline = definition.pipeline
    due = [] if pipeline.schedule is None else due_times(pipeline.schedule, (clock or Clock()).now(), 3)
    destinations = named(pipeline.every_destination)
    because = dict.fromkeys(
        why
        for origin in pipeline.every_origin
        for why in prepared_because(pipeline, origin, line_of(pipeline, origin, destinations))
    )
    return Explanation(
        pipeline=pipeline.name,
        hash=definition.hash,
        origins=tuple(
            {
                "name": origin.name,
                "kind": kind_of(origin, kinds),
                "place": hide_secrets(origin).place,
                "lanes": len(origin.lane_names()),
                "stages": [stage.name for stage in origin.stages],
            }
            for origin in pipeline.every_origin
        ),
        stages=tuple(stage.name or kind_of(stage, kinds) for stage in pipeline.stages),
        destinations=tuple(
            {
                "name": destination.name,
                "kind": kind_of(destination, kinds),
                "place": hide_secrets(destination).place,
                "stages": [stage.name for stage in destination.stages],
                "guarantee": destination.guarantee,
            }
            for destination in pipeline.every_destination
        ),
        batches=tuple(_batches(pipeline, kinds)),
        way="prepared" if because else "straight",
        because=tuple(because),
        delivery=_delivery(pipeline),
        dead_letters=tuple(_dead_letters(pipeline)),
        restart=tuple(_restart(pipeline)),
        state=_state(pipeline),
        schedule=() if pipeline.schedule is None else (in_words(pipeline.schedule), *told(pipeline.schedule, due)),
        next=tuple(moment.isoformat() for moment in due),
        notes=tuple(_notes(pipeline)),
    )


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """What only Spark can say of a definition."""

    columns: Mapping[str, str]
    """The columns in which rows reach each destination; empty when nothing waits from which they could be told."""
    notes: tuple[str, ...]
    """What is easily overlooked."""


def analyse(definition: Definition) -> Analysis:
    """What Spark says of the definition; no row is read.

    Raises `StageError` that names the stage that does not fit what reaches it, `SplitAggregate` for one whose result
    would be wrong, and `OriginError` when the place does not exist.
    """
    pipeline = definition.pipeline
    spark = own(obtain(pipeline.spark.conf, pipeline.spark.packages), pipeline.run_options.time_zone)
    found: dict[str, str] = {}
    lines, schemas = {}, {}
    for origin in pipeline.every_origin:
        columns = origin.columns(spark, origin.survey(spark, Progress()))
        if columns is not None:
            line, whole = line_of(pipeline, origin, named(pipeline.every_destination)), origin.completed(columns)
            found.update({name: schema.toDDL() for name, schema in analysed(spark, whole, line).items()})
            lines[origin.name or "origin"], schemas[origin.name or "origin"] = line, whole
    if len(schemas) == len(pipeline.every_origin):
        check_protected(pipeline.protect, spark, lines, schemas)
    told = check_mixing(pipeline, spark, lines, schemas)
    notes = [f"{name}: {sentence}" for name, sentences in told.items() for sentence in sentences]
    return Analysis(columns=found, notes=tuple(notes))


def _batches(pipeline: Pipeline, kinds: Kinds | None) -> Iterator[str]:
    for origin in pipeline.every_origin:
        of = f" of {origin.name}" if len(pipeline.every_origin) > 1 else ""
        yield from _limits(pipeline.run_options.batch, origin, of, kinds)
    lanes, options = _lanes(pipeline), pipeline.run_options
    if seconds(options.batch.wait):
        yield f"With --follow, one that is not full waits {options.batch.wait} for more, from its first row."
    if seconds(options.batch.target):
        target = options.batch.target
        yield f"Batches begin with a sixteenth of that, and grow or shrink until one takes about {target}."
    in_flight = options.max_in_flight or lanes
    runners = min(options.runners or os.cpu_count() or 1, in_flight, lanes)
    if (
        in_flight > 1
        and lanes > 1
        and len(pipeline.every_destination) == 1
        and pipeline.every_destination[0].takes_several
    ):
        yield (
            f"{_count(lanes, 'lane')}: clean batches that are ready at once are written together, up to "
            f"{min(MOST, in_flight)}; at most {_count(runners, 'write')} at a time."
        )
    else:
        yield f"{_count(lanes, 'lane')}: at most {_count(runners, 'batch', 'batches')} at work at a time."


def _lanes(pipeline: Pipeline) -> int:
    return sum(len(origin.lane_names()) for origin in pipeline.every_origin)


def _limits(batch: BatchOptions, origin: Origin, of: str, kinds: Kinds | None) -> Iterator[str]:
    binds = origin.binds if origin.batch == "limited" else frozenset()
    files = min((most for most in (batch.files, getattr(origin, "max_files", None)) if most), default=0)
    limits = {
        "rows": _count(batch.rows, "row") if batch.rows else "",
        "bytes": batch.bytes or "",
        "files": _count(files, "file") if files else "",
    }
    binding = [said for name, said in limits.items() if said and name in binds]
    given = [name for name in limits if getattr(batch, name) != getattr(BatchOptions(), name)]
    loose = [f"run.batch.{name}" for name in given if limits[name] and name not in binds]
    most = f"at most {' and '.join(binding)}" if binding else "all that waits in its lane"
    yield f"A batch{of} holds {most}."
    if loose:
        can = f"only {' and '.join(sorted(binds))}" if binds else "nothing"
        yield f"{' and '.join(loose)} {_has(loose)} no effect: {can} can limit a batch of {kind_of(origin, kinds)}."


def _delivery(pipeline: Pipeline) -> str:
    if len(pipeline.every_destination) == 1:
        (only,) = pipeline.every_destination
        return f"The offset is committed when {only.name} and the dead letter queue have the batch."
    if all(each.by_lane for each in pipeline.destinations) and len(pipeline.destinations) == 1:
        return "The offset is committed when the lane's destination and the dead letter queue have the batch."
    if pipeline.delivery == "after_all":
        return "The offset is committed when all destinations and the dead letter queue have the batch."
    return (
        "The offset is committed as soon as one destination and the dead letter queue have the batch; "
        "the others still get it, also after a crash."
    )


def _dead_letters(pipeline: Pipeline) -> Iterator[str]:
    dlq = pipeline.dlq
    if isinstance(dlq.destination, Discard):
        where = "are counted and thrown away"
    elif dlq.destination is not None:
        where = f"go to {hide_secrets(dlq.destination).place or dlq.destination.name}"
    else:
        where = "go to a table in the state (wherry dlq show)"
    if dlq.window == 0:
        yield f"Refused rows never stop a run; they {where}."
    elif dlq.threshold == 1:
        yield "The first refused row stops the run; its batch is not delivered, and nothing is stored."
        yield f"To let them pass in one run, so that they {where}:  wherry run FILE --set dlq.window=0"
        yield "And for good:  dlq: {window: 1000, threshold: 50}"
    else:
        yield f"Refused rows {where}."
        yield (
            f"The run stops when {dlq.threshold:,} of the last {dlq.window:,} rows of a lane were refused; "
            "the batch in which that happens is not delivered."
        )
    for stage in _every_stage(pipeline):
        if stage.on_error != "nack":
            yield f"A row that {stage.name} refuses {_REFUSED[stage.on_error]}."


_REFUSED = {
    "discard": "is thrown away and counts as filtered",
    "keep": "goes on as it came",
    "stop": "stops the run, whatever the window would let pass",
}


def _every_stage(pipeline: Pipeline) -> Iterator[Stage]:
    ends: list[Origin | Destination] = [*pipeline.given_origins, *pipeline.destinations]
    yield from pipeline.stages
    yield from (stage for end in ends for stage in end.stages)


def _restart(pipeline: Pipeline) -> Iterator[str]:
    yield "A run goes on after the last committed batch; one that was left open is finished first, once."
    yield "From the beginning again:  wherry run FILE --from-beginning"


def _state(pipeline: Pipeline) -> str:
    if isinstance(pipeline.state, SchemaState):
        return f"{pipeline.state.schema}.{pipeline.name}_ledger and tables beside it"
    there = pipeline.state is not None and os.path.exists(pipeline.state)
    return f"{pipeline.state}{'' if there else ' (made by the first run)'}"


def _notes(pipeline: Pipeline) -> Iterator[str]:
    run, lanes = pipeline.run_options, _lanes(pipeline)
    yield from warn_of_short_secrets(pipeline.secrets)
    if run.ownership == "off":
        yield "run.ownership is off: two runs at once may deliver rows twice, and only your scheduler keeps them apart."
    if run.runners and run.runners > lanes:
        yield f"run.runners is {run.runners}, but a lane has one batch at a time, and there {_are(lanes, 'lane')}."
    if run.runners and run.max_in_flight and run.runners > run.max_in_flight:
        yield f"run.runners is {run.runners}, but run.max_in_flight lets only {run.max_in_flight} of them work."
    for origin in pipeline.every_origin:
        if isinstance(origin, Files) and not place_of(origin.path).is_there:
            yield f"There is nothing at {place_of(origin.path).root} yet; a run fails until there is."
        elif isinstance(origin, Files) and not place_of(origin.path).is_open:
            yield f"This user may not read {place_of(origin.path).root}; a run fails until it may."
    local = [each.name for each in pipeline.every_destination if each.remembers and _is_local_table(each)]
    if local:
        names = " and ".join(map(str, local))
        yield f"On a local disk Delta cannot keep two programs apart: let nothing but Wherry write to {names}."
    if pipeline.protect:
        shown = "are masked wherever a row is shown; the DLQ keeps them (wherry dlq show FILE --reveal)"
        yield f"The values of {', '.join(pipeline.protect)} {shown}."
    for origin in pipeline.every_origin:
        line = line_of(pipeline, origin, named(pipeline.every_destination))
        yield from keys_twice(pipeline, line, splits_of(pipeline, origin, line))
    for stage in _every_stage(pipeline):
        if isinstance(stage, Deduplicate) and stage.against is not None and lanes > 1:
            yield f"{stage.name}: batches of two lanes do not see each other; a key that is in both may pass twice."


def _is_local_table(destination: Destination) -> bool:
    """Whether the destination writes to a table in a folder of this machine."""
    options = options_of(type(destination))
    paths = [getattr(destination, name) for name, option in options.items() if option.path and "table" in options]
    return any(isinstance(path, str) and (path.startswith("file:") or "://" not in path) for path in paths if path)


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _are(number: int, one: str) -> str:
    return f"{'is' if number == 1 else 'are'} {_count(number, one)}"


def _has(subjects: list[str]) -> str:
    return "has" if len(subjects) == 1 else "have"
