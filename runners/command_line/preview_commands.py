"""The commands that look at rows: `wherry preview` at those that wait, `find` at chosen ones, `expect` at some for a
suite, `quality` at the past."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from runners.command_line.help_sections import SELECTION, command, group, option
from runners.command_line.options import (
    as_json,
    load_definition,
    load_for_reading,
    parse_moment,
    with_definition,
    with_wide,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from origins.batch import JSON
    from runners.definitions.definition import Definition


@command()
@with_definition
@option("--rows", section=SELECTION, type=click.IntRange(min=1), metavar="N", help="Take the first N rows only.")
@option("--lane", section=SELECTION, metavar="LANE", help="Take this lane; default: the one that failed.")
@option("--from-beginning", section=SELECTION, is_flag=True, help="Take the first batch, not the next.")
@option("--shown", type=click.IntRange(min=1), default=3, metavar="N", help="Show N rows of each kind; default: 3.")
@with_wide
@as_json
def preview(
    rows: int | None, shown: int, lane: str | None, from_beginning: bool, wide: bool, json: bool, **given: Any
) -> None:
    """Show what the stages do with the next batch.

    For example:  wherry preview orders.yaml --set dlq.window=0

    Shows rows as they leave each stage, and filtered or refused rows as they reached it. Writes nothing, and moves no
    offset.
    """
    from runners.command_line import printing
    from runners.command_line.carrying import show_progress
    from runners.model.masking import hide_in_errors
    from runners.operations.preview import format_preview
    from runners.operations.trial import preview

    definition = load_definition(**given)
    waiting = show_progress(definition.pipeline, doing="trying the waiting rows")
    with hide_in_errors(definition.pipeline.secrets), waiting:
        said = preview(definition, rows=rows, shown=shown, lane=lane, from_beginning=from_beginning)
    if json:
        click.echo(printing.as_json(said.json()))
    else:
        whole = format_preview(said, wide=True)
        click.echo(whole if wide else printing.suggest_wide(format_preview(said), whole))


@command()
@with_definition
@option("--where", section=SELECTION, required=True, metavar="SQL", help="Find rows as read for which this is true.")
@option("--since", section=SELECTION, metavar="TIME", help="Read batches since 2026-01-31T06:00 (UTC).")
@as_json
def find(where: str, since: str | None, json: bool, **given: Any) -> None:
    """Find rows: in files, tables and the DLQ.

    For example:  wherry find orders.yaml --where "id = 42"

    Reads settled batches again, and says which stage filtered or rejected a row, which destinations want it, and which
    have it. Tables are searched whole. Writes nothing.
    """
    from rich.console import Console

    from runners.command_line import printing
    from runners.model.masking import hide_in_errors
    from runners.operations.find_rows import find_rows

    began = parse_moment(since, "--since")
    definition = load_definition(**given)
    waiting = Console(stderr=True).status(f"{definition.pipeline.name}: reading the ledger")
    with hide_in_errors(definition.pipeline.secrets), waiting:
        found = find_rows(
            definition,
            where=where,
            since=began,
            say=lambda doing: waiting.update(f"{definition.pipeline.name}: {doing}"),
        )
    click.echo(printing.as_json(found.json()) if json else str(found))


@group(default="suggest")
def expect() -> None:
    """Suggest rules for the stage `expect`.

    `wherry expect orders.yaml` means `wherry expect suggest orders.yaml`.
    """


@expect.command()
@with_definition
@option("--table", section=SELECTION, metavar="NAME", help="Look at a table of the catalog.")
@option("--path", section=SELECTION, metavar="PATH", help="Look at the Delta table in this folder.")
@option("--to", "place", type=click.Path(path_type=Path), metavar="FILE", help="Write to FILE; default: print it.")
@as_json
def suggest(table: str | None, path: str | None, place: Path | None, json: bool, **given: Any) -> None:
    """Look at the next batch or a table, and suggest rules.

    For example:  wherry expect suggest orders.yaml --to rules.json

    Looks at rows as they leave the stages of the pipeline, in one pass of Spark, and delivers nothing. A rule that one
    batch cannot prove is a warning. Read the rules, change them, and make those critical that must hold.
    """
    from runners.command_line import printing
    from runners.model.errors import Refusal
    from runners.operations.profile import profile_rows

    if table and path:
        raise click.UsageError("Name a --table or a --path.")
    definition = load_definition(**given)
    rows = _read_rows(definition, table, path)
    if rows is None:
        raise Refusal("No rows wait from which rules could be suggested.", hint="Name a table:  --path tables/orders")
    try:
        suite = profile_rows(rows, definition.pipeline.name)
    except ValueError as error:
        raise Refusal(
            f"Wherry can suggest nothing: {error}.", hint="Choose another table:  --path tables/orders"
        ) from error
    try:
        if place is not None:
            place.write_text(printing.dump(suite) + "\n", encoding="utf-8")
    except OSError as error:
        raise Refusal(
            f"{place} cannot be written: {error.strerror}.", hint="Choose another file:  --to FILE"
        ) from error
    if json:
        click.echo(printing.as_json({"suite": suite, "file": str(place) if place else None}))
    elif place is None:
        click.echo(printing.dump(suite))
    else:
        click.echo(f"{place}\n\nin the definition   stages: [{{expect: {{suite: {place.name}}}}}]")


def _read_rows(definition: Definition, table: str | None, path: str | None) -> DataFrame | None:
    from origins.names import SCHEME
    from runners.operations.trial import read_next_rows
    from runners.spark.session import make_own_session, obtain
    from stages.expect.expect import Expect

    if not table and not path:
        return read_next_rows(definition, without=Expect)
    pipeline = definition.pipeline
    spark = make_own_session(obtain(pipeline.spark), pipeline.run_options.time_zone)
    if table:
        return spark.read.table(table)
    return spark.read.format("delta").load(str(path) if SCHEME.match(str(path)) else os.path.abspath(str(path)))


@command()
@with_definition
@option("--limit", type=click.IntRange(min=1), default=8, metavar="N", help="Show the newest N runs; default: 8.")
@as_json
def quality(limit: int, json: bool, **given: Any) -> None:
    """Show which share passed each rule, run by run.

    For example:  wherry quality orders.yaml

    A rule about rows has a share of rows, and a rule about batches a share of batches.
    """
    from runners.command_line import printing
    from runners.model.run_report import compute_trends

    runs = load_for_reading(**given).runs(limit=limit, report=True)
    found = compute_trends(runs)
    click.echo(
        printing.as_json({"rules": found}) if json else format_trends(found, [run["run"] for run in reversed(runs)])
    )


def format_trends(found: Sequence[Mapping[str, JSON]], runs: Sequence[str]) -> str:
    """Each rule, and below it how it fared in each run that asked one, the newest last."""
    from runners.model.text import format_percent, table

    if not found:
        return "No run has checked expectations yet. Add a stage `expect` to the definition."
    asked = [run for run in runs if any(each["run"] == run for rule in found for each in rule["runs"])]
    rows = [["", _format_cells([run[:8] for run in asked])]]
    for rule in found:
        fared = {each["run"]: format_percent(each) for each in rule["runs"]}
        rows += [[rule["stage"], rule["rule"]], ["", _format_cells([fared.get(run, "-") for run in asked])]]
    return table(["stage", "rule, and the share that passed it by run, the newest last"], rows)


def _format_cells(cells: Sequence[str]) -> str:
    return " ".join(f"{cell:<8}" for cell in cells)
