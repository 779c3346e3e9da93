"""The commands `wherry offsets`: how far each lane is, and moving it by hand."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from runners.command_line.given import InOrder, as_json, looked_at, moves, with_definition

if TYPE_CHECKING:
    from runners.offsets import Move
    from runners.pipeline import Pipeline


@click.group(cls=InOrder)
def offsets() -> None:
    """Show how far each lane is, or move it by hand."""


@offsets.command("show")
@with_definition
@as_json
def show_offsets(json: bool, **given: Any) -> None:
    """Show how far each lane is, and what is open.

    For example:  wherry offsets show orders.yaml
    """
    from runners.command_line import printing
    from runners.offsets import show

    facts = show(looked_at(**given))
    click.echo(printing.as_json(facts) if json else printing.offsets(facts))


@offsets.command("set")
@with_definition
@click.option("--lane", required=True, help="The lane.")
@click.option("--offset", required=True, metavar="JSON", help="Its new offset, as `offsets show --json` writes one.")
@moves
@as_json
def set_offset(lane: str, offset: str, reason: str, yes: bool, json: bool, **given: Any) -> None:
    """Set one lane to an offset.

    For example:  wherry offsets set orders.yaml --lane 0 --offset 500 --reason "skip the test orders"
    """
    from json import JSONDecodeError, loads

    from runners.offsets import plan_set

    try:
        parsed = loads(offset)
    except JSONDecodeError as error:
        raise click.BadParameter(f"expected JSON, got {offset!r}: {error.msg}", param_hint="--offset") from error
    pipeline = looked_at(**given)
    move_offsets(pipeline, plan_set(pipeline, lane, parsed), reason=reason, yes=yes, json=json, file=str(given["file"]))


@offsets.command("rewind")
@with_definition
@click.option("--batches", type=click.IntRange(min=1), help="Back by so many batches in every lane.")
@click.option("--to", "moment", metavar="TIME", help="Back to where it was then, as 2026-01-31T06:00 (UTC).")
@moves
@as_json
def rewind_offsets(batches: int | None, moment: str | None, reason: str, yes: bool, json: bool, **given: Any) -> None:
    """Go back, so that what was carried since is carried again.

    For example:  wherry offsets rewind orders.yaml --batches 2 --reason "the prices were wrong"
    """
    from datetime import datetime

    from runners.offsets import plan_rewind

    try:
        to = datetime.fromisoformat(moment) if moment else None
    except ValueError as error:
        raise click.BadParameter(
            f"expected a time such as 2026-01-31T06:00, got {moment!r}", param_hint="--to"
        ) from error
    pipeline = looked_at(**given)
    move_offsets(
        pipeline,
        plan_rewind(pipeline, batches=batches, to=to),
        reason=reason,
        yes=yes,
        json=json,
        file=str(given["file"]),
    )


@offsets.command("reset")
@with_definition
@moves
@as_json
def reset_offsets(reason: str, yes: bool, json: bool, **given: Any) -> None:
    """Go back to the beginning, so that everything is carried again.

    For example:  wherry offsets reset orders.yaml --reason "a new price list"
    """
    from runners.offsets import plan_reset

    pipeline = looked_at(**given)
    move_offsets(pipeline, plan_reset(pipeline), reason=reason, yes=yes, json=json, file=str(given["file"]))


def move_offsets(pipeline: Pipeline, move: Move, *, reason: str, yes: bool, json: bool = False, file: str = "") -> None:
    """Say what a move will do, ask whether to do it, and do it; where the definition's `file` is named, also what to
    type next."""
    from runners.command_line import printing
    from runners.errors import Refusal
    from runners.offsets import carry_out

    click.echo(printing.move(move), err=True)
    if move.lanes:
        if not reason.strip():
            raise Refusal("Nothing was moved: it needs a reason, which the ledger keeps.", hint='Add --reason "…".')
        sure(yes=yes)
        carry_out(pipeline, move, reason=reason)
        if file:
            click.echo(f"Done. The next run goes on from there:  wherry run {file}", err=True)
    if json:
        click.echo(printing.as_json(move.json()))


def sure(*, yes: bool) -> None:
    """Ask whether to do what was just said, unless that was answered already."""
    from runners.errors import Refusal

    if not yes:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise Refusal("Nothing was done: nobody can be asked here.", hint="Add --yes if that is what you want.")
        click.confirm("Do it?", abort=True, err=True)
