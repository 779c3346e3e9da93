"""The commands `wherry runs` and `wherry report`: which runs of a pipeline there were, and how each went."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from runners.command_line.given import InOrder, as_json, looked_at, variables_given, with_definition, with_variables

if TYPE_CHECKING:
    from origins.batch import JSON
    from runners.pipeline import Pipeline


@click.group(cls=InOrder)
def runs() -> None:
    """Show which runs there were, and how each went."""


@runs.command("list")
@with_definition
@click.option(
    "--status", type=click.Choice(["running", "succeeded", "failed", "stopped", "killed"]), help="Only those."
)
@click.option("--since", metavar="TIME", help="Only those that began then or later, as 2026-01-31T06:00 (UTC).")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="The newest so many.")
@click.option("--archived", is_flag=True, help="Also those that are older than run.history.")
@as_json
def list_runs(status: str | None, since: str | None, limit: int, archived: bool, json: bool, **given: Any) -> None:
    """List the newest runs.

    For example:  wherry runs list orders.yaml --status failed
    """
    from datetime import datetime, timezone

    from runners.command_line import printing

    try:
        moment = datetime.fromisoformat(since) if since else None
    except ValueError as error:
        said = f"expected a time such as 2026-01-31T06:00, got {since!r}"
        raise click.BadParameter(said, param_hint="--since") from error
    began = moment.replace(tzinfo=moment.tzinfo or timezone.utc).astimezone(timezone.utc) if moment else None
    found = looked_at(**given).runs(status=status or "", since=began, limit=limit, archived=archived)
    click.echo(printing.as_json(found) if json else printing.runs(found))


@runs.command("show")
@with_definition
@click.argument("run", default="")
@as_json
def show_run(run: str, json: bool, **given: Any) -> None:
    """Show the last run, or one by its name or by how that begins.

    For example:  wherry runs show orders.yaml 3f9a
    """
    from runners.command_line import printing

    found = _one(looked_at(**given), run, given["file"])
    click.echo(printing.as_json(found) if json else printing.one_run(found))


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.argument("run", default="")
@with_variables
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a field for this once.")
@click.option("--to", "place", type=click.Path(path_type=Path), help="The file; by default NAME-RUN.html, here.")
@click.option(
    "--index",
    "directory",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Of all definitions in DIR: pages of their newest runs, and an index; --to is the folder (reports).",
)
@click.pass_context
def report(
    ctx: click.Context, /, file: Path | None, run: str, place: Path | None, directory: Path | None, **given: Any
) -> None:
    """Write one HTML file about a run.

    For example:  wherry report orders.yaml 3f9a --to report.html

    RUN is the name of a run, or how it begins; by default the last one. The file needs nothing else, no network either.
    """
    from runners.reports.reports import Reports

    if (file is None) == (directory is None):
        raise click.UsageError("Name a definition, or with --index a directory of them.", ctx)
    if directory is not None:
        variables = variables_given(given["variables"], given["variable_file"])
        click.echo(str(Reports(place or Path("reports")).of_directory(directory, variables)))
        return
    pipeline = looked_at(file=file, **given)
    click.echo(str(Reports(place).of_run(pipeline, _one(pipeline, run, file))))


def _one(pipeline: Pipeline, run: str, file: object) -> Mapping[str, JSON]:
    """The run whose name begins so; the last one for no name at all."""
    from runners.errors import Refusal

    found = pipeline.runs(run=run, limit=2 if run else 1, report=True)
    if len(found) != 1:
        said = f"Several runs begin with {run!r}" if found else f"There is no run {run!r}" if run else "Nothing ran yet"
        raise Refusal(f"{said}.", hint=f"Which there are:  wherry runs list {file}")
    return found[0]
