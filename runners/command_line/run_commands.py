"""The commands that run and stop a pipeline."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import click
from rich.console import Console

from runners.command_line.carrying import carry_and_print, show_work
from runners.command_line.folder import run_folder
from runners.command_line.help_sections import command, expert_option, option, select_option
from runners.command_line.options import (
    PATH,
    VALUES,
    CarryOptions,
    check_duration,
    confirm,
    load_definition,
    load_for_reading,
    load_pipeline,
    refuse_options,
    with_carry_options,
    with_definition,
    with_folder,
    with_move_options,
    with_reason,
)
from runners.command_line.state_commands import move_offsets
from runners.definitions.definition import list_definitions
from runners.operations import printing, printing_state
from runners.running.backfill import Backfill, Bound, parse_bound
from runners.running.compatibility import OperatorOverrides
from runners.spark.connect_server import serve
from runners.spark.session import list_packages


@command(shows_progress=True, logs=True, over_server=True)
@with_definition
@option("--follow", here=True, is_flag=True, help="Process new rows as they arrive, until stopped.")
@option("--from-beginning", is_flag=True, help="Forget the progress; process all rows again.")
@with_move_options
@with_folder
@with_carry_options
@expert_option(
    "--moved", here=True, multiple=True, metavar="NAME", help="Accept that NAME moved; its content is the same."
)
@expert_option(
    "--fresh", here=True, multiple=True, metavar="NAME", help="Accept that NAME was replaced by something else."
)
@expert_option("--forget", here=True, multiple=True, metavar="NAME", help="Drop this destination from open batches.")
@expert_option(
    "--assume",
    here=True,
    type=click.Choice(["delivered", "missing"]),
    metavar="delivered|missing",
    help="Treat batches in doubt as delivered or missing.",
)
@expert_option("--take-over", here=True, default="", metavar="WHY", help="Take over from a run on a host that is gone.")
def run(  # noqa: PLR0913 -- each is an option of the command
    from_beginning: bool,
    reason: str,
    yes: bool,
    follow: bool,
    moved: Sequence[str],
    fresh: Sequence[str],
    forget: Sequence[str],
    assume: Literal["delivered", "missing"] | None,
    take_over: str,
    everything: bool,
    select: Sequence[str],
    **given: Any,
) -> int:
    """Process all new rows, then end.

    For example:  wherry run orders.yaml --set dlq.window=0

    With --all or --select, FILE is a folder, by default this one. Its pipelines run one by one, in the order in which
    their tables feed each other: `name+` takes all that it feeds, and `+name` all that feeds it.

    --moved, --fresh, --forget and --assume answer questions that Wherry cannot. Each needs a --reason.
    """
    if everything or select:
        refuse_options(_OF_ONE_PIPELINE, "is for one pipeline, and not for a folder.")
        if given["values"].server:
            refuse_options(("everything", "select"), "is for a folder here. Of a server, run one pipeline at a time.")
        return run_folder(given.pop("file"), select, **given)
    carrying: CarryOptions = given.pop("carrying")
    ruling = OperatorOverrides(
        moved=tuple(moved), fresh=tuple(fresh), forget=tuple(forget), assume=assume or "", reason=reason
    )
    pipeline = load_pipeline(**given)
    if from_beginning:
        move_offsets(pipeline, pipeline.offsets.plan(beginning=True), reason=reason, yes=yes)
    carry = partial(pipeline.run, check=False, follow=follow, take_over=take_over, ruling=ruling)
    return carry_and_print(pipeline, given["file"], carry, carrying)


_OF_ONE_PIPELINE = (*("follow", "from_beginning", "reason", "yes", "moved", "fresh", "forget", "assume", "take_over"),)


@command(over_server=True)
@with_definition
@option("--reason", default="asked to stop", metavar="TEXT", help="Say why; the run's report shows it.")
@option("--force", is_flag=True, help="Cancel batches in flight; the next run recovers.")
@option(
    "--within",
    default="",
    metavar="TIME",
    callback=check_duration,
    help="Force it after this grace period, such as 30s.",
)
def stop(reason: str, force: bool, within: str, json: bool, **given: Any) -> None:
    """Stop a run when its batches in flight are done.

    For example:  wherry stop orders.yaml
    """
    pipeline = load_for_reading(**given)
    asked = pipeline.stop(reason, force=force, within=within)
    if json:
        click.echo(printing.as_json({"pipeline": pipeline.name, "asked": asked, "force": force}))
    elif asked:
        at_once = " at once" if force else ""
        click.echo(f"{pipeline.name} was asked to stop{at_once}. See its state:  wherry status {given['file']}")
        if not force:
            click.echo(f"It finishes its open batches first. To cancel them:  wherry stop {given['file']} --force")
    else:
        click.echo(f"{pipeline.name} is not running.")


@command(over_server=True)
@with_definition
@with_reason
def resume(reason: str, json: bool, **given: Any) -> None:
    """Resume a pipeline that a limit has paused.

    For example:  wherry resume orders.yaml --reason "the export is corrected"

    The next run plans the batch again, and judges it again. To let it pass:  wherry run FILE --set dlq.limits.rows=off
    """
    pipeline = load_for_reading(**given)
    resumed = pipeline.resume(reason=reason)
    if json:
        click.echo(printing.as_json({"pipeline": pipeline.name, "resumed": resumed}))
    elif resumed:
        click.echo(f"{pipeline.name} is resumed. Go on:  wherry run {given['file']}")
    else:
        click.echo(f"{pipeline.name} is not paused.")


def _parse_bound(ctx: click.Context, parameter: click.Parameter, text: str | None) -> Bound | None:
    try:
        return None if text is None else parse_bound(text, last=parameter.name == "end")
    except ValueError as error:
        message = f"expected a number or a time such as 2026-01-31T06:00, got {text!r}"
        raise click.BadParameter(message, param_hint=parameter.opts[0]) from error


@command(shows_progress=True, logs=True, over_server=True)
@with_definition
@select_option(
    "--from", "start", metavar="WHEN", callback=_parse_bound, help="Begin with this batch, or time or day of loading."
)
@select_option(
    "--to", "end", metavar="WHEN", callback=_parse_bound, help="End with this batch, or time or day of loading."
)
@select_option(
    "--where", here=True, default="", metavar="SQL", help="Deliver rows where this is true; columns as read."
)
@select_option("--only", metavar="NAME", help="Deliver only to this destination.")
@select_option("--lane", metavar="LANE", help="Read only this lane.")
@option("--again", is_flag=True, help="Deliver also batches that a destination has.")
@with_move_options
@with_carry_options
def backfill(  # noqa: PLR0913 -- each is an option of the command
    start: Bound | None,
    end: Bound | None,
    where: str,
    only: str | None,
    lane: str | None,
    again: bool,
    reason: str,
    yes: bool,
    carrying: CarryOptions,
    **given: Any,
) -> int:
    """Deliver old batches to destinations that lack them.

    For example:  wherry backfill orders.yaml --from 2026-01-31 --only latest --again --reason "lost rows"

    WHEN is the number of a batch in its lane, or the time (UTC) when the batch was loaded. It is not a date in the
    rows: for that, use --where. Offsets do not move. After a crash, type the same command again: it continues.
    """
    past = Backfill(start=start, end=end, where=where, only=only, lane=lane, again=again, reason=reason)
    pipeline = load_pipeline(**given)
    move = pipeline.plan_backfill(past)
    if move.lanes:
        click.echo(printing.format_move(move), err=True)
        confirm(yes=yes)
    return carry_and_print(pipeline, given["file"], partial(pipeline.backfill, past, check=False), carrying)


@command(shows_progress=True, logs=True, over_server=True)
@with_definition
@option("--file", "name", required=True, metavar="NAME", help="Redo this file.")
@with_move_options
@with_carry_options
def redo(name: str, reason: str, yes: bool, carrying: CarryOptions, **given: Any) -> int:
    """Read an edited file again, and replace its old rows.

    For example:  wherry redo orders.yaml --file monday.json

    In each table, one commit replaces the old rows of the file by the new ones. Wherry refuses if it cannot tell which
    rows of a table came from the file. After a crash, type the same command again: it continues.
    """
    pipeline = load_pipeline(**given)
    with show_work(pipeline, f"looking for the rows of {name}", quiet=carrying.quiet) as say:
        redo_preview = pipeline.preview_redo(name, say=say)
    click.echo(printing_state.format_redo(redo_preview, str(given["file"])), err=True)
    if redo_preview.read is not None or redo_preview.letters:
        confirm(yes=yes)
    carry = partial(pipeline.redo, name, reason=reason, check=False)
    return carry_and_print(pipeline, given["file"], carry, carrying, shown=redo_preview.notices)


@command()
@click.argument("file", type=PATH, required=False)
def warm(file: Path | None, json: bool, **given: Any) -> None:
    """Keep a Spark warm for commands in other terminals.

    For example:  wherry warm orders.yaml

    It has the settings of FILE, and stays until this command is interrupted.
    """
    found = list_definitions(Path()) if file is None else [file]
    if len(found) != 1:
        refuse_options(VALUES, "is for a definition, and warm found none or several here. Name it.")
    pipeline = load_definition(file=found[0], **given).pipeline if len(found) == 1 else None
    began = time.monotonic()
    with Console(stderr=True).status("starting Spark"):
        server = serve(pipeline.spark.settings, list_packages(pipeline)) if pipeline else serve({}, ())
    try:
        if json:
            click.echo(printing.as_json({"spark_remote": server.remote}))
        else:
            click.echo(
                f"Spark is warm, after {time.monotonic() - began:.0f} s. It ends with this command: press Ctrl-C.\n"
                "Type this in each terminal in which commands shall use it:\n\n"
                f"  export SPARK_REMOTE='{server.remote}'\n\n"
                "Keep this line secret. With it, anybody on this machine can use this Spark as you."
            )
        server.wait()
    except KeyboardInterrupt:
        server.stop()
