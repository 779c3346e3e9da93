"""The commands about runs and states: what ran, how far it came, and whether each row is where it should be."""

from __future__ import annotations

import json as json_format
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import click

from origins.batch import JSON
from runners.command_line.folder import format_folder, read_folder
from runners.command_line.help_sections import SELECTION, GivenValues, command, is_file, option, select_option
from runners.command_line.options import (
    COUNT,
    PATH,
    AnyPipeline,
    confirm,
    find_definition,
    list_secrets_to_mask,
    load_definition,
    load_for_reading,
    load_pipeline,
    open_server,
    refuse_options,
    split_words,
    time_option,
    with_definition,
    with_folder,
    with_move_options,
)
from runners.command_line.process_end import FAILED, WRONG
from runners.model.errors import Refusal
from runners.model.text import format_percent, table, with_file
from runners.operations import printing, printing_state
from runners.operations.offsets import OffsetMove
from runners.operations.repair import RepairResult
from runners.operations.reports.write_html import write_directory, write_run
from runners.operations.status import describe_pipelines
from runners.pipeline import Pipeline


@command(over_server=True)
@with_definition
@option("--lane", metavar="LANE", help="Move this lane to --offset.")
@option("--offset", metavar="OFFSET", help="An offset from this command with --json, a word or a time.")
@option("--back", "batches", type=COUNT, metavar="N", help="Go back N batches in every lane.")
@time_option("--to", "moment", help="Go back to 2026-01-31T06:00 (UTC) in every lane.")
@option("--to-beginning", is_flag=True, help="Go back to the beginning; read all rows again.")
@with_move_options
def offsets(  # noqa: PLR0913 -- each is an option of the command
    lane: str | None,
    offset: str | None,
    batches: int | None,
    moment: datetime | None,
    to_beginning: bool,
    reason: str,
    yes: bool,
    json: bool,
    **given: Any,
) -> None:
    """Show how far each lane was read, or move it by hand.

    For example:  wherry offsets orders.yaml --back 2 --reason "wrong prices"

    Without an option, it also shows open batches. After a move back, the next run reads rows again. A move needs a
    --reason.
    """
    asked = [lane is not None or offset is not None, batches is not None, moment is not None, to_beginning]
    if sum(asked) > 1 or (not any(asked) and (reason or yes)) or (lane is None) is not (offset is None):
        raise click.UsageError("Give one of --lane with --offset, --back N, --to TIME and --to-beginning.")
    position = None if offset is None else _parse_offset(offset)
    pipeline = load_for_reading(**given)
    if not any(asked):
        lanes = pipeline.offsets.read()
        click.echo(printing.as_json(lanes.json()) if json else str(lanes))
        return
    move = pipeline.offsets.plan(lane=lane, offset=position, batches=batches, to=moment, beginning=to_beginning)
    move_offsets(pipeline, move, reason=reason, yes=yes)
    if move.lanes:
        click.echo(f"Done. The next run continues from there:  wherry run {given['file']}", err=True)
    if json:
        click.echo(printing.as_json(move.json()))


_WORD_OR_TIME = re.compile(r"[a-z]+|\d{4}-\d\d-\d\d.*")
"""Offsets that need no quotes. A shell removes the quotes that JSON needs."""


def _parse_offset(text: str) -> JSON:
    try:
        return json_format.loads(text)
    except json_format.JSONDecodeError as error:
        if _WORD_OR_TIME.fullmatch(text):
            return text
        message = f"expected JSON, got {text!r}: {error.msg}"
        raise click.BadParameter(message, param_hint="--offset") from error


def move_offsets(pipeline: AnyPipeline, move: OffsetMove, *, reason: str, yes: bool) -> None:
    """Show what a move will do, ask, and do it."""
    click.echo(printing.format_move(move), err=True)
    if move.lanes:
        if not reason.strip():
            raise Refusal("Nothing was moved: the ledger keeps a reason for each move.", hint='Add --reason "…".')
        confirm(yes=yes)
        pipeline.offsets.move(move, reason=reason)


