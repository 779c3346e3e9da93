"""The commands that look at folders, runs and rows.

`wherry ls` looks at a folder. `runs`, `report` and `quality` look at runs. `preview`, `test` and `find` look at
rows.
"""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from runners.command_line import printing
from runners.command_line.help_sections import SELECTION, command, group, is_file, option, select_option
from runners.command_line.options import (
    COUNT,
    FAILED,
    PATH,
    WRONG,
    GivenValues,
    as_json,
    find_definition,
    is_interrupted,
    list_secrets_to_mask,
    load_definition,
    load_for_reading,
    split_words,
    time_option,
    with_definition,
    with_quiet,
    with_select,
    with_values,
    with_variables,
    with_wide,
)
from runners.model.text import escape_line, format_count, format_percent, summarise_error, table, with_file

if TYPE_CHECKING:
    from origins.batch import JSON
    from runners.pipeline import Pipeline


@command("ls")
@click.argument("directory", type=PATH, default=Path())
@with_select
@with_variables
@as_json
def list_folder(directory: Path, select: Sequence[str], values: GivenValues, json: bool) -> int:
    """List the definitions of a folder, with their last runs.

    For example:  wherry ls pipelines

    DIRECTORY is by default the current folder. A pipeline is listed after the pipelines whose tables it reads. Starts
    no Spark. Ends with 2 if a definition is broken.
    """
    from runners.command_line.folder import format_folder, read_folder
    from runners.operations.status import describe_pipelines

    folder = read_folder(directory, values)
    facts = describe_pipelines(folder.definitions, folder.graph, folder.graph.sort(folder.graph.select(select)))
    document = {"pipelines": facts, "broken": folder.broken}
    click.echo(printing.as_json(document) if json else format_folder(facts, folder.broken))
    return WRONG if folder.broken else 0


@group(default="list")
def runs() -> None:
    """List the runs of a pipeline, or show one.

    `wherry runs orders.yaml` means `wherry runs list orders.yaml`.
    """


@runs.command("list")
@with_definition
@select_option(
    "--status",
    type=click.Choice(["running", "succeeded", "failed", "stopped", "killed"]),
    metavar="STATUS",
    help="Show running, succeeded, failed, stopped or killed.",
)
@time_option("--since", section=SELECTION, help="Show runs since 2026-01-31T06:00 (UTC).")
@select_option("--limit", type=COUNT, default=20, metavar="N", help="Show the newest N; default: 20.")
@select_option("--archived", is_flag=True, help="Show runs older than run.history too.")
@as_json
def list_runs(status: str | None, since: datetime | None, limit: int, archived: bool, json: bool, **given: Any) -> None:
    """List the newest runs.

    For example:  wherry runs list orders.yaml --status failed
    """
    listed = load_for_reading(**given).runs(status=status or "", since=since, limit=limit, archived=archived)
    click.echo(printing.as_json({"runs": listed}) if json else printing.format_runs(listed))


@runs.command("show")
@partial(with_definition, rest="run")
@click.argument("run", default="")
@as_json
def show_run(run: str, json: bool, **given: Any) -> None:
    """Show one run, by default the last.

    For example:  wherry runs show orders.yaml 3f9a

    RUN is the name of a run, or its first letters.
    """
    facts = _find_run(load_for_reading(**given), run, given["file"])
    click.echo(printing.as_json(facts) if json else printing.format_run(facts))


@command()
@click.argument("file", type=PATH, required=False)
@click.argument("run", default="")
@option("--to", "place", type=PATH, metavar="PLACE", help="Write here; default: NAME-RUN.html.")
@option("--index", "directory", type=PATH, metavar="DIR", help="Report on all definitions in DIR.")
@with_values
@as_json
@click.pass_context
def report(
    ctx: click.Context,
    /,
    file: Path | None,
    run: str,
    place: Path | None,
    directory: Path | None,
    json: bool,
    **given: Any,
) -> None:
    """Write one HTML file about a run.

    For example:  wherry report orders.yaml 3f9a --to report.html

    RUN is the name of a run, or its first letters; default: the last run. The page needs no network. With --index,
    PLACE is a folder, by default reports; it gets an index and a page for each of the newest runs.
    """
    from runners.operations.reports.write_html import write_directory, write_run

    file, run = split_words(file, run, is_file)
    if file is not None and directory is not None:
        raise click.UsageError("Name a definition, or with --index a directory of them.", ctx)
    if directory is not None:
        variables: Mapping[str, str] = given["values"].read_variables()
        secrets = list_secrets_to_mask()
        page = write_directory(directory, place or Path("reports"), variables=variables, note_secrets=secrets.update)
    else:
        file = file or find_definition()
        pipeline = load_for_reading(file=file, **given)
        page = write_run(pipeline, _find_run(pipeline, run, file), place)
    click.echo(printing.as_json({"file": str(page)}) if json else str(page))


