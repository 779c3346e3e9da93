"""Runs a pipeline as the command does, then looks among all processes: `python -m tests.scenarios.watched WORD ARGS`.

It prints what was typed to start each process in whose words WORD stands, and whether Spark has a setting with it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from runners.command_line import cli


def processes(word: str) -> Iterator[str]:
    """The words with which each process was started, of those that have this one; but not ourselves."""
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            typed = process.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in typed and "tests.scenarios.watched" not in typed:
            yield typed


def main(word: str, words: list[str]) -> None:
    """Run the command, and say what was seen."""
    code = cli.execute(words)
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    click.echo(f"exit {code}")
    click.echo(f"ps {list(processes(word))}")
    java = any("org.apache.spark" in each for each in processes("java"))
    click.echo(f"java {java}")
    url = spark.conf.get("spark.hadoop.wherry.test.url", "") or ""
    click.echo(f"setting {word in url}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
