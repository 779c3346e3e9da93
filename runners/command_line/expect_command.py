"""The command `wherry expect`: a suite to start from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from runners.command_line.given import InOrder, loaded, with_definition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from runners.definitions.definition import Definition


@click.group(cls=InOrder)
def expect() -> None:
    """Suites of expectations."""


@expect.command()
@with_definition
@click.option("--table", help="Look at this table of the catalog in place of the next batch.")
@click.option("--path", help="Look at the Delta table at this place in place of the next batch.")
@click.option("--to", "place", type=click.Path(path_type=Path), help="The file; by default it is printed.")
def suggest(table: str | None, path: str | None, place: Path | None, **given: Any) -> None:
    """Look at the next batch, and write a suite that holds of it.

    For example:  wherry expect suggest orders.yaml --to rules.json

    Rows are looked at as they leave the pipeline's stages, in one pass of Spark; nothing is carried. What one batch
    cannot tell for all is a warning: read it, change it, and make critical what must hold.
    """
    from runners.command_line import printing
    from runners.errors import Refusal
    from runners.profile import profiled

    if table and path:
        raise click.UsageError("Name a --table or a --path.")
    definition = loaded(**given)
    rows = _rows(definition, table, path)
    if rows is None:
        raise Refusal("Nothing waits to be looked at.", hint="Name a table:  --path tables/orders")
    try:
        suite = printing.as_json(profiled(rows, definition.pipeline.name))
    except ValueError as error:
        raise Refusal(
            f"Nothing can be suggested: {error}.", hint="Name another table:  --path tables/orders"
        ) from error
    if place is None:
        click.echo(suite)
        return
    try:
        place.write_text(suite + "\n", encoding="utf-8")
    except OSError as error:
        raise Refusal(f"{place} cannot be written: {error.strerror}.", hint="Name another file by --to.") from error
    click.echo(f"{place}\n\nin the definition   stages: [{{expect: {{suite: {place.name}}}}}]")


def _rows(definition: Definition, table: str | None, path: str | None) -> DataFrame | None:
    from origins.names import SCHEME
    from runners.previews.previews import next_rows
    from runners.session import obtain, own
    from stages.expect import Expect

    if not table and not path:
        return next_rows(definition, without=Expect)
    pipeline = definition.pipeline
    spark = own(obtain(pipeline.spark.conf, pipeline.spark.packages), pipeline.run_options.time_zone)
    if table:
        return spark.read.table(table)
    return spark.read.format("delta").load(str(path) if SCHEME.match(str(path)) else os.path.abspath(str(path)))
