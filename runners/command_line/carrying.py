"""Runs a pipeline for a command: with progress, with signals that stop it, and with an exit code."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from origins.batch import JSON
from origins.errors import WherryError
from runners.command_line import printing
from runners.command_line.options import BY_CODE, BY_STATUS, FAILED, CarryOptions
from runners.command_line.process_end import end_in_time
from runners.listeners.log_lines import LogLines, are_logs_json, complain, log
from runners.listeners.run_progress import RunProgress, call_every
from runners.model.errors import Owned, Refusal
from runners.model.events import Listener
from runners.model.masking import hide_in_errors, without
from runners.model.run_report import Report
from runners.model.spec import PipelineSpec
from runners.model.text import escape_line, format_count
from runners.running.activity import log_on_signal
from runners.running.stop import call_when_forced, handle_signals

if TYPE_CHECKING:
    from runners.command_line.progress_bar import ProgressBar

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
    pipeline: PipelineSpec,
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


def carry_and_record(
    pipeline: PipelineSpec, file: Path, carry: Callable[..., Report], carrying: CarryOptions, record: Path, most: int
) -> int:
    """Run and print as `carry_and_print` does, and then write a case with at most this many rows of the batches.

    The exit code is the run's, unless only the recording fails.
    """
    from runners.definitions.definition import definition_of
    from runners.operations.cases import check_extensible, extend_cases, find_cases
    from runners.operations.record_case import BatchCollector, record_cases

    check_extensible(record)
    collector, reports = BatchCollector(), []

    def carry_and_collect(listeners: Sequence[Listener]) -> Report:
        reports.append(carry(listeners=[*listeners, collector]))
        return reports[-1]

    code = carry_and_print(pipeline, file, carry_and_collect, carrying)
    if not collector.batches:
        click.echo("No case was recorded: the run had no batch.", err=True)
        return code
    try:
        with show_work(pipeline, "recording a case", quiet=carrying.quiet):
            recording = record_cases(definition_of(pipeline), collector.batches, most=most)
        for notice in recording.notices:
            click.echo(f"note: {escape_line(notice)}", err=True)
        if not recording.cases:
            raise Refusal("No case was recorded: a case can have none of the rows.")
        extend_cases(record, recording.cases, _describe_run(reports[-1]))
    except WherryError as error:
        complain(str(error), code=error.code)
        return code or BY_CODE.get(error.code, FAILED)
    rows = sum(len(case.rows) for case in recording.cases)
    typed = f"wherry test {shlex.quote(str(file))}"
    if record.absolute() != find_cases(file).absolute():
        typed += f" --cases {shlex.quote(str(record))}"
    click.echo(f"Recorded {format_count(rows)} in {record}. Try them:  {typed}", err=True)
    return code


def _describe_run(report: Report) -> str:
    delivered = ", ".join(f"{rows:,} delivered to {name}" for name, rows in report.delivered.items())
    counts = f"{report.read:,} read, {delivered}, {report.filtered:,} filtered, {report.nacked:,} refused"
    return escape_line(f"Run {report.run} {report.status}: {counts}. Protected values are masked.")


def carry_with_progress(
    pipeline: PipelineSpec,
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
            log_on_signal(),
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


def _say_not_begun(pipeline: PipelineSpec) -> RunEnding:
    reason = f"{pipeline.name} was stopped before processing anything."
    complain(reason)
    return RunEnding(pipeline=pipeline.name, status="stopped", reason=reason)


@contextlib.contextmanager
def show_progress(
    progress: RunProgress, secrets: Mapping[str, str], *, quiet: bool, shown: set[str] | None = None
) -> Iterator[list[Listener]]:
    """Show progress on standard error: a bar on a terminal, or else a line now and every ten seconds.

    If log lines are JSON, events are shown instead. It yields the listeners that follow the progress. With `quiet`, it
    shows nothing, and there are none.
    """
    lines = LogLines("json" if are_logs_json() else "text", secrets=secrets, pipeline=progress.name, shown=shown)
    if quiet:
        yield []
    elif lines.json:
        yield [lines]
    elif (bar := _make_bar(progress)) is not None:
        with bar:
            yield [bar]
    else:
        log.info("%s: %s", progress.name, progress.doing)
        with call_every(SELDOM, lambda: log.info("%s", without(secrets, progress.describe()))):
            yield [progress, lines]


@contextlib.contextmanager
def show_work(pipeline: PipelineSpec, doing: str, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show the progress of other work on standard error, as `show_progress` does, and hide secrets in its errors.

    It yields a function that takes the description of the next work.
    """
    progress = RunProgress(pipeline.name, doing=doing)

    def say(now: str) -> None:
        progress.doing = now

    with hide_in_errors(pipeline.secrets), show_progress(progress, pipeline.secrets, quiet=quiet):
        yield say


def _make_bar(progress: RunProgress) -> ProgressBar | None:
    """Return a bar on a terminal. Elsewhere return None, and do not import the library that draws it."""
    if not (sys.stderr and sys.stderr.isatty()):
        return None
    from runners.command_line.progress_bar import ProgressBar

    bar = ProgressBar(progress)
    return bar if bar.console.is_terminal else None


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
