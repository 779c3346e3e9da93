"""The commands that begin a definition, `demo` and `init`, and those that try one and write nothing."""

from __future__ import annotations

import contextlib
import shlex
import shutil
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
from runners.command_line.carrying import show_progress, show_work
from runners.command_line.folder import validate_folder
from runners.command_line.help_sections import SELECTION, command, option, select_option
from runners.command_line.options import (
    COUNT,
    PATH,
    find_command,
    is_terminal,
    list_secrets_to_mask,
    load_definition,
    time_option,
    with_definition,
    with_folder,
    with_wide,
)
from runners.command_line.process_end import BY_STATUS, FAILED, is_interrupted
from runners.definitions.first_pipeline import begin, make
from runners.definitions.proposal import collect_facts, propose, summarise_findings
from runners.listeners.log_lines import complain
from runners.listeners.run_progress import RunProgress
from runners.model.masking import hide_in_errors, without
from runners.model.text import escape_line, format_count, shorten_paths, summarise_error, table, with_file
from runners.operations import printing
from runners.operations.cases import check_extensible, choose_cases, find_cases, format_results, load_cases, watch_cases
from runners.operations.compare import compare_definitions
from runners.operations.find_rows import find_rows
from runners.operations.preview import format_preview
from runners.operations.tracer import preview as preview_waiting
from runners.operations.validate import analyse, explain
from runners.pipeline import Pipeline


@command(reads_definitions=False, shows_progress=True)
@click.argument("directory", type=PATH, default=Path("wherry-demo"))
def demo(directory: Path, quiet: bool, json: bool) -> int:
    """Make a folder of orders, some of them bad, and process them.

    For example:  wherry demo

    The demo writes all its files to DIRECTORY, by default wherry-demo.
    """
    file = make(directory)
    pipeline = Pipeline.load(file)
    batches = sum(1 for _ in (directory / "landing" / "orders").iterdir())
    with show_progress(RunProgress(pipeline.name, batches=batches), pipeline.secrets, quiet=quiet) as listeners:
        report = pipeline.run(check=False, listeners=listeners)
    if report.error is not None:
        complain(printing.format_failure(report, str(file)), code=report.error.code)
    facts = {**report.json(), "file": str(file)}
    click.echo(printing.as_json(facts) if json else printing.format_demo(report, pipeline, file, _list_path_steps()))
    return BY_STATUS[report.status]


@command(reads_definitions=False)
@click.argument("directory", type=PATH, required=False)
@option("--name", default="", metavar="NAME", help="Name the pipeline; default: DIRECTORY.")
@option(
    "--from",
    "own",
    type=click.Path(path_type=Path, exists=True),
    metavar="PATH",
    help="Read your own file, or a folder of files.",
)
@option("--databricks", is_flag=True, help="Write an asset bundle and a notebook.")
@option(
    "--compute",
    type=click.Choice(["serverless", "classic"]),
    metavar="KIND",
    help="Choose classic in place of serverless compute.",
)
def init(
    directory: Path | None, name: str, own: Path | None, databricks: bool, compute: str | None, json: bool
) -> None:
    """Write a first definition, sample rows and test cases.

    For example:  wherry init shop

    Without DIRECTORY it asks for the name of the pipeline. With --from, it looks at the head of every file, says what
    it found, and writes a definition that reads them.

    --databricks writes a bundle and a notebook. They were not tried in a workspace yet.
    """
    if own is not None and databricks:
        raise click.UsageError("Choose one: --from reads files of this machine, --databricks files of a volume.")
    if compute and not databricks:
        raise click.UsageError("--compute is for --databricks.")
    if directory is None:
        if not name:
            name = click.prompt("Name of the pipeline", default="orders", err=True) if is_terminal() else "orders"
        directory = Path(name)
    proposal = propose(own) if own is not None else None
    files = begin(
        directory, name, example="databricks" if databricks else "orders", compute=compute or "", own=proposal
    )
    definition = next(iter(files))
    made = [(str(file), what) for file, what in files.items()]
    rows = _list_databricks_steps(directory) if databricks else _list_local_steps(definition)
    if json:
        written = [{"file": file, "what": what} for file, what in made]
        coming = [{"command": typed, "what": what} for typed, what in rows]
        found = {} if proposal is None else {"found": collect_facts(proposal)}
        click.echo(printing.as_json({"files": written, "next": coming, **found}))
    else:
        if proposal is not None:
            click.echo("\n".join([*map(escape_line, summarise_findings(proposal)), ""]))
        click.echo(f"{table(['written', ''], made)}\n\n{table(['type next', ''], rows)}")


