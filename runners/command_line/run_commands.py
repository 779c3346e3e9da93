"""The commands `wherry runs` and `wherry report`: which runs of a pipeline there were, and how each went."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from runners.command_line.help_sections import SELECTION, command, group, option
from runners.command_line.options import (
    as_json,
    find_definition,
    list_secrets_to_mask,
    load_for_reading,
    merge_variables,
    parse_since,
    split_words,
    with_definition,
    with_definition_and,
    with_values,
)

if TYPE_CHECKING:
    from origins.batch import JSON
    from runners.pipeline import Pipeline


@group(default="list")
def runs() -> None:
    """List the runs of a pipeline, or show one.

    `wherry runs orders.yaml` means `wherry runs list orders.yaml`.
    """


@runs.command("list")
@with_definition
@option(
    "--status",
    section=SELECTION,
    type=click.Choice(["running", "succeeded", "failed", "stopped", "killed"]),
    metavar="STATUS",
    help="Show running, succeeded, failed, stopped or killed.",
)
@option("--since", section=SELECTION, metavar="TIME", help="Show runs since 2026-01-31T06:00 (UTC).")
@option(
    "--limit",
    section=SELECTION,
    type=click.IntRange(min=1),
    default=20,
    metavar="N",
    help="Show the newest N; default: 20.",
)
@option("--archived", section=SELECTION, is_flag=True, help="Show runs older than run.history too.")
@as_json
def list_runs(status: str | None, since: str | None, limit: int, archived: bool, json: bool, **given: Any) -> None:
    """List the newest runs.

    For example:  wherry runs list orders.yaml --status failed
    """
    from runners.command_line import printing

    began = parse_since(since)
    found = load_for_reading(**given).runs(status=status or "", since=began, limit=limit, archived=archived)
    click.echo(printing.as_json({"runs": found}) if json else printing.format_runs(found))


@runs.command("show")
@with_definition_and("run")
@click.argument("run", default="")
@as_json
def show_run(run: str, json: bool, **given: Any) -> None:
    """Show the last run, or the one whose name begins like this.

    For example:  wherry runs show orders.yaml 3f9a
    """
    from runners.command_line import printing

    found = _find_run(load_for_reading(**given), run, given["file"])
    click.echo(printing.as_json(found) if json else printing.format_run(found))


@command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.argument("run", default="")
@option("--to", "place", type=click.Path(path_type=Path), metavar="PLACE", help="Write here; default: NAME-RUN.html.")
@option(
    "--index", "directory", type=click.Path(path_type=Path), metavar="DIR", help="Report on all definitions in DIR."
)
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

    RUN is the name of a run or its first letters, by default the last run. The page needs no network. With --index,
    PLACE is a folder, by default reports; it gets an index and a page for each of the newest runs.
    """
    from runners.command_line import printing
    from runners.reports.write_html import ReportWriter

    file, run = split_words(file, run)
    if file is not None and directory is not None:
        raise click.UsageError("Name a definition, or with --index a directory of them.", ctx)
    if directory is not None:
        variables = merge_variables(given["variables"], given["variable_file"])
        secrets = list_secrets_to_mask()
        page = ReportWriter(place or Path("reports")).write_directory(directory, variables, secrets.update)
    else:
        file = file or find_definition()
        pipeline = load_for_reading(file=file, **given)
        page = ReportWriter(place).write_run(pipeline, _find_run(pipeline, run, file))
    click.echo(printing.as_json({"file": str(page)}) if json else str(page))


def _find_run(pipeline: Pipeline, run: str, file: object) -> Mapping[str, JSON]:
    """The run whose name begins so; the last one for no name at all."""
    from runners.model.errors import Refusal

    found = pipeline.runs(run=run, limit=2 if run else 1, report=True)
    if len(found) != 1:
        message = f"Several runs begin with {run!r}" if found else f"There is no run {run!r}" if run else "No run yet"
        raise Refusal(f"{message}.", hint=f"See all runs:  wherry runs list {file}")
    return found[0]
