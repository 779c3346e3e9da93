"""Checks of a pipeline as a whole, in YAML and in Python: names must differ, and settings must be able to work."""

from __future__ import annotations

import copy
import dataclasses
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias, TypeVar

from destinations.delta.delta import Delta
from destinations.delta.table import LOG_STORES
from destinations.destination import LANE, Destination
from destinations.dlq import DLQ, FALLBACK, ONLY_COPY
from origins.capabilities import EvolvesSchema, get_only_lane
from origins.delta import Delta as DeltaOrigin
from origins.dlq import DlqEntries
from origins.files.files import Files
from origins.names import get_last_part, make_absolute
from origins.origin import Origin
from origins.quantities import parse_seconds, parse_size
from origins.secret import SecretText
from origins.spark_versions import is_on_databricks
from origins.store_access import canonicalise, find_problem, is_store_url
from runners.definitions.document import Problem
from runners.definitions.kinds import Kinds, find_kind
from runners.model.masking import hide_secrets
from runners.model.pipeline_state import is_aside
from runners.model.spec import FOR_EVER, GROUP_NAME, PipelineSpec, ScheduleOptions, SchemaState
from runners.model.text import shorten
from runners.model.timetable import find_zone, make_timetable
from stages.stage import Stage
from stages.stage import list_problems as problems_beside

C = TypeVar("C", Origin, Stage)
D = TypeVar("D")

MOST_KEPT = 20
"""How many rows a snapshot has at most."""
_NAME = re.compile(r"\w[\w-]{0,99}")
_TABLE_NAME = re.compile(r"\w{1,100}", re.ASCII)
_HDFS = "Only Spark reaches HDFS: origins and destinations may be there, and the state may not"
_WITHOUT_LINKS = ("/Workspace/", "/Volumes/")
_VOLUME = re.compile(r"/[^\s]+|(?:(?:\w+|`[^`./]+`)\.){2}(?:\w+|`[^`./]+`)", re.ASCII)
_SCHEMA = re.compile(r"(?:\w+|`[^`]+`)(?:\.(?:\w+|`[^`]+`))?", re.ASCII)
_TIME_OFFSET = re.compile(r"Z|(?:UTC|GMT|UT)?[+-]\d{1,2}(?::\d{2})?", re.ASCII)


def complete_pipeline(pipeline: PipelineSpec, kinds: Kinds | None = None) -> PipelineSpec:
    """Return the pipeline with a name for every component that has none.

    The name is the component's kind, or the last part of a destination's place. A place with a secret gives no name.
    """

    def name_component(component: C) -> C:
        return copy_with(component, name=component.name or find_kind(component, kinds))

    def name_origin(origin: Origin) -> Origin:
        return copy_with(name_component(origin), stages=tuple(map(name_component, origin.stages)))

    def name_destination(destination: Destination) -> Destination:
        secret = hide_secrets(destination).place != destination.place
        part = "" if secret else get_last_part(destination.place)
        name = destination.name or part or find_kind(destination, kinds)
        return copy_with(destination, name=name, stages=tuple(map(name_component, destination.stages)))

    def name_copies(copies: Sequence[Destination] | Destination | None) -> Sequence[Destination] | Destination | None:
        if copies is None:
            return None
        if isinstance(copies, Destination):
            return name_destination(copy_with(copies, name=copies.name or ONLY_COPY))
        return tuple(map(name_destination, copies))

    dead, fallback = pipeline.dlq.destination, pipeline.dlq.fallback
    return dataclasses.replace(
        pipeline,
        origin=pipeline.origin and name_origin(pipeline.origin),
        origins=tuple(map(name_origin, pipeline.origins)),
        stages=tuple(map(name_component, pipeline.stages)),
        destinations=tuple(map(name_destination, pipeline.destinations)),
        dlq=dataclasses.replace(
            pipeline.dlq,
            destination=dead and copy_with(dead, name=dead.name or DLQ),
            copy=name_copies(pipeline.dlq.copy),
            fallback=fallback and copy_with(fallback, name=fallback.name or FALLBACK),
        ),
    )


def copy_with(component: D, **changes: object) -> D:
    """Return a copy that shares private data of the component, such as rows in memory.

    `dataclasses.replace` does not.
    """
    copied = copy.copy(component)
    for name, value in changes.items():
        object.__setattr__(copied, name, value)
    return copied