@command(over_server=True)
@with_definition
def audit(json: bool, **given: Any) -> int:
    """Prove that every row is where it should be.

    For example:  wherry audit orders.yaml

    Compares the ledger with the history and the rows of every destination, and with the dead letter queue. Changes
    nothing. Ends with 1 if something is wrong.
    """
    result = load_for_reading(**given).audit()
    click.echo(printing.as_json(result.json()) if json else printing_state.format_audit(result, str(given["file"])))
    return 0 if result.balanced else FAILED


@command(over_server=True)
@with_definition
@option("--accept", multiple=True, metavar="ID", help="Count this finding as right; may be repeated.")
@with_move_options
def repair(accept: Sequence[str], reason: str, yes: bool, json: bool, **given: Any) -> int:
    """Repair what an audit finds, where no guess is needed.

    For example:  wherry repair orders.yaml --reason "the table was restored by mistake"

    Mends a ledger that has lost a file. Finishes batches that a run left open, and puts back whole batches that are
    missing from a table. For all other findings, `audit` says what to do. --accept changes no row: audits then count
    the finding as right. Ends with 1 if something is still wrong.
    """
    pipeline = load_pipeline(**given)
    plan = pipeline.plan_repair()
    before = plan.audit
    if before is None:
        click.echo(plan.damage, err=True)
        confirm(yes=yes)
        result = pipeline.repair(reason=reason, accept=accept)
        return _show_repaired(result, json=json, file=str(given["file"]))
    safe = [finding for finding in before.problems if finding.remedy or finding.id in accept]
    alone = (
        "Wherry can repair nothing by itself. Each finding says what to do." if before.problems else "Nothing is wrong."
    )
    click.echo(printing_state.format_repairs(safe, accept) if safe else alone, err=True)
    result = RepairResult(done=[], audit=before)
    if safe or accept:
        confirm(yes=yes)
        result = pipeline.repair(reason=reason, accept=accept)
    return _show_repaired(result, json=json, file=str(given["file"]))


def _show_repaired(result: RepairResult, *, json: bool, file: str) -> int:
    click.echo(printing.as_json(result.json()) if json else printing_state.format_repaired(result, file))
    return 0 if result.audit.balanced else FAILED


@command(over_server=True)
@with_definition
@with_folder
def status(everything: bool, select: Sequence[str], json: bool, **given: Any) -> int:
    """Show the state of a pipeline or a folder, and what to type next.

    For example:  wherry status orders.yaml

    For a folder, and with --all or --select, it lists the definitions of the folder, by default of this one. A pipeline
    comes after the pipelines whose tables it reads. Starts no Spark. Ends with 2 if a definition is broken.
    """
    values: GivenValues = given["values"]
    if everything or select or (not values.server and given["file"].is_dir()):
        refuse_options(("overrides",), "is for one definition.")
        return _list_folder(given["file"], select, values, json=json)
    facts = load_for_reading(**given).status()
    facts["next"] = with_file(facts["next"], given["file"])
    click.echo(printing.as_json(facts) if json else printing.format_status(facts, str(given["file"])))
    return 0


def _list_folder(directory: Path, select: Sequence[str], values: GivenValues, *, json: bool) -> int:
    if values.server:
        facts, broken = open_server(values).describe_pipelines(select)
    else:
        folder = read_folder(directory, values)
        names, broken = folder.graph.sort(folder.graph.select(select)), folder.broken
        facts = describe_pipelines(folder.definitions, folder.graph, names)
    click.echo(printing.as_json({"pipelines": facts, "broken": broken}) if json else format_folder(facts, broken))
    return WRONG if broken else 0


