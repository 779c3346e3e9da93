"""The commands `wherry runs` and `wherry report`: which runs of a pipeline there were, and how each went."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from runners.given import InOrder, as_json, looked_at, with_definition

if TYPE_CHECKING:
    from origins.batch import JSON
    from runners.pipeline import Pipeline


@click.group(cls=InOrder)
def runs() -> None:
    """Show which runs there were, and how each went."""


@runs.command("list")
@with_definition
@click.option("--status", type=click.Choice(["running", "succeeded", "failed", "stopped"]), help="Only those.")
@click.option("--since", metavar="TIME", help="Only those that began then or later, as 2026-01-31T06:00 (UTC).")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="The newest so many.")
@as_json
def list_runs(status: str | None, since: str | None, limit: int, json: bool, **given: Any) -> None:
    """List the newest runs.

    For example:  wherry runs list orders.yaml --status failed
    """
    from datetime import datetime, timezone

    from runners import printing

    try:
        moment = datetime.fromisoformat(since) if since else None
    except ValueError as error:
        said = f"expected a time such as 2026-01-31T06:00, got {since!r}"
        raise click.BadParameter(said, param_hint="--since") from error
    began = moment.replace(tzinfo=moment.tzinfo or timezone.utc).astimezone(timezone.utc) if moment else None
    found = looked_at(**given).runs(status=status or "", since=began, limit=limit)
    click.echo(printing.as_json(found) if json else printing.runs(found))


@runs.command("show")
@with_definition
@click.argument("run")
@as_json
def show_run(run: str, json: bool, **given: Any) -> None:
    """Show one run by its name, or by how that begins.

    For example:  wherry runs show orders.yaml 3f9a
    """
    from runners import printing

    found = _one(looked_at(**given), run, given["file"])
    click.echo(printing.as_json(found) if json else printing.one_run(found))


@click.command()
@with_definition
@click.argument("run", default="")
@click.option("--to", "place", type=click.Path(path_type=Path), help="The file; by default NAME-RUN.html, here.")
def report(run: str, place: Path | None, **given: Any) -> None:
    """Write one HTML file about a run.

    For example:  wherry report orders.yaml 3f9a --to report.html

    RUN is the name of a run, or how it begins; by default the last one. The file needs nothing else, no network either.
    """
    from runners.errors import Refusal
    from runners.report_page import page

    pipeline = looked_at(**given)
    found = _one(pipeline, run, given["file"])
    file = place or Path(f"{pipeline.name}-{found['run'][:8]}.html")
    try:
        file.write_text(page(found, _definition(pipeline, found)), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise Refusal(f"{file} cannot be written: {error.strerror}.", hint="Name another file:  --to FILE") from error
    click.echo(str(file))


def _one(pipeline: Pipeline, run: str, file: object) -> Mapping[str, JSON]:
    """The run whose name begins so; the last one for no name at all."""
    from runners.errors import Refusal

    found = pipeline.runs(run=run, limit=2 if run else 1, report=True)
    if len(found) != 1:
        said = f"Several runs begin with {run!r}" if found else f"There is no run {run!r}" if run else "Nothing ran yet"
        raise Refusal(f"{said}.", hint=f"Which there are:  wherry runs list {file}")
    return found[0]


def _definition(pipeline: Pipeline, run: Mapping[str, JSON]) -> JSON:
    """The definition that the run ran, if it is the last that the ledger was opened with."""
    from json import loads

    from runners.definition import of
    from runners.journal import Journal
    from runners.place import Place

    opened = Journal(Place.of(of(pipeline).pipeline).ledger(None)).state.opened
    return loads(opened["definition"]) if opened.get("hash") == run["definition"] else None
