"""What must hold for a pipeline as a whole, in YAML and in Python alike: names that differ, settings that can work."""

from __future__ import annotations

import copy
import dataclasses
import re
import zoneinfo
from collections.abc import Callable, Iterator
from typing import TypeVar

from destinations.destination import LANE, Destination
from destinations.dlq import DLQ
from origins.names import last_part
from origins.origin import Origin
from origins.quantities import seconds, size
from origins.secret import SecretText
from runners.definitions.kinds import Kinds, kind_of
from runners.definitions.problems import Problem, shortened
from runners.definitions.secrets import hide_secrets
from runners.pipeline import Pipeline, ScheduleOptions, SchemaState
from runners.retry import FOR_EVER
from runners.schedules.timetable import timetable_of, zone_of
from runners.state import is_aside
from stages.door import problems_of as problems_beside
from stages.stage import Stage

C = TypeVar("C", Origin, Stage)
D = TypeVar("D", Origin, Stage, Destination)

MOST_KEPT = 20
"""The rows of a snapshot."""
_NAME = re.compile(r"\w[\w-]{0,99}")
_TABLE_NAME = re.compile(r"\w{1,100}", re.ASCII)
_SCHEMA = re.compile(r"(?:\w+|`[^`]+`)(?:\.(?:\w+|`[^`]+`))?", re.ASCII)
_TIME_OFFSET = re.compile(r"Z|(?:UTC|GMT|UT)?[+-]\d{1,2}(?::\d{2})?", re.ASCII)


def completed(pipeline: Pipeline, kinds: Kinds | None = None) -> Pipeline:
    """The pipeline with a name for every component that has none: its kind, or a destination's last part of place.

    A place that holds a secret names nothing.
    """

    def named(component: C) -> C:
        return _changed(component, name=component.name or kind_of(component, kinds))

    def reading(origin: Origin) -> Origin:
        return _changed(named(origin), stages=tuple(map(named, origin.stages)))

    def going(destination: Destination) -> Destination:
        secret = hide_secrets(destination).place != destination.place
        part = "" if secret else last_part(destination.place)
        name = destination.name or part or kind_of(destination, kinds)
        return _changed(destination, name=name, stages=tuple(map(named, destination.stages)))

    dead = pipeline.dlq.destination
    return dataclasses.replace(
        pipeline,
        origin=pipeline.origin and reading(pipeline.origin),
        origins=tuple(map(reading, pipeline.origins)),
        stages=tuple(map(named, pipeline.stages)),
        destinations=tuple(map(going, pipeline.destinations)),
        dlq=dataclasses.replace(pipeline.dlq, destination=dead and _changed(dead, name=dead.name or DLQ)),
    )


def _changed(component: D, **changes: object) -> D:
    """A copy that shares what the component keeps to itself, as rows in memory; `dataclasses.replace` would not."""
    copied = copy.copy(component)
    for name, value in changes.items():
        object.__setattr__(copied, name, value)
    return copied


def problems_of(pipeline: Pipeline) -> Iterator[Problem]:
    """What is wrong with a completed pipeline as a whole."""
    yield from _secret_names(pipeline)
    yield from _names(pipeline)
    yield from _by_lane(pipeline)
    yield from _state(pipeline)
    yield from _settings(pipeline)
    yield from _assignment(pipeline)
    yield from _hooks(pipeline)
    yield from _schedule(pipeline)
    yield from _order(pipeline)


def _secret_names(pipeline: Pipeline) -> Iterator[Problem]:
    """Names that would keep a secret in the ledger and show it in every report."""
    given: list[tuple[str, str | None]] = [("name", pipeline.name)]
    for path, component in _components(pipeline):
        given.append((f"{path}.name", component.name))
        given += [(f"{path}.was", component.was)] if isinstance(component, Destination) else []
    for path, name in given:
        if isinstance(name, SecretText):
            yield Problem(path=path, message="a name is shown and kept in the ledger, so no secret can stand in it")


