"""The commands for the first day: `demo` and `init`, and `kinds`, `explain` and `doctor`."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from runners.command_line import printing
from runners.command_line.carrying import show_progress
from runners.command_line.doctor import examine, examine_destinations, examine_origins
from runners.command_line.help_sections import command, option
from runners.command_line.options import (
    PATH,
    as_json,
    complete_codes,
    complete_kinds,
    find_definition,
    is_terminal,
    load_definition,
    refuse_options,
    with_quiet,
    with_values,
)
from runners.command_line.process_end import BY_STATUS, FAILED
from runners.command_line.schedule_command import find_command
from runners.definitions.document import find_nearest, suggest_nearest
from runners.definitions.first_pipeline import begin, make
from runners.definitions.json_schema import make_json_schema
from runners.definitions.kinds import CONTRACTS, describe_kind, get_our_kinds, list_kinds
from runners.definitions.proposal import collect_facts, propose, summarise_findings
from runners.listeners.log_lines import complain
from runners.listeners.run_progress import RunProgress
from runners.model.codes import read_codes, summarise
from runners.model.text import escape_line, paint_word, shorten_paths, table
from runners.operations.cases import find_cases
from runners.pipeline import Pipeline


@command()
@click.argument("directory", type=PATH, default=Path("wherry-demo"))
@with_quiet
@as_json
def demo(directory: Path, quiet: bool, json: bool) -> int:
    """Make a folder of orders, some of them bad, and process them.

    For example:  wherry demo

    The demo writes all its files to DIRECTORY, by default wherry-demo.
    """
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
@click.argument("kind", required=False, shell_complete=complete_kinds)
@option("--json-schema", is_flag=True, help="Print the schema of definitions, for editors.")
@as_json
def kinds(kind: str | None, json_schema: bool, json: bool) -> None:
    """List all kinds of origins, stages and destinations, or show one.

    For example:  wherry kinds delta

    The list includes kinds that installed packages add.
    """
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
        refuse_options(
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
