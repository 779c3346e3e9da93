"""The commands about the content of a state: `wherry offsets`, `wherry audit` and `wherry repair`."""

from __future__ import annotations

import json as json_format
import re
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from runners.command_line import printing, printing_state
from runners.command_line.help_sections import command, group, option
from runners.command_line.options import (
    COUNT,
    FAILED,
    as_json,
    load_for_reading,
    load_pipeline,
    time_option,
    with_definition,
    with_move_options,
)

if TYPE_CHECKING:
    from origins.batch import JSON
    from runners.operations.offsets import OffsetMove
    from runners.operations.repair import RepairResult
    from runners.pipeline import Pipeline


@group(default="show")
def offsets() -> None:
    """Show how far each lane was read, or move it by hand.

    `wherry offsets orders.yaml` means `wherry offsets show orders.yaml`.
    """


@offsets.command("show")
@with_definition
@as_json
def show_offsets(json: bool, **given: Any) -> None:
    """Show how far each lane was read, and open batches.

    For example:  wherry offsets show orders.yaml
    """
    lanes = load_for_reading(**given).lanes()
    click.echo(printing.as_json(lanes.json()) if json else str(lanes))


_WORD_OR_TIME = re.compile(r"[a-z]+|\d{4}-\d\d-\d\d.*")
"""Offsets that need no quotes. A shell removes the quotes that JSON needs."""


def _parse_offset(ctx: click.Context, parameter: click.Parameter, text: str) -> JSON:
    try:
        return json_format.loads(text)
    except json_format.JSONDecodeError as error:
        if _WORD_OR_TIME.fullmatch(text):
            return text
        message = f"expected JSON, got {text!r}: {error.msg}"
        raise click.BadParameter(message, param_hint="--offset") from error


@offsets.command("set")
@with_definition
@option("--lane", required=True, metavar="LANE", help="Move this lane.")
@option(
    "--offset",
    required=True,
    metavar="OFFSET",
    callback=_parse_offset,
    help="An offset from `offsets show --json`, a word or a time.",
)
@with_move_options
@as_json
def set_offset(lane: str, offset: JSON, **given: Any) -> None:
    """Set one lane to an offset.

    For example:  wherry offsets set orders.yaml --lane 0 --offset 500 --reason "skip the test orders"
    """
    from runners.operations.offsets import plan_set

    _plan_and_move(partial(plan_set, lane=lane, offset=offset), **given)


@offsets.command("rewind")
@with_definition
@option("--batches", type=COUNT, metavar="N", help="Go back N batches in every lane.")
@time_option("--to", "moment", help="Go back to 2026-01-31T06:00 (UTC).")
@with_move_options
@as_json
def rewind_offsets(batches: int | None, moment: datetime | None, **given: Any) -> None:
    """Go back, so that the next run reads rows again.

    For example:  wherry offsets rewind orders.yaml --batches 2 --reason "the prices were wrong"
    """
    from runners.operations.offsets import plan_rewind

    _plan_and_move(partial(plan_rewind, batches=batches, to=moment), **given)


@offsets.command("reset")
@with_definition
@with_move_options
@as_json
def reset_offsets(**given: Any) -> None:
    """Go back to the beginning; the next run reads all rows again.

    For example:  wherry offsets reset orders.yaml --reason "a new price list"
    """
    from runners.operations.offsets import plan_reset

    _plan_and_move(plan_reset, **given)


def _plan_and_move(plan: Callable[[Pipeline], OffsetMove], *, reason: str, yes: bool, json: bool, **given: Any) -> None:
    pipeline = load_for_reading(**given)
    move = plan(pipeline)
    move_offsets(pipeline, move, reason=reason, yes=yes)
    if move.lanes:
        click.echo(f"Done. The next run continues from there:  wherry run {given['file']}", err=True)
    if json:
        click.echo(printing.as_json(move.json()))


def move_offsets(pipeline: Pipeline, move: OffsetMove, *, reason: str, yes: bool) -> None:
    """Show what a move will do, ask, and do it."""
    from runners.model.errors import Refusal
    from runners.operations.offsets import carry_out

    click.echo(printing.format_move(move), err=True)
    if move.lanes:
        if not reason.strip():
            raise Refusal("Nothing was moved: the ledger keeps a reason for each move.", hint='Add --reason "…".')
        confirm(yes=yes)
        carry_out(pipeline, move, reason=reason)


def confirm(*, yes: bool) -> None:
    """Ask for a yes, unless `yes` is set. Raises `Refusal` if no question can be asked."""
    from runners.model.errors import Refusal

    if yes:
        return
    if not is_terminal():
        raise Refusal(
            "Nothing was done: without a terminal Wherry cannot ask for a yes.",
            hint="Add --yes to do it without a question.",
        )
    click.confirm("Do it?", abort=True, err=True)


def is_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


@command()
@with_definition
@as_json
def audit(json: bool, **given: Any) -> int:
    """Prove that every row is where it should be.

    For example:  wherry audit orders.yaml

    Compares the ledger with the history and the rows of every destination, and with the dead letter queue. Changes
    nothing. Ends with 1 if something is wrong.
    """
    result = load_for_reading(**given).audit()
    click.echo(printing.as_json(result.json()) if json else printing_state.format_audit(result, str(given["file"])))
    return 0 if result.balanced else FAILED


@command()
@with_definition
@option("--accept", multiple=True, metavar="ID", help="Count this finding as right; may be repeated.")
@with_move_options
@as_json
def repair(accept: Sequence[str], reason: str, yes: bool, json: bool, **given: Any) -> int:
    """Repair what an audit finds, where no guess is needed.

    For example:  wherry repair orders.yaml --reason "the table was restored by mistake"

    Mends a ledger that has lost a file. Finishes batches that a run left open, and puts back whole batches that are
    missing from a table. For all other findings, `audit` says what to do. --accept changes no row: audits then count
    the finding as right. Ends with 1 if something is still wrong.
    """
    from runners.definitions.definition import definition_of
    from runners.operations.mend_ledger import find_damage
    from runners.operations.repair import RepairResult

    pipeline = load_pipeline(**given)
    damage = find_damage(definition_of(pipeline).pipeline)
    if damage is not None:
        click.echo(damage.describe(), err=True)
        confirm(yes=yes)
        result = pipeline.repair(reason=reason, accept=accept)
        return _show_repaired(result, json=json, file=str(given["file"]))
    before = pipeline.audit()
    safe = [finding for finding in before.problems if finding.remedy or finding.id in accept]
    alone = (
        "Wherry can repair nothing by itself. Each finding says what to do." if before.problems else "Nothing is wrong."
    )
    click.echo(printing_state.format_repairs(safe, accept) if safe else alone, err=True)
    result = RepairResult(done=[], audit=before)
    if safe or accept:
        confirm(yes=yes)
        result = pipeline.repair(reason=reason, accept=accept)
    return _show_repaired(result, json=json, file=str(given["file"]))


def _show_repaired(result: RepairResult, *, json: bool, file: str) -> int:
    click.echo(printing.as_json(result.json()) if json else printing_state.format_repaired(result, file))
    return 0 if result.audit.balanced else FAILED
