"""The command `wherry init`: something of one's own to begin with."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), required=False)
@click.option("--name", default="", help="What the pipeline is called; by default as the directory is.")
@click.option(
    "--from",
    "own",
    type=click.Path(path_type=Path, exists=True),
    help="Your files, one or a folder of them, in place of sample rows.",
)
@click.option("--databricks", is_flag=True, help="For Databricks: with an asset bundle and a notebook.")
def init(directory: Path | None, name: str, own: Path | None, databricks: bool) -> None:
    """Write a definition to begin with, sample rows and a test.

    For example:  wherry init shop

    Without DIRECTORY it asks what the pipeline is called. With --from the definition is for files that you have, with
    types as their first rows look.
    """
    from runners.command_line import printing
    from runners.definitions.init import begin

    if own is not None and databricks:
        raise click.UsageError("--from is for files of this machine, and --databricks for those of a volume.")
    if directory is None:
        if not name:
            name = click.prompt("What is the pipeline called?", default="orders", err=True) if asks() else "orders"
        directory = Path(name)
    files = begin(directory, name, example="databricks" if databricks else "orders", own=own)
    definition = next(iter(files))
    made = printing.table(["written", ""], [[str(file), what] for file, what in files.items()])
    rows = _on_databricks(directory) if databricks else _here(definition, directory / "test_pipeline.py")
    click.echo(f"{made}\n\n{printing.table(['type next', ''], rows)}")


def _here(definition: Path, test: Path) -> list[list[str]]:
    file = shlex.quote(str(definition))
    return [
        [f"wherry preview {file}", "what becomes of each row; nothing is written"],
        [f"wherry run {file}", "carries what is there; later, what has come since"],
        [f"wherry dlq show {file}", "the refused rows, and why"],
        *([[f"python {shlex.quote(str(test))}", "the test"]] if test.exists() else []),
    ]


def _on_databricks(directory: Path) -> list[list[str]]:
    return [
        [f"cd {shlex.quote(str(directory))}", ""],
        ["databricks bundle validate", "is all filled in? landing, table and state stand in databricks.yml"],
        ["databricks bundle deploy", "brings the definition, the notebook and the job to your workspace"],
    ]


def asks() -> bool:
    """Whether somebody sits there who can answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()
