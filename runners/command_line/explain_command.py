"""The command `wherry explain`: what a code means."""

from __future__ import annotations

import click

from runners.command_line.given import as_json, codes_that_begin


@click.command()
@click.argument("code", required=False, shell_complete=codes_that_begin)
@as_json
def explain(code: str | None, json: bool) -> None:
    """Say what an error's code means, and what to do.

    For example:  wherry explain WINDOW
    """
    from runners.codes import codes, summary
    from runners.command_line import printing
    from runners.definitions.problems import nearest

    known = codes()
    if code is None:
        said = {each: summary(each) for each in known}
        click.echo(printing.as_json(said) if json else printing.table(["code", "what it means"], [*said.items()]))
        return
    found = next((each for each in known if each.lower() == code.lower()), None)
    if found is None:
        hint = f"{nearest(code, known)} A rule of `require` has its own name as its code."
        raise click.UsageError(f"There is no code '{code}'; {hint}")
    click.echo(printing.as_json({"code": found, "text": known[found]}) if json else f"{found}\n\n{known[found]}")
