"""The command `wherry schedule`: runs the pipelines of a directory when they are due."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FrameType

import click

from origins.batch import JSON
from runners.command_line.help_sections import GivenValues, command, expert_option, option, read_groups
from runners.command_line.options import COUNT, PATH, list_secrets_to_mask, open_server, refuse_options
from runners.command_line.process_end import FAILED, STOPPED, WRONG, end_in_time
from runners.definitions.definition import Definition, DefinitionsFolder, list_definitions, load
from runners.listeners.log_lines import LogLines, complain, configure_logs
from runners.listeners.metrics import Metrics, MetricsServer
from runners.model.clock import Clock
from runners.model.errors import Refusal
from runners.model.events import Listener
from runners.operations import printing
from runners.operations.status import measure_known_lags
from runners.running.stop import handle_signals
from runners.schedules import schedule_plan, scheduling
from runners.schedules.schedule_log import ScheduleLines, ScheduleLog


@command(logs=True, over_server=True)
@click.argument("directory", type=PATH, required=False)
@option("--plan", "only_plan", is_flag=True, help="Show the schedule; start nothing.")
@option("--pause", metavar="NAME", help="Start no new run of this pipeline.")
@option("--resume", metavar="NAME", help="Schedule this pipeline again.")
@option("--reason", default="by hand", metavar="TEXT", help="Say why it is paused.")
@expert_option("--at-once", here=True, type=COUNT, metavar="N", help="Run N pipelines at a time.")
@expert_option("--group", here=True, multiple=True, metavar="NAME=N", help="Run N of this group at a time; default: 1.")
@expert_option(
    "--metrics-port", here=True, type=click.IntRange(0, 65535), metavar="PORT", help="Serve figures to Prometheus."
)
@expert_option(
    "--metrics-host",
    here=True,
    default="127.0.0.1",
    metavar="HOST",
    help="Serve them at this address; default: 127.0.0.1.",
)
def schedule(  # noqa: PLR0913 -- each is an option of the command
    directory: Path | None,
    values: GivenValues,
    at_once: int | None,
    group: tuple[str, ...],
    metrics_port: int | None,
    metrics_host: str,
    log_format: str,
    only_plan: bool,
    pause: str | None,
    resume: str | None,
    reason: str,
    json: bool,
) -> int:
    """Run the pipelines of a folder when they are due.

    For example:  wherry schedule pipelines

    All of them share one Spark. The scheduler notices files that come, change, break or go. The first SIGTERM or
    SIGINT lets batches in flight finish; a second one cancels them, and the next run recovers them first. Exit codes:
    0 asked to end, 1 Spark is gone, 2 no such folder or no schedule in it, 3 cancelled by a second signal. --plan
    ends with 2 if a definition is broken.
    """
    refuse_options(("overrides",), "is for one definition.")
    marked = {name: why for name, why in ((pause, reason), (resume, None)) if name is not None}
    if values.server:
        if directory is not None:
            raise click.UsageError("A server has one folder. Leave out DIRECTORY.")
        if not (only_plan or marked):
            raise click.UsageError("A server runs its schedule itself. Give --plan, --pause or --resume.")
        remote = open_server(values)
        return _change_and_show(marked, remote.hold_schedule, remote.plan_schedule if only_plan else None, json=json)
    if directory is None:
        raise click.MissingParameter(param_hint="DIRECTORY", param_type="argument")
    variables, now = values.read_variables(), Clock().now()
    if directory.is_file():
        name = shlex.quote(str(directory.parent))
        raise Refusal(f"{directory} is a file. A schedule is for its folder.", hint=f"Type:  wherry schedule {name}")
    note_secrets = list_secrets_to_mask().update
    read = partial(load, variables=variables, needs_secrets=False, note_secrets=note_secrets)
    folder = DefinitionsFolder(path=directory, load=read)
    _check_has_definitions(directory)
    if only_plan or marked:
        plan = partial(schedule_plan.plan, folder, now) if only_plan else None
        return _change_and_show(marked, partial(schedule_plan.pause, folder, now=now), plan, json=json)
    limits = read_groups(group)
    with _serve_metrics(metrics_host, metrics_port) as metrics:
        status = _run(directory, variables, values.read_secrets(), at_once, limits, metrics, log_format)
    if json:
        click.echo(printing.as_json({"status": status}))
    return {"stopped": 0, "cancelled": STOPPED, "failed": FAILED}[status]


def _change_and_show(
    marked: Mapping[str, str | None],
    hold: Callable[[str, str | None], None],
    plan: Callable[[], Mapping[str, JSON]] | None,
    *,
    json: bool,
) -> int:
    """Pause these pipelines, or schedule them again if there is no reason. Show the plan if there is one."""
    for name, why in marked.items():
        hold(name, why)
        click.echo(f"{name} is {'scheduled again' if why is None else f'paused: {why}'}.", err=json)
    if plan is not None:
        facts = plan()
        click.echo(printing.as_json(facts) if json else printing.format_schedule(facts))
        return WRONG if facts["broken"] else 0
    if json:
        click.echo(printing.as_json({"paused": marked}))
    return 0


def _check_has_definitions(directory: Path) -> None:
    """Raises `Refusal` for a folder without a definition. The hint names a subfolder that has one."""
    if list_definitions(directory):
        return
    inside = (each for each in sorted(directory.iterdir()) if each.is_dir() and each.name[0] != ".")
    near = next((each for each in inside if os.access(each, os.R_OK | os.X_OK) and list_definitions(each)), None)
    hint = f"Wherry does not look into folders in it. Type:  wherry schedule {shlex.quote(str(near))}" if near else ""
    raise Refusal(f"There is no definition in {directory}.", hint=hint or "Write one:  wherry init")


def _run(
    directory: Path,
    variables: Mapping[str, str],
    secrets: Mapping[str, str],
    at_once: int | None,
    groups: Mapping[str, int],
    metrics: Metrics,
    log_format: str,
) -> str:
    """Run until asked to end. Return `stopped`, `cancelled` by a second signal, or `failed`."""
    as_json = log_format == "json"
    configure_logs(log_format)

    def make_listeners(definition: Definition) -> Sequence[Listener]:
        name, hidden = definition.pipeline.name, definition.pipeline.secrets
        metrics.watch_lag(name, lambda: measure_known_lags(definition.pipeline))
        return [metrics.of(name), *([LogLines("json", secrets=hidden, pipeline=name)] if as_json else [])]

    scheduler = scheduling.scheduler_of(
        directory,
        variables=variables,
        secrets=secrets,
        at_once=at_once,
        groups=groups,
        make_listeners=make_listeners,
        note_secrets=list_secrets_to_mask().update,
    )
    scheduler.listeners = [metrics, ScheduleLog() if as_json else ScheduleLines(Clock())]
    with stop_on_signals(scheduler.stop) as came:
        metrics.ready = True
        scheduler.run()
    if scheduler.error:
        complain(f"Spark has ended: {scheduler.error}")
        return "failed"
    return "cancelled" if len(came) > 1 else "stopped"


@contextlib.contextmanager
def stop_on_signals(stop: Callable[..., None]) -> Iterator[Sequence[int]]:
    """Stop on SIGINT and SIGTERM, from the second one on with force. Yield the signals that come."""
    came: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        came.append(number)
        stop(f"signal {signal.Signals(number).name}", force=len(came) > 1)
        if len(came) > 1:
            hurry()

    with end_in_time() as hurry, handle_signals(handle):
        yield came


@contextlib.contextmanager
def _serve_metrics(host: str, port: int | None) -> Iterator[Metrics]:
    """Yield the metrics, served if a port is given. A taken port is reported before anything starts."""
    metrics = Metrics(Clock())
    if port is None:
        yield metrics
        return
    pages = {"/metrics": lambda: (200, metrics.text()), "/live": lambda: (200, "live\n"), "/ready": metrics.readiness}
    with MetricsServer(pages, host=host, port=port) as server:
        click.echo(f"metrics at http://{host}:{server.port}/metrics", err=True)
        yield metrics
