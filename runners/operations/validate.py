"""Describes in plain words what a definition will do. It starts nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from destinations.delta.options import DeltaOptions
from destinations.destination import Destination
from destinations.discard import Discard
from destinations.dlq import Limit
from origins.batch import JSON
from origins.capabilities import complete_schema
from origins.codec import JsonForm
from origins.delta import Delta
from origins.files.files import Files
from origins.files.listing import parse_pattern
from origins.files.options import ENCODINGS
from origins.origin import Origin, Progress
from origins.quantities import parse_seconds
from origins.store_access import is_store_url
from runners.definitions.definition import Definition
from runners.definitions.kinds import Kinds, find_kind, list_options
from runners.model.clock import Clock
from runners.model.masking import hide_secrets, warn_of_short_secrets
from runners.model.spec import WAYS, BatchOptions, Hook, PipelineSpec, SchemaState
from runners.model.text import format_batches, format_count
from runners.model.timetable import describe_schedule, format_due_times, list_due_times
from runners.operations.pipeline_access import open_session
from runners.running.aggregates import check_mixing, list_splits, warn_of_deduplicates
from runners.running.opening import analyse_chain, check_protected, make_candidate, make_chains
from runners.running.renamed import find_twin, list_states_beside
from runners.spark.own_session import put_settings_back
from runners.state.location import StateLocation
from runners.ways.choose import list_reasons
from runners.ways.stage_chain import name_destinations
from runners.ways.straight import list_prepare_reasons
from runners.ways.way import Thresholds
from stages.deduplicate import Deduplicate
from stages.stage import Stage

_CHARSETS = "spark.sql.legacy.javaCharsets"
_RESTART = (
    "A run first finishes the batch that was left open, then continues after the last committed batch.",
    "From the beginning again:  wherry run FILE --from-beginning",
)


@dataclass(frozen=True, kw_only=True)
class Explanation(JsonForm):
    """What will happen when the pipeline runs. Every sentence is for a person."""

    pipeline: str
    hash: str
    origins: tuple[Mapping[str, JSON], ...]
    """The name, kind, place, lanes and stages of each origin."""
    stages: tuple[str, ...]
    destinations: tuple[Mapping[str, JSON], ...]
    """The name, kind, place and guarantee of each destination."""
    batches: tuple[str, ...]
    """When a batch is full, and how many batches are processed at a time."""
    way: str
    """`straight` or `prepared`."""
    because: tuple[str, ...]
    """Why batches are prepared; empty if they are straight."""
    ways: Mapping[str, str]
    """By way, why no batch can take it; empty if a batch can."""
    delivery: str
    dead_letters: tuple[str, ...]
    restart: tuple[str, ...]
    state: str
    schedule: tuple[str, ...]
    """When the pipeline runs by itself; empty if it does not."""
    next: tuple[str, ...]
    """The next three scheduled times, in UTC."""
    hooks: tuple[str, ...]
    """What is called, and when."""
    notes: tuple[str, ...]
    """Facts that are easily overlooked."""


def explain(definition: Definition, kinds: Kinds | None = None, clock: Clock | None = None) -> Explanation:
    """Explain what the definition will do. Reads only the definition, and the clock if it has a schedule.

    Before the first run it also looks at the states beside the pipeline's own.
    """
    pipeline = definition.pipeline
    due: Sequence[datetime] = ()
    schedule: tuple[str, ...] = ()
    if pipeline.schedule is not None:
        group, due = pipeline.run_options.group, list_due_times(pipeline.schedule, (clock or Clock()).now(), 3)
        schedule = (describe_schedule(pipeline.schedule, group), *format_due_times(pipeline.schedule, due))
    destinations, chains = name_destinations(pipeline.every_destination), make_chains(pipeline)
    origins = pipeline.origins_by_name.items()
    candidates = [make_candidate(pipeline, origin, chains[name], destinations) for name, origin in origins]
    because = dict.fromkeys(why for candidate in candidates for why in list_prepare_reasons(candidate))
    reasons = [list_reasons(candidate) for candidate in candidates]
    return Explanation(
        pipeline=pipeline.name,
        hash=definition.hash,
        origins=tuple(
            {
                "name": origin.name,
                "kind": find_kind(origin, kinds),
                "place": hide_secrets(origin).place,
                "lanes": len(origin.lane_names()),
                "stages": [stage.name for stage in origin.stages],
            }
            for origin in pipeline.every_origin
        ),
        stages=tuple(stage.name or find_kind(stage, kinds) for stage in pipeline.stages),
        destinations=tuple(
            {
                "name": destination.name,
                "kind": find_kind(destination, kinds),
                "place": hide_secrets(destination).place,
                "stages": [stage.name for stage in destination.stages],
                "guarantee": destination.guarantee,
            }
            for destination in pipeline.every_destination
        ),
        batches=tuple(_explain_batches(pipeline, kinds)),
        way="prepared" if because else "straight",
        because=tuple(because),
        ways={way: "" if "" in (whys := [by_way[way] for by_way in reasons]) else whys[0] for way in WAYS},
        delivery=_explain_delivery(pipeline),
        dead_letters=tuple(_explain_dead_letters(pipeline)),
        restart=_RESTART,
        state=_explain_state(pipeline),
        schedule=schedule,
        next=tuple(moment.isoformat() for moment in due),
        hooks=tuple(map(_explain_hook, pipeline.hooks)),
        notes=tuple(_list_notes(pipeline)),
    )


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """The facts about a definition that only Spark knows."""

    columns: Mapping[str, str]
    """The columns of the rows at each destination; empty if they are unknown."""
    notes: tuple[str, ...]
    """Facts that are easily overlooked."""


@put_settings_back()
def analyse(definition: Definition) -> Analysis:
    """Let Spark check the definition. Reads no row.

    Raises `StageError`, which names a stage that does not fit its rows, and `SplitAggregate` for a stage whose result
    would be wrong. Raises `OriginError` if a place does not exist.
    """
    pipeline = definition.pipeline
    spark, chains = open_session(pipeline), make_chains(pipeline)
    arriving, schemas = dict[str, str](), dict[str, str]()
    for name, origin in pipeline.origins_by_name.items():
        columns = origin.columns(spark, origin.survey(spark, Progress()))
        if columns is not None:
            schemas[name] = complete_schema(origin, columns)
            arrived = analyse_chain(spark, schemas[name], chains[name])
            arriving.update({destination: schema.toDDL() for destination, schema in arrived.items()})
    if len(schemas) == len(pipeline.every_origin):
        check_protected(pipeline.protect, spark, chains, schemas)
    notices = check_mixing(pipeline, spark, chains, schemas)
    notes = [f"{name}: {sentence}" for name, sentences in notices.items() for sentence in sentences]
    return Analysis(columns=arriving, notes=tuple(notes))


def _explain_batches(pipeline: PipelineSpec, kinds: Kinds | None) -> Iterator[str]:
    for origin in pipeline.every_origin:
        of = f" of {origin.name}" if len(pipeline.every_origin) > 1 else ""
        yield from _explain_limits(pipeline.run_options.batch, origin, of, kinds)
    lanes, options = _count_lanes(pipeline), pipeline.run_options
    if parse_seconds(options.batch.wait):
        yield f"With --follow, a batch that is not full waits {options.batch.wait} for more rows, from its first row."
    in_flight = options.max_in_flight or lanes
    runners = min(options.runners or os.cpu_count() or 1, in_flight, lanes)
    alone = len(pipeline.every_destination) == 1
    shared = any(len(origin.lane_names()) > 1 for origin in pipeline.every_origin)
    if in_flight > 1 and shared and alone and pipeline.every_destination[0].takes_several:
        most = min(Thresholds().grouped_lanes, in_flight)
        yield (
            f"{format_count(lanes, 'lane', 'lanes')}: clean batches that are ready together are written together, up "
            f"to {most}; at most {format_count(runners, 'write', 'writes')} at a time."
        )
    else:
        yield f"{format_count(lanes, 'lane', 'lanes')}: at most {format_batches(runners)} at a time."


def _count_lanes(pipeline: PipelineSpec) -> int:
    return sum(len(origin.lane_names()) for origin in pipeline.every_origin)


def _explain_limits(batch: BatchOptions, origin: Origin, of: str, kinds: Kinds | None) -> Iterator[str]:
    binds = origin.binds if origin.batch == "limited" else frozenset()
    files = min((most for most in (batch.files, getattr(origin, "max_files", None)) if most), default=0)
    limits = {
        "rows": format_count(batch.rows) if batch.rows else "",
        "bytes": batch.bytes or "",
        "files": format_count(files, "file", "files") if files else "",
    }
    binding = [limit for name, limit in limits.items() if limit and name in binds]
    given = [name for name in limits if getattr(batch, name) != getattr(BatchOptions(), name)]
    loose = [f"run.batch.{name}" for name in given if limits[name] and name not in binds]
    most = f"at most {' and '.join(binding)}" if binding else "all waiting rows of its lane"
    yield f"A batch{of} holds {most}."
    if loose:
        can = f"only {' and '.join(sorted(binds))}" if binds else "nothing"
        have = "has" if len(loose) == 1 else "have"
        yield f"{' and '.join(loose)} {have} no effect: {can} can limit a batch of {find_kind(origin, kinds)}."


def _explain_delivery(pipeline: PipelineSpec) -> str:
    if len(pipeline.every_destination) == 1:
        (only,) = pipeline.every_destination
        return f"The offset is committed when {only.name} and the DLQ have the batch."
    if len(pipeline.destinations) == 1 and pipeline.destinations[0].by_lane:
        return "The offset is committed when the lane's destination and the DLQ have the batch."
    if pipeline.delivery == "after_all":
        return "The offset is committed when all destinations and the DLQ have the batch."
    return (
        "The offset is committed as soon as one destination and the DLQ have the batch. The others still get it, also "
        "after a crash."
    )


_REFUSED = {
    "discard": "is discarded and counts as filtered",
    "keep": "continues unchanged",
    "stop": "stops the run, even if the window allows it",
}


def _explain_dead_letters(pipeline: PipelineSpec) -> Iterator[str]:
    dlq = pipeline.dlq
    if isinstance(dlq.destination, Discard):
        where = "are counted and discarded"
    elif dlq.destination is not None:
        where = f"go to {hide_secrets(dlq.destination).place or dlq.destination.name}"
    else:
        where = "go to a table in the state (wherry dlq show)"
    for copy in dlq.copies:
        some = "those that its stages leave " if copy.stages else ""
        where += f", and {some}to {hide_secrets(copy).place or copy.name}"
    if dlq.fallback is not None:
        place = hide_secrets(dlq.fallback).place
        yield f"While the DLQ fails, refused rows wait in {place} (wherry dlq merge)."
    if dlq.window == 0 and not dlq.list_limits():
        yield f"Refused rows never stop a run; they {where}."
    elif dlq.window == 0:
        yield f"Refused rows {where}."
    elif dlq.threshold == 1:
        yield "The first refused row stops the run; its batch is not delivered, and the DLQ gets nothing."
        yield f"For one run in which they {where}:  wherry run FILE --set dlq.window=0"
        yield "To make it permanent:  dlq: {window: 1000, threshold: 50}"
    else:
        yield f"Refused rows {where}."
        yield (
            f"The run stops when {dlq.threshold:,} of the last {dlq.window:,} rows of a lane were refused; that batch "
            "is not delivered."
        )
    for limit in dlq.list_limits():
        yield _explain_limit(limit)
    for stage in _list_stages(pipeline):
        if stage.on_error != "nack":
            yield f"A row that {stage.name} refuses {_REFUSED[stage.on_error]}."


def _explain_limit(limit: Limit) -> str:
    happens = {
        "stop": "is not delivered, and stops the run,",
        "pause": "is not delivered, and pauses the pipeline until wherry resume,",
        "notify": "is delivered, with a warning,",
    }
    return f"A batch {happens[limit.action]} if more than {limit.text} of its rows were refused."


def _explain_hook(hook: Hook) -> str:
    """Return when a hook is called, and what it is. A webhook's address is a secret, so it is left out."""
    what = {"webhook": "a webhook", "python": f"the function {hook.python}", "command": " ".join(hook.words)}[hook.kind]
    return f"on {', '.join(hook.moments)}: {what}"


