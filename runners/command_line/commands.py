"""The table of all commands, and the group `wherry` that has them."""

from __future__ import annotations

import click

from runners.command_line.help_sections import SHARED, CommandFiles, group, option
from runners.model.text import find_version

SECTIONS = {
    "Start": {
        "demo": ("trial_commands", "Make a folder of orders, some of them bad, and process them."),
        "init": ("trial_commands", "Write a first definition, sample rows and test cases."),
        "validate": ("trial_commands", "Explain what a definition will do, or list its errors."),
        "preview": ("trial_commands", "Show what the stages do with the next batch."),
        "test": ("trial_commands", "Test a definition with its cases."),
        "compare": ("trial_commands", "Show which rows another definition treats differently."),
    },
    "Run": {
        "run": ("run_commands", "Process all new rows, then end."),
        "stop": ("run_commands", "Stop a run when its batches in flight are done."),
        "resume": ("run_commands", "Resume a pipeline that a limit has paused."),
        "backfill": ("run_commands", "Deliver old batches to destinations that lack them."),
        "redo": ("run_commands", "Read an edited file again, and replace its old rows."),
        "schedule": ("schedule_command", "Run the pipelines of a folder when they are due."),
        "serve": ("serve_command", "Run the pipelines of a folder, with an API and a page."),
        "mcp": ("mcp_command", "Let an agent read, and plan changes for a person."),
        "warm": ("run_commands", "Keep a Spark warm for commands in other terminals."),
    },
    "Look": {
        "status": ("state_commands", "Show the state of a pipeline or a folder, and what to type next."),
        "find": ("trial_commands", "Find rows in files, tables and the DLQ."),
        "runs": ("state_commands", "List the runs of a pipeline, or show one."),
        "report": ("state_commands", "Write one HTML file about a run."),
        "quality": ("state_commands", "Show which share passed each rule, run by run."),
    },
    "Check and repair": {
        "audit": ("state_commands", "Prove that every row is where it should be."),
        "repair": ("state_commands", "Repair what an audit finds, where no guess is needed."),
        "dlq": ("dlq_commands", "Show refused rows, process them again, or discard them."),
        "offsets": ("state_commands", "Show how far each lane was read, or move it by hand."),
    },
    "Learn": {
        "kinds": ("learn_commands", "List all kinds of origins, stages and destinations, or show one."),
        "explain": ("learn_commands", "Explain the code of an error, and what to do."),
        "doctor": ("learn_commands", "Find what this machine, a cluster or Databricks lacks."),
    },
}
"""By heading and command: the file here that has the command, and the line about it in help."""


def _print_version(ctx: click.Context, option: click.Parameter, asked: bool) -> None:
    if asked:
        click.echo(f"wherry {find_version()}")
        ctx.exit()


@group(
    commands=CommandFiles(SECTIONS),
    params=[*SHARED],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Print the version and exit.",
)
def wherry() -> None:
    """Process rows in batches on Spark, and prove that every row arrived.

    Start with `wherry demo`. Exit codes: 0 done, 1 failed, 2 wrong definition or command, 3 stopped before the
    end, 4 another run owns the pipeline.
    """
