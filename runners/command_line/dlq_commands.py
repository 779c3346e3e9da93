"""The commands about refused rows: `wherry dlq`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import click

from runners.command_line.carrying import carry_and_print, show_work
from runners.command_line.help_sections import (
    SELECTION,
    F,
    GivenValues,
    fix_option,
    group,
    keep_shared,
    option,
    select_option,
    split_pair,
)
from runners.command_line.options import (
    COUNT,
    PATH,
    AnyPipeline,
    CarryOptions,
    confirm,
    load_definition,
    load_for_reading,
    load_pipeline,
    time_option,
    with_carry_options,
    with_definition,
    with_move_options,
    with_reason,
    with_wide,
)
from runners.command_line.process_end import STOPPED
from runners.model.errors import check_reason
from runners.model.text import format_count
from runners.operations import printing, printing_state
from runners.pipeline import Pipeline
from runners.running.choice import Choice
from runners.running.fix import NO_FIX, Fix
from runners.running.replay import Replay, make_empty_report


@group(default="show")
def dlq() -> None:
    """Show refused rows, process them again, or discard them.

    `wherry dlq orders.yaml` means `wherry dlq show orders.yaml`.
    """


def _with_choice(command: F) -> F:
    """Give a command about rows of the DLQ a `Choice`, by default of all rows."""

    @functools.wraps(command)
    def choose(*, ids: Sequence[str], of_file: str, **given: Any) -> Any:
        conditions = {each: given.pop(each) for each in ("code", "stage", "text", "where", "since")}
        return command(choice=Choice(ids=tuple(ids), file=of_file, **conditions), **given)

    options = [
        select_option("--id", "ids", multiple=True, metavar="ID", help="Take this row; may be repeated."),
        select_option("--code", default="", metavar="CODE", help="Take rows with this code."),
        select_option("--stage", default="", metavar="NAME", help="Take rows that this stage or table refused."),
        select_option("--text", default="", metavar="TEXT", help="Take rows with this text in the row or message."),
        select_option("--file", "of_file", default="", metavar="NAME", help="Take rows of this file, or *.csv."),
        select_option(
            "--where", here=True, default="", metavar="SQL", help="Take rows where this is true; needs Spark."
        ),
        time_option("--since", section=SELECTION, help="Take rows refused since 2026-01-31T06:00 (UTC)."),
    ]
    return functools.reduce(lambda given, add: add(given), reversed(options), cast(F, choose))


@dlq.command("show", over_server=True)
@with_definition
@option("--limit", type=COUNT, metavar="N", help="Show the newest N; default: 20, --json all.")
@option("--reveal", here=True, is_flag=True, help="Show the values of protected columns.")
@option("--waiting", is_flag=True, help="Leave out rows that were replayed or discarded.")
@_with_choice
@with_wide
def show_dead_letters(
    choice: Choice, limit: int | None, reveal: bool, waiting: bool, wide: bool, json: bool, **given: Any
) -> None:
    """Show refused rows: why, where, and the row itself.

    For example:  wherry dlq show orders.yaml --text n/a --since 2026-01-31

    A row must meet all conditions. `dlq summary`, `replay`, `discard` and `export` take the same options.
    """
    most = limit if limit or json else 20
    rows = load_for_reading(**given).refused.list(most, choice=choice, reveal=reveal, waiting=waiting)
    if json:
        click.echo(printing.as_json({"rows": rows}))
    elif waiting and not rows:
        click.echo(_NO_SUCH_ROW_WAITS if not choice.chooses_all else "No row waits in the DLQ.")
    elif not rows and not choice.chooses_all:
        click.echo(_NO_SUCH_ROW)
    else:
        click.echo(printing.format_wide(partial(printing_state.format_letters, rows, str(given["file"])), wide=wide))


_NO_SUCH_ROW, _NO_SUCH_ROW_WAITS = "No such row is in the DLQ.", "No such row waits in the DLQ."


@dlq.command("summary", over_server=True)
@with_definition
@_with_choice
def summarise(choice: Choice, json: bool, **given: Any) -> None:
    """Count refused rows by cause.

    For example:  wherry dlq summary orders.yaml --since 2026-01-31

    Each cause comes with its number of rows, how many of them wait, since when, and an example. Wherry groups the rows
    of a cause by column and by the form of the value.
    """
    causes = load_for_reading(**given).refused.causes(choice)
    if json:
        click.echo(printing.as_json({"causes": causes}))
    elif not causes and not choice.chooses_all:
        click.echo(_NO_SUCH_ROW)
    else:
        click.echo(printing_state.format_summary(causes))


@dlq.command("explain", over_server=True)
@partial(with_definition, rest="letter")
@click.argument("letter", metavar="ID", required=False)
@option("--reveal", here=True, is_flag=True, help="Show the values of protected columns.")
def explain_dead_letter(letter: str, reveal: bool, json: bool, **given: Any) -> None:
    """Explain one refused row, and try it again.

    For example:  wherry dlq explain orders.yaml 5f0c9a/17

    Shows why the row was refused, and then tries it with today's stages. Writes nothing.
    """
    row = load_for_reading(**given).refused.explain(letter, reveal=reveal)
    file = str(given["file"])
    if json:
        tried = row.try_again()
        click.echo(printing.as_json({**row.json(tried), "next": printing_state.list_next_commands(row, tried, file)}))
        return
    click.echo(printing_state.format_refused_row(row))
    click.echo(printing_state.format_tried_row(row, row.try_again(), file))


@dlq.command("merge", over_server=False)
@with_definition
def merge(json: bool, **given: Any) -> int:
    """Bring refused rows back from the fallback.

    For example:  wherry dlq merge orders.yaml

    While the DLQ fails, `on_failure: fallback` sends refused rows to its fallback. This brings each of them into the
    DLQ once. It finishes open batches first, and processes nothing else.
    """
    merged = Pipeline.of(load_definition(**given).pipeline).refused.merge_fallback()
    click.echo(printing.as_json(merged.json()) if json else printing_state.format_merged(merged))
    return STOPPED if merged.waiting else 0


@dlq.command("discard", over_server=True)
@with_definition
@_with_choice
@with_move_options
def discard(choice: Choice, reason: str, yes: bool, json: bool, **given: Any) -> None:
    """Close refused rows, so that no replay delivers them.

    For example:  wherry dlq discard orders.yaml --code PARSE --reason "test files"

    The rows stay in the DLQ until dlq.retain is over.
    """
    pipeline = load_for_reading(**given)
    rows = pipeline.refused.count_waiting(choice)
    click.echo(f"{format_count(rows)} of the DLQ will be discarded: no replay will take them.", err=True)
    if rows:
        confirm(yes=yes)
    done = pipeline.refused.discard(choice, reason=reason, expected=rows)
    click.echo(printing.as_json({"discarded": done}) if json else f"Discarded: {format_count(done)}.")


@dlq.command("config", over_server=True)
@partial(with_definition, rest="changes")
@click.argument("changes", nargs=-1, metavar="[NAME=VALUE]...")
@with_reason
def config(changes: Sequence[str], reason: str, json: bool, **given: Any) -> None:
    """Show or change the limits of an active run.

    For example:  wherry dlq config orders.yaml window=0 limits.rows=5% --reason "known"

    Without a change, it shows the limits for the next batch. Changes apply from the next batch to the end of the run.
    NAME is window, threshold or limits.rows.
    """
    pairs = [change.partition("=") for change in changes]
    wrong = next((name + equals for name, equals, _ in pairs if not (name and equals)), None)
    if wrong is not None:
        raise click.BadParameter(f"expected NAME=VALUE, got '{wrong}'", param_hint="NAME=VALUE")
    if reason and not pairs:
        raise click.UsageError("--reason is for a change. Add NAME=VALUE.")
    pipeline, wanted = load_for_reading(**given), {name: value for name, _, value in pairs}
    facts = pipeline.refused.change_limits(wanted, reason=reason) if wanted else pipeline.refused.limits()
    click.echo(printing.as_json(facts) if json else printing_state.format_settings(facts))


@dlq.command("replay", shows_progress=True, logs=True, over_server=True)
@with_definition
@_with_choice
@fix_option(
    "--set",
    "overrides",
    multiple=True,
    metavar="COLUMN=EXPR",
    expose_value=False,
    callback=keep_shared,
    help="Set a column; a name with a dot is a field.",
)
@fix_option(
    "--with",
    "file_with",
    here=True,
    type=PATH,
    metavar="FILE",
    help="Apply a .sql, a .py, or edited rows (.csv, .json).",
)
@fix_option(
    "--fix-at",
    "start",
    here=True,
    type=click.Choice(["beginning", "refused"]),
    default="beginning",
    metavar="PLACE",
    help="Apply it at the beginning, or where refused.",
)
@fix_option("--unchanged", here=True, is_flag=True, help="Also take rows of a file that were not edited.")
@option("--resume", here=True, is_flag=True, help="Continue a replay that was interrupted.")
@option("--dry-run", is_flag=True, help="Show what would happen, and stop.")
@option("--give-up", here=True, is_flag=True, help="Give up a replay that was interrupted.")
@with_move_options
@with_carry_options
def replay(  # noqa: PLR0913 -- each is an option of the command
    choice: Choice,
    values: GivenValues,
    file_with: Path | None,
    start: Literal["beginning", "refused"],
    unchanged: bool,
    resume: bool,
    dry_run: bool,
    give_up: bool,
    reason: str,
    yes: bool,
    carrying: CarryOptions,
    **given: Any,
) -> int:
    """Process refused rows again, as they were read or with a fix.

    For example:  wherry dlq replay orders.yaml --code CAST --reason "corrected"

    Each row goes through today's stages once, to the destinations that lack it. A row that is refused again becomes a
    new row of the DLQ.

    --set and --with change the rows first, and Wherry shows what would happen. An edited file of `dlq export` is for
    --with too, and names its rows.
    """
    rows = file_with if file_with is not None and file_with.suffix.lower() in _ROW_FILES else None
    fix = _read_fix(values.overrides, file_with, start)
    if resume and (fix or rows or give_up or not choice.chooses_all):
        raise click.UsageError("--resume takes the rows and the fix of the replay that was cut short, and no others.")
    if rows is not None and not (choice.chooses_all and start == "beginning"):
        raise click.UsageError("The file of --with names its rows. Leave out --fix-at and what chooses rows.")
    if unchanged and rows is None:
        raise click.UsageError("--unchanged is for --with and a file of rows.")
    why = reason or ("a dry run" if dry_run else "")
    if rows is not None:
        check_reason(why, "A replay")
    fields = [pair for pair in values.overrides if "." in pair.partition("=")[0]]
    pipeline = load_pipeline(values=replace(values, overrides=fields), **given)
    if resume:
        assert isinstance(pipeline, Pipeline)  # a server refuses --resume
        cut = pipeline.refused.find_cut_replay()
        again = replace(cut, reason=reason or cut.reason)
    elif rows is not None:
        assert isinstance(pipeline, Pipeline)  # and --with
        corrected = pipeline.refused.correct(rows, unchanged=unchanged)
        click.echo(printing_state.format_corrected(corrected), err=True)
        if not corrected.rows:
            if carrying.json:
                click.echo(printing.as_json({**make_empty_report(pipeline.name).json(), "corrected": corrected.json()}))
            return 0
        again = corrected.make_replay(reason=why, give_up=give_up)
    else:
        again = Replay(choice=choice, fix=fix, give_up=give_up, reason=why)
    return _replay_and_print(pipeline, again, given["file"], carrying, dry_run=dry_run, yes=yes)


_ROW_FILES = (".csv", ".json", ".parquet")
"""The endings of files with edited rows. An error explains the last one."""


def _read_fix(overrides: Sequence[str], file: Path | None, start: Literal["beginning", "refused"]) -> Fix:
    """Return the fix of --set and --with. A file of rows is none. A name with a dot is a field of the definition."""
    pairs = [split_pair(pair, "--set", "COLUMN=EXPR") for pair in overrides]
    columns = {name: sql for name, sql in pairs if "." not in name}
    if file is None:
        return Fix(columns=columns, start=start)
    if columns:
        raise click.UsageError("Give --set or --with, not both.")
    return NO_FIX if file.suffix.lower() in _ROW_FILES else Fix.read(file, start=start)


def _replay_and_print(
    pipeline: AnyPipeline, again: Replay, file: Path, carrying: CarryOptions, *, dry_run: bool, yes: bool
) -> int:
    """Show what the replay would do, ask, and do it. Return the exit code."""
    letters = pipeline.refused.plan_replay(again)
    click.echo(printing_state.format_replay(letters), err=True)
    if not letters.rows:
        if carrying.json:
            click.echo(printing.as_json(make_empty_report(pipeline.name).json()))
        return 0
    if again.fix or dry_run:
        with show_work(pipeline, "trying the rows", quiet=carrying.quiet) as say:
            preview = pipeline.refused.preview_replay(again, say=say)
        click.echo(printing_state.format_fix_preview(preview), err=not dry_run or carrying.json)
        if dry_run:
            if carrying.json:
                click.echo(printing.as_json(preview.json()))
            return 0
    confirm(yes=yes)
    carry = partial(pipeline.replay, again, check=False)
    return carry_and_print(pipeline, file, carry, carrying, shown=letters.notices)


@dlq.command("export", over_server=False)
@with_definition
@option("--to", "to", required=True, type=PATH, metavar="FILE", help="Write .csv or .json.")
@option("--reveal", is_flag=True, help="Write the values of protected columns.")
@_with_choice
def export_rows(choice: Choice, to: Path, reveal: bool, json: bool, **given: Any) -> None:
    """Write refused rows that wait into a file, to correct them.

    For example:  wherry dlq export orders.yaml --to rows.csv

    Each row has its id, its code, its message, and the columns that were read. `dlq replay --with` takes the file back.
    """
    pipeline = Pipeline.of(load_definition(needs_secrets=False, **given).pipeline)
    exported = pipeline.refused.export(to, choice=choice, reveal=reveal)
    click.echo(printing_state.format_exported(exported, str(given["file"])), err=True)
    if json:
        click.echo(printing.as_json(exported.json()))
