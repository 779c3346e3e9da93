"""`wherry run` and `wherry validate` for a folder: its pipelines, in the order in which they feed each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from origins.batch import JSON
from origins.errors import WherryError
from runners.command_line.carrying import RunEnding, carry_with_progress, interrupt_on_signals, show_progress
from runners.command_line.help_sections import GivenValues
from runners.command_line.options import CarryOptions, list_secrets_to_mask, load_definition
from runners.command_line.process_end import BY_CODE, FAILED, OWNED, STOPPED
from runners.definitions.definition import Definition, DefinitionsFolder, list_definitions, load
from runners.definitions.pipeline_graph import PipelineGraph
from runners.listeners.log_lines import complain
from runners.listeners.run_progress import RunProgress
from runners.model.errors import Refusal
from runners.model.masking import hide_in_errors, without
from runners.model.run_report import DestinationReport
from runners.model.text import (
    escape_controls,
    escape_line,
    format_count,
    pad_column,
    paint,
    paint_word,
    shorten_paths,
    show_moment,
    table,
)
from runners.operations import printing
from runners.operations.validate import analyse, explain
from runners.pipeline import Pipeline


@dataclass(frozen=True, kw_only=True)
class PipelineFolder:
    """The pipelines of a folder by name, which pipeline feeds which, and the problems of the other files."""

    definitions: Mapping[str, Definition]
    graph: PipelineGraph
    broken: Mapping[str, str]


def read_folder(directory: Path, values: GivenValues) -> PipelineFolder:
    """Read the definitions in the folder. A secret may be missing. Raises `Refusal` if the folder has no definition."""
    read = partial(
        load,
        variables=values.read_variables(),
        secrets=values.read_secrets(),
        needs_secrets=False,
        note_secrets=list_secrets_to_mask().update,
    )
    folder = DefinitionsFolder(path=directory, load=read)
    definitions: dict[str, Definition] = {}
    broken: dict[str, str] = {}
    for file in list_definitions(directory):
        definition = folder.read(file.name)
        if isinstance(definition, str):
            broken[file.name] = definition
        elif definition.pipeline.name in definitions:
            other = definitions[definition.pipeline.name].path
            broken[file.name] = f"{file.name}: the pipeline in {other} is called {definition.pipeline.name} already"
        else:
            definitions[definition.pipeline.name] = replace(definition, path=file)
    if not definitions and not broken:
        where = "this folder" if directory == Path() else str(directory)
        raise Refusal(f"There is no definition in {where}.", hint="Write one:  wherry init")
    graph = PipelineGraph.of({name: definition.pipeline for name, definition in definitions.items()})
    return PipelineFolder(definitions=definitions, graph=graph, broken=broken)


def _choose_pipelines(
    directory: Path, select: Sequence[str], values: GivenValues
) -> tuple[PipelineGraph, Mapping[str, Path]]:
    """Return the files of the selected pipelines by name, in order. Raises `Refusal` with all broken definitions."""
    folder = read_folder(directory, values)
    if folder.broken:
        raise Refusal("\n".join(folder.broken.values()), hint="Nothing was started.")
    names = folder.graph.sort(folder.graph.select(select))
    return folder.graph, {name: folder.definitions[name].path or Path() for name in names}


def validate_folder(directory: Path, select: Sequence[str], *, with_spark: bool, json: bool, **given: Any) -> int:
    """Print for each pipeline that it is valid, and which pipelines feed it."""
    graph, files = _choose_pipelines(directory, select, given["values"])
    explained = []
    for name, file in files.items():
        definition = load_definition(file=file, **given)
        with hide_in_errors(definition.pipeline.secrets):
            columns = analyse(definition).columns if with_spark else None
        facts = {**explain(definition).json(), "columns": columns}
        explained.append({**facts, "file": str(file), "after": list(graph.upstream[name])})
    if json:
        click.echo(printing.as_json({"pipelines": explained}))
    else:
        for name in files:
            feeds = graph.upstream[name]
            reads = f" It reads what {' and '.join(feeds)} {'write' if len(feeds) > 1 else 'writes'}." if feeds else ""
            click.echo(f"{name} is valid.{reads}")
    return 0


def run_folder(directory: Path, select: Sequence[str], *, carrying: CarryOptions, **given: Any) -> int:
    """Run the selected pipelines on one Spark, each after those that feed it. Skip those that a failed one feeds."""
    graph, files = _choose_pipelines(directory, select, given["values"])
    definitions = {name: load_definition(file=file, **given) for name, file in files.items()}
    if not _open_spark(list(definitions.values()), carrying):
        complain("Nothing was processed: the run was stopped while Spark started.")
        if carrying.json:
            click.echo(printing.as_json({"status": "stopped", "pipelines": []}))
        return STOPPED
    endings: dict[str, RunEnding] = {}
    codes: list[int] = []
    for name, definition in definitions.items():
        why = _find_obstacle(graph.upstream[name], endings)
        if why:
            endings[name] = RunEnding(pipeline=name, status="skipped", reason=why)
            complain(f"{name} is skipped: {why}.")
        else:
            endings[name], code = _run_one(definition, files[name], carrying)
            codes.append(code)
    code = next((code for code in codes if code), 0)
    if carrying.json:
        ran = [{"file": str(files[name]), **ending.json()} for name, ending in endings.items()]
        whole = {0: "succeeded", STOPPED: "stopped"}.get(code, "failed")
        click.echo(printing.as_json({"status": whole, "pipelines": ran}))
    else:
        click.echo(_format_endings(list(endings.values())))
    return code


def _open_spark(definitions: Sequence[Definition], carrying: CarryOptions) -> bool:
    """Start the one Spark for all pipelines, unless it is running. Return false if a signal stopped that."""
    from runners.state.location import open_shared_session

    signals: list[int] = []
    progress = RunProgress(format_count(len(definitions), "pipeline", "pipelines"), doing="starting Spark")
    shown = show_progress(progress, {}, quiet=carrying.quiet)
    try:
        with interrupt_on_signals(signals), shown:
            open_shared_session([each.pipeline for each in definitions])
    except (KeyboardInterrupt, Exception):  # a Spark that is interrupted during a call raises other errors
        if not signals:
            raise
    return not signals


def _find_obstacle(upstream: Any, endings: Mapping[str, RunEnding]) -> str:
    """Return why a pipeline cannot run after those that ended; empty if it can."""
    stopped = next((name for name, ending in endings.items() if ending.status == "stopped"), None)
    if stopped is not None:
        return f"{stopped} was stopped"
    good = {name for name, ending in endings.items() if ending.status == "succeeded" or ending.passed_over}
    bad = [name for name in upstream if name in endings and name not in good]
    return f"it reads what {' and '.join(bad)} should have written" if bad else ""


def _run_one(definition: Definition, file: Path, carrying: CarryOptions) -> tuple[RunEnding, int]:
    """Return how its run ended, and the exit code. A run that cannot begin is also a failure."""
    pipeline = Pipeline.of(definition.pipeline)
    try:
        ending = carry_with_progress(pipeline, file, partial(pipeline.run, check=False), carrying)
    except WherryError as error:
        reason = without(pipeline.secrets, str(error))
        complain(f"{pipeline.name} failed: {reason}", code=error.code)
        code = BY_CODE.get(error.code, FAILED)
        return RunEnding(pipeline=pipeline.name, status="owned" if code == OWNED else "failed", reason=reason), code
    return ending, ending.exit_code


def _format_endings(endings: Sequence[RunEnding]) -> str:
    """Format a line for each destination: read + changed = delivered + filtered + refused.

    A column is left out if it says nothing: `to` without a second destination, and `changed` without such a stage.
    """
    counted = [counts for ending in endings for counts in _list_counts(ending)]
    shown = {
        "to": len(counted) > sum(ending.report is not None for ending in endings),
        "changed": any(counts.changed for _, counts in counted),
    }
    head = ["pipeline", "ended", "to", "read", "changed", "delivered", "filtered", "refused", "seconds", ""]
    rows = [head, *(line for ending in endings for line in _format_ending(ending))]
    head, *rows = [[cell for name, cell in zip(head, row, strict=True) if shown.get(name, True)] for row in rows]
    return table(head, rows)


def _format_ending(ending: RunEnding) -> Iterator[list[str]]:
    seconds = "" if ending.report is None else f"{ending.report.seconds:,.1f}"
    begin, end = [ending.pipeline, ending.status], [seconds, _format_reason(ending)]
    counted = _list_counts(ending)
    if not counted:
        yield [*begin, *[""] * 6, *end]
    for name, to in counted:
        counts = (to.delivered, to.filtered, to.nacked)
        yield [*begin, name, f"{to.read:,}", f"{to.changed:+,}", *(f"{count:,}" for count in counts), *end]
        begin = end = ["", ""]


def _list_counts(ending: RunEnding) -> list[tuple[str, DestinationReport]]:
    """Return the counts of each destination; zeros if the run processed nothing, and nothing if it did not run."""
    if ending.report is None:
        return []
    return list(ending.report.destinations.items()) or [("", DestinationReport())]


def _format_reason(ending: RunEnding) -> str:
    if ending.report is None:
        return ending.reason.partition("\n")[0]
    error = ending.report.error
    return f"{error.code}, see above" if error else "" if ending.report.batches else "nothing new"


def format_folder(facts: Sequence[Mapping[str, JSON]], broken: Mapping[str, str]) -> str:
    """Return a line for each pipeline, and below it where its rows come from and go."""
    head = ["pipeline", "last run (UTC)", "waiting", "schedule"]
    rows = [
        [fact["pipeline"], _format_last(fact), _format_waiting(fact["waiting"]), fact["schedule"] or "by hand"]
        for fact in facts
    ]
    columns = [pad_column([escape_line(cell) for cell in column]) for column in zip(head, *rows, strict=True)]
    first, *others = zip(*columns, strict=True)
    lines = [paint("  ".join(first).rstrip(), "bold")]
    for (name, last, waiting, schedule), fact in zip(others, facts, strict=True):
        flow = f"{', '.join(fact['reads'])} → {', '.join(fact['writes'])}"
        lines.append("  ".join([name, paint_word(last), waiting, schedule]).rstrip())
        lines.append(escape_line(f"  {Path(fact['file']).name}: {shorten_paths(flow)}"))
    listed = ["\n".join(lines)] if facts else []
    return "\n\n".join([*listed, *map(escape_controls, broken.values())])


def _format_last(facts: Mapping[str, JSON]) -> str:
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