def _list_local_steps(definition: Path) -> list[list[str]]:
    file = shlex.quote(str(definition))
    return [
        *_list_path_steps(),
        [f"wherry preview {file}", "shows the outcome of each row; writes nothing"],
        *([[f"wherry test {file}", "tries the cases; writes nothing"]] if find_cases(definition).exists() else []),
        [f"wherry run {file}", "processes all new rows"],
        [f"wherry dlq show {file}", "shows the refused rows, and why"],
    ]


def _list_path_steps() -> list[list[str]]:
    """Return what makes a shell find `wherry`; empty if it finds it already."""
    if shutil.which("wherry"):
        return []
    activate, command = Path(sys.executable).with_name("activate"), find_command()
    typed = f"alias wherry={shlex.quote(command)}" if command != "wherry" else ""
    if activate.exists():
        typed = f"source {shlex.quote(shorten_paths(str(activate)))}"
    return [[typed, "lets this shell find wherry"]] if typed else []


def _list_databricks_steps(directory: Path) -> list[list[str]]:
    return [
        [f"cd {shlex.quote(str(directory))}", ""],
        ["databricks bundle deploy", "makes a copy for you: a schema, a volume and two jobs"],
        ["databricks bundle summary", "shows their names"],
        ["databricks fs cp landing/sample.csv dbfs:VOLUME", "gives the volume some rows; write its path for VOLUME"],
        ["databricks bundle run by_hand", "runs the notebook"],
        ["databricks bundle deploy -t prod", "makes the real one, whose job begins when files arrive"],
    ]


@command()
@with_definition
@option("--spark", "with_spark", is_flag=True, help="Check types and SQL too; starts Spark.")
@with_folder
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


@command(shows_progress=True, over_server=False)
@with_definition
@select_option("--rows", type=COUNT, metavar="N", help="Take the first N rows only.")
@select_option("--lane", metavar="LANE", help="Take this lane; default: the one that failed.")
@select_option("--from-beginning", is_flag=True, help="Take the first batch, not the next.")
@option("--shown", type=COUNT, default=3, metavar="N", help="Show N rows of each kind; default: 3.")
@option("--save-case", "cases", type=PATH, metavar="FILE", help="Add the rows to FILE, as a case for `wherry test`.")
@with_wide
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


@command(shows_progress=True, over_server=False)
@partial(with_definition, rest="new")
@click.argument("new", metavar="NEW", type=PATH, required=False)
@select_option("--batches", type=COUNT, default=1, metavar="N", help="Try N batches; default: 1.")
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


@command("test", shows_progress=True)
@with_definition
@select_option("--case", "names", multiple=True, metavar="NAME", help="Try this case; may be repeated.")
@option(
    "--cases", "file_with_cases", type=PATH, metavar="PATH", help="Try the cases in this file; default: FILE.test.yaml."
)
@option("--watch", is_flag=True, help="Try them again whenever a file changes; Ctrl-C ends it.")
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
    named = [each for each in (file, values.variable_file, values.secret_file) if each is not None]
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


@command(shows_progress=True, over_server=False)
@with_definition
@select_option("--where", required=True, metavar="SQL", help="Find rows where this is true; columns as read.")
@time_option("--since", section=SELECTION, help="Read batches since 2026-01-31T06:00 (UTC).")
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
