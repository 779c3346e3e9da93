"""The commands that try a definition and write nothing: `validate`, `preview`, `compare`, `test` and `find`."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import click

from origins.errors import WherryError
from origins.functions import forget_own_modules
from runners.command_line import printing
from runners.command_line.carrying import show_work
from runners.command_line.folder import validate_folder
from runners.command_line.help_sections import SELECTION, command, option, select_option
from runners.command_line.options import (
    COUNT,
    PATH,
    as_json,
    list_secrets_to_mask,
    load_definition,
    time_option,
    with_definition,
    with_folder,
    with_quiet,
    with_wide,
)
from runners.command_line.process_end import FAILED, is_interrupted
from runners.model.masking import hide_in_errors, without
from runners.model.text import escape_line, format_count, summarise_error, with_file
from runners.operations.cases import (
    check_extensible,
    choose_cases,
    find_cases,
    format_results,
    load_cases,
    watch_cases,
)
from runners.operations.compare import compare_definitions
from runners.operations.find_rows import find_rows
from runners.operations.preview import format_preview
from runners.operations.tracer import preview as preview_waiting
from runners.operations.validate import analyse, explain


@command()
@with_definition
@option("--spark", "with_spark", is_flag=True, help="Check types and SQL too; starts Spark.")
@with_folder
@as_json
def validate(with_spark: bool, everything: bool, select: Sequence[str], json: bool, **given: Any) -> int:
    """Explain what a definition will do, or list its errors.

    For example:  wherry validate orders.yaml --set dlq.window=0

    Reads no row, and needs no Java without --spark. With --all or --select, FILE is a folder, by default this one.
    """
    if everything or select:
        return validate_folder(given.pop("file"), select, with_spark=with_spark, json=json, **given)
    definition = load_definition(**given)
    explanation = explain(definition)
    with hide_in_errors(definition.pipeline.secrets):
        analysis = analyse(definition) if with_spark else None
    columns = analysis.columns if analysis else None
    explanation = replace(explanation, notes=(*explanation.notes, *(analysis.notes if analysis else ())))
    if json:
        click.echo(printing.as_json({**explanation.json(), "columns": columns}))
    else:
        click.echo(printing.format_explanation(explanation, str(given["file"]), columns))
    return 0


@command()
@with_definition
@select_option("--rows", type=COUNT, metavar="N", help="Take the first N rows only.")
@select_option("--lane", metavar="LANE", help="Take this lane; default: the one that failed.")
@select_option("--from-beginning", is_flag=True, help="Take the first batch, not the next.")
@option("--shown", type=COUNT, default=3, metavar="N", help="Show N rows of each kind; default: 3.")
@option("--save-case", "cases", type=PATH, metavar="FILE", help="Add the rows to FILE, as a case for `wherry test`.")
@with_wide
@with_quiet
@as_json
def preview(  # noqa: PLR0913 -- each is an option of the command
    rows: int | None,
    shown: int,
    lane: str | None,
    from_beginning: bool,
    cases: Path | None,
    wide: bool,
    quiet: bool,
    json: bool,
    **given: Any,
) -> None:
    """Show what the stages do with the next batch.

    For example:  wherry preview orders.yaml --set dlq.window=0

    Shows rows as they leave each stage, and filtered or refused rows as they reached it. Moves no offset, and writes
    nothing but the case. A case has masked rows, and expects what the stages make of them.
    """
    definition, saved = load_definition(**given), 0
    how: dict[str, Any] = {"rows": rows, "shown": shown, "lane": lane, "from_beginning": from_beginning}
    if cases is not None:
        check_extensible(cases)
    with show_work(definition.pipeline, "trying the waiting rows", quiet=quiet):
        if cases is None:
            previewed = preview_waiting(definition, **how)
        else:
            from runners.operations.save_case import preview_and_save

            previewed, saved = preview_and_save(definition, cases, **how)
    if json:
        click.echo(printing.as_json(previewed.json()))
    else:
        click.echo(printing.format_wide(partial(format_preview, previewed), wide=wide))
    if cases is not None:
        click.echo(_describe_saved(saved, cases, given["file"]), err=True)


def _describe_saved(rows: int, cases: Path, file: Path) -> str:
    if not rows:
        return "No case was saved: no row waits that a case can have."
    typed = f"wherry test {shlex.quote(str(file))}"
    if cases.absolute() != find_cases(file).absolute():
        typed += f" --cases {shlex.quote(str(cases))}"
    return f"Saved {format_count(rows)} in {cases}. Try them:  {typed}"


@command()
@partial(with_definition, rest="new")
@click.argument("new", metavar="NEW", type=PATH, required=False)
@select_option("--batches", type=COUNT, default=1, metavar="N", help="Try N batches; default: 1.")
@with_quiet
@as_json
def compare(new: Path | str, batches: int, quiet: bool, json: bool, **given: Any) -> int:
    """Show which rows another definition treats differently.

    For example:  wherry compare orders.yaml new.yaml

    Tries both definitions on the new rows. If there are none, it reads the newest batches again. Compares each row
    with itself: its columns, or why it is refused or filtered. Writes nothing. Ends with 1 if a row differs.
    """
    old = load_definition(**given)
    with show_work(old.pipeline, "trying both definitions", quiet=quiet):
        compared = compare_definitions(old, load_definition(**{**given, "file": Path(new)}), batches=batches)
    click.echo(printing.as_json(compared.json()) if json else str(compared))
    return 0 if compared.is_same else FAILED


@command("test")
@with_definition
@select_option("--case", "names", multiple=True, metavar="NAME", help="Try this case; may be repeated.")
@option(
    "--cases", "file_with_cases", type=PATH, metavar="PATH", help="Try the cases in this file; default: FILE.test.yaml."
)
@option("--watch", is_flag=True, help="Try them again whenever a file changes; Ctrl-C ends it.")
@with_quiet
@as_json
def test_cases(
    names: Sequence[str], file_with_cases: Path | None, watch: bool, quiet: bool, json: bool, **given: Any
) -> int:
    """Test a definition with its cases.

    For example:  wherry test orders.yaml

    The cases of orders.yaml are in orders.test.yaml: some rows, and what the stages should make of them. Writes
    nothing. Ends with 1 if a case fails.
    """
    if not watch:
        return _try_cases(names, file_with_cases, quiet=quiet, json=json, **given)
    if json:
        raise click.UsageError("Choose one: --watch prints for a person, and --json for a program.")
    with contextlib.suppress(KeyboardInterrupt):
        _try_again_and_again(names, file_with_cases, quiet=quiet, **given)
    click.echo()
    return 0


def _try_again_and_again(names: Sequence[str], other: Path | None, *, quiet: bool, **given: Any) -> None:
    """Try the cases after each change of a file, until an interrupt. Spark and this process stay."""
    file, values = given["file"], given["values"]
    named = [each for each in (file, values.file, values.secret_file) if each is not None]
    sys.dont_write_bytecode = True  # Python notices a changed file only by its whole second
    for changed in watch_cases(other or find_cases(file), file.absolute().parent, named):
        click.clear()
        if changed:
            others = f" and {len(changed) - 1:,} more" if len(changed) > 1 else ""
            click.echo(f"{time.strftime('%H:%M:%S')}  changed: {escape_line(changed[0])}{others}\n")
        forget_own_modules()
        try:
            _try_cases(names, other, quiet=quiet, json=False, **given)
        except Exception as error:  # the edge of a try: the next change may correct any error
            if is_interrupted(error):
                raise KeyboardInterrupt from error
            click.echo(without(list_secrets_to_mask(), _describe_error(error)))
        click.echo("\nWherry waits for a change. To end:  Ctrl-C")


def _describe_error(error: Exception) -> str:
    if isinstance(error, click.ClickException):
        return error.format_message()
    return str(error) if isinstance(error, WherryError) else f"Wherry met an unknown error: {summarise_error(error)}"


def _try_cases(names: Sequence[str], other: Path | None, *, quiet: bool, json: bool, **given: Any) -> int:
    began, definition, file = time.monotonic(), load_definition(**given), other or find_cases(given["file"])
    cases = choose_cases(load_cases(file), names)
    with show_work(definition.pipeline, f"trying {format_count(len(cases), 'case', 'cases')}", quiet=quiet):
        from runners.operations.run_cases import run_cases

        results = run_cases(definition, cases)
    seconds = time.monotonic() - began
    if json:
        facts = {"file": str(file), "cases": [result.json() for result in results]}
        click.echo(printing.as_json(facts))
    else:
        click.echo(format_results(results, file, seconds))
    return FAILED if any(result.problems for result in results) else 0


@command()
@with_definition
@select_option("--where", required=True, metavar="SQL", help="Find rows where this is true; columns as read.")
@time_option("--since", section=SELECTION, help="Read batches since 2026-01-31T06:00 (UTC).")
@with_quiet
@as_json
def find(where: str, since: datetime | None, quiet: bool, json: bool, **given: Any) -> None:
    """Find rows in files, tables and the DLQ.

    For example:  wherry find orders.yaml --where "id = 42"

    Reads delivered batches again. Says which stage filters or refuses a row, to which destinations it goes, and which
    have it. Searches whole tables. Writes nothing.
    """
    definition = load_definition(**given)
    with show_work(definition.pipeline, "reading the ledger", quiet=quiet) as say:
        rows = find_rows(definition, where=where, since=since, say=say)
    click.echo(printing.as_json(rows.json()) if json else with_file(str(rows), given["file"]))
