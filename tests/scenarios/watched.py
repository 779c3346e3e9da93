"""Run a command of Wherry, then search all processes for a word: `python -m tests.scenarios.watched WORD ARGS`.

The script prints the command line of each process that contains WORD, and whether a Spark setting contains it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from runners.command_line import cli


def list_processes(word: str) -> Iterator[str]:
    """Yield the command lines that contain this word, except the command line of this process."""
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            typed = process.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in typed and "tests.scenarios.watched" not in typed:
            yield typed


def main(word: str, words: list[str]) -> None:
    """Run the command, and print the findings."""
    code = cli.execute(words)
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    click.echo(f"exit {code}")
    click.echo(f"ps {list(list_processes(word))}")
    java = any("org.apache.spark" in each for each in list_processes("java"))
    click.echo(f"java {java}")
    url = spark.conf.get("spark.hadoop.wherry.test.url", "") or ""
    click.echo(f"setting {word in url}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