def _find_run(pipeline: Pipeline, run: str, file: object) -> Mapping[str, JSON]:
    """Return the run whose name begins with this text, or the last run if the text is empty."""
    from runners.model.errors import Refusal

    listed = pipeline.runs(run=run, limit=2 if run else 1, report=True)
    if len(listed) != 1:
        message = f"Several runs begin with {run!r}" if listed else f"There is no run {run!r}" if run else "No run yet"
        raise Refusal(f"{message}.", hint=f"See all runs:  wherry runs list {file}")
    return listed[0]


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
    from runners.command_line.carrying import show_work
    from runners.operations.cases import check_extensible
    from runners.operations.preview import format_preview
    from runners.operations.trial import preview

    definition, saved = load_definition(**given), 0
    how: dict[str, Any] = {"rows": rows, "shown": shown, "lane": lane, "from_beginning": from_beginning}
    if cases is not None:
        check_extensible(cases)
    with show_work(definition.pipeline, "trying the waiting rows", quiet=quiet):
        if cases is None:
            previewed = preview(definition, **how)
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
    from runners.operations.cases import find_cases

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
    from runners.command_line.carrying import show_work
    from runners.operations.compare import compare_definitions

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
    from origins.functions import forget_own_modules
    from runners.model.masking import without
    from runners.operations.cases import find_cases, watch_cases

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
    from origins.errors import WherryError

    if isinstance(error, click.ClickException):
        return error.format_message()
    return str(error) if isinstance(error, WherryError) else f"Wherry met an unknown error: {summarise_error(error)}"


def _try_cases(names: Sequence[str], other: Path | None, *, quiet: bool, json: bool, **given: Any) -> int:
    from runners.command_line.carrying import show_work
    from runners.operations.cases import choose_cases, find_cases, format_results, load_cases

    began, definition, file = time.monotonic(), load_definition(**given), other or find_cases(given["file"])
    cases = choose_cases(load_cases(file), names)
    with show_work(definition.pipeline, f"trying {format_count(len(cases), 'case', 'cases')}", quiet=quiet):
        from runners.operations.case_trial import run_cases

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
    from runners.command_line.carrying import show_work
    from runners.operations.find_rows import find_rows

    definition = load_definition(**given)
    with show_work(definition.pipeline, "reading the ledger", quiet=quiet) as say:
        rows = find_rows(definition, where=where, since=since, say=say)
    click.echo(printing.as_json(rows.json()) if json else with_file(str(rows), given["file"]))


@command()
@with_definition
@option("--limit", type=COUNT, default=8, metavar="N", help="Show the newest N runs; default: 8.")
@as_json
def quality(limit: int, json: bool, **given: Any) -> None:
    """Show which share passed each rule, run by run.

    For example:  wherry quality orders.yaml

    A rule about rows has a share of rows, and a rule about batches a share of batches.
    """
    from runners.model.run_report import compute_trends

    runs = load_for_reading(**given).runs(limit=limit, report=True)
    trends, names = compute_trends(runs), [run["run"] for run in reversed(runs)]
    click.echo(printing.as_json({"rules": trends}) if json else format_trends(trends, names))


def format_trends(trends: Sequence[Mapping[str, JSON]], runs: Sequence[str]) -> str:
    """Return each rule, and below it its result in each run that checked a rule, the newest last."""
    if not trends:
        return "No run has checked expectations yet. Add a stage `expect` to the definition."
    asked = [run for run in runs if any(share["run"] == run for rule in trends for share in rule["runs"])]
    rows = [["", _format_cells([run[:8] for run in asked])]]
    for rule in trends:
        fared = {share["run"]: format_percent(share) for share in rule["runs"]}
        rows += [[rule["stage"], rule["rule"]], ["", _format_cells([fared.get(run, "-") for run in asked])]]
    return table(["stage", "rule, and the share that passed it by run, the newest last"], rows)


def _format_cells(cells: Sequence[str]) -> str:
    return " ".join(f"{cell:<8}" for cell in cells)