def _list_stages(pipeline: PipelineSpec) -> Iterator[Stage]:
    ends: list[Origin | Destination] = [*pipeline.given_origins, *pipeline.destinations]
    yield from pipeline.stages
    yield from (stage for end in ends for stage in end.stages)


def _explain_state(pipeline: PipelineSpec) -> str:
    if isinstance(pipeline.state, SchemaState):
        return f"{pipeline.state.schema}.{pipeline.name}_ledger and tables beside it"
    if is_store_url(pipeline.state):
        return str(pipeline.state)
    there = pipeline.state is not None and os.path.exists(pipeline.state)
    return f"{pipeline.state}{'' if there else ' (created by the first run)'}"


def _list_notes(pipeline: PipelineSpec) -> Iterator[str]:
    run, lanes = pipeline.run_options, _count_lanes(pipeline)
    yield from warn_of_short_secrets(pipeline.secrets)
    if run.ownership == "off":
        yield "run.ownership is off: two runs at once may deliver rows twice. Let your scheduler prevent that."
    if run.runners and run.runners > lanes:
        there = f"there {'is' if lanes == 1 else 'are'} {format_count(lanes, 'lane', 'lanes')}"
        yield f"run.runners is {run.runners}, but a lane has one batch at a time, and {there}."
    if run.runners and run.max_in_flight and run.runners > run.max_in_flight:
        yield f"run.runners is {run.runners}, but run.max_in_flight allows only {run.max_in_flight}."
    for origin in pipeline.every_origin:
        if isinstance(origin, Files):
            yield from _note_files(origin, pipeline)
    local = [str(each.name) for each in pipeline.every_destination if each.remembers and _is_local_table(each)]
    if local:
        yield f"On a local disk Delta cannot keep two programs apart: only Wherry may write to {' and '.join(local)}."
    yield from _note_late_rows(pipeline)
    if pipeline.protect:
        shown = "are masked in every output; the DLQ keeps them (wherry dlq show FILE --reveal)"
        yield f"The values of {', '.join(pipeline.protect)} {shown}."
    yield from _note_twin(pipeline)
    if pipeline.keeps_filtered:
        yield f"Wherry keeps filtered rows in the state for {pipeline.keep_filtered}; wherry find searches them."
    for name, chain in make_chains(pipeline).items():
        origin = pipeline.origins_by_name[name]
        yield from warn_of_deduplicates(pipeline, chain, list_splits(pipeline, origin, chain))
    for stage in _list_stages(pipeline):
        if isinstance(stage, Deduplicate) and stage.against is not None and lanes > 1:
            yield f"{stage.name}: it sees one batch at a time, so a key in two lanes may pass twice."


