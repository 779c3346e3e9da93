"""Running a pipeline from a command: with progress, with signals that stop it, and with an exit code."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

import click

from runners.command_line.options import BY_CODE, BY_STATUS, FAILED, CarryOptions

if TYPE_CHECKING:
    from origins.batch import JSON
    from runners.model.events import Event, Listener
    from runners.model.run_report import Report
    from runners.model.spec import PipelineSpec
    from runners.pipeline import Pipeline


@dataclass(frozen=True, kw_only=True)
class RunEnding:
    """How a run ended that a command began: with a report, or before there was anything to report."""

    pipeline: str
    status: str
    reason: str = ""
    report: Report | None = None
    passed_over: bool = False
    """Whether another run has the pipeline, and that is fine."""

    @property
    def exit_code(self) -> int:
        """By which a scheduler knows."""
        if self.report is not None and self.report.error is not None:
            return BY_CODE.get(self.report.error.code, FAILED)
        return {**BY_STATUS, "skipped": 0}[self.status]

    def json(self) -> dict[str, JSON]:
        """As `--json` prints it."""
        if self.report is not None:
            return self.report.json()
        return {"pipeline": self.pipeline, "status": self.status, "reason": self.reason}


def carry_and_print(
    pipeline: Pipeline,
    file: str,
    carry: Callable[[Sequence[Listener]], Report],
    carrying: CarryOptions,
    *,
    shown: Iterable[str] = (),
) -> int:
    """Carry with progress, print the report, and give the exit code. Notices that are `shown` are not printed again."""
    from runners.command_line import printing

    seen = set(shown)
    ending = carry_with_progress(pipeline, file, carry, carrying, seen)
    if carrying.json:
        click.echo(printing.as_json(ending.json()))
    elif ending.report is not None:
        click.echo(printing.format_report(ending.report, file, shown=seen))
    return ending.exit_code


def carry_with_progress(
    pipeline: Pipeline,
    file: str,
    carry: Callable[[Sequence[Listener]], Report],
    carrying: CarryOptions,
    shown: set[str] | None = None,
) -> RunEnding:
    """Carry, and say on standard error how it goes and why it failed. Raises `Owned` unless that is passed over.

    Log lines leave out the notices that are `shown`, and add theirs to them.
    """
    from runners.command_line import printing
    from runners.listeners.log_lines import complain
    from runners.model.errors import Owned
    from runners.model.masking import hide_in_errors
    from runners.running.activity import tell_on_signal

    heard: list[int] = []
    shown = set() if shown is None else shown
    report: Report | None = None
    try:
        with (
            hide_in_errors(pipeline.secrets),
            interrupt_on_signals(heard),
            tell_on_signal(),
            contextlib.nullcontext()
            if carrying.quiet
            else show_progress(pipeline, log_format=carrying.log_format, shown=shown) as listener,
        ):
            report = carry([listener] if listener else []).mask(pipeline.secrets)
    except KeyboardInterrupt:
        if report is None:
            return _say_not_begun(pipeline)
    except Owned as error:
        if not carrying.skips:
            raise
        if not carrying.quiet:
            complain(f"{error.message} This run is skipped.")
        return RunEnding(pipeline=pipeline.name, status="skipped", reason=error.message, passed_over=True)
    except Exception:  # a Spark that is interrupted in a call ends with errors of its own
        if not heard:
            raise
        return _say_not_begun(pipeline)
    if report.error is not None:
        complain(printing.format_failure(report, file), code=report.error.code)
    return RunEnding(pipeline=pipeline.name, status=report.status, reason=report.reason, report=report)


def _say_not_begun(pipeline: Pipeline) -> RunEnding:
    from runners.listeners.log_lines import complain

    said = f"{pipeline.name} was stopped before processing anything."
    complain(said)
    return RunEnding(pipeline=pipeline.name, status="stopped", reason=said)


@contextlib.contextmanager
def show_progress(
    pipeline: PipelineSpec | str,
    *,
    doing: str = "starting",
    batches: int | None = None,
    log_format: str = "text",
    shown: set[str] | None = None,
) -> Iterator[Listener]:
    """Show on standard error how a run goes on: a bar on a terminal, elsewhere a line now and every ten seconds."""
    from runners.command_line.progress_bar import ProgressBar
    from runners.listeners.log_lines import LogLines, log
    from runners.listeners.run_progress import RunProgress, call_every
    from runners.model.masking import without

    name, secrets = (pipeline, {}) if isinstance(pipeline, str) else (pipeline.name, pipeline.secrets)
    progress = RunProgress(name, doing=doing, batches=batches)
    bar = ProgressBar(progress)
    lines = LogLines(log_format, secrets=secrets, pipeline=name, shown=shown)
    if log_format == "json":
        yield lines
    elif bar.console.is_terminal:
        with bar:
            yield bar
    else:

        def hear(event: Event) -> None:
            progress(event)
            lines(event)

        log.info("%s: %s", name, doing)
        with call_every(SELDOM, lambda: log.info("%s", without(secrets, progress.describe()))):
            yield hear


SELDOM = 10.0
"""The seconds between two lines of progress."""


@contextlib.contextmanager
def interrupt_on_signals(heard: list[int]) -> Iterator[None]:
    """Until the engine listens itself, being terminated ends as being interrupted does. Those that were `heard` explain
    what is raised: a Spark that is interrupted while it starts ends with errors of its own."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
