"""The command `wherry schedule`: the pipelines of a directory, run when they are due."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from runners.command_line.exits import FAILED, STOPPED, WRONG
from runners.command_line.given import as_json, variables_given, with_variables

if TYPE_CHECKING:
    from runners.definitions.definition import Definition
    from runners.events import Listener
    from runners.listeners.metrics import Metrics
    from runners.schedules.scheduler import Scheduler

EXAMPLES = ("cron", "systemd", "airflow")


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@with_variables
@click.option("--at-once", type=click.IntRange(min=1), metavar="N", help="So many pipelines at a time; default: cores.")
@click.option(
    "--metrics-port", type=click.IntRange(0, 65535), metavar="PORT", help="Serve figures for Prometheus there."
)
@click.option("--metrics-host", default="127.0.0.1", show_default=True, metavar="HOST", help="At which address.")
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", help="How standard error is written."
)
@click.option("--plan", "only_plan", is_flag=True, help="Print what would run when, and start nothing.")
@click.option("--pause", metavar="NAME", help="Let nothing of this pipeline begin; what runs ends.")
@click.option("--resume", metavar="NAME", help="Let it begin again.")
@click.option("--reason", default="by hand", metavar="TEXT", help="Why it is paused; it is shown.")
@click.option("--example", type=click.Choice(EXAMPLES), help="Print how cron, systemd or Airflow starts what is there.")
@as_json
def schedule(
    directory: Path,
    variables: Sequence[str],
    variable_file: Path | None,
    secret_file: Path | None,
    at_once: int | None,
    metrics_port: int | None,
    metrics_host: str,
    log_format: str,
    only_plan: bool,
    pause: str | None,
    resume: str | None,
    reason: str,
    example: str | None,
    json: bool,
) -> int:
    """Run the pipelines of a directory when they are due.

    For example:  wherry schedule pipelines

    All of them share one Spark. Files that come, change, break or go are noticed. The first SIGTERM or SIGINT lets
    batches in flight finish; a second one cancels them. Exit codes: 0 it was asked to end, 1 Spark is gone, 2 there
    is no such directory, 3 a second signal cancelled what ran. --plan ends with 2 if a definition is broken.
    """
    from runners.clock import Clock
    from runners.command_line import printing
    from runners.schedules.schedule_examples import text_of
    from runners.schedules.schedule_plan import pause as put_mark
    from runners.schedules.schedule_plan import plan
    from runners.schedules.scheduling import folder_of

    values, now = variables_given(variables, variable_file), Clock().now()
    if example is not None:
        click.echo(text_of(example, directory), nl=False)
        return 0
    folder = folder_of(directory, variables=values, needs_secrets=False)
    for name, why in ((pause, reason), (resume, None)):
        if name is not None:
            put_mark(folder, name, why, now)
            click.echo(f"{name} is {'scheduled again' if why is None else f'paused: {why}'}.")
    if only_plan:
        facts = plan(folder, now)
        click.echo(printing.as_json(facts) if json else printing.schedule_plan(facts))
        return WRONG if facts["broken"] else 0
    if pause or resume:
        return 0
    with _served(metrics_host, metrics_port) as metrics:
        return _run(directory, values, secret_file, at_once, metrics, log_format)


def _run(
    directory: Path,
    values: Mapping[str, str],
    secret_file: Path | None,
    at_once: int | None,
    metrics: Metrics,
    log_format: str,
) -> int:
    from rich.console import Console

    from runners.clock import Clock
    from runners.definitions.parameters import variables_in
    from runners.listeners.log_lines import LogLines, complain, speak
    from runners.schedules.schedule_log import ScheduleLog
    from runners.schedules.schedule_screen import Screen
    from runners.schedules.scheduling import scheduler_of

    secrets, as_json = variables_in(secret_file) if secret_file else {}, log_format == "json"
    speak(log_format)

    def hears(definition: Definition) -> Sequence[Listener]:
        name, hidden = definition.pipeline.name, definition.pipeline.secrets
        return [metrics.of(name), *([LogLines("json", secrets=hidden, pipeline=name)] if as_json else [])]

    scheduler = scheduler_of(directory, variables=values, secrets=secrets, at_once=at_once, hears=hears)
    screen = Screen(scheduler.next, clock=Clock(), console=Console(stderr=True, quiet=as_json))
    scheduler.listeners = [metrics, ScheduleLog() if as_json else screen]
    with _signals_stop(scheduler) as signals, contextlib.nullcontext() if as_json else screen:
        metrics.ready = True
        scheduler.run()
    if scheduler.error:
        complain(f"Spark is gone: {scheduler.error}")
        return FAILED
    return STOPPED if len(signals) > 1 else 0


@contextlib.contextmanager
def _served(host: str, port: int | None) -> Iterator[Metrics]:
    """The figures, served where a port is named. A port that is taken is found out before anything is started."""
    from runners.clock import Clock
    from runners.listeners.metrics import Metrics
    from runners.listeners.metrics_server import MetricsServer

    metrics = Metrics(Clock())
    if port is None:
        yield metrics
        return
    pages = {"/metrics": lambda: (200, metrics.text()), "/live": lambda: (200, "live\n"), "/ready": metrics.readiness}
    with MetricsServer(pages, host=host, port=port) as server:
        click.echo(f"metrics at http://{host}:{server.port}/metrics", err=True)
        yield metrics


@contextlib.contextmanager
def _signals_stop(scheduler: Scheduler) -> Iterator[list[int]]:
    """While in here the first SIGINT or SIGTERM drains, and a second one cancels; gives those that came."""
    came: list[int] = []

    def heard(number: int, frame: FrameType | None) -> None:
        came.append(number)
        scheduler.stop(f"signal {signal.Signals(number).name}", force=len(came) > 1)

    before = {number: signal.signal(number, heard) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