def _names(pipeline: Pipeline) -> Iterator[Problem]:
    if not _NAME.fullmatch(pipeline.name):
        said = f"expected letters, digits, _ and -, at most 100, got {shortened(pipeline.name)}"
        yield Problem(path="name", message=said)
    yield from _names_in_line(pipeline)
    if not pipeline.destinations:
        yield Problem(path="destinations", message="expected at least one destination")
    if pipeline.origin is None and not pipeline.origins:
        yield Problem(path="origin", message="expected an origin")
    if pipeline.origin is not None and pipeline.origins:
        yield Problem(path="origins", message="expected either origin or origins, got both")
    read: dict[str, str] = {}
    for at, origin in enumerate(pipeline.origins):
        path, name = f"origins[{at}]", (origin.name or "").lower()
        if name in read:
            said = f"'{origin.name}' is what {read[name]} is called already; give one of them a `name:` of its own"
            yield Problem(path=path, message=said)
        read.setdefault(name, path)
    first: dict[str, str] = {}
    for at, destination in enumerate(pipeline.destinations):
        path, name = f"destinations[{at}]", destination.name or ""
        if name.lower() == DLQ:
            yield Problem(
                path=path, message=f"'{name}' is what the dead letter queue is called; give it another `name:`"
            )
        elif name.lower() in first:
            other = first[name.lower()]
            said = f"'{name}' is what {other} is called already; give one of them a `name:` of its own"
            yield Problem(path=path, message=said)
        first.setdefault(name.lower(), path)
    for at, destination in enumerate(pipeline.destinations):
        if destination.was is not None and destination.was.lower() in first:
            said = f"'{destination.was}' is the name of a destination that is still there"
            yield Problem(path=f"destinations[{at}].was", message=said)


def _by_lane(pipeline: Pipeline) -> Iterator[Problem]:
    """Lanes that are tables, and destinations of which each of them has one of its own."""
    tables = [origin for origin in pipeline.every_origin if origin.only_lane]
    for origin in tables:
        path = "origin" if pipeline.origin else "origins"
        yield from (Problem(path=path, message=said) for said in _unfit(origin))
    lanes = [origin.name or "" for origin in tables]
    others = [origin.name for origin in pipeline.every_origin if not origin.only_lane]
    first = {(each.name or "").lower(): f"destinations[{at}]" for at, each in enumerate(pipeline.destinations)}
    for at, destination in enumerate(pipeline.destinations):
        path = f"destinations[{at}]"
        if destination.by_lane and others:
            said = f"{LANE} is the name of a table that is read, and '{others[0]}' reads none by its name"
            yield Problem(path=path, message=f"{said}; give it `tables` or `paths`, or leave {LANE} out")
            continue
        for lane in lanes if destination.by_lane else ():
            try:
                name = (destination.of_lane(lane).name or "").lower()
            except ValueError as error:
                yield Problem(path=path, message=f"for the lane {lane}: {error}")
                continue
            own = f"{path} for the lane {lane}"
            if first.setdefault(name, own) != own or name == DLQ:
                said = f"for the lane {lane} it is called '{name}', as {first[name]} is; give one another name"
                yield Problem(path=path, message=said)


def _unfit(origin: Origin) -> Iterator[str]:
    """Why the name of a table cannot be that of a lane."""
    name, lane = origin.name or "", origin.only_lane
    if not lane.isprintable() or not lane.strip() or len(lane) > 100 or lane in (".", "..") or set(lane) & set("/\\#`"):
        yield f"expected a table's name of at most 100 characters without / \\ # and `, got {shortened(lane)}"
    if last_part(hide_secrets(origin).place) != last_part(origin.place):
        yield "a lane is called as its table is, and the ledger keeps that, so no secret can stand in a table's name"
    if is_aside(name) or is_aside(f"{name}/"):
        yield f"a lane cannot be called '{name}'; lanes in which rows are carried again are called so"


