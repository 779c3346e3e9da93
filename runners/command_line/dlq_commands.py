"""The commands about refused rows: `wherry dlq`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from runners.command_line.carrying import carry_and_print, show_work
from runners.command_line.help_sections import fix_option, group, option
from runners.command_line.options import (
    COUNT,
    PATH,
    ReplayOptions,
    confirm,
    load_for_reading,
    load_pipeline,
    with_choice_options,
    with_definition,
    with_fix_options,
    with_move_options,
    with_reason,
    with_replay_options,
    with_wide,
)
from runners.command_line.process_end import STOPPED
from runners.model.errors import check_reason
from runners.model.text import format_count
from runners.operations import printing, printing_state
from runners.operations.dlq import change_settings, choose_letters, read_settings
from runners.operations.dlq import discard as discard_letters
from runners.pipeline import Pipeline
from runners.running.choice import Choice
from runners.running.fix import Fix
from runners.running.replay import Replay, make_empty_report, plan_replay


@group(default="show")
def dlq() -> None:
    """Show refused rows, process them again, or discard them.

    `wherry dlq orders.yaml` means `wherry dlq show orders.yaml`.
    """


@dlq.command("show")
@with_definition
@option("--limit", type=COUNT, metavar="N", help="Show the newest N; default: 20, --json all.")
@option("--reveal", is_flag=True, help="Show the values of protected columns.")
@option("--waiting", is_flag=True, help="Leave out rows that were replayed or discarded.")
@with_choice_options
@with_wide
def show_dead_letters(
    choice: Choice, limit: int | None, reveal: bool, waiting: bool, wide: bool, json: bool, **given: Any
) -> None:
    """Show refused rows: why, where, and the row itself.

    For example:  wherry dlq show orders.yaml --text n/a --since 2026-01-31

    A row must meet all conditions. `dlq summary`, `replay`, `discard` and `export` take the same options.
    """
    most = limit if limit or json else 20
    rows = load_for_reading(**given).dead_letters(most, choice=choice, reveal=reveal, waiting=waiting)
    if json:
        click.echo(printing.as_json({"rows": rows}))
    elif waiting and not rows:
        click.echo(_NO_SUCH_ROW_WAITS if not choice.chooses_all else "No row waits in the DLQ.")
    elif not rows and not choice.chooses_all:
        click.echo(_NO_SUCH_ROW)
    else:
        click.echo(printing.format_wide(partial(printing_state.format_letters, rows, str(given["file"])), wide=wide))


_NO_SUCH_ROW, _NO_SUCH_ROW_WAITS = "No such row is in the DLQ.", "No such row waits in the DLQ."


@dlq.command("summary")
@with_definition
@with_choice_options
def summarise(choice: Choice, json: bool, **given: Any) -> None:
    """Count refused rows by cause.

    For example:  wherry dlq summary orders.yaml --since 2026-01-31

    Each cause comes with its number of rows, how many of them wait, since when, and an example. Wherry groups the rows
    of a cause by column and by the form of the value.
    """
    causes = load_for_reading(**given).dead_letter_causes(choice)
    if json:
        click.echo(printing.as_json({"causes": causes}))
    elif not causes and not choice.chooses_all:
        click.echo(_NO_SUCH_ROW)
    else:
        click.echo(printing_state.format_summary(causes))


@dlq.command("explain")
@partial(with_definition, rest="letter")
@click.argument("letter", metavar="ID", required=False)
@option("--reveal", is_flag=True, help="Show the values of protected columns.")
def explain_dead_letter(letter: str, reveal: bool, json: bool, **given: Any) -> None:
    """Explain one refused row, and try it again.

    For example:  wherry dlq explain orders.yaml 5f0c9a/17

    Shows why the row was refused, and then tries it with today's stages. Writes nothing.
    """
    row = load_for_reading(**given).explain_dead_letter(letter, reveal=reveal)
    file = str(given["file"])
    if json:
        tried = row.try_again()
        click.echo(printing.as_json({**row.json(tried), "next": printing_state.list_next_commands(row, tried, file)}))
        return
    click.echo(printing_state.format_refused_row(row))
    click.echo(printing_state.format_tried_row(row, row.try_again(), file))


@dlq.command("merge")
@with_definition
def merge(json: bool, **given: Any) -> int:
    """Bring refused rows back from the fallback.

    For example:  wherry dlq merge orders.yaml

    While the DLQ fails, `on_failure: fallback` sends refused rows to its fallback. This brings each of them into the
    DLQ once. It finishes open batches first, and processes nothing else.
    """
    merged = load_pipeline(**given).merge_dead_letters()
    click.echo(printing.as_json(merged.json()) if json else printing_state.format_merged(merged))
    return STOPPED if merged.waiting else 0


@dlq.command("discard")
@with_definition
@with_choice_options
@with_move_options
def discard(choice: Choice, reason: str, yes: bool, json: bool, **given: Any) -> None:
    """Close refused rows, so that no replay delivers them.

    For example:  wherry dlq discard orders.yaml --code PARSE --reason "test files"

    The rows stay in the DLQ until dlq.retain is over.
    """
    pipeline = load_for_reading(**given)
    rows = len(choose_letters(pipeline, choice)[1])
    click.echo(f"{format_count(rows)} of the DLQ will be discarded: no replay will take them.", err=True)
    if rows:
        confirm(yes=yes)
    done = discard_letters(pipeline, choice, reason=reason, expected=rows)
    click.echo(printing.as_json({"discarded": done}) if json else f"Discarded: {format_count(done)}.")


@dlq.command("config")
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
    pipeline = load_for_reading(**given)
    if pairs:
        facts = change_settings(pipeline, {name: value for name, _, value in pairs}, reason=reason)
    else:
        facts = read_settings(pipeline)
    click.echo(printing.as_json(facts) if json else printing_state.format_settings(facts))


@dlq.command("replay", shows_progress=True, logs=True)
@with_definition
@with_choice_options
@with_fix_options
@fix_option("--unchanged", is_flag=True, help="Also take rows of a file that were not edited.")
@option("--resume", is_flag=True, help="Continue a replay that was interrupted.")
@with_replay_options
def replay(
    choice: Choice,
    fix: Fix,
    rows: Path | None,
    unchanged: bool,
    resume: bool,
    how: ReplayOptions,
    **given: Any,
) -> int:
    """Process refused rows again, as they were read or with a fix.

    For example:  wherry dlq replay orders.yaml --code CAST --reason "corrected"

    Each row goes through today's stages once, to the destinations that lack it. A row that is refused again becomes a
    new row of the DLQ.

    --set and --with change the rows first, and Wherry shows what would happen. An edited file of `dlq export` is for
    --with too, and names its rows.
    """
    if resume and (fix or rows or how.give_up or not choice.chooses_all):
        raise click.UsageError("--resume takes the rows and the fix of the replay that was cut short, and no others.")
    if rows is not None:
        if not choice.chooses_all:
            raise click.UsageError("The file of --with chooses the rows. Leave the other conditions out.")
        return _replay_edited(rows, unchanged, how, **given)
    if unchanged:
        raise click.UsageError("--unchanged is for --with and a file of rows.")
    pipeline = load_pipeline(**given)
    if resume:
        cut = pipeline.find_cut_replay()
        again = replace(cut, reason=how.reason or cut.reason)
    else:
        reason = how.reason or ("a dry run" if how.dry_run else "")
        again = Replay(choice=choice, fix=fix, give_up=how.give_up, reason=reason)
    return _replay_and_print(pipeline, again, how, given["file"])


@dlq.command("export")
@with_definition
@option("--to", "to", required=True, type=PATH, metavar="FILE", help="Write .csv or .json.")
@option("--reveal", is_flag=True, help="Write the values of protected columns.")
@with_choice_options
def export_rows(choice: Choice, to: Path, reveal: bool, json: bool, **given: Any) -> None:
    """Write refused rows that wait into a file, to correct them.

    For example:  wherry dlq export orders.yaml --to rows.csv

    Each row has its id, its code, its message, and the columns that were read. `dlq replay --with` takes the file back.
    """
    exported = load_for_reading(**given).export_dead_letters(to, choice=choice, reveal=reveal)
    click.echo(printing_state.format_exported(exported, str(given["file"])), err=True)
    if json:
        click.echo(printing.as_json(exported.json()))


def _replay_edited(rows: Path, unchanged: bool, how: ReplayOptions, **given: Any) -> int:
    """Compare the file with the DLQ, say what a person changed, and replay the changed rows."""
    if not how.dry_run:
        check_reason(how.reason, "A replay")
    pipeline = load_pipeline(**given)
    corrected = pipeline.correct_dead_letters(rows, unchanged=unchanged)
    click.echo(printing_state.format_corrected(corrected), err=True)
    if not corrected.rows:
        if how.carrying.json:
            click.echo(printing.as_json({**make_empty_report(pipeline).json(), "corrected": corrected.json()}))
        return 0
    again = corrected.make_replay(reason=how.reason or "a dry run", give_up=how.give_up)
    return _replay_and_print(pipeline, again, how, given["file"])


def _replay_and_print(pipeline: Pipeline, again: Replay, how: ReplayOptions, file: Path) -> int:
    """Show what the replay would do, ask, and do it. Return the exit code."""
    carrying, letters = how.carrying, plan_replay(pipeline, again)
    click.echo(printing_state.format_replay(letters), err=True)
    if not letters.rows:
        if carrying.json:
            click.echo(printing.as_json(make_empty_report(pipeline).json()))
        return 0
    if again.fix or how.dry_run:
        with show_work(pipeline, "trying the rows", quiet=carrying.quiet) as say:
            preview = pipeline.preview_replay(again, say=say)
        click.echo(printing_state.format_fix_preview(preview), err=not how.dry_run or carrying.json)
        if how.dry_run:
            if carrying.json:
                click.echo(printing.as_json(preview.json()))
            return 0
    confirm(yes=how.yes)
    carry = partial(pipeline.replay, again, check=False)
    return carry_and_print(pipeline, file, carry, carrying, shown=letters.notices)
