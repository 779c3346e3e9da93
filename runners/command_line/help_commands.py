"""The commands `wherry init` and `wherry explain`: a pipeline to begin with, and what a code means."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from runners.command_line.help_sections import command, option
from runners.command_line.options import as_json, complete_codes


@command()
@click.argument("directory", type=click.Path(path_type=Path), required=False)
@option("--name", default="", metavar="NAME", help="Name the pipeline; default: DIRECTORY.")
@option(
    *("--from", "own"),
    type=click.Path(path_type=Path, exists=True),
    metavar="PATH",
    help="Read your own file, or a folder of files.",
)
@option("--databricks", is_flag=True, help="Write an asset bundle and a notebook.")
@as_json
def init(directory: Path | None, name: str, own: Path | None, databricks: bool, json: bool) -> None:
    """Write a definition to begin with, sample rows and a test.

    For example:  wherry init shop

    Without DIRECTORY it asks for the name of the pipeline. With --from, it looks at the head of every file, says what
    it found, and writes a definition that reads them.
    """
    from runners.command_line import printing
    from runners.definitions.first_pipeline import begin
    from runners.definitions.proposal import collect_facts, propose, summarise_findings
    from runners.model.text import escape_line, table

    if own is not None and databricks:
        raise click.UsageError("Choose one: --from reads files of this machine, --databricks files of a volume.")
    if directory is None:
        if not name:
            name = click.prompt("Name of the pipeline", default="orders", err=True) if is_interactive() else "orders"
        directory = Path(name)
    proposal = propose(own) if own is not None else None
    files = begin(directory, name, example="databricks" if databricks else "orders", own=proposal)
    definition = next(iter(files))
    made = [(str(file), what) for file, what in files.items()]
    rows = (
        _list_databricks_steps(directory)
        if databricks
        else _list_local_steps(definition, directory / "test_pipeline.py")
    )
    if json:
        written = [{"file": file, "what": what} for file, what in made]
        coming = [{"command": typed, "what": what} for typed, what in rows]
        found = {} if proposal is None else {"found": collect_facts(proposal)}
        click.echo(printing.as_json({"files": written, "next": coming, **found}))
    else:
        said = "".join(f"{escape_line(line)}\n" for line in summarise_findings(proposal)) if proposal else ""
        click.echo(f"{said}\n" if said else "", nl=False)
        click.echo(f"{table(['written', ''], made)}\n\n{table(['type next', ''], rows)}")


def _list_local_steps(definition: Path, test: Path) -> list[list[str]]:
    file = shlex.quote(str(definition))
    return [
        [f"wherry preview {file}", "shows the outcome of each row; writes nothing"],
        [f"wherry run {file}", "processes the rows that wait; later, new rows"],
        [f"wherry dlq show {file}", "shows the refused rows, and why"],
        *([[f"python {shlex.quote(str(test))}", "runs the test"]] if test.exists() else []),
    ]


def _list_databricks_steps(directory: Path) -> list[list[str]]:
    return [
        [f"cd {shlex.quote(str(directory))}", ""],
        ["databricks bundle validate", "checks that landing, table and state are set in databricks.yml"],
        ["databricks bundle deploy", "copies the definition, the notebook and the job to your workspace"],
    ]


def is_interactive() -> bool:
    """Whether a person can answer on this terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


@command()
@click.argument("code", required=False, shell_complete=complete_codes)
@as_json
def explain(code: str | None, json: bool) -> None:
    """Explain the code of an error, and what to do.

    For example:  wherry explain WINDOW
    """
    from runners.command_line import printing
    from runners.definitions.document import find_nearest
    from runners.model.codes import read_codes, summarise
    from runners.model.text import table

    known = read_codes()
    if code is None:
        said = {each: summarise(each) for each in known}
        click.echo(printing.as_json({"codes": said}) if json else table(["code", "what it means"], [*said.items()]))
        return
    found = next((each for each in known if each.lower() == code.lower()), None)
    if found is None:
        near = find_nearest(code, known)
        hint = f"Did you mean '{near}'?" if near else "`wherry explain` lists all codes."
        raise click.UsageError(f"There is no code '{code}'. {hint} A rule of `require` has its own name as its code.")
    click.echo(printing.as_json({"code": found, "text": known[found]}) if json else f"{found}\n\n{known[found]}")
