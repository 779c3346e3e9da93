"""The command `wherry init`: something of one's own to begin with."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), required=False)
@click.option("--name", default="", help="What the pipeline is called; by default as the directory is.")
@click.option("--databricks", is_flag=True, help="For Databricks: with an asset bundle and a notebook.")
def init(directory: Path | None, name: str, databricks: bool) -> None:
    """Write a definition to begin with, sample rows and a test.

    For example:  wherry init shop

    Without DIRECTORY it asks what the pipeline is called.
    """
    from runners import printing
    from runners.init import begin

    if directory is None:
        if not name:
            name = click.prompt("What is the pipeline called?", default="orders", err=True) if asks() else "orders"
        directory = Path(name)
    files = begin(directory, name, example="databricks" if databricks else "orders")
    definition = next(iter(files))
    test = next(file for file in files if file.name == "test_pipeline.py")
    file = shlex.quote(str(definition))
    rows = [
        [f"wherry preview {file}", "what becomes of each row; nothing is written"],
        [f"wherry run {file}", "carries the sample, and what you put beside it"],
        [f"wherry dlq show {file}", "the refused rows, and why"],
        [f"python {shlex.quote(str(test))}", "the test"],
    ]
    if databricks:
        rows = [[f"cd {shlex.quote(str(directory))} && databricks bundle deploy", "brings it all to your workspace"]]
    made = printing.table(["written", ""], [[str(file), what] for file, what in files.items()])
    click.echo(f"{made}\n\n{printing.table(['type next', ''], rows)}")


def asks() -> bool:
    """Whether somebody sits there who can answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()