def _note_late_rows(pipeline: PipelineSpec) -> Iterator[str]:
    """Yield which merges add a deleted key again if an older row comes late.

    Only a change feed gives the rows of a key in their order.
    """
    late = {
        name: pipeline.lanes_of(origin)
        for name, origin in pipeline.origins_by_name.items()
        if not (isinstance(origin, Delta) and origin.changes)
    }
    for name, destination in name_destinations(pipeline.every_destination).items():
        origins = [origin for origin, lanes in late.items() if destination.takes(lanes)]
        if isinstance(destination, DeltaOptions) and destination.apply_as_deletes and origins:
            yield (
                f"{name} does not remember deletes: if an older row of a deleted key comes late from "
                f"{' or '.join(origins)}, it adds the key again. If that can happen, keep a column `deleted` instead."
            )


def _note_files(origin: Files, pipeline: PipelineSpec) -> Iterator[str]:
    """Yield why a run may fail to read the files, and what a redo of a file lacks."""
    pattern = parse_pattern(origin.path)
    if not pattern.is_there:
        yield f"There is nothing at {pattern.root} yet; a run fails until something is there."
    elif not pattern.is_open:
        yield f"This user has no right to read {pattern.root}; a run fails without it."
    lowered = {name.lower(): str(value) for name, value in origin.options.items()}
    encoding = lowered.get("encoding", lowered.get("charset", "UTF-8"))
    is_known = encoding.upper() in ENCODINGS or pipeline.spark.settings.get(_CHARSETS) == "true"
    if origin.format == "csv" and not is_known:
        yield f"{origin.name}: Spark reads CSV in {encoding} only with `spark: {{conf: {{{_CHARSETS}: true}}}}`."
    tables = [each for each in pipeline.every_destination if isinstance(each, DeltaOptions) and each.mode == "append"]
    unmarked = [str(each.name) for each in tables if not each.stamp and each.takes(pipeline.lanes_of(origin))]
    if unmarked and origin.read != "whole" and not {"file_name", "file_path"}.intersection(origin.metadata):
        names = " and ".join(unmarked)
        yield f"`wherry redo` needs `metadata: [file_name]` at {origin.name} before the first run into {names}."


def _note_twin(pipeline: PipelineSpec) -> Iterator[str]:
    """Yield that the first run will ask a question, if another pipeline may have had this definition."""
    place = StateLocation.of(pipeline)
    if place.directory is not None and not (place.directory / "ledger").exists():
        twin = find_twin(pipeline, name_destinations(pipeline.every_destination), list_states_beside(place))
        if twin is not None:
            yield f"{twin.describe()} The first run asks whether {twin.name} was renamed."


def _is_local_table(destination: Destination) -> bool:
    """Whether the destination writes to a table in a folder of this machine."""
    options = list_options(type(destination))
    paths = [getattr(destination, name) for name, option in options.items() if option.path and "table" in options]
    return any(isinstance(path, str) and (path.startswith("file:") or "://" not in path) for path in paths if path)
