"""Run a program in a process that has a session, as on Databricks: `python -m tests.databricks.given_session ADDRESS
CLONES PROGRAM WORDS`. The program is `wherry`, or a module."""

from __future__ import annotations

import runpy
import sys

from runners.command_line.cli import main as run_wherry
from tests.databricks.in_kernel import make_session


def main(address: str, clones: str, program: str) -> None:
    """Make the session at this address the active one, and run the program."""
    make_session(address, clones)
    sys.argv[:4] = [program]
    if program == "wherry":
        run_wherry()
    else:
        runpy.run_module(program, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:4])
