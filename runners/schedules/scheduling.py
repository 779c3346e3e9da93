"""Prepares a scheduler for a directory, on the existing Spark session or on a new one."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from origins.errors import WherryError
from origins.lazy import SparkSession
from runners.definitions.definition import Definition, DefinitionsFolder, load
from runners.model.errors import Owned, Refusal
from runners.model.events import Listener
from runners.model.masking import without
from runners.model.run_report import Report
from runners.model.text import format_batches, format_count, join_some, summarise_error
from runners.running.run import PipelineRun
from runners.schedules.run_marks import RunGroups
from runners.schedules.schedule_plan import ScheduleCatalog, name_file, open_marks
from runners.schedules.scheduler import Carrier, RunOutcome, RunThreads, Scheduler, Stop
from runners.spark.session import is_alive
from runners.spark.session_pool import tag_work
from runners.state.location import open_shared_session

HOOKS_WAIT = 1.0
"""How many seconds a run waits for its hooks at its end. Hooks continue after that, and other runs begin."""


def make_carrier(
    spark: SparkSession, make_listeners: Callable[[Definition], Sequence[Listener]] = lambda _: ()
) -> Carrier:
    """Return a function that carries definitions on this Spark session.

    `make_listeners` returns the listeners of each run.
    """

    def carry(definition: Definition, stoppable: Callable[[Stop], None]) -> RunOutcome:
        pipeline = definition.pipeline
        run = PipelineRun(
            pipeline=pipeline,
            text=definition.text,
            hash=definition.hash,
            spark=spark,
            pool=pipeline.name,
            listeners=make_listeners(definition),
            hooks_wait=HOOKS_WAIT,
        )
        stoppable(lambda reason, force: run.stop(reason, force=force))
        try:
            with tag_work(spark, f"wherry-{run.id}", pipeline.name):
                carried = _summarise_report(run.carry())
        except Owned as error:
            carried = RunOutcome(name=pipeline.name, status="owned", message=error.message)
        except WherryError as error:
            carried = RunOutcome(name=pipeline.name, status="failed", message=str(error))
        except Exception as error:  # noqa: BLE001 -- the edge of the run: the other runs continue
            message = f"{type(error).__name__}: {summarise_error(error)}"
            carried = RunOutcome(name=pipeline.name, status="failed", message=message)
        message = without(pipeline.secrets, carried.message)
        gone = carried.status == "failed" and not is_alive(spark)
        return replace(carried, message=message, spark_is_gone=gone)

    return carry


def _summarise_report(report: Report) -> RunOutcome:
    if report.error is not None:
        message = str(report.error)
    else:
        refused = f", {report.nacked:,} refused" if report.nacked else ""
        rows = f"{format_batches(report.batches)}, {format_count(report.read)} read{refused}"
        message = rows if report.batches else "no new rows"
        if report.status == "stopped":
            message = f"{message}; {report.reason}"
    return RunOutcome(name=report.pipeline, status=report.status, message=message, report=report)


def scheduler_of(
    directory: str | Path,
    *,
    variables: Mapping[str, str] | None = None,
    secrets: Mapping[str, str] | None = None,
    at_once: int | None = None,
    groups: Mapping[str, int] | None = None,
    make_listeners: Callable[[Definition], Sequence[Listener]] = lambda _: (),
    note_secrets: Callable[[Mapping[str, str]], None] = lambda _: None,
) -> Scheduler:
    """Return a scheduler for this directory. Its `run` works until another thread calls its `stop`.

    `at_once` is how many pipelines run at the same time (default: the number of cores), and `groups` how many of each
    group (default: 1). `make_listeners` returns the listeners for the runs of a definition. `note_secrets` gets the
    secrets of each definition that is read. Raise `Refusal` if the directory does not exist, if none of its definitions
    has a schedule, or if they cannot share one Spark session.
    """
    read = partial(load, variables=variables, secrets=secrets, note_secrets=note_secrets)
    folder = DefinitionsFolder(path=Path(directory), load=read)
    schedule_catalog = ScheduleCatalog.of(folder.open())
    if schedule_catalog.by_hand and not schedule_catalog.scheduled and not schedule_catalog.broken:
        names = join_some([name_file(each) for each in schedule_catalog.by_hand.values()], 3)
        raise Refusal(
            f"No definition in {folder.path} has a schedule, so there is nothing to wait for: {names}.",
            hint="Add a schedule to one, such as  schedule: {every: 15m}  Or run them once:  "
            f"wherry run {shlex.quote(str(folder.path))} --all",
        )
    marks = open_marks(folder.path)
    spark = open_shared_session([each.pipeline for each in schedule_catalog.scheduled.values()])
    run_workers = RunThreads(make_carrier(spark, make_listeners))
    most, shared = at_once or os.cpu_count() or 1, RunGroups(marks.folder / "groups", groups)
    return Scheduler(folder=folder, marks=marks, run_workers=run_workers, at_once=most, groups=shared)
