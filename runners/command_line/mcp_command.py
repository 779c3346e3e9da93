"""The command `wherry mcp`: a server's operations for an agent, and a person's approval of what the agent plans."""

from __future__ import annotations

import difflib
import json as json_text
from collections.abc import Mapping
from typing import Any

import click

from origins.errors import WherryError
from runners.command_line.help_sections import GivenValues, command, option
from runners.command_line.options import confirm, open_server
from runners.model.errors import Refusal
from runners.operations import printing


@command(over_server=True)
@option("--approve", metavar="PLAN", help="Show this plan, and approve it if you say yes.")
@option("--yes", is_flag=True, help="Approve it without asking.")
def mcp(values: GivenValues, approve: str | None, yes: bool, json: bool) -> int:
    """Let an agent read, and plan changes for a person.

    For example:  wherry mcp --server http://127.0.0.1:8400

    It speaks the Model Context Protocol over stdin and stdout. WHERRY_TOKEN is the agent's token, with the right to
    read. With --approve it is your own, with the right that the change needs. Exit codes: 0 done, 1 no server, 2 the
    server refused.
    """
    if not values.server:
        raise click.UsageError("Name the server: --server URL, or WHERRY_SERVER.")
    client = open_server(values).client
    if approve is None:
        from runners.service.mcp_server import serve_agent

        serve_agent(client)
        return 0
    from runners.service.plans import make_digest

    plan = client.get_plan(plan=approve)
    if plan.digest != make_digest(plan.operation, plan.arguments):
        raise Refusal("The plan has another digest than its arguments, so it is not approved.")
    shown = {name: getattr(plan, name) for name in ("operation", "arguments", "preview", "by", "expires_at")}
    shown["arguments"] = {name: _split_lines(name, each) for name, each in plan.arguments.items()}
    if plan.operation == "put_definition":
        shown["change"] = _compare_definition(client, plan.arguments)
    if isinstance(plan.preview, dict) and "task" in plan.preview:
        task = client.wait_for_end(client.get_task(task=plan.preview["task"]))
        shown["preview"] = {name: getattr(task, name) for name in ("state", "result")}
        shown["preview"]["problem"] = task.problem and task.problem.detail
    click.echo(json_text.dumps(shown, indent=2), err=True)  # ASCII, so no text of a row can move the cursor
    confirm(yes=yes)
    approved = client.approve_plan(plan=approve, digest=plan.digest)
    done = {"plan": approved.plan, "approved_by": approved.approved_by, "expires_at": approved.expires_at}
    click.echo(printing.as_json(done) if json else f"Approved until {approved.expires_at}.")
    return 0


def _split_lines(name: str, value: Any) -> Any:
    """Return a definition as its lines, and any other argument as it is."""
    return value.split("\n") if name == "definition" and isinstance(value, str) else value


def _compare_definition(client: Any, arguments: Mapping[str, Any]) -> list[str]:
    """Return the lines that differ between the stored definition and that of the plan."""
    try:
        before = client.get_definition(pipeline=arguments["pipeline"]).definition.split("\n")
    except WherryError as error:
        return [f"The stored definition is not shown: {error.message}"]
    return [*difflib.unified_diff(before, arguments["definition"].split("\n"), "stored", "planned", lineterm="")]