def list_problems(pipeline: PipelineSpec, directory: Path) -> Iterator[Problem]:
    """Yield what is wrong with a completed pipeline as a whole. By default its state is below this directory."""
    if pipeline.state is None:
        pipeline = dataclasses.replace(pipeline, state=str(directory.absolute() / ".wherry" / pipeline.name))
    checks = (
        _check_secret_names,
        _check_names,
        _check_lane_tables,
        _check_state,
        _check_workspace,
        _check_read_dlqs,
        _check_retention,
        _check_settings,
        _check_assignment,
        _check_hooks,
        _check_schedule,
        _check_order,
    )
    for check in checks:
        for path, message in check(pipeline):
            yield Problem(path=path, message=message)


Found: TypeAlias = tuple[str, str]
"""The path of a problem, and what is wrong there."""


def _check_secret_names(pipeline: PipelineSpec) -> Iterator[Found]:
    """Yield names with a secret, which the ledger would store and every report would show."""
    given: list[tuple[str, str | None]] = [("name", pipeline.name)]
    for path, component in _list_components(pipeline):
        given.append((f"{path}.name", component.name))
        given += [(f"{path}.was", component.was)] if isinstance(component, Destination) else []
    for path, name in given:
        if isinstance(name, SecretText):
            yield path, "expected a name without a secret, since Wherry shows names and keeps them in the ledger"


def _check_names(pipeline: PipelineSpec) -> Iterator[Found]:
    if not _NAME.fullmatch(pipeline.name):
        yield "name", f"expected letters, digits, _ and -, at most 100, got {shorten(pipeline.name)}"
    yield from _check_component_names(pipeline)
    if not pipeline.destinations:
        yield "destinations", "expected at least one destination"
    if pipeline.origin is None and not pipeline.origins:
        yield "origin", "expected an origin"
    if pipeline.origin is not None and pipeline.origins:
        yield "origins", "expected either origin or origins, got both"
    yield from _check_distinct("origins", pipeline.origins, {})
    yield from _check_distinct("destinations", pipeline.destinations, {DLQ: "the DLQ", FALLBACK: "its fallback"})
    yield from _check_distinct("dlq.copy", pipeline.dlq.copies, {})
    names = {(each.name or "").lower() for each in pipeline.destinations}
    for at, destination in enumerate(pipeline.destinations):
        if destination.was is not None and destination.was.lower() in names:
            message = f"'{destination.was}' is the name of a destination in this definition; `was` takes an old name"
            yield f"destinations[{at}].was", message


def _check_distinct(where: str, named: Sequence[Origin | Destination], taken: Mapping[str, str]) -> Iterator[Found]:
    """Yield names that the ledger could not distinguish, or that are `taken` by others."""
    first: dict[str, str] = {}
    for at, each in enumerate(named):
        path, name = f"{where}[{at}]", (each.name or "").lower()
        other = first.setdefault(name, path)
        if name in taken:
            yield path, f"'{each.name}' is the name of {taken[name]}; choose another `name:`"
        elif other != path:
            yield path, f"'{each.name}' is the name of {other} already; give one of them another `name:`"


def _check_lane_tables(pipeline: PipelineSpec) -> Iterator[Found]:
    tables = [origin for origin in pipeline.every_origin if get_only_lane(origin)]
    for origin in tables:
        for message in _check_lane_name(origin):
            yield "origin" if pipeline.origin else "origins", message
    lanes = [origin.name or "" for origin in tables]
    others = [origin.name for origin in pipeline.every_origin if not get_only_lane(origin)]
    first = {(each.name or "").lower(): f"destinations[{at}]" for at, each in enumerate(pipeline.destinations)}
    for at, destination in enumerate(pipeline.destinations):
        path = f"destinations[{at}]"
        if destination.by_lane and others:
            message = f"{LANE} stands for a table's name, but '{others[0]}' has no lanes with such names"
            yield path, f"{message}; give it `tables` or `paths`, or remove {LANE}"
            continue
        for lane in lanes if destination.by_lane else ():
            try:
                name = (destination.of_lane(lane).name or "").lower()
            except ValueError as error:
                yield path, f"for the lane {lane}: {error}"
                continue
            own = f"{path} for the lane {lane}"
            if first.setdefault(name, own) != own or name == DLQ:
                yield path, f"for the lane {lane} its name is '{name}', as that of {first[name]}; rename one of them"


