"""The command `wherry preview`: what would become of the rows that wait."""

from __future__ import annotations

from typing import Any

import click

from runners.command_line.given import as_json, loaded, with_definition


@click.command()
@with_definition
@click.option(
    "--rows", type=click.IntRange(min=1), help="Only the first so many rows, as if they were all of the batch."
)
@click.option(
    "--shown", type=click.IntRange(min=1), default=3, show_default=True, help="How many rows of each kind you see."
)
@click.option("--lane", help="The lane to look at; by default the one that failed, or the first that has something.")
@click.option("--from-beginning", is_flag=True, help="As if nothing had been carried yet.")
@as_json
def preview(rows: int | None, shown: int, lane: str | None, from_beginning: bool, json: bool, **given: Any) -> None:
    """Show what would become of the next batch, stage by stage.

    For example:  wherry preview orders.yaml --set dlq.window=0

    Rows are shown as they leave each stage; filtered and refused ones as they came to it. Nothing is written, and no
    offset moves.
    """
    from rich.console import Console

    from runners.command_line import printing
    from runners.definitions.secrets import hidden
    from runners.previews.previews import preview

    definition = loaded(**given)
    waiting = Console(stderr=True).status(f"{definition.pipeline.name}: trying out what waits")
    with hidden(definition.pipeline.secrets), waiting:
        said = preview(definition, rows=rows, shown=shown, lane=lane, from_beginning=from_beginning)
    click.echo(printing.as_json(said.json()) if json else str(said))
