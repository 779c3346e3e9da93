"""The operations that only look. None of them starts Spark, unless a state is in a catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import TypeVar

import msgspec

from origins.capabilities import MeasuresLag
from runners.definitions.definition import Definition
from runners.definitions.pipeline_graph import PipelineGraph
from runners.model.clock import convert_to_utc
from runners.model.masking import without
from runners.model.text import find_version
from runners.model.timetable import describe_times, find_zone, list_due_times, make_timetable
from runners.operations.status import describe_pipelines, read_status
from runners.operations.status import list_runs as list_runs_of_history
from runners.pipeline import Pipeline
from runners.running.choice import Choice
from runners.schedules.schedule_plan import name_file
from runners.service import messages
from runners.service.kept_answers import find_last_commit
from runners.service.operation import Caller, Invalid, NotFound
from runners.service.service import Service, to_answer
from runners.state.location import StateLocation
from runners.state.run_history import WantedRuns

T = TypeVar("T")
_MOST_SHOWN = 1_000
"""How many moments of a schedule an answer has for each pipeline."""
_YEARS = range(1970, 2200)
"""The years of a moment that a caller may write. Tables cannot compare moments of other years."""


def list_pipelines(service: Service, caller: Caller, ask: messages.ListPipelines) -> messages.PipelineList:
    """List the pipelines of the folder: what they read and write, their state, their last run, and what waits."""
    every = service.overview.get()
    if caller.pipelines is None:
        return every
    seen = [
        msgspec.structs.replace(each, after=[*filter(caller.may_see, each.after)])
        for each in every.pipelines
        if caller.may_see(each.pipeline)
    ]
    return messages.PipelineList(pipelines=seen, broken={})


def read_overview(service: Service) -> messages.PipelineList:
    """Read the state of every pipeline of the folder."""
    catalog = service.list_definitions()
    graph = PipelineGraph.of({name: each.pipeline for name, each in catalog.definitions.items()})
    entries = []
    for name in graph.sort(graph.select([])):
        definition = catalog.definitions[name]
        facts = describe_pipelines(catalog.definitions, graph, [name])[0]
        mark = service.marks.get(name) if definition.pipeline.schedule else None
        held = mark.paused if mark else None
        entries.append(
            to_answer(
                messages.PipelineEntry,
                {
                    **facts,
                    "file": definition.path.name if definition.path else "",
                    "refused": _count_waiting(service, definition),
                    "held": held,
                    "due": None if held is not None else _find_due(service, definition),
                },
            )
        )
    return messages.PipelineList(pipelines=entries, broken=without(service.hidden, dict(catalog.broken)))


def _count_waiting(service: Service, definition: Definition) -> int | None:
    """Return how many refused rows wait, or None if only Spark knows it."""
    pipeline = definition.pipeline
    if StateLocation.of(pipeline).needs_spark or pipeline.dlq.destination is not None:
        return None

    def count() -> int | None:
        return read_status(pipeline)["dlq"]["unreplayed"]  # type: ignore[no-any-return]

    return keep_answer(service, definition, None, count, _always)


def keep_answer(
    service: Service, definition: Definition, ask: object, answer: Callable[[], T], lasts: Callable[[T], bool]
) -> T:
    """Return an answer about the state of a pipeline. An answer that lasts is kept until the next commit to the state.

    It is kept only if the state and the DLQ are in a folder of this machine, where a look at that is cheap.
    """
    folder = StateLocation.of(definition.pipeline).directory
    if folder is None or definition.pipeline.dlq.destination is not None:
        return answer()
    commits = [find_last_commit(folder / name) for name in ("ledger", "dlq", "runs")]
    key = (type(ask), msgspec.json.encode(ask), definition.hash, *commits)
    return service.kept.get(key, answer, lasts)  # type: ignore[no-any-return]


def _always(answer: object) -> bool:
    return True


def _find_due(service: Service, definition: Definition) -> str | None:
    schedule = definition.pipeline.schedule
    timetable = make_timetable(schedule) if schedule else None
    moment = timetable.find_next(service.clock.now()) if timetable else None
    return None if moment is None else moment.isoformat()


def get_pipeline(service: Service, caller: Caller, ask: messages.GetPipeline) -> messages.PipelineStatus:
    """Show the state of a pipeline, its lanes, its refused rows, its definition, and what to do next."""
    definition = service.find(ask.pipeline)
    pipeline, file = definition.pipeline, definition.path.name if definition.path else "FILE"
    lags = any(isinstance(each, MeasuresLag) for each in pipeline.every_origin)

    def read() -> messages.PipelineStatus:
        facts = read_status(pipeline, file, definition=definition.hash)
        text = msgspec.json.decode(definition.text)
        whole = {**facts, "hash": definition.hash, "definition": text, "file": file}
        return to_answer(messages.PipelineStatus, whole)  # type: ignore[no-any-return]

    return keep_answer(service, definition, ask, read, lambda status: status.state != "running" and not lags)


def list_runs(service: Service, caller: Caller, ask: messages.ListRuns) -> messages.RunList:
    """List the runs of a pipeline, the newest first."""
    definition, since = service.find(ask.pipeline), read_moment(ask.since, "since")

    def read() -> messages.RunList:
        wanted = WantedRuns(status=ask.status, since=since, before=ask.cursor, limit=ask.limit + 1)
        listed = [] if ask.cursor else list_runs_of_history(definition.pipeline, wanted)
        if len(listed) <= ask.limit:
            listed = list_runs_of_history(definition.pipeline, replace(wanted, archived=True))
        cursor = listed[ask.limit - 1]["run"] if len(listed) > ask.limit else ""
        return messages.RunList(runs=[to_answer(messages.Run, each) for each in listed[: ask.limit]], cursor=cursor)

    def is_final(listed: messages.RunList) -> bool:
        """Whether only a commit changes the list. A run that works may be killed, and then it has another status."""
        return not ask.status and not ask.since and all(each.status != "running" for each in listed.runs)

    return keep_answer(service, definition, ask, read, is_final)


def get_run(service: Service, caller: Caller, ask: messages.GetRun) -> messages.Run:
    """Show what a run reported: its counts by destination and stage, its causes, and its timeline."""
    last = ask.run == "last"
    pipeline = service.open_pipeline(ask.pipeline)
    found = pipeline.history.list(run="" if last else ask.run, limit=1 if last else 2, report=True)
    if len(found) != 1:
        what = "Several runs begin" if found else "No run begins"
        raise NotFound(f"{what} with this text." if not last else "This pipeline has not run yet.")
    return to_answer(messages.Run, found[0])  # type: ignore[no-any-return]


def list_tasks(service: Service, caller: Caller, ask: messages.ListTasks) -> messages.TaskList:
    """List what the server does and did since it began, the newest first."""
    seen = [each for each in service.tasks.list_all(ask.pipeline) if caller.may_see(each.pipeline)]
    return messages.TaskList(tasks=seen)


def get_task(service: Service, caller: Caller, ask: messages.GetTask) -> messages.Task:
    """Show how far a task is. With `wait`, the answer comes when the task ends, or after that time."""
    return service.tasks.get(ask.task, caller, wait=ask.wait)


def get_offsets(service: Service, caller: Caller, ask: messages.GetOffsets) -> messages.LaneList:
    """Show how far each lane was read, and the open batches."""
    lanes = service.open_pipeline(ask.pipeline).offsets.read()
    return to_answer(messages.LaneList, {**lanes.json(), "pipeline": ask.pipeline})  # type: ignore[no-any-return]


def list_refused_rows(service: Service, caller: Caller, ask: messages.ListRefusedRows) -> messages.RefusedRowList:
    """List refused rows, the newest last. The values of protected columns are masked."""
    pipeline = service.open_pipeline(ask.pipeline)
    rows = pipeline.refused.list(ask.limit, choice=read_choice(ask), waiting=ask.waiting)
    return messages.RefusedRowList(rows=[to_answer(messages.RefusedRow, each) for each in rows])


def list_causes(service: Service, caller: Caller, ask: messages.ListCauses) -> messages.CauseList:
    """Count refused rows by cause, with an example of each."""
    definition, choice = service.find(ask.pipeline), read_choice(ask)

    def count() -> messages.CauseList:
        causes = Pipeline.of(definition.pipeline).refused.causes(choice)
        return messages.CauseList(causes=[to_answer(messages.Cause, each) for each in causes])

    return keep_answer(service, definition, ask, count, _always)


def get_dlq(service: Service, caller: Caller, ask: messages.GetDlq) -> messages.DlqSettings:
    """Show the limits of the DLQ for the next batch."""
    settings = service.open_pipeline(ask.pipeline).refused.limits()
    return to_answer(messages.DlqSettings, settings)  # type: ignore[no-any-return]


def get_quality(service: Service, caller: Caller, ask: messages.GetQuality) -> messages.Quality:
    """Show which share passed each rule, run by run."""
    return messages.Quality(rules=[*service.open_pipeline(ask.pipeline).history.quality(ask.limit)])


def get_schedule(service: Service, caller: Caller, ask: messages.GetSchedule) -> messages.Schedule:
    """Show when runs begin by themselves in the next days."""
    now, catalog = service.clock.now(), service.list_definitions(caller)
    scheduled = [_describe_times(service, each, now, ask.days) for each in catalog.scheduled.values()]
    scheduled.sort(key=lambda each: each.due[0] if each.due else "~")
    return messages.Schedule(
        now=now.isoformat(),
        scheduled=scheduled,
        by_hand=sorted(catalog.by_hand),
        files={name: name_file(each) for name, each in catalog.by_hand.items()},
        broken=dict(catalog.broken),
    )


def _describe_times(service: Service, definition: Definition, now: datetime, days: int) -> messages.ScheduledPipeline:
    schedule = definition.pipeline.schedule
    assert schedule is not None
    timetable, zone = make_timetable(schedule), find_zone(schedule.time_zone)
    mark = service.marks.get(definition.pipeline.name)
    held, end = mark.paused if mark else None, now + timedelta(days=days)
    moments = timetable.follow(now) if timetable and held is None else iter(())
    due = [*islice(takewhile(lambda moment: moment <= end, moments), _MOST_SHOWN + 1)]
    return messages.ScheduledPipeline(
        pipeline=definition.pipeline.name,
        file=definition.path.name if definition.path else None,
        when=describe_times(schedule, definition.pipeline.run_options.group),
        due=[each.astimezone(zone).isoformat() for each in due[:_MOST_SHOWN]],
        more=len(due) > _MOST_SHOWN,
        held=held,
        next=[each.isoformat() for each in list_due_times(schedule, now, 3)] if held is None else [],
        group=definition.pipeline.run_options.group,
    )


def watch_events(service: Service, caller: Caller, ask: messages.WatchEvents) -> Iterator[messages.Happening]:
    """Stream what happens in the runs and in the schedule of this server."""
    return service.happenings.watch(caller, ask.pipeline)


def get_caller(service: Service, caller: Caller, ask: messages.GetCaller) -> messages.KnownCaller:
    """Say the name and the right of the caller, and which right each operation needs."""
    needs = {name: each.name.lower() for name, each in service.plans.rights.items()}
    return messages.KnownCaller(caller=caller.name, right=caller.right.name.lower(), needs=needs)


def get_readiness(service: Service, caller: Caller, ask: messages.GetReadiness) -> messages.Readiness:
    """Say whether runs begin."""
    return messages.Readiness(ready=service.metrics.ready, version=find_version())


def read_choice(ask: messages.AskRefused) -> Choice:
    """Return the choice of refused rows that the caller made."""
    return Choice(
        ids=tuple(ask.ids),
        code=ask.code,
        stage=ask.stage,
        file=ask.file,
        text=ask.contains,
        since=read_moment(ask.since, "since"),
        until=read_moment(ask.until, "until"),
    )


def read_moment(text: str, name: str) -> datetime | None:
    """Return the moment that the caller wrote; without a zone, it is in UTC. Raise `Invalid` for another text."""
    if not text:
        return None
    try:
        moment = convert_to_utc(datetime.fromisoformat(text))
        if moment.year not in _YEARS:
            raise ValueError(text)
    except (ValueError, OverflowError) as error:
        raise Invalid(
            f"{name}: expected a moment such as 2026-01-31T06:00 (UTC), from {_YEARS[0]} to {_YEARS[-1]}."
        ) from error
    return moment
