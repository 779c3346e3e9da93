"""The command `wherry warm`: a Spark that stays for the commands in other terminals."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from runners.command_line import printing
from runners.command_line.help_sections import command
from runners.command_line.options import PATH, as_json, load_definition, with_values


@command("warm")
@click.argument("file", type=PATH, required=False)
@with_values
@as_json
def warm(file: Path | None, json: bool, **given: Any) -> None:
    """Keep a Spark warm for commands in other terminals.

    For example:  wherry warm orders.yaml

    It has the settings of FILE, and stays until this command is interrupted.
    """
    from rich.console import Console

    from runners.definitions.definition import list_definitions
    from runners.spark.connect_server import serve
    from runners.spark.session import list_packages

    found = list_definitions(Path()) if file is None else [file]
    pipeline = load_definition(file=found[0], **given).pipeline if len(found) == 1 else None
    began = time.monotonic()
    with Console(stderr=True).status("starting Spark"):
        server = serve(pipeline.spark.settings, list_packages(pipeline)) if pipeline else serve({}, ())
    try:
        if json:
            click.echo(printing.as_json({"spark_remote": server.remote}))
        else:
            click.echo(
                f"Spark is warm, after {time.monotonic() - began:.0f} s. It ends with this command: press Ctrl-C.\n"
                "Type this in each terminal in which commands shall use it:\n\n"
                f"  export SPARK_REMOTE='{server.remote}'\n\n"
                "Keep this line secret. With it, anybody on this machine can use this Spark as you."
            )
        server.wait()
    except KeyboardInterrupt:
        server.stop()