def _check_lane_name(origin: Origin) -> Iterator[str]:
    """Yield why the name of a table cannot be the name of a lane."""
    name, lane = origin.name or "", get_only_lane(origin)
    if not lane.isprintable() or not lane.strip() or len(lane) > 100 or lane in (".", "..") or set(lane) & set("/\\#`"):
        yield f"expected a table's name of at most 100 characters without / \\ # and `, got {shorten(lane)}"
    if get_last_part(hide_secrets(origin).place) != get_last_part(origin.place):
        yield "expected a table's name without a secret, since the ledger keeps it as the name of the lane"
    if is_aside(name) or is_aside(f"{name}/"):
        yield f"a lane cannot have the name '{name}', which backfills and replays use"


def _list_components(pipeline: PipelineSpec) -> list[tuple[str, Origin | Stage | Destination]]:
    """Return the origins, stages and destinations, each with its path in the definition."""
    ends: list[tuple[str, Origin | Destination]] = [*_list_origins(pipeline)]
    ends += [(f"destinations[{at}]", each) for at, each in enumerate(pipeline.destinations)]
    alone = isinstance(pipeline.dlq.copy, Destination)
    ends += [("dlq.copy" if alone else f"dlq.copy[{at}]", each) for at, each in enumerate(pipeline.dlq.copies)]
    named: list[tuple[str, Origin | Stage | Destination]] = []
    named += [(f"stages[{at}]", stage) for at, stage in enumerate(pipeline.stages)]
    for path, end in ends:
        named += [(path, end), *((f"{path}.stages[{at}]", each) for at, each in enumerate(end.stages))]
    return named


def _list_origins(pipeline: PipelineSpec) -> list[tuple[str, Origin]]:
    """Return the origins, each with its path in the definition."""
    alone = pipeline.origin is not None
    return [("origin" if alone else f"origins[{at}]", each) for at, each in enumerate(pipeline.given_origins)]


def _check_component_names(pipeline: PipelineSpec) -> Iterator[Found]:
    for path, component in _list_components(pipeline):
        name = component.name or ""
        if not name.isprintable() or not name.strip() or len(name) > 100 or set(name) & set("/\\#"):
            yield f"{path}.name", f"expected a name of at most 100 characters without / \\ and #, got {shorten(name)}"
        if isinstance(component, Stage):
            for option, message in problems_beside(component):
                yield f"{path}.{option}", message


