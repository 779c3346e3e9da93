"""Runs a pipeline for a command: with progress, with signals that stop it, and with an exit code."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import click

from origins.batch import JSON
from runners.command_line.options import AnyPipeline, CarryOptions
from runners.command_line.process_end import BY_CODE, BY_STATUS, FAILED, end_in_time
from runners.listeners.log_lines import LogLines, are_logs_json, complain, log
from runners.listeners.run_progress import RunProgress, call_every
from runners.model.errors import Owned
from runners.model.events import Listener
from runners.model.masking import hide_in_errors, without
from runners.model.run_report import Report
from runners.model.spec import PipelineSpec
from runners.model.text import escape_line
from runners.operations import printing
from runners.running.stop import call_when_forced, handle_signals

SELDOM = 10.0
"""The seconds between two lines of progress."""


@dataclass(frozen=True, kw_only=True)
class RunEnding:
    """How a command's run ended: with a report, or before it had anything to report."""

    pipeline: str
    status: str
    reason: str = ""
    report: Report | None = None
    passed_over: bool = False
    """Whether another run has the pipeline, and the command accepts that."""

    @property
    def exit_code(self) -> int:
        if self.report is not None and self.report.error is not None:
            return BY_CODE.get(self.report.error.code, FAILED)
        return {**BY_STATUS, "skipped": 0}[self.status]

    def json(self) -> dict[str, JSON]:
        if self.report is not None:
            return self.report.json()
        return {"pipeline": self.pipeline, "status": self.status, "reason": self.reason}


def carry_and_print(
    pipeline: PipelineSpec | AnyPipeline,
    file: Path,
    carry: Callable[..., Report],
    carrying: CarryOptions,
    *,
    shown: Iterable[str] = (),
) -> int:
    """Run with progress, print the report, and return the exit code. Notices in `shown` are not printed again."""
    seen = set(shown)
    ending = carry_with_progress(pipeline, file, carry, carrying, seen)
    if carrying.json:
        click.echo(printing.as_json(ending.json()))
    elif ending.report is not None:
        click.echo(printing.format_report(ending.report, str(file), shown=seen))
    return ending.exit_code


def carry_with_progress(
    pipeline: PipelineSpec | AnyPipeline,
    file: Path,
    carry: Callable[..., Report],
    carrying: CarryOptions,
    shown: set[str] | None = None,
) -> RunEnding:
    """Run, and report progress and failures on standard error. Raises `Owned` unless the command skips such runs.

    `carry` is called with `listeners`. Log lines leave out the notices in `shown`, and add new notices to it.
    """
    signals: list[int] = []
    report: Report | None = None
    try:
        with (
            hide_in_errors(pipeline.secrets),
            interrupt_on_signals(signals),
            end_in_time() as hurry,
            call_when_forced(hurry),
            show_progress(RunProgress(pipeline.name), pipeline.secrets, quiet=carrying.quiet, shown=shown) as listeners,
        ):
            report = carry(listeners=listeners).mask(pipeline.secrets)
    except KeyboardInterrupt:
        if report is None:
            return _say_not_begun(pipeline)
    except Owned as error:
        if carrying.if_running != "skip":
            raise
        if not carrying.quiet:
            complain(f"{error.message} This run is skipped.")
        return RunEnding(pipeline=pipeline.name, status="skipped", reason=error.message, passed_over=True)
    except Exception:  # a Spark that is interrupted during a call raises other errors
        if not signals:
            raise
        return _say_not_begun(pipeline)
    if report.error is not None:
        complain(printing.format_failure(report, str(file)), code=report.error.code)
    return RunEnding(pipeline=pipeline.name, status=report.status, reason=report.reason, report=report)


def _say_not_begun(pipeline: PipelineSpec | AnyPipeline) -> RunEnding:
    reason = f"{pipeline.name} was stopped before processing anything."
    complain(reason)
    return RunEnding(pipeline=pipeline.name, status="stopped", reason=reason)


@contextlib.contextmanager
def show_progress(
    progress: RunProgress, secrets: Mapping[str, str], *, quiet: bool, shown: set[str] | None = None
) -> Iterator[list[Listener]]:
    """Show progress on standard error: one line on a terminal, or else a line now and every ten seconds.

    If log lines are JSON, events are shown instead. It yields the listeners that follow the progress. With `quiet`, it
    shows nothing, and there are none.
    """
    lines = LogLines("json" if are_logs_json() else "text", secrets=secrets, pipeline=progress.name, shown=shown)

    def describe() -> str:
        return str(without(secrets, progress.describe()))

    if quiet:
        yield []
    elif lines.json:
        yield [lines]
    elif sys.stderr and sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        with _show_line(describe):
            yield [progress]
    else:
        log.info("%s: %s", progress.name, progress.doing)
        with call_every(SELDOM, lambda: log.info("%s", describe())):
            yield [progress, lines]


@contextlib.contextmanager
def show_work(pipeline: PipelineSpec | AnyPipeline, doing: str, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show the progress of other work on standard error, as `show_progress` does, and hide secrets in its errors.

    It yields a function that takes the description of the next work.
    """
    progress = RunProgress(pipeline.name, doing=doing)

    def say(now: str) -> None:
        progress.doing = now

    with hide_in_errors(pipeline.secrets), show_progress(progress, pipeline.secrets, quiet=quiet):
        yield say


@contextlib.contextmanager
def _show_line(describe: Callable[[], str]) -> Iterator[None]:
    """Show a line on the terminal that changes, cut at its width, until the block ends."""
    from rich import console, live, text

    def draw() -> text.Text:
        return text.Text(escape_line(describe()), no_wrap=True, overflow="ellipsis")

    with live.Live(console=console.Console(stderr=True), transient=True, get_renderable=draw):
        yield


@contextlib.contextmanager
def interrupt_on_signals(signals: list[int]) -> Iterator[None]:
    """Treat SIGTERM like an interrupt until the engine handles signals itself.

    `signals` gets their numbers. They explain errors, because a Spark that is interrupted during its start raises other
    errors.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        raise KeyboardInterrupt

    with handle_signals(interrupt):
        yield
