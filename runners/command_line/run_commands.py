"""The commands `wherry ls`, `runs` and `report`: the pipelines of a folder, and how their runs went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from runners.command_line import printing
from runners.command_line.help_sections import SELECTION, command, group, option
from runners.command_line.options import (
    WRONG,
    GivenValues,
    as_json,
    find_definition,
    list_secrets_to_mask,
    load_for_reading,
    split_words,
    time_option,
    with_definition,
    with_select,
    with_values,
    with_variables,
)

if TYPE_CHECKING:
    from origins.batch import JSON
    from runners.pipeline import Pipeline


@command("ls")
@click.argument("directory", type=click.Path(path_type=Path), default=Path())
@with_select
@with_variables
@as_json
def list_folder(directory: Path, select: Sequence[str], values: GivenValues, json: bool) -> int:
    """List the definitions of a folder, with their last runs.

    For example:  wherry ls pipelines

    DIRECTORY is this one by default. A pipeline stands below those whose tables it reads. Starts no Spark. Ends with 2
    if a definition is broken.
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
@option(
    "--status",
    section=SELECTION,
    type=click.Choice(["running", "succeeded", "failed", "stopped", "killed"]),
    metavar="STATUS",
    help="Show running, succeeded, failed, stopped or killed.",
)
@time_option("--since", section=SELECTION, help="Show runs since 2026-01-31T06:00 (UTC).")
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
def list_runs(status: str | None, since: datetime | None, limit: int, archived: bool, json: bool, **given: Any) -> None:
    """List the newest runs.

    For example:  wherry runs list orders.yaml --status failed
    """
    found = load_for_reading(**given).runs(status=status or "", since=since, limit=limit, archived=archived)
    click.echo(printing.as_json({"runs": found}) if json else printing.format_runs(found))


@runs.command("show")
@partial(with_definition, rest="run")
@click.argument("run", default="")
@as_json
def show_run(run: str, json: bool, **given: Any) -> None:
    """Show the last run, or the one whose name begins like this.

    For example:  wherry runs show orders.yaml 3f9a
    """
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
    from runners.reports.write_html import ReportWriter

    file, run = split_words(file, run)
    if file is not None and directory is not None:
        raise click.UsageError("Name a definition, or with --index a directory of them.", ctx)
    if directory is not None:
        variables: Mapping[str, str] = given["values"].read_variables()
        page = ReportWriter(place).write_directory(directory, variables, list_secrets_to_mask().update)
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
