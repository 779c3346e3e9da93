"""The commands `wherry dlq`: the refused rows, why they were refused, and what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from runners.command_line.given import F, InOrder, as_json, looked_at, moves, with_definition
from runners.command_line.offset_commands import sure
from runners.numbered import counted


@click.group(cls=InOrder)
def dlq() -> None:
    """Look at the refused rows, carry them again, or discard them."""


def chooses(command: F) -> F:
    """A command over rows of the DLQ: which of them; all that nobody decided on yet where nothing is said."""
    given = [
        click.option("--id", "ids", multiple=True, metavar="ID", help="This row; as often as there are rows."),
        click.option("--code", default="", metavar="CODE", help="Those with this code."),
        click.option("--stage", default="", metavar="NAME", help="Those that this stage or destination refused."),
        click.option("--where", default="", metavar="SQL", help="Those for which it is true; starts Spark."),
    ]
    for each in reversed(given):
        command = each(command)
    return command


@dlq.command("show")
@with_definition
@click.option("--limit", type=click.IntRange(min=1), help="The newest so many; 20 on a terminal, all with --json.")
@click.option("--reveal", is_flag=True, help="Also what stands in protected columns.")
@as_json
def show_dead_letters(limit: int | None, reveal: bool, json: bool, **given: Any) -> None:
    """Show refused rows: why, where, and the row itself.

    For example:  wherry dlq show orders.yaml --limit 5
    """
    from runners.command_line import printing

    rows = looked_at(**given).dead_letters(limit if limit or json else 20, reveal=reveal)
    click.echo(printing.as_json(rows) if json else printing.dead_letters(rows))


@dlq.command("summary")
@with_definition
@as_json
def summarise(json: bool, **given: Any) -> None:
    """Say why rows were refused, and how many.

    For example:  wherry dlq summary orders.yaml

    By cause: how many there are, how many of them wait, since when, and one of them.
    """
    from runners.command_line import printing
    from runners.command_line.printing_dlq import summary

    causes = looked_at(**given).dead_letter_causes()
    click.echo(printing.as_json(causes) if json else summary(causes))


@dlq.command("discard")
@with_definition
@chooses
@moves
@as_json
def discard(
    ids: Sequence[str], code: str, stage: str, where: str, reason: str, yes: bool, json: bool, **given: Any
) -> None:
    """Throw refused rows away on purpose.

    For example:  wherry dlq discard orders.yaml --code PARSE --reason "test files"

    Nobody waits for them any more, and no replay takes them; they stay in the table until dlq.retain is over.
    """
    from runners.command_line import printing
    from runners.dlq.discarding import chosen, discard
    from runners.dlq.replay import Choice

    choice = Choice(ids=tuple(ids), code=code, stage=stage, where=where)
    pipeline = looked_at(**given)
    rows = len(chosen(pipeline, choice)[1])
    click.echo(f"{counted(rows)} of the dead letter queue are discarded: no replay takes them any more.", err=True)
    if rows:
        sure(yes=yes)
    done = discard(pipeline, choice, reason=reason, expected=rows)
    click.echo(printing.as_json({"discarded": done}) if json else f"Discarded: {counted(done)}.")


@dlq.group(cls=InOrder)
def config() -> None:
    """Read the settings of a run under way, or change them."""


@config.command("get")
@with_definition
@as_json
def get_config(json: bool, **given: Any) -> None:
    """Say by which settings the next batch is judged.

    For example:  wherry dlq config get orders.yaml
    """
    from runners.command_line.printing import as_json as printed
    from runners.command_line.printing_dlq import settings
    from runners.dlq.dlq_config import get

    facts = get(looked_at(**given))
    click.echo(printed(facts) if json else settings(facts))


@config.command("set")
@with_definition
@click.argument("changes", nargs=-1, required=True, metavar="NAME=VALUE...")
@click.option("--reason", default="", metavar="TEXT", help="Why; it is kept in the ledger.")
@as_json
def set_config(changes: Sequence[str], reason: str, json: bool, **given: Any) -> None:
    """Change settings of the run that is under way.

    For example:  wherry dlq config set orders.yaml window=0 limits.CAST=5% --reason "they are known"

    The next batch is judged by them, until the run ends. NAME is window, threshold or limits.CODE.
    """
    from runners.command_line.printing import as_json as printed
    from runners.command_line.printing_dlq import settings
    from runners.dlq.dlq_config import put

    pairs = [each.partition("=") for each in changes]
    wrong = next((name + equals for name, equals, _ in pairs if not (name and equals)), None)
    if wrong is not None:
        raise click.BadParameter(f"expected NAME=VALUE, got '{wrong}'", param_hint="NAME=VALUE")
    facts = put(looked_at(**given), {name: value for name, _, value in pairs}, reason=reason)
    click.echo(printed(facts) if json else settings(facts))
