"""The commands that teach and examine: `kinds`, `explain` and `doctor`.

Their imports need click alone, so that they work if a package is missing or hidden.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from runners.command_line.doctor import examine, examine_ends
from runners.command_line.help_sections import command, option
from runners.command_line.options import (
    PATH,
    VALUES,
    complete_codes,
    complete_kinds,
    find_definition,
    load_definition,
    refuse_options,
)
from runners.command_line.process_end import FAILED
from runners.model.codes import read_codes, summarise
from runners.model.text import paint_word, table
from runners.operations import printing


@command(reads_definitions=False)
@click.argument("kind", required=False, shell_complete=complete_kinds)
@option("--json-schema", is_flag=True, help="Print the schema of definitions, for editors.")
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


@command(reads_definitions=False)
@click.argument("code", required=False, shell_complete=complete_codes)
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
        from runners.definitions.document import find_nearest

        near = find_nearest(code, known)
        hint = f"Did you mean '{near}'?" if near else "`wherry explain` lists all codes."
        raise click.UsageError(f"There is no code '{code}'. {hint} A rule of `require` has its own name as its code.")
    click.echo(printing.as_json({"code": name, "text": known[name]}) if json else f"{name}\n\n{known[name]}")


@command()
@click.argument("state", metavar="[STATE|FILE]", type=PATH, required=False)
@option("--cluster", is_flag=True, help="Ask a cluster's executors; starts Spark.")
@option("--databricks", is_flag=True, help="Ask the compute of this notebook or job.")
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
        checks = [*examine(Path(".wherry")), *examine_ends(pipeline)]
    else:
        refuse_options(VALUES, "is for a definition. Ask with --cluster FILE, or leave it out.")
        checks = examine(state or Path(".wherry"))
    if json:
        click.echo(printing.as_json({"checks": [check.json() for check in checks]}))
    else:
        for check in checks:
            click.echo(f"{paint_word(f'{check.state:<10}')}  {check.name:<8}  {check.found}")
            if check.advice:
                click.echo(f"{'':<22}{check.advice}")
    return FAILED if any(check.state == "problem" for check in checks) else 0
