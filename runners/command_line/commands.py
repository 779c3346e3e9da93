"""The commands of `wherry`: each parses, calls one public function, and prints.

What carries or describes pipelines is imported by the command that needs it, so that help is quick.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

import click

from runners.command_line.audit_commands import audit, repair
from runners.command_line.dlq_commands import chooses, dlq
from runners.command_line.exits import BY_CODE, BY_STATUS, FAILED, STOPPED
from runners.command_line.expect_command import expect
from runners.command_line.explain_command import explain
from runners.command_line.given import (
    Carrying,
    InOrder,
    as_json,
    carries,
    kinds_that_begin,
    loaded,
    looked_at,
    moves,
    with_definition,
)
from runners.command_line.init_command import init
from runners.command_line.offset_commands import move_offsets, offsets, sure
from runners.command_line.preview_command import preview
from runners.command_line.quality_command import quality
from runners.command_line.run_commands import report, runs
from runners.command_line.schedule_command import schedule

if TYPE_CHECKING:
    from runners.events import Listener
    from runners.pipeline import Pipeline
    from runners.report import Report


def _print_version(ctx: click.Context, option: click.Parameter, asked: bool) -> None:
    if asked:
        from runners.version import version

        click.echo(f"wherry {version()}")
        ctx.exit()


@click.group(cls=InOrder, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_print_version, help="Print it.")
def wherry() -> None:
    """Carry rows in batches on Spark, and prove that every one arrived.

    Begin with `wherry demo`. Exit codes: 0 done, 1 failed, 2 the definition or the call is wrong, 3 stopped
    before the end, 4 another run owns the pipeline.
    """


@wherry.command()
@click.argument("directory", type=click.Path(path_type=Path), default=Path("wherry-demo"))
def demo(directory: Path) -> int:
    """Make a folder of orders, some of them bad, and carry them.

    For example:  wherry demo

    Everything is written to DIRECTORY; wherry-demo by default.
    """
    from runners.command_line import printing
    from runners.command_line.progress_bar import ProgressBar
    from runners.definitions.definition import load
    from runners.definitions.demo import make

    file = make(directory)
    pipeline = load(file).pipeline
    batches = sum(1 for _ in (directory / "landing" / "orders").iterdir())
    with ProgressBar(pipeline.name, batches=batches) as bar:
        report = pipeline.run(check=False, listeners=[bar])
    if report.error is not None:
        click.echo(printing.failure(report, str(file)), err=True)
    click.echo(printing.demo(report, pipeline, file))
    return BY_STATUS[report.status]


wherry.add_command(init)


@wherry.command()
@with_definition
@click.option("--spark", "with_spark", is_flag=True, help="Also check types and SQL; starts Spark, reads no row.")
@as_json
def validate(with_spark: bool, json: bool, **given: Any) -> None:
    """Say what a definition will do, or all that is wrong with it.

    For example:  wherry validate orders.yaml --set dlq.window=0
    """
    from runners.command_line import printing
    from runners.definitions.secrets import hidden
    from runners.definitions.validation import analyse, explain

    definition = loaded(**given)
    said = explain(definition)
    with hidden(definition.pipeline.secrets):
        analysis = analyse(definition) if with_spark else None
    columns = analysis.columns if analysis else None
    said = replace(said, notes=(*said.notes, *(analysis.notes if analysis else ())))
    if json:
        click.echo(printing.as_json({**said.json(), "columns": columns}))
    else:
        click.echo(printing.explanation(said, str(given["file"]), columns))


wherry.add_command(preview)


@wherry.command()
@with_definition
@click.option("--from-beginning", is_flag=True, help="Forget what was carried, and carry everything again.")
@moves
@click.option("--follow", is_flag=True, help="Go on when nothing is left, until you stop it.")
@click.option("--moved", multiple=True, metavar="NAME", help="The same content lies elsewhere now.")
@click.option("--fresh", multiple=True, metavar="NAME", help="Something else lies in its place now.")
@click.option(
    "--forget", multiple=True, metavar="NAME", help="One that is gone, or refuses, gets no open batch any more."
)
@click.option(
    "--assume",
    type=click.Choice(["delivered", "missing"]),
    help="What holds for an open batch of which a destination cannot say whether it has it.",
)
@click.option("--take-over", default="", metavar="WHY", help="Take it at once from a run on another host that is gone.")
@carries
def run(
    from_beginning: bool,
    reason: str,
    yes: bool,
    follow: bool,
    moved: Sequence[str],
    fresh: Sequence[str],
    forget: Sequence[str],
    assume: Literal["delivered", "missing"] | None,
    take_over: str,
    carrying: Carrying,
    **given: Any,
) -> int:
    """Carry what waits.

    For example:  wherry run orders.yaml --set dlq.window=0

    What no state can know is said by --moved, --fresh, --forget and --assume; each wants --reason, which is kept.
    """
    from runners.offsets import plan_reset
    from runners.ruling import Ruling

    ruling = Ruling(moved=tuple(moved), fresh=tuple(fresh), forget=tuple(forget), assume=assume or "", reason=reason)
    pipeline = loaded(**given).pipeline
    if from_beginning:
        move_offsets(pipeline, plan_reset(pipeline), reason=reason, yes=yes)
    return _carried(
        pipeline,
        str(given["file"]),
        lambda listeners: pipeline.run(
            check=False, follow=follow, listeners=listeners, take_over=take_over, ruling=ruling
        ),
        carrying,
    )


@wherry.command()
@with_definition
@click.option("--from", "start", metavar="WHEN", help="The first batch: a number, or when it was committed.")
@click.option("--to", "end", metavar="WHEN", help="The last batch, or the last day; by default all that there is now.")
@click.option("--only", metavar="NAME", help="The one destination that gets them.")
@click.option("--lane", metavar="LANE", help="The one lane of which they are.")
@click.option("--again", is_flag=True, help="Once more, though the same backfill was carried already.")
@moves
@carries
def backfill(
    start: str | None,
    end: str | None,
    only: str | None,
    lane: str | None,
    again: bool,
    reason: str,
    yes: bool,
    carrying: Carrying,
    **given: Any,
) -> int:
    """Carry again what was carried before; the offsets stay.

    For example:  wherry backfill orders.yaml --from 2026-01-31T06:00 --only latest --reason "a new table"

    WHEN is the number of a batch in its lane, or a time in UTC. Called again after a crash it goes on where it was.
    """
    from runners.backfill import Backfill, Bound, bound
    from runners.command_line import printing
    from runners.offsets import plan_backfill

    def parsed(text: str | None, option: str) -> Bound | None:
        try:
            return None if text is None else bound(text, last=option == "--to")
        except ValueError as error:
            said = f"expected a number or a time such as 2026-01-31T06:00, got {text!r}"
            raise click.BadParameter(said, param_hint=option) from error

    begin, last = parsed(start, "--from"), parsed(end, "--to")
    past = Backfill(start=begin, end=last, only=only, lane=lane, again=again, reason=reason)
    pipeline = loaded(**given).pipeline
    again_there = plan_backfill(pipeline, past)
    if again_there.lanes:
        click.echo(printing.move(again_there), err=True)
        sure(yes=yes)
    return _carried(
        pipeline,
        str(given["file"]),
        lambda listeners: pipeline.backfill(past, check=False, listeners=listeners),
        carrying,
    )


@wherry.command()
@with_definition
@click.option("--reason", default="asked to stop", metavar="TEXT", help="Why; it stands in the run's report.")
@click.option("--force", is_flag=True, help="At once: what is in flight is left for the next run to look at.")
@click.option("--within", default="", metavar="TIME", help="So long it may finish what is in flight, 30s for example.")
def stop(reason: str, force: bool, within: str, **given: Any) -> None:
    """Ask a run to stop once its batches in flight are finished.

    For example:  wherry stop orders.yaml
    """
    from origins.quantities import seconds

    try:
        seconds(within or "0s")
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--within") from error
    pipeline = looked_at(**given)
    if pipeline.stop(reason, force=force, within=within):
        at_once = " at once" if force else ""
        click.echo(f"{pipeline.name} was asked to stop{at_once}. How it is:  wherry status {given['file']}")
        if not force:
            click.echo(f"It finishes what is in flight; to cancel that:  wherry stop {given['file']} --force")
    else:
        click.echo(f"Nobody runs {pipeline.name}.")


@wherry.command()
@with_definition
@as_json
def status(json: bool, **given: Any) -> None:
    """Say how a pipeline is, and what to type next.

    For example:  wherry status orders.yaml
    """
    from runners.command_line import printing
    from runners.status import status

    definition = loaded(needs_secrets=False, **given)
    facts = status(definition.pipeline, str(given["file"]), definition=definition.hash)
    click.echo(printing.as_json(facts) if json else printing.status(facts, str(given["file"])))


@dlq.command("replay")
@with_definition
@chooses
@moves
@carries
def replay(
    ids: Sequence[str],
    code: str,
    stage: str,
    where: str,
    reason: str,
    yes: bool,
    carrying: Carrying,
    **given: Any,
) -> int:
    """Carry refused rows again, as they were read.

    For example:  wherry dlq replay orders.yaml --code CAST --reason "the amounts are text now"

    Through the definition of today, each once, to the destinations that do not have it. One that is refused again is a
    new row that names the old. Called again it takes what is left.
    """
    from runners.command_line.printing import as_json as printed
    from runners.command_line.printing_dlq import replay as said
    from runners.dlq.replay import Choice
    from runners.dlq.replaying import Replay, nothing_again, planned

    again = Replay(choice=Choice(ids=tuple(ids), code=code, stage=stage, where=where), reason=reason)
    pipeline = loaded(**given).pipeline
    found = planned(pipeline, again.choice)
    click.echo(said(found), err=True)
    if not found.rows:
        if carrying.json:
            click.echo(printed(nothing_again(pipeline).json()))
        return 0
    sure(yes=yes)
    return _carried(
        pipeline,
        str(given["file"]),
        lambda listeners: pipeline.replay(again, check=False, listeners=listeners),
        carrying,
    )


wherry.add_command(dlq)
wherry.add_command(audit)
wherry.add_command(repair)
wherry.add_command(runs)
wherry.add_command(report)
wherry.add_command(quality)
wherry.add_command(expect)
wherry.add_command(offsets)
wherry.add_command(schedule)


wherry.add_command(explain)


@wherry.command()
@click.argument("kind", required=False, shell_complete=kinds_that_begin)
@click.option("--json-schema", is_flag=True, help="Print the form of a definition, for editors.")
@as_json
def kinds(kind: str | None, json_schema: bool, json: bool) -> None:
    """List all kinds of origins, stages and destinations, or show one.

    For example:  wherry kinds delta
    """
    from runners.command_line import printing
    from runners.definitions.kinds import CONTRACTS, described, every, ours
    from runners.definitions.problems import nearest

    if json_schema:
        from runners.definitions.json_schema import json_schema as schema

        click.echo(printing.as_json(schema()))
        return
    if kind is None:
        found = every()
    else:
        found = [described(role, kind) for role in ours().roles(kind)]
        if not found:
            known = [name for role in CONTRACTS for name in ours().of(role)]
            raise click.UsageError(f"There is no kind '{kind}'; {nearest(kind, known)}")
    if json:
        click.echo(printing.as_json([each.json() for each in found]))
    elif kind is None:
        click.echo(printing.all_kinds(found))
    else:
        click.echo("\n\n".join(map(printing.one_kind, found)))


@wherry.command()
@click.argument("state", type=click.Path(path_type=Path), default=Path(".wherry"))
@as_json
def doctor(state: Path, json: bool) -> int:
    """Look for what this machine lacks, and say what to do.

    For example:  wherry doctor

    STATE is the directory in which a state would lie; .wherry by default.
    """
    from runners.command_line.doctor import examine

    checks = examine(state)
    if json:
        from json import dumps

        click.echo(dumps([check.json() for check in checks], indent=2))
    else:
        for check in checks:
            color = {"problem": "red", "ok": "green"}.get(check.state)
            click.echo(f"{click.style(f'{check.state:<10}', fg=color)}  {check.name:<8}  {check.found}")
            if check.advice:
                click.echo(f"{'':<22}{check.advice}")
    return FAILED if any(check.state == "problem" for check in checks) else 0


def _carried(
    pipeline: Pipeline,
    file: str,
    carry: Callable[[Sequence[Listener]], Report],
    carrying: Carrying,
) -> int:
    """Carry with progress, print the report, and give the exit code."""
    from runners.command_line import printing
    from runners.definitions.secrets import hidden
    from runners.errors import Owned
    from runners.listeners.log_lines import complain

    heard: list[int] = []
    report: Report | None = None
    try:
        with (
            hidden(pipeline.secrets),
            _signals_interrupt(heard),
            contextlib.nullcontext() if carrying.quiet else _told(pipeline, carrying.log_format) as listener,
        ):
            report = carry([listener] if listener else []).mask(pipeline.secrets)
    except KeyboardInterrupt:
        if report is None:
            return _not_begun(pipeline)
    except Owned as error:
        if not carrying.skips:
            raise
        if not carrying.quiet:
            complain(f"{error.message} It is left alone.")
        if carrying.json:
            click.echo(printing.as_json({"pipeline": pipeline.name, "status": "skipped", "reason": error.message}))
        return 0
    except Exception:
        if not heard:
            raise
        return _not_begun(pipeline)
    if report.error is not None:
        complain(printing.failure(report, file), code=report.error.code)
    click.echo(printing.as_json(report.json()) if carrying.json else printing.report(report, file))
    return BY_STATUS[report.status] if report.error is None else BY_CODE.get(report.error.code, FAILED)


@contextlib.contextmanager
def _told(pipeline: Pipeline, log_format: str) -> Iterator[Listener]:
    """What shows how a run goes on: a bar on a terminal, lines elsewhere."""
    from runners.command_line.progress_bar import ProgressBar
    from runners.listeners.log_lines import LogLines

    bar = ProgressBar(pipeline.name)
    if log_format == "json" or not bar.console.is_terminal:
        yield LogLines(log_format, secrets=pipeline.secrets, pipeline=pipeline.name)
    else:
        with bar:
            yield bar


def _not_begun(pipeline: Pipeline) -> int:
    """Say so, and give the exit code."""
    from runners.listeners.log_lines import complain

    complain(f"{pipeline.name} was stopped before it began to carry.")
    return STOPPED


@contextlib.contextmanager
def _signals_interrupt(heard: list[int]) -> Iterator[None]:
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
