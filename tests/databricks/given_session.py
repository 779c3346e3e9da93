"""Run a program in a process that has a session, as on serverless: `python -m tests.databricks.given_session PROGRAM
WORDS`. The program is `wherry`, or a module."""

from __future__ import annotations

import os
import runpy
import sys

from pyspark.sql import SparkSession

from runners.command_line.cli import main as run_wherry


def main(program: str) -> None:
    """Make the session of `SPARK_REMOTE` the active one, and run the program."""
    SparkSession.builder.remote(os.environ["SPARK_REMOTE"]).getOrCreate()
    if program == "wherry":
        run_wherry()
    else:
        runpy.run_module(program, run_name="__main__")


if __name__ == "__main__":
    del sys.argv[0]
    main(sys.argv[0])