@command(over_server=True)
@partial(with_definition, rest="run")
@click.argument("run", default="")
@select_option(
    "--status",
    type=click.Choice(["running", "succeeded", "failed", "stopped", "killed"]),
    metavar="STATUS",
    help="Show running, succeeded, failed, stopped or killed.",
)
@time_option("--since", section=SELECTION, help="Show runs since 2026-01-31T06:00 (UTC).")
@select_option("--limit", type=COUNT, default=20, metavar="N", help="Show the newest N; default: 20.")
@select_option("--archived", here=True, is_flag=True, help="Show runs older than run.history too.")
def runs(
    run: str, status: str | None, since: datetime | None, limit: int, archived: bool, json: bool, **given: Any
) -> None:
    """List the runs of a pipeline, or show one.

    For example:  wherry runs orders.yaml --status failed

    RUN is the name of a run, or its first letters, or `last`.
    """
    pipeline = load_for_reading(**given)
    if run:
        refuse_options(("status", "since", "limit", "archived"), "is for the list of runs, and not for one run.")
        facts = pipeline.history.find(run)
        click.echo(printing.as_json(facts) if json else printing.format_run(facts))
        return
    listed = pipeline.history.list(status=status or "", since=since, limit=limit, archived=archived)
    click.echo(printing.as_json({"runs": listed}) if json else printing.format_runs(listed))


@command(over_server=False)
@click.argument("file", type=PATH, required=False)
@click.argument("run", default="")
@option("--to", "place", type=PATH, metavar="PLACE", help="Write here; default: NAME-RUN.html.")
@option("--index", "directory", type=PATH, metavar="DIR", help="Report on all definitions in DIR.")
@click.pass_context
def report(
    ctx: click.Context,
    /,
    file: Path | None,
    run: str,
    place: Path | None,
    directory: Path | None,
    json: bool,
    **given: Any,
) -> None:
    """Write one HTML file about a run.

    For example:  wherry report orders.yaml 3f9a --to report.html

    RUN is the name of a run, or its first letters; default: last. The page needs no network. With --index,
    PLACE is a folder, by default reports; it gets an index and a page for each of the newest runs.
    """
    file, run = split_words(file, run, is_file)
    if file is not None and directory is not None:
        raise click.UsageError("Name a definition, or with --index a directory of them.", ctx)
    if directory is not None:
        refuse_options(("overrides",), "is for one definition.")
        variables: Mapping[str, str] = given["values"].read_variables()
        secrets = list_secrets_to_mask()
        page = write_directory(directory, place or Path("reports"), variables=variables, note_secrets=secrets.update)
    else:
        file = file or find_definition()
        pipeline = Pipeline.of(load_definition(file=file, needs_secrets=False, **given).pipeline)
        page = write_run(pipeline, pipeline.history.find(run or "last"), place)
    click.echo(printing.as_json({"file": str(page)}) if json else str(page))


@command(over_server=True)
@with_definition
@option("--limit", type=COUNT, default=8, metavar="N", help="Show the newest N runs; default: 8.")
def quality(limit: int, json: bool, **given: Any) -> None:
    """Show which share passed each rule, run by run.

    For example:  wherry quality orders.yaml

    A rule about rows has a share of rows, and a rule about batches a share of batches.
    """
    trends = load_for_reading(**given).history.quality(limit)
    click.echo(printing.as_json({"rules": trends}) if json else format_trends(trends))


def format_trends(trends: Sequence[Mapping[str, JSON]]) -> str:
    """Return each rule, and below it its result in each run that checked a rule, the newest last."""
    if not trends:
        return "No run has checked expectations yet. Add a stage `expect` to the definition."
    began = {share["run"]: share["started_at"] for rule in trends for share in rule["runs"]}
    asked = sorted(began, key=lambda run: (began[run], run))
    rows = [["", _format_cells([run[:8] for run in asked])]]
    for rule in trends:
        fared = {share["run"]: format_percent(share) for share in rule["runs"]}
        rows += [[rule["stage"], rule["rule"]], ["", _format_cells([fared.get(run, "-") for run in asked])]]
    return table(["stage", "rule, and the share that passed it by run, the newest last"], rows)


def _format_cells(cells: Sequence[str]) -> str:
    return " ".join(f"{cell:<8}" for cell in cells)