def _components(pipeline: Pipeline) -> list[tuple[str, Origin | Stage | Destination]]:
    """The origins, stages and destinations, each with its path in the definition."""
    named: list[tuple[str, Origin | Stage | Destination]] = []
    for at, origin in enumerate(pipeline.given_origins):
        path = "origin" if pipeline.origin is not None else f"origins[{at}]"
        named += [(path, origin), *((f"{path}.stages[{n}]", each) for n, each in enumerate(origin.stages))]
    named += [(f"stages[{at}]", stage) for at, stage in enumerate(pipeline.stages)]
    for at, destination in enumerate(pipeline.destinations):
        path = f"destinations[{at}]"
        named += [(path, destination), *((f"{path}.stages[{n}]", each) for n, each in enumerate(destination.stages))]
    return named


def _names_in_line(pipeline: Pipeline) -> Iterator[Problem]:
    for path, component in _components(pipeline):
        name = component.name or ""
        if not name.isprintable() or not name.strip() or len(name) > 100 or set(name) & set("/\\#"):
            said = f"expected a name of at most 100 characters without / \\ and #, got {shortened(name)}"
            yield Problem(path=f"{path}.name", message=said)
        if isinstance(component, Stage):
            for option, said in problems_beside(component):
                yield Problem(path=f"{path}.{option}", message=said)


