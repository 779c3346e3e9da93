"""The command `wherry ls`: the definitions of a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from runners.command_line.help_sections import command
from runners.command_line.options import WRONG, as_json, with_select, with_variables

if TYPE_CHECKING:
    from origins.batch import JSON


@command("ls")
@click.argument("directory", type=click.Path(path_type=Path), default=Path())
@with_select
@with_variables
@as_json
def list_folder(
    directory: Path,
    select: Sequence[str],
    variables: Sequence[str],
    variable_file: Path | None,
    secret_file: Path | None,
    json: bool,
) -> int:
    """List the definitions of a folder, with their last runs.

    For example:  wherry ls pipelines

    DIRECTORY is this one by default. A pipeline stands below those whose tables it reads. Starts no Spark. Ends with 2
    if a definition is broken.
    """
    from runners.command_line import printing
    from runners.command_line.folder import read_folder
    from runners.operations.folder_status import describe_pipelines

    folder = read_folder(directory, variables, variable_file, secret_file)
    graph = folder.build_graph()
    facts = describe_pipelines(folder.definitions, graph, graph.sort(graph.select(select)))
    broken = folder.broken
    shown = (
        printing.as_json({"pipelines": facts, "broken": broken}) if json else format_folder(facts, broken, directory)
    )
    click.echo(shown)
    return WRONG if broken else 0


def format_folder(facts: Sequence[Mapping[str, JSON]], broken: Mapping[str, str], directory: Path) -> str:
    """Each pipeline in a line, and below it where its rows come from and go."""
    from runners.model.text import escape_controls, escape_line, paint, paint_word, shorten_paths

    rows = [
        [each["pipeline"], _format_last(each), _format_waiting(each["waiting"]), each["schedule"] or "by hand"]
        for each in facts
    ]
    head = ["pipeline", "last run (UTC)", "waiting", "schedule"]
    widths = [max(len(row[at]) for row in [head, *rows]) for at in range(3)]
    lines = []
    for at, row in enumerate([head, *rows] if rows else []):
        cells = [escape_line(f"{cell:<{width}}") for cell, width in zip(row, widths, strict=False)]
        line = "  ".join([cells[0], paint_word(cells[1]) if at else cells[1], cells[2], escape_line(row[3])])
        lines.append(line if at else paint(line, "bold"))
        if at:
            each = facts[at - 1]
            flow = f"{', '.join(each['reads'])} → {', '.join(each['writes'])}"
            lines.append(escape_line(f"  {Path(each['file']).name}: {shorten_paths(flow)}"))
    wrong = [escape_controls(why) for why in broken.values()]
    return "\n\n".join(["\n".join(lines)] * bool(lines) + wrong)


def _format_last(facts: Mapping[str, JSON]) -> str:
    from runners.model.text import show_moment

    if facts["state"] is None:
        return "kept in a catalog"
    last = facts["last_run"]
    if last is None:
        return str(facts["state"]).replace("_", " ")
    return f"{last['status']} {show_moment(last['at'])[:16]}"


def _format_waiting(waiting: Mapping[str, int] | None) -> str:
    if waiting is None:
        return "?"
    return (
        ", ".join(f"{count:,} {what if count != 1 else what[:-1]}" for what, count in waiting.items() if count) or "-"
    )
