"""The commands `wherry audit` and `wherry repair`: whether every row is where it should be, and what to do if not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from runners.command_line.exits import FAILED
from runners.command_line.given import as_json, loaded, looked_at, moves, with_definition
from runners.command_line.offset_commands import sure


@click.command()
@with_definition
@as_json
def audit(json: bool, **given: Any) -> int:
    """Prove that every row is where it should be.

    For example:  wherry audit orders.yaml

    Compares the ledger with the destinations' own history and rows and with the dead letter queue. Changes nothing.
    Ends with 0 if all adds up, with 1 if not.
    """
    from runners.command_line.printing import as_json as printed
    from runners.command_line.printing_audit import audit as said

    found = looked_at(**given).audit()
    click.echo(printed(found.json()) if json else said(found, str(given["file"])))
    return 0 if found.balanced else FAILED


@click.command()
@with_definition
@click.option("--accept", multiple=True, metavar="ID", help="This finding is right as it is; as often as there are.")
@moves
@as_json
def repair(accept: Sequence[str], reason: str, yes: bool, json: bool, **given: Any) -> int:
    """Mend what an audit finds, as far as nothing has to be guessed.

    For example:  wherry repair orders.yaml --reason "the table was restored by mistake"

    Finishes what a run left open, and puts rows back that left a table as a whole batch. All else needs a person, and
    `audit` says what to do. With --accept nothing is changed, and the finding counts as right from now on. Ends with 0
    if all adds up then, with 1 if not.
    """
    from runners.audits.repairing import Repaired
    from runners.command_line.printing import as_json as printed
    from runners.command_line.printing_audit import repaired, repairs

    pipeline = loaded(**given).pipeline
    found = pipeline.audit()
    safe = [each for each in found.problems if each.remedy or each.id in accept]
    alone = "There is nothing that can be repaired without a person." if found.problems else "Nothing is wrong."
    click.echo(repairs(safe, accept) if safe else alone, err=True)
    if safe or accept:
        sure(yes=yes)
        done = pipeline.repair(reason=reason, accept=accept)
        click.echo(printed(done.json()) if json else repaired(done, str(given["file"])))
        return 0 if done.audit.balanced else FAILED
    nothing = Repaired(done=[], audit=found)
    click.echo(printed(nothing.json()) if json else repaired(nothing, str(given["file"])))
    return 0 if found.balanced else FAILED
