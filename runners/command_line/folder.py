"""`wherry run` and `wherry validate` over a folder: its pipelines in the order in which they feed each other."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from runners.command_line.carrying import RunEnding, carry_with_progress, interrupt_on_signals
from runners.command_line.options import (
    BY_CODE,
    FAILED,
    OWNED,
    STOPPED,
    CarryOptions,
    list_secrets_to_mask,
    load_definition,
    merge_variables,
)

if TYPE_CHECKING:
    from runners.definitions.definition import Definition
    from runners.definitions.pipeline_graph import PipelineGraph


@dataclass(frozen=True, kw_only=True)
class PipelineFolder:
    """The pipelines of a folder by their names, and what is wrong with the other files."""

    definitions: Mapping[str, Definition]
    broken: Mapping[str, str]

    def build_graph(self) -> PipelineGraph:
        """Which feeds which."""
        from runners.definitions.pipeline_graph import PipelineGraph

        return PipelineGraph.of({name: each.pipeline for name, each in self.definitions.items()})


def read_folder(
    directory: Path, variables: Sequence[str], variable_file: Path | None, secret_file: Path | None
) -> PipelineFolder:
    """The definitions in the folder; a secret may be missing. Raises `Refusal` for a folder without a definition."""
    from runners.definitions.definition import folder_of, list_definitions
    from runners.definitions.parameters import read_variables
    from runners.model.errors import Refusal

    values, tell = merge_variables(variables, variable_file), list_secrets_to_mask().update
    secrets = read_variables(secret_file) if secret_file else {}
    folder = folder_of(directory, variables=values, secrets=secrets, needs_secrets=False, tell_secrets=tell)
    definitions: dict[str, Definition] = {}
    broken: dict[str, str] = {}
    for file in list_definitions(directory):
        found = folder.read(file.name)
        if isinstance(found, str):
            broken[file.name] = found
        elif found.pipeline.name in definitions:
            other = definitions[found.pipeline.name].path
            broken[file.name] = f"{file.name}: the pipeline in {other} is called {found.pipeline.name} already"
        else:
            definitions[found.pipeline.name] = replace(found, path=file)
    if not definitions and not broken:
        where = "this folder" if directory == Path() else str(directory)
        raise Refusal(f"There is no definition in {where}.", hint="Write one:  wherry init")
    return PipelineFolder(definitions=definitions, broken=broken)


def choose_pipelines(
    directory: Path, select: Sequence[str], given: Mapping[str, Any]
) -> tuple[PipelineGraph, Mapping[str, Path]]:
    """The files of the selected pipelines by name, in their order. Raises `Refusal` with all that is broken."""
    from runners.model.errors import Refusal

    folder = read_folder(directory, given["variables"], given["variable_file"], given["secret_file"])
    if folder.broken:
        raise Refusal("\n".join(folder.broken.values()), hint="Nothing was started.")
    graph = folder.build_graph()
    files = {name: each.path or Path() for name, each in folder.definitions.items()}
    return graph, {name: files[name] for name in graph.sort(graph.select(select))}


def validate_folder(directory: Path, select: Sequence[str], *, with_spark: bool, json: bool, **given: Any) -> int:
    """Say in a line that each is well defined, and how they feed each other."""
    from runners.command_line import printing
    from runners.model.masking import hide_in_errors
    from runners.operations.validate import analyse, explain

    graph, files = choose_pipelines(directory, select, given)
    explained = []
    for name, file in files.items():
        definition = load_definition(file=file, **given)
        with hide_in_errors(definition.pipeline.secrets):
            analysis = analyse(definition) if with_spark else None
        said = explain(definition)
        facts = {**said.json(), "columns": analysis.columns if analysis else None}
        explained.append({**facts, "file": str(file), "after": list(graph.upstream[name])})
    if json:
        click.echo(printing.as_json({"pipelines": explained}))
    else:
        click.echo("\n".join(f"{name} is well defined.{_format_after(graph.upstream[name])}" for name in files))
    return 0


def _format_after(names: Any) -> str:
    return f" It reads what {' and '.join(names)} {'write' if len(names) > 1 else 'writes'}." if names else ""


def run_folder(directory: Path, select: Sequence[str], *, carrying: CarryOptions, **given: Any) -> int:
    """Run the selected pipelines on one Spark, each behind those that feed it. What a failed one feeds is skipped."""
    from runners.command_line import printing
    from runners.listeners.log_lines import complain

    graph, files = choose_pipelines(directory, select, given)
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
            endings[name], code = _run_one(definition, str(files[name]), carrying)
            codes.append(code)
    code = next((code for code in codes if code), 0)
    if carrying.json:
        ran = [{"file": str(files[name]), **each.json()} for name, each in endings.items()]
        whole = {0: "succeeded", STOPPED: "stopped"}.get(code, "failed")
        click.echo(printing.as_json({"status": whole, "pipelines": ran}))
    else:
        click.echo(format_endings(list(endings.values())))
    return code


def _open_spark(definitions: Sequence[Definition], carrying: CarryOptions) -> bool:
    """Start the one Spark for all of them, unless one is there. False where a signal stopped that."""
    from runners.command_line.carrying import show_progress
    from runners.model.text import format_count
    from runners.schedules.scheduling import open_session

    heard: list[int] = []
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(interrupt_on_signals(heard))
            if not carrying.quiet:
                name = format_count(len(definitions), "pipeline", "pipelines")
                stack.enter_context(show_progress(name, log_format=carrying.log_format))
            open_session(definitions)
    except (KeyboardInterrupt, Exception):  # a Spark that is interrupted in a call ends with errors of its own
        if not heard:
            raise
    return not heard


def _find_obstacle(upstream: Any, endings: Mapping[str, RunEnding]) -> str:
    """Why a pipeline cannot run after those that ended; nothing if it can."""
    stopped = next((name for name, each in endings.items() if each.status == "stopped"), None)
    if stopped is not None:
        return f"{stopped} was stopped"
    bad = [name for name in upstream if name in endings and not _is_good(endings[name])]
    return f"it reads what {' and '.join(bad)} should have written" if bad else ""


def _is_good(ending: RunEnding) -> bool:
    return ending.status == "succeeded" or ending.passed_over


def _run_one(definition: Definition, file: str, carrying: CarryOptions) -> tuple[RunEnding, int]:
    """How its run ended, and with which exit code. One that cannot begin is a failure of its own."""
    from origins.errors import WherryError
    from runners.listeners.log_lines import complain
    from runners.model.masking import without
    from runners.pipeline import Pipeline

    pipeline = Pipeline.of(definition.pipeline)
    try:
        ending = carry_with_progress(
            pipeline, file, lambda listeners: pipeline.run(check=False, listeners=listeners), carrying
        )
    except WherryError as error:
        said = without(pipeline.secrets, str(error))
        complain(f"{pipeline.name} failed: {said}", code=error.code)
        code = BY_CODE.get(error.code, FAILED)
        return RunEnding(pipeline=pipeline.name, status="owned" if code == OWNED else "failed", reason=said), code
    return ending, ending.exit_code


def format_endings(endings: Sequence[RunEnding]) -> str:
    """How each ended, one a line."""
    from runners.model.text import table

    rows = [[each.pipeline, each.status, *_format_counts(each), _format_reason(each)] for each in endings]
    return table(["pipeline", "ended", "read", "delivered", "refused", "seconds", ""], rows)


def _format_counts(ending: RunEnding) -> list[str]:
    report = ending.report
    if report is None:
        return [""] * 4
    return [
        *(f"{report.read:,}", f"{sum(each.delivered for each in report.destinations.values()):,}"),
        *(f"{report.nacked:,}", f"{report.seconds:,.1f}"),
    ]


def _format_reason(ending: RunEnding) -> str:
    if ending.report is None:
        return ending.reason.partition("\n")[0]
    error = ending.report.error
    return f"{error.code}, see above" if error else "" if ending.report.batches else "nothing new"
