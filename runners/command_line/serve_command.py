"""The command `wherry serve`: the schedule of a folder with an API and a page."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from origins.quantities import parse_seconds
from runners.command_line.help_sections import GivenValues, command, expert_option, option, read_groups
from runners.command_line.options import COUNT, PATH, check_duration, list_secrets_to_mask, refuse_options
from runners.command_line.process_end import FAILED, STOPPED
from runners.command_line.schedule_command import stop_on_signals
from runners.listeners.log_lines import complain, configure_logs
from runners.model.clock import Clock
from runners.model.errors import Refusal
from runners.operations import printing
from runners.schedules.schedule_log import ScheduleLines, ScheduleLog

if TYPE_CHECKING:
    from runners.service.access.tokens import RightName


@command(logs=True)
@click.argument("directory", type=PATH)
@option("--port", type=click.IntRange(0, 65535), default=8400, metavar="PORT", help="Listen here; default: 8400.")
@option(
    "--grpc-port",
    type=click.IntRange(0, 65535),
    default=8401,
    metavar="PORT",
    help="Listen here for gRPC; default: 8401.",
)
@option("--host", default="127.0.0.1", metavar="HOST", help="Listen at this address; default: 127.0.0.1.")
@option("--new-token", metavar="NAME", help="Make a token for NAME, print it, and end.")
@option("--remove-token", metavar="NAME", help="Let the token of NAME end.")
@option(
    "--right",
    type=click.Choice(["read", "operate", "admin"]),
    default="read",
    metavar="RIGHT",
    help="Allow read, operate or admin; default: read.",
)
@option("--only", metavar="NAMES", help="The pipelines of the token, such as orders,items.")
@option("--lasts", default="", metavar="TIME", callback=check_duration, help="When the token ends, such as 30d.")
@expert_option("--allow-host", multiple=True, metavar="NAME", help="Callers reach the server by this name.")
@expert_option("--definition-root", multiple=True, metavar="PLACE", help="Take definitions of places below it, in DIR.")
@expert_option("--allow-parameter", multiple=True, metavar="NAME", help="Callers may set ${NAME} of definitions.")
@expert_option("--issuer", metavar="URL", help="Take tokens of this identity provider too.")
@expert_option("--audience", default="wherry", metavar="NAME", help="Its tokens name this; default: wherry.")
@expert_option("--certificate", type=PATH, metavar="FILE", help="Use TLS with this certificate, and --key.")
@expert_option("--key", type=PATH, metavar="FILE", help="The key of the certificate.")
@expert_option("--at-once", type=COUNT, metavar="N", help="Run N pipelines at a time.")
@expert_option("--group", multiple=True, metavar="NAME=N", help="Run N of this group at a time; default: 1.")
def serve(  # noqa: PLR0913 -- each is an option of the command
    directory: Path,
    values: GivenValues,
    port: int,
    grpc_port: int,
    host: str,
    new_token: str | None,
    remove_token: str | None,
    right: RightName,
    only: str | None,
    lasts: str,
    allow_host: tuple[str, ...],
    definition_root: tuple[str, ...],
    allow_parameter: tuple[str, ...],
    issuer: str | None,
    audience: str,
    certificate: Path | None,
    key: Path | None,
    at_once: int | None,
    group: tuple[str, ...],
    log_format: str,
    json: bool,
) -> int:
    """Run the pipelines of a folder, with an API and a page.

    For example:  wherry serve pipelines

    It does what `wherry schedule` does, and answers over REST and gRPC. Open the address that it prints in a browser.
    Each caller needs a token: the address has one, which ends with the server. Exit codes: 0 asked to end, 1 Spark is
    gone, 2 no such folder, 3 cancelled by a second signal.
    """
    refuse_options(("overrides",), "is for one definition.")
    # runs fork, their children call no gRPC, and its handlers would print a line at each fork
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    from runners.service import serving

    if not directory.is_dir():
        raise Refusal(f"There is no directory {directory}.", hint="Name the directory with the definitions.")
    if (certificate is None) is not (key is None):
        raise click.UsageError("--certificate and --key go together.")
    tokens = serving.open_tokens(directory)
    if remove_token is not None:
        removed = tokens.remove(remove_token)
        there = "It is not known any more." if removed else f"There is no token of {remove_token}."
        click.echo(printing.as_json({"removed": removed}) if json else there)
        return 0
    if new_token is not None:
        pipelines = [each for each in re.split(r"[,\s]+", only or "") if each]
        if only is not None and not pipelines:
            raise click.UsageError("--only names no pipeline. Without it, the token is for all of them.")
        token = tokens.add(new_token, right, pipelines=pipelines, lasts=parse_seconds(lasts) if lasts else None)
        click.echo(printing.as_json({"token": token}) if json else token)
        return 0
    configure_logs(log_format)
    server = serving.Server.open(
        serving.ServerOptions(
            directory=directory,
            host=host,
            port=port,
            grpc_port=grpc_port,
            allowed_hosts=[host, *allow_host],
            at_once=at_once or os.cpu_count() or 1,
            groups=read_groups(group),
            variables=values.read_variables(),
            secrets=values.read_secrets(),
            note_secrets=list_secrets_to_mask().update,
            definition_roots=definition_root,
            parameters=allow_parameter,
            provider=(issuer, audience) if issuer else None,
            tls=(certificate, key) if certificate and key else None,
            webhook_secret=os.environ.get("WHERRY_WEBHOOK_SECRET", ""),
            index_address=os.environ.get("WHERRY_INDEX", ""),
        ),
        listeners=[ScheduleLog() if log_format == "json" else ScheduleLines(Clock())],
    )
    with stop_on_signals(server.stop) as came, server.listen() as address:
        if json:
            click.echo(printing.as_json({"address": address, "grpc": server.grpc_address, "token": server.own_token}))
        else:
            click.echo(f"The page and the API:  {address}/#token={server.own_token}")
            click.echo(f"gRPC:  {server.grpc_address}")
            click.echo("They end with this command: press Ctrl-C.", err=True)
        server.run()
    if server.error:
        complain(f"Spark has ended: {server.error}")
        return FAILED
    return STOPPED if len(came) > 1 else 0