def _check_state(pipeline: PipelineSpec) -> Iterator[Found]:
    if is_store_url(pipeline.state):
        problem = find_problem(str(pipeline.state))
        if problem:
            yield "state", problem
    elif isinstance(pipeline.state, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", pipeline.state):
        message = "expected a directory of this machine, s3://, abfss://, gs:// or {schema: catalog.schema}"
        hint = f". {_HDFS}" if pipeline.state.startswith("hdfs:") else ""
        yield "state", f"{message}, got {shorten(pipeline.state)}{hint}"
    if isinstance(pipeline.state, str) and not is_store_url(pipeline.state):
        folder = os.path.abspath(pipeline.state)
        if folder.startswith(_WITHOUT_LINKS):
            why = "where files have no hard links and no locks"
            yield "state", f"expected {{schema: catalog.schema}}, got {folder}, {why}"
    if isinstance(pipeline.state, SchemaState):
        volume = pipeline.state.volume
        if volume is not None and not _VOLUME.fullmatch(volume):
            yield "state.volume", f"expected a volume such as main.wherry.rows, got {shorten(volume)}"
        if not _SCHEMA.fullmatch(pipeline.state.schema):
            yield "state.schema", f"expected a schema such as main.wherry, got {shorten(pipeline.state.schema)}"
        if not _TABLE_NAME.fullmatch(pipeline.name):
            yield "name", f"names tables in the state's schema: expected a-z, 0-9 and _, got {shorten(pipeline.name)}"


def _check_workspace(pipeline: PipelineSpec) -> Iterator[Found]:
    """Yield places on Databricks that Wherry lists below /Workspace, and that Spark reads below dbfs:/Workspace."""
    ends = [*_list_components(pipeline), ("dlq", pipeline.dlq.destination), ("dlq.fallback", pipeline.dlq.fallback)]
    for path, end in ends if is_on_databricks() else ():
        for option in ("path", "paths", "move_to") if isinstance(end, Files | DeltaOrigin | DlqEntries | Delta) else ():
            given = getattr(end, option, None) or ()
            for place in map(make_absolute, [given] if isinstance(given, str) else given):
                if place.startswith("/Workspace/"):
                    volume = f"/Volumes/CATALOG/SCHEMA/VOLUME/{get_last_part(place)}"
                    yield f"{path}.{option}", f"expected {volume}, got {shorten(place)}, where Spark finds no files"


def _check_read_dlqs(pipeline: PipelineSpec) -> Iterator[Found]:
    """Yield an origin that would read the rows that this pipeline refuses, again and again."""
    for path, component in _list_components(pipeline):
        if isinstance(component, DlqEntries) and component.place == _find_dlq_place(pipeline):
            option = "table" if component.table else "path"
            message = "expected the DLQ of another pipeline, got its own; the rows that it refuses would come back"
            yield f"{path}.{option}", message


def _find_dlq_place(pipeline: PipelineSpec) -> str:
    given, state = pipeline.dlq.destination, pipeline.state
    if given is not None:
        return given.place
    if isinstance(state, SchemaState):
        return f"{state.schema}.{pipeline.name}_dlq"
    return make_absolute(f"{state}/dlq")


def _check_retention(pipeline: PipelineSpec) -> Iterator[Found]:
    for code, period in pipeline.dlq.periods.items():
        path = "dlq.retain" if isinstance(pipeline.dlq.retain, str) else f"dlq.retain.{code}"
        yield from _check_quantity(path, period, parse_seconds)


def _check_settings(pipeline: PipelineSpec) -> Iterator[Found]:
    """Yield settings with which no row could ever be carried, and invalid quantities."""
    run, batch = pipeline.run_options, pipeline.run_options.batch
    counts = {
        "run.runners": run.runners,
        "run.max_in_flight": run.max_in_flight,
        "run.batch.rows": batch.rows,
        "run.batch.files": batch.files,
    }
    for path, count in counts.items():
        if count is not None and count < 1:
            yield path, f"expected at least 1, got {count}; with less no row would ever be processed"
    for options, prefix, names in (
        (batch, "run.batch", ("wait",)),
        (run.retry, "run.retry", ("wait", "most", "within")),
        (run, "run", ("drain", "poll", "idle", "history")),
    ):
        for name in names:
            yield from _check_quantity(f"{prefix}.{name}", getattr(options, name), parse_seconds)
    yield from _check_quantity("run.lease", run.lease, _parse_lease)
    yield from _check_quantity("keep_filtered", pipeline.keep_filtered, parse_seconds)
    if run.retry.attempts < FOR_EVER:
        yield "run.retry.attempts", f"expected a number of attempts, or -1 for no limit, got {run.retry.attempts}"
    if isinstance(run.retry.also, str) or not all(run.retry.also):
        yield "run.retry.also", f"expected a list of words, got {shorten(str(run.retry.also))}"
    if not 0 <= run.snapshot <= MOST_KEPT:
        yield "run.snapshot", f"expected 0 to {MOST_KEPT} rows, got {run.snapshot}"
    if run.group is not None and not GROUP_NAME.fullmatch(str(run.group)):
        yield "run.group", f"expected a-z first, then a-z, 0-9, _ and -, at most 100, got {shorten(str(run.group))}"
    if isinstance(pipeline.protect, str) or not all(pipeline.protect):
        yield "protect", f"expected a list of columns, got {shorten(str(pipeline.protect))}"
    if batch.bytes is not None:
        yield from _check_quantity("run.batch.bytes", batch.bytes, _parse_bytes)
    if not _TIME_OFFSET.fullmatch(run.time_zone):
        yield from _check_quantity("run.time_zone", run.time_zone, find_zone)


def _check_assignment(pipeline: PipelineSpec) -> Iterator[Found]:
    """Yield settings with which parallel runs would disturb each other."""
    run = pipeline.run_options
    if run.assignment == "single":
        return
    shared = f"where run.assignment is {run.assignment}"
    if run.ownership == "off":
        yield "run.assignment", "expected single where run.ownership is off, since runs share lanes by a lease"
    for path, origin in _list_origins(pipeline):
        if origin.read == "whole":
            message = f"expected new {shared}; a run that starts over would also start the lanes of other runs over"
            yield f"{path}.read", message
        if isinstance(origin, EvolvesSchema) and origin.evolves:
            yield path, f"expected fixed columns {shared}; other runs write the table while it changes"
    for at, destination in enumerate(pipeline.destinations):
        if destination.replaces:
            message = f"expected append or merge {shared}; a run would replace the rows of other runs"
            yield f"destinations[{at}].mode", message
    if not any(pipeline.spark.conf.get(name) for name in LOG_STORES):
        for path, place in _list_tables(pipeline):
            if canonicalise(place).startswith("s3a:"):
                message = f"expected a table that is not on S3 {shared}; Spark may replace the commits of other runs"
                yield path, f"{message} there, unless `spark.conf` names a log store such as Delta's for DynamoDB"


def _list_tables(pipeline: PipelineSpec) -> Iterator[tuple[str, str]]:
    """Yield the paths of Delta tables to which Spark may commit in every run, each after its place in a definition."""
    for at, to in enumerate(pipeline.destinations):
        if isinstance(to, Delta) and to.path and (to.mode != "append" or to.has_layout or to.optimize is not None):
            yield f"destinations[{at}].path", to.path
    dead = pipeline.dlq.destination
    if isinstance(dead, Delta) and dead.path:
        yield "dlq", dead.path
    if dead is None and isinstance(pipeline.state, str):
        yield "state", pipeline.state


def _check_hooks(pipeline: PipelineSpec) -> Iterator[Found]:
    """Yield hooks that would show a secret to other processes."""
    for at, hook in enumerate(pipeline.hooks):
        if any(isinstance(word, SecretText) for word in (hook.command, *(hook.command or ()))):
            message = "expected a command without a secret, since the list of processes shows it; use the environment"
            yield f"hooks[{at}].command", message


def _check_schedule(pipeline: PipelineSpec) -> Iterator[Found]:
    options = pipeline.schedule
    if options is None:
        return
    given = [name for name in ("cron", "every", "after") if getattr(options, name) is not None]
    if len(given) != 1:
        got = " and ".join(given) or "none of them"
        yield "schedule", f"expected one of cron, every and after, got {got}"
    elif options.time_zone != "UTC" and given != ["cron"]:
        yield "schedule.time_zone", f"has no effect on `{given[0]}`; only `cron` uses a time zone"
    if options.after == pipeline.name:
        yield "schedule.after", "a pipeline cannot wait for itself"
    yield from _check_quantity("schedule.jitter", options.jitter, parse_seconds)
    for name in given:
        try:
            make_timetable(dataclasses.replace(ScheduleOptions(), **{name: getattr(options, name)}))
        except ValueError as error:
            yield f"schedule.{name}", str(error).partition(": ")[2]
    yield from _check_quantity("schedule.time_zone", options.time_zone, find_zone)


def _check_order(pipeline: PipelineSpec) -> Iterator[Found]:
    """Yield destinations that need one common order of rows, if there are several lanes."""
    lanes = sum(len(origin.lane_names()) for origin in pipeline.every_origin)
    for at, destination in enumerate(pipeline.destinations):
        if destination.ordered and lanes > 1 and not destination.by_lane:
            message = (
                f"'{destination.name}' keeps the row that arrives last, but {lanes} lanes have no common order; set "
                "`sequence_by`, or use one lane"
            )
            yield f"destinations[{at}]", message


def _parse_bytes(text: str) -> int:
    parsed = parse_size(text)
    if parsed < 1:
        raise ValueError(f"expected at least one byte, got {text!r}; with less no row would ever be processed")
    return parsed


def _parse_lease(text: str) -> float:
    parsed = parse_seconds(text)
    if parsed < 1:
        raise ValueError(f"expected at least one second, got {text!r}; a run cannot renew a shorter lease")
    return parsed


def _check_quantity(path: str, text: str, parse: Callable[[str], object]) -> Iterator[Found]:
    try:
        parse(text)
    except ValueError as error:
        yield path, str(error)
