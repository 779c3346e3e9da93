"""The command `wherry quality`: how the rules of a pipeline fared from run to run."""

from __future__ import annotations

from typing import Any

import click

from runners.command_line.given import as_json, looked_at, with_definition


@click.command()
@with_definition
@click.option("--limit", type=click.IntRange(min=1), default=8, show_default=True, help="The newest so many runs.")
@as_json
def quality(limit: int, json: bool, **given: Any) -> None:
    """Show for each rule which share passed it, run by run.

    For example:  wherry quality orders.yaml

    The share is of rows where a rule is about rows, and of batches where it is about batches.
    """
    from runners.command_line import printing
    from runners.command_line.printing_quality import trend_table
    from runners.quality import trends

    runs = looked_at(**given).runs(limit=limit, report=True)
    found = trends(runs)
    click.echo(printing.as_json(found) if json else trend_table(found, [run["run"] for run in reversed(runs)]))
