"""The commands of `wherry`: each parses its options, calls one public function, and prints.

A command imports the code that processes or describes pipelines only when it runs, so that help is quick.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from runners.command_line import printing, printing_state
from runners.command_line.dlq_commands import dlq
from runners.command_line.help_sections import command, expert_option, group, option, select_option
from runners.command_line.look_commands import (
    compare,
    find,
    list_folder,
    preview,
    quality,
    report,
    runs,
    test_cases,
)
from runners.command_line.options import (
    BY_STATUS,
    FAILED,
    PATH,
    CarryOptions,
    as_json,
    check_duration,
    complete_codes,
    complete_kinds,
    find_definition,
    load_definition,
    load_for_reading,
    load_pipeline,
    with_carry_options,
    with_definition,
    with_folder,
    with_move_options,
    with_quiet,
    with_reason,
    with_values,
)
from runners.command_line.schedule_command import find_command, schedule
from runners.command_line.state_commands import audit, confirm, is_terminal, move_offsets, offsets, repair
from runners.command_line.warm_command import warm
from runners.model.codes import read_codes, summarise
from runners.model.text import escape_line, find_version, paint_word, shorten_paths, table

if TYPE_CHECKING:
    from runners.running.backfill import Bound


def _print_version(ctx: click.Context, option: click.Parameter, asked: bool) -> None:
    if asked:
        click.echo(f"wherry {find_version()}")
        ctx.exit()


@group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
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


@command()
@click.argument("directory", type=PATH, default=Path("wherry-demo"))
@with_quiet
@as_json
def demo(directory: Path, quiet: bool, json: bool) -> int:
    """Make a folder of orders, some of them bad, and process them.

    For example:  wherry demo

    The demo writes all its files to DIRECTORY, by default wherry-demo.
    """
    from runners.command_line.carrying import show_progress
    from runners.definitions.first_pipeline import make
    from runners.listeners.log_lines import complain
    from runners.listeners.run_progress import RunProgress
    from runners.pipeline import Pipeline

    file = make(directory)
    pipeline = Pipeline.load(file)
    batches = sum(1 for _ in (directory / "landing" / "orders").iterdir())
    with show_progress(RunProgress(pipeline.name, batches=batches), pipeline.secrets, quiet=quiet) as listeners:
        report = pipeline.run(check=False, listeners=listeners)
    if report.error is not None:
        complain(printing.format_failure(report, str(file)), code=report.error.code)
    facts = {**report.json(), "file": str(file)}
    click.echo(printing.as_json(facts) if json else printing.format_demo(report, pipeline, file, _list_path_steps()))
    return BY_STATUS[report.status]


@command()
@click.argument("directory", type=PATH, required=False)
@option("--name", default="", metavar="NAME", help="Name the pipeline; default: DIRECTORY.")
@option(
    "--from",
    "own",
    type=click.Path(path_type=Path, exists=True),
    metavar="PATH",
    help="Read your own file, or a folder of files.",
)
@option("--databricks", is_flag=True, help="Write an asset bundle and a notebook.")
@option(
    "--compute",
    type=click.Choice(["serverless", "classic"]),
    metavar="KIND",
    help="Choose classic in place of serverless compute.",
)
@as_json
def init(
    directory: Path | None, name: str, own: Path | None, databricks: bool, compute: str | None, json: bool
) -> None:
    """Write a first definition, sample rows and test cases.

    For example:  wherry init shop

    Without DIRECTORY it asks for the name of the pipeline. With --from, it looks at the head of every file, says what
    it found, and writes a definition that reads them.

    --databricks writes a bundle and a notebook. They were not tried in a workspace yet.
    """
    from runners.definitions.first_pipeline import begin
    from runners.definitions.proposal import collect_facts, propose, summarise_findings

    if own is not None and databricks:
        raise click.UsageError("Choose one: --from reads files of this machine, --databricks files of a volume.")
    if compute and not databricks:
        raise click.UsageError("--compute is for --databricks.")
    if directory is None:
        if not name:
            name = click.prompt("Name of the pipeline", default="orders", err=True) if is_terminal() else "orders"
        directory = Path(name)
    proposal = propose(own) if own is not None else None
    files = begin(
        directory, name, example="databricks" if databricks else "orders", compute=compute or "", own=proposal
    )
    definition = next(iter(files))
    made = [(str(file), what) for file, what in files.items()]
    rows = _list_databricks_steps(directory) if databricks else _list_local_steps(definition)
    if json:
        written = [{"file": file, "what": what} for file, what in made]
        coming = [{"command": typed, "what": what} for typed, what in rows]
        found = {} if proposal is None else {"found": collect_facts(proposal)}
        click.echo(printing.as_json({"files": written, "next": coming, **found}))
    else:
        if proposal is not None:
            click.echo("\n".join([*map(escape_line, summarise_findings(proposal)), ""]))
        click.echo(f"{table(['written', ''], made)}\n\n{table(['type next', ''], rows)}")


def _list_local_steps(definition: Path) -> list[list[str]]:
    from runners.operations.cases import find_cases

    file = shlex.quote(str(definition))
    return [
        *_list_path_steps(),
        [f"wherry preview {file}", "shows the outcome of each row; writes nothing"],
        *([[f"wherry test {file}", "tries the cases; writes nothing"]] if find_cases(definition).exists() else []),
        [f"wherry run {file}", "processes all new rows"],
        [f"wherry dlq show {file}", "shows the refused rows, and why"],
    ]


def _list_path_steps() -> list[list[str]]:
    """Return what makes a shell find `wherry`; empty if it finds it already."""
    if shutil.which("wherry"):
        return []
    activate, command = Path(sys.executable).with_name("activate"), find_command()
    typed = f"alias wherry={shlex.quote(command)}" if command != "wherry" else ""
    if activate.exists():
        typed = f"source {shlex.quote(shorten_paths(str(activate)))}"
    return [[typed, "lets this shell find wherry"]] if typed else []


def _list_databricks_steps(directory: Path) -> list[list[str]]:
    return [
        [f"cd {shlex.quote(str(directory))}", ""],
        ["databricks bundle deploy", "makes a copy for you: a schema, a volume and two jobs"],
        ["databricks bundle summary", "shows their names"],
        ["databricks fs cp landing/sample.csv dbfs:VOLUME", "gives the volume some rows; write its path for VOLUME"],
        ["databricks bundle run by_hand", "runs the notebook"],
        ["databricks bundle deploy -t prod", "makes the real one, whose job begins when files arrive"],
    ]


@command()
@with_definition
@option("--spark", "with_spark", is_flag=True, help="Check types and SQL too; starts Spark.")
@with_folder
@as_json
def validate(with_spark: bool, everything: bool, select: Sequence[str], json: bool, **given: Any) -> int:
    """Explain what a definition will do, or list its errors.

    For example:  wherry validate orders.yaml --set dlq.window=0

    Reads no row, and needs no Java without --spark. With --all or --select, FILE is a folder, by default this one.
    """
    if everything or select:
        from runners.command_line.folder import validate_folder

        return validate_folder(given.pop("file"), select, with_spark=with_spark, json=json, **given)
    from runners.model.masking import hide_in_errors
    from runners.operations.validate import analyse, explain

    definition = load_definition(**given)
    explanation = explain(definition)
    with hide_in_errors(definition.pipeline.secrets):
        analysis = analyse(definition) if with_spark else None
    columns = analysis.columns if analysis else None
    explanation = replace(explanation, notes=(*explanation.notes, *(analysis.notes if analysis else ())))
    if json:
        click.echo(printing.as_json({**explanation.json(), "columns": columns}))
    else:
        click.echo(printing.format_explanation(explanation, str(given["file"]), columns))
    return 0


@command()
@with_definition
@option("--follow", is_flag=True, help="Process new rows as they arrive, until stopped.")
@option("--from-beginning", is_flag=True, help="Forget the progress; process all rows again.")
@with_move_options
@with_folder
@with_carry_options
@expert_option("--moved", multiple=True, metavar="NAME", help="Accept that NAME moved; its content is the same.")
@expert_option("--fresh", multiple=True, metavar="NAME", help="Accept that NAME was replaced by something else.")
@expert_option("--forget", multiple=True, metavar="NAME", help="Drop this destination from open batches.")
@expert_option(
    "--assume",
    type=click.Choice(["delivered", "missing"]),
    metavar="delivered|missing",
    help="Treat batches in doubt as delivered or missing.",
)
@expert_option("--take-over", default="", metavar="WHY", help="Take over from a run on a host that is gone.")
def run(  # noqa: PLR0913 -- each is an option of the command
    from_beginning: bool,
    reason: str,
    yes: bool,
    follow: bool,
    moved: Sequence[str],
    fresh: Sequence[str],
    forget: Sequence[str],
    assume: Literal["delivered", "missing"] | None,
    take_over: str,
    everything: bool,
    select: Sequence[str],
    **given: Any,
) -> int:
    """Process all new rows, then end.

    For example:  wherry run orders.yaml --set dlq.window=0

    With --all or --select, FILE is a folder, by default this one. Its pipelines run one by one, in the order in which
    their tables feed each other: `name+` takes all that it feeds, and `+name` all that feeds it.

    --moved, --fresh, --forget and --assume answer questions that Wherry cannot. Each needs a --reason.
    """
    from runners.command_line.carrying import carry_and_print
    from runners.command_line.folder import run_folder
    from runners.operations.offsets import plan_reset
    from runners.running.compatibility import OperatorOverrides

    if everything or select:
        _refuse_options(_OF_ONE_PIPELINE, "is for one pipeline, and not for a folder.")
        return run_folder(given.pop("file"), select, **given)
    carrying: CarryOptions = given.pop("carrying")
    ruling = OperatorOverrides(
        moved=tuple(moved), fresh=tuple(fresh), forget=tuple(forget), assume=assume or "", reason=reason
    )
    pipeline = load_pipeline(**given)
    if from_beginning:
        move_offsets(pipeline, plan_reset(pipeline), reason=reason, yes=yes)
    carry = partial(pipeline.run, check=False, follow=follow, take_over=take_over, ruling=ruling)
    return carry_and_print(pipeline, given["file"], carry, carrying)


_OF_ONE_PIPELINE = (*("follow", "from_beginning", "reason", "yes", "moved", "fresh", "forget", "assume", "take_over"),)


def _refuse_options(names: Collection[str], reason: str) -> None:
    """Raise a usage error if one of these options was given, because the command cannot use it."""
    ctx, given = click.get_current_context(), click.core.ParameterSource.COMMANDLINE
    for parameter in ctx.command.params:
        if parameter.name in names and ctx.get_parameter_source(str(parameter.name)) is given:
            raise click.UsageError(f"{parameter.opts[0]} {reason}")


def _parse_bound(ctx: click.Context, parameter: click.Parameter, text: str | None) -> Bound | None:
    from runners.running.backfill import parse_bound

    try:
        return None if text is None else parse_bound(text, last=parameter.name == "end")
    except ValueError as error:
        message = f"expected a number or a time such as 2026-01-31T06:00, got {text!r}"
        raise click.BadParameter(message, param_hint=parameter.opts[0]) from error


@command()
@with_definition
@select_option(
    "--from",
    "start",
    metavar="WHEN",
    callback=_parse_bound,
    help="Begin with this batch, or time or day of loading.",
)
@select_option(
    "--to",
    "end",
    metavar="WHEN",
    callback=_parse_bound,
    help="End with this batch, or time or day of loading.",
)
@select_option(
    "--where",
    default="",
    metavar="SQL",
    help="Deliver rows where this is true; columns as read.",
)
@select_option("--only", metavar="NAME", help="Deliver only to this destination.")
@select_option("--lane", metavar="LANE", help="Read only this lane.")
@option("--again", is_flag=True, help="Deliver also batches that a destination has.")
@with_move_options
@with_carry_options
def backfill(  # noqa: PLR0913 -- each is an option of the command
    start: Bound | None,
    end: Bound | None,
    where: str,
    only: str | None,
    lane: str | None,
    again: bool,
    reason: str,
    yes: bool,
    carrying: CarryOptions,
    **given: Any,
) -> int:
    """Deliver old batches to destinations that lack them.

    For example:  wherry backfill orders.yaml --from 2026-01-31 --only latest --again --reason "lost rows"

    WHEN is the number of a batch in its lane, or the time (UTC) when the batch was loaded. It is not a date in the
    rows: for that, use --where. Offsets do not move. After a crash, type the same command again: it continues.
    """
    from runners.command_line.carrying import carry_and_print
    from runners.operations.offsets import plan_backfill
    from runners.running.backfill import Backfill

    past = Backfill(start=start, end=end, where=where, only=only, lane=lane, again=again, reason=reason)
    pipeline = load_pipeline(**given)
    move = plan_backfill(pipeline, past)
    if move.lanes:
        click.echo(printing.format_move(move), err=True)
        confirm(yes=yes)
    return carry_and_print(pipeline, given["file"], partial(pipeline.backfill, past, check=False), carrying)


@command()
@with_definition
@option("--file", "name", required=True, metavar="NAME", help="Redo this file.")
@with_move_options
@with_carry_options
def redo(name: str, reason: str, yes: bool, carrying: CarryOptions, **given: Any) -> int:
    """Read an edited file again, and replace its old rows.

    For example:  wherry redo orders.yaml --file monday.json

    In each table, one commit replaces the old rows of the file by the new ones. Wherry refuses if it cannot tell which
    rows of a table came from the file. After a crash, type the same command again: it continues.
    """
    from runners.command_line.carrying import carry_and_print, show_work
    from runners.operations.redo import preview_redo

    pipeline = load_pipeline(**given)
    with show_work(pipeline, f"looking for the rows of {name}", quiet=carrying.quiet) as say:
        redo_preview = preview_redo(pipeline, name, say=say)
    click.echo(printing_state.format_redo(redo_preview, str(given["file"])), err=True)
    if redo_preview.read is not None or redo_preview.letters:
        confirm(yes=yes)
    carry = partial(pipeline.redo, name, reason=reason, check=False)
    return carry_and_print(pipeline, given["file"], carry, carrying, shown=redo_preview.notices)


@command()
@with_definition
@option("--reason", default="asked to stop", metavar="TEXT", help="Say why; the run's report shows it.")
@option("--force", is_flag=True, help="Cancel batches in flight; the next run recovers.")
@option(
    "--within",
    default="",
    metavar="TIME",
    callback=check_duration,
    help="Force it after this grace period, such as 30s.",
)
@as_json
def stop(reason: str, force: bool, within: str, json: bool, **given: Any) -> None:
    """Stop a run when its batches in flight are done.

    For example:  wherry stop orders.yaml
    """
    pipeline = load_for_reading(**given)
    asked = pipeline.stop(reason, force=force, within=within)
    if json:
        click.echo(printing.as_json({"pipeline": pipeline.name, "asked": asked, "force": force}))
    elif asked:
        at_once = " at once" if force else ""
        click.echo(f"{pipeline.name} was asked to stop{at_once}. See its state:  wherry status {given['file']}")
        if not force:
            click.echo(f"It finishes its open batches first. To cancel them:  wherry stop {given['file']} --force")
    else:
        click.echo(f"{pipeline.name} is not running.")


@command()
@with_definition
@with_reason
@as_json
def resume(reason: str, json: bool, **given: Any) -> None:
    """Resume a pipeline that a limit has paused.

    For example:  wherry resume orders.yaml --reason "the export is corrected"

    The next run plans the batch again, and judges it again. To let it pass:  wherry run FILE --set dlq.limits.rows=off
    """
    pipeline = load_for_reading(**given)
    resumed = pipeline.resume(reason=reason)
    if json:
        click.echo(printing.as_json({"pipeline": pipeline.name, "resumed": resumed}))
    elif resumed:
        click.echo(f"{pipeline.name} is resumed. Go on:  wherry run {given['file']}")
    else:
        click.echo(f"{pipeline.name} is not paused.")


@command()
@with_definition
@as_json
def status(json: bool, **given: Any) -> None:
    """Show the state of a pipeline, and what to type next.

    For example:  wherry status orders.yaml
    """
    from runners.operations.status import read_status

    definition = load_definition(needs_secrets=False, **given)
    facts = read_status(definition.pipeline, str(given["file"]), definition=definition.hash)
    click.echo(printing.as_json(facts) if json else printing.format_status(facts, str(given["file"])))


@command()
@click.argument("kind", required=False, shell_complete=complete_kinds)
@option("--json-schema", is_flag=True, help="Print the schema of definitions, for editors.")
@as_json
def kinds(kind: str | None, json_schema: bool, json: bool) -> None:
    """List all kinds of origins, stages and destinations, or show one.

    For example:  wherry kinds delta

    The list includes kinds that installed packages add.
    """
    from runners.definitions.document import suggest_nearest
    from runners.definitions.json_schema import make_json_schema
    from runners.definitions.kinds import CONTRACTS, describe_kind, get_our_kinds, list_kinds

    if json_schema:
        click.echo(printing.dump(make_json_schema()))
        return
    if kind is None:
        described = list_kinds()
    else:
        described = [describe_kind(role, kind) for role in get_our_kinds().list_roles(kind)]
        if not described:
            known = [name for role in CONTRACTS for name in get_our_kinds().list_names(role)]
            raise click.UsageError(f"There is no kind '{kind}'; {suggest_nearest(kind, known)}")
    if json:
        click.echo(printing.as_json({"kinds": [each.json() for each in described]}))
    elif kind is None:
        click.echo(printing.format_kinds(described))
    else:
        click.echo("\n\n".join(map(printing.format_kind, described)))


@command()
@click.argument("code", required=False, shell_complete=complete_codes)
@as_json
def explain(code: str | None, json: bool) -> None:
    """Explain the code of an error, and what to do.

    For example:  wherry explain WINDOW
    """
    from runners.definitions.document import find_nearest

    known = read_codes()
    if code is None:
        summaries = {name: summarise(name) for name in known}
        rows = [*summaries.items()]
        click.echo(printing.as_json({"codes": summaries}) if json else table(["code", "what it means"], rows))
        return
    name = next((name for name in known if name.lower() == code.lower()), None)
    if name is None:
        near = find_nearest(code, known)
        hint = f"Did you mean '{near}'?" if near else "`wherry explain` lists all codes."
        raise click.UsageError(f"There is no code '{code}'. {hint} A rule of `require` has its own name as its code.")
    click.echo(printing.as_json({"code": name, "text": known[name]}) if json else f"{name}\n\n{known[name]}")


@command()
@click.argument("state", metavar="[STATE|FILE]", type=PATH, required=False)
@option("--cluster", is_flag=True, help="Ask a cluster's executors; starts Spark.")
@option("--databricks", is_flag=True, help="Ask the compute of this notebook or job.")
@with_values
@as_json
def doctor(state: Path | None, cluster: bool, databricks: bool, json: bool, **given: Any) -> int:
    """Find what this machine, a cluster or Databricks lacks.

    For example:  wherry doctor

    STATE is the folder for the state of a pipeline, by default .wherry. FILE is a definition: Wherry asks the Kafka
    brokers that it names, and with --cluster the executors. With --databricks it tries the rights on tables and
    volumes; it makes and drops a table in the schema of the state.
    """
    from runners.command_line.doctor import examine, examine_destinations, examine_origins

    if databricks and cluster:
        raise click.UsageError("Choose one: --databricks or --cluster.")
    if databricks:
        from runners.command_line.databricks_doctor import examine_databricks

        checks = [*examine_databricks(load_definition(file=state, **given).pipeline if state else None)]
    elif cluster:
        from runners.command_line.cluster_doctor import examine_cluster

        checks = [*examine_cluster(load_definition(file=state or find_definition(), **given).pipeline)]
    elif state is not None and state.is_file():
        pipeline = load_definition(file=state, **given).pipeline
        checks = [*examine(Path(".wherry")), *examine_origins(pipeline), *examine_destinations(pipeline)]
    else:
        _refuse_options(
            ("overrides", "variables", "variable_file", "secret_file"),
            "is for a definition. Ask with --cluster FILE, or leave it out.",
        )
        checks = examine(state or Path(".wherry"))
    if json:
        click.echo(printing.as_json({"checks": [check.json() for check in checks]}))
    else:
        for check in checks:
            click.echo(f"{paint_word(f'{check.state:<10}')}  {check.name:<8}  {check.found}")
            if check.advice:
                click.echo(f"{'':<22}{check.advice}")
    return FAILED if any(check.state == "problem" for check in checks) else 0


wherry.record_section("Start", demo, init, validate, preview, test_cases, compare)
wherry.record_section("Run", run, stop, resume, backfill, redo, schedule, warm)
wherry.record_section("Look", list_folder, status, find, runs, report, quality)
wherry.record_section("Check and repair", audit, repair, dlq, offsets)
wherry.record_section("Learn", kinds, explain, doctor)
