"""The commands `wherry runs`: which runs of a pipeline there were, and how each went."""

from __future__ import annotations

from typing import Any

import click

from runners.given import InOrder, as_json, looked_at, with_definition


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
    from runners.errors import Refusal

    found = looked_at(**given).runs(run=run, limit=2, report=True)
    if len(found) != 1:
        said = "Several runs begin with" if found else "There is no run"
        raise Refusal(f"{said} {run!r}.", hint=f"Their names:  wherry runs list {given['file']}")
    click.echo(printing.as_json(found[0]) if json else printing.one_run(found[0]))