def _state(pipeline: Pipeline) -> Iterator[Problem]:
    if isinstance(pipeline.state, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", pipeline.state):
        said = "expected a directory of this machine or {schema: catalog.schema}"
        yield Problem(path="state", message=f"{said}, got {shortened(pipeline.state)}")
    if isinstance(pipeline.state, SchemaState):
        if not _SCHEMA.fullmatch(pipeline.state.schema):
            said = f"expected a schema such as main.wherry, got {shortened(pipeline.state.schema)}"
            yield Problem(path="state.schema", message=said)
        if not _TABLE_NAME.fullmatch(pipeline.name):
            said = f"names tables in the state's schema: expected a-z, 0-9 and _, got {shortened(pipeline.name)}"
            yield Problem(path="name", message=said)


def _settings(pipeline: Pipeline) -> Iterator[Problem]:
    """Settings with which nothing could ever be carried, and quantities that are none."""
    run, batch = pipeline.run_options, pipeline.run_options.batch
    counts = {
        "run.runners": run.runners,
        "run.max_in_flight": run.max_in_flight,
        "run.batch.rows": batch.rows,
        "run.batch.files": batch.files,
    }
    for path, count in counts.items():
        if count is not None and count < 1:
            yield Problem(path=path, message=f"expected at least 1, got {count}; nothing would ever be carried")
    yield from _quantity("run.batch.wait", batch.wait, seconds)
    yield from _quantity("run.batch.target", batch.target, seconds)
    for name in ("wait", "most", "within"):
        yield from _quantity(f"run.retry.{name}", getattr(run.retry, name), seconds)
    if run.retry.attempts < FOR_EVER:
        said = f"expected a number of times, or -1 for ever, got {run.retry.attempts}"
        yield Problem(path="run.retry.attempts", message=said)
    if isinstance(run.retry.also, str) or not all(run.retry.also):
        yield Problem(path="run.retry.also", message=f"expected a list of words, got {shortened(str(run.retry.also))}")
    yield from _quantity("run.drain", run.drain, seconds)
    yield from _quantity("run.poll", run.poll, seconds)
    yield from _quantity("run.idle", run.idle, seconds)
    yield from _quantity("run.history", run.history, seconds)
    yield from _quantity("run.lease", run.lease, _at_least_a_second)
    yield from _quantity("dlq.retain", pipeline.dlq.retain, seconds)
    if not 0 <= run.snapshot <= MOST_KEPT:
        yield Problem(path="run.snapshot", message=f"expected 0 to {MOST_KEPT} rows, got {run.snapshot}")
    if isinstance(pipeline.protect, str) or not all(pipeline.protect):
        said = f"expected a list of columns, got {shortened(str(pipeline.protect))}"
        yield Problem(path="protect", message=said)
    if batch.bytes is not None:
        yield from _quantity("run.batch.bytes", batch.bytes, _at_least_a_byte)
    if not _is_time_zone(run.time_zone):
        said = f"expected a time zone such as UTC or Europe/Berlin, got {shortened(run.time_zone)}"
        yield Problem(path="run.time_zone", message=said)


def _assignment(pipeline: Pipeline) -> Iterator[Problem]:
    """What several runs at once would take from each other."""
    run = pipeline.run_options
    if run.assignment == "single":
        return
    shared = f"where run.assignment is {run.assignment}"
    if run.ownership == "off":
        said = "expected single where run.ownership is off; lanes are shared by a lease"
        yield Problem(path="run.assignment", message=said)
    for at, origin in enumerate(pipeline.given_origins):
        path = "origin" if pipeline.origin is not None else f"origins[{at}]"
        if origin.read == "whole":
            said = f"expected new {shared}; a run that begins anew would begin the lanes of others anew"
            yield Problem(path=f"{path}.read", message=said)
        if origin.evolves:
            said = f"its columns cannot be let change {shared}; a table would grow while others write it"
            yield Problem(path=path, message=said)
    for at, destination in enumerate(pipeline.destinations):
        if destination.replaces:
            said = f"expected append or merge {shared}; a run would replace what others have written"
            yield Problem(path=f"destinations[{at}].mode", message=said)


def _hooks(pipeline: Pipeline) -> Iterator[Problem]:
    """Hooks by which a secret would leave."""
    for at, hook in enumerate(pipeline.hooks):
        if any(isinstance(word, SecretText) for word in (hook.command, *(hook.command or ()))):
            said = "stands in everybody's list of processes, so no secret can stand in it; the environment can have one"
            yield Problem(path=f"hooks[{at}].command", message=said)


def _schedule(pipeline: Pipeline) -> Iterator[Problem]:
    """A schedule that says no time, or two."""
    options = pipeline.schedule
    if options is None:
        return
    given = [name for name in ("cron", "every", "after") if getattr(options, name) is not None]
    if len(given) != 1:
        got = " and ".join(given) or "none of them"
        yield Problem(path="schedule", message=f"expected one of cron, every and after, got {got}")
    elif options.time_zone != "UTC" and given != ["cron"]:
        said = f"has no effect on `{given[0]}`; only a `cron` line speaks of time in a zone"
        yield Problem(path="schedule.time_zone", message=said)
    if options.after == pipeline.name:
        yield Problem(path="schedule.after", message="a pipeline cannot wait for itself")
    yield from _quantity("schedule.jitter", options.jitter, seconds)
    for name in given:
        try:
            timetable_of(dataclasses.replace(ScheduleOptions(), **{name: getattr(options, name)}))
        except ValueError as error:
            yield Problem(path=f"schedule.{name}", message=str(error).partition(": ")[2])
    yield from _quantity("schedule.time_zone", options.time_zone, zone_of)


def _order(pipeline: Pipeline) -> Iterator[Problem]:
    """What must come in one order cannot come in several lanes."""
    lanes = sum(len(origin.lane_names()) for origin in pipeline.every_origin)
    for at, destination in enumerate(pipeline.destinations):
        if destination.ordered and lanes > 1 and not destination.by_lane:
            said = (
                f"'{destination.name}' keeps the row that arrives last, and {lanes} lanes have no order between them; "
                "give it `sequence_by`, or the pipeline one lane"
            )
            yield Problem(path=f"destinations[{at}]", message=said)


def _at_least_a_byte(text: str) -> int:
    parsed = size(text)
    if parsed < 1:
        raise ValueError(f"expected at least one byte, got {text!r}; nothing would ever be carried")
    return parsed


def _at_least_a_second(text: str) -> float:
    parsed = seconds(text)
    if parsed < 1:
        raise ValueError(f"expected at least one second, got {text!r}; no run could say so often that it lives")
    return parsed


def _quantity(path: str, text: str, parse: Callable[[str], object]) -> Iterator[Problem]:
    try:
        parse(text)
    except ValueError as error:
        yield Problem(path=path, message=str(error))


def _is_time_zone(name: str) -> bool:
    if name == "UTC" or _TIME_OFFSET.fullmatch(name):
        return True
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True
