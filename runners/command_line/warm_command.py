"""The command `wherry warm`: a Spark that stays for the next commands."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from runners.command_line import printing
from runners.command_line.help_sections import group, option
from runners.command_line.options import FAILED, PATH, as_json, check_duration, load_definition, with_values
from runners.model.text import escape_line, table

if TYPE_CHECKING:
    from runners.spark.warm import WarmSpark

_USUALLY = "15m"
"""How long a Spark stays by default."""


@group(default="status")
def warm() -> None:
    """Keep a Spark warm, so that the next commands begin at once.

    `wherry warm` means `wherry warm status`.
    """


@warm.command("start")
@click.argument("file", type=PATH, required=False)
@option(
    "--for",
    "idle",
    default="",
    metavar="TIME",
    callback=check_duration,
    help="End it after TIME without work; default: 15m.",
)
@with_values
@as_json
def start_warm(file: Path | None, idle: str, json: bool, **given: Any) -> None:
    """Start a Spark that stays for the next commands in this folder.

    For example:  wherry warm start orders.yaml --for 1h

    It has the settings of FILE. Only definitions with the same settings can use it.
    """
    from origins.quantities import parse_seconds
    from runners.definitions.definition import list_definitions
    from runners.model.spec import SparkOptions
    from runners.spark.warm import keep_warm, read_keep

    found = list_definitions(Path()) if file is None else [file]
    options = load_definition(file=found[0], **given).pipeline.spark if len(found) == 1 else SparkOptions()
    seconds = parse_seconds(idle or "0s") or read_keep(options) or parse_seconds(_USUALLY)
    began = time.monotonic()
    from rich.console import Console

    with Console(stderr=True).status("starting Spark"):
        state = keep_warm(options, seconds)
    if json:
        click.echo(printing.as_json({"state": state, "seconds": seconds, "folder": os.getcwd()}))
        return
    texts = {
        "started": f"Spark is warm, after {time.monotonic() - began:.0f} s.",
        "warm": "Spark was warm already.",
        "starting": "Another command is starting this Spark now.",
    }
    click.echo(f"{texts[state]} It ends after {_say_time(seconds)} without work.")
    click.echo("To end it sooner:  wherry warm stop")


@warm.command("status")
@as_json
def show_warm(json: bool) -> None:
    """Show the Sparks of this user that stay warm.

    For example:  wherry warm status
    """
    from runners.spark.warm import list_warm

    found = list_warm()
    click.echo(printing.as_json({"sparks": [each.json() for each in found]}) if json else format_warm(found))


@warm.command("stop")
@as_json
def stop_warm(json: bool) -> int:
    """End the Sparks of this user that stay warm.

    For example:  wherry warm stop

    A Spark that a command is using ends after that command.
    """
    from runners.spark.warm import end_warm, list_warm

    ended = [(each, end_warm(each)) for each in list_warm()]
    if json:
        click.echo(printing.as_json({"sparks": [{**each.json(), "state": state} for each, state in ended]}))
    else:
        click.echo("\n".join(_describe_end(each, state) for each, state in ended) or "No Spark is warm.")
    return FAILED if any(state == "alive" for _, state in ended) else 0


def _describe_end(spark: WarmSpark, state: str) -> str:
    texts = {
        "ended": "has ended",
        "busy": f"ends after the command that uses it, process {spark.used_by}",
        "alive": f"does not answer; end its process {spark.keeper}",
    }
    return escape_line(f"The Spark for {spark.folder} {texts[state]}.")


def format_warm(sparks: Sequence[WarmSpark]) -> str:
    """Format each Spark in a line."""
    from runners.model.errors import format_bytes

    if not sparks:
        return "No Spark is warm. To start one for this folder:  wherry warm start"
    rows = [
        [
            each.state if each.used_by is None else f"busy with process {each.used_by}",
            "-" if each.seconds is None else _say_time(each.seconds),
            "-" if each.memory is None else format_bytes(each.memory),
            each.folder,
        ]
        for each in sparks
    ]
    frozen = [each for each in sparks if each.state == "frozen"]
    note = ["", "A keeper that is frozen does not answer. To end it:  wherry warm stop"] if frozen else []
    return "\n".join([table(["state", "ends in", "memory", "folder"], rows), *note])


def _say_time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.0f} h"
