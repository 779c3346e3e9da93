"""The options that commands share, such as a definition file and values for it, and the exit codes."""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import click

from runners.command_line.help_sections import F, GivenValues, is_definition, is_file, list_given, option, select_option
from runners.model.codes import read_codes
from runners.model.text import with_file

if TYPE_CHECKING:
    from runners.definitions.definition import Definition
    from runners.pipeline import Pipeline
    from runners.service.remote import RemoteFolder, RemotePipeline

AnyPipeline: TypeAlias = "Pipeline | RemotePipeline"
"""A pipeline, or one of a server. Both have the methods that commands call."""

PATH, COUNT = click.Path(path_type=Path), click.IntRange(min=1)
VALUES = tuple(GivenValues.__dataclass_fields__)


def with_definition(command: F, rest: str = "") -> F:
    """Give a command a definition file. Without a file, the only one in this folder is used.

    The hints of the command's errors name the file. An argument `rest` may follow the file; a first word that is not a
    file belongs to `rest`. Some of these arguments are required.
    """

    @functools.wraps(command)
    def name_file(**given: Any) -> Any:
        from origins.errors import WherryError

        values: GivenValues = given["values"]
        if values.server:
            given["file"] = _name_pipeline(given["file"], values, many=given.get("everything") or given.get("select"))
        elif rest:
            is_named = _IS_NAMED.get(rest, is_definition)
            given["file"], given[rest] = split_words(given["file"], given[rest], is_named)
        if given.get("everything") or given.get("select"):
            given["file"] = given["file"] or Path()
        given["file"] = given["file"] or find_definition(given.get(rest))
        if rest in _REQUIRED and not given[rest]:
            raise click.MissingParameter(param_hint=_REQUIRED[rest], param_type="argument")
        try:
            return command(**given)
        except WherryError as error:
            error.hint = with_file(error.hint, given["file"])
            raise

    return click.argument("file", type=PATH, required=False)(cast(F, name_file))


def _name_pipeline(file: Path | None, values: GivenValues, *, many: Any) -> Path | None:
    """Return the name of a pipeline of a server. Without a word, it is the only one there, or None for a folder."""
    if many:
        if file is not None:
            raise click.UsageError("A server has one folder. Leave out FILE.")
        return None
    if file is None:
        typed = click.get_current_context().command_path
        return Path(open_server(values).find_only(typed))
    return Path(file.stem) if file.suffix in (".yaml", ".yml") else file


_IS_NAMED: Mapping[str, Callable[[str], bool]] = {"run": is_file, "new": lambda _: False}
"""By the name of `rest`, whether a single word means the definition and not that argument."""
_REQUIRED = {"new": "NEW", "letter": "ID"}
"""How an error calls an argument that a command cannot do without, by the name of `rest`."""


def with_folder(command: F) -> F:
    """Let the file of a command be a folder, and add options that select its pipelines."""
    some = select_option("--select", multiple=True, metavar="NAME", help="Take some of a folder: gold, gold+ or +gold.")
    return select_option("--all", "everything", is_flag=True, help="Take every definition of a folder.")(some(command))


def split_words(file: Path | None, rest: Any, is_named: Callable[[str], bool]) -> tuple[Path | None, Any]:
    """Return the file, and the word or words after it. The file may have been left out.

    `is_named` decides whether a single word means a file.
    """
    if file is None or is_named(str(file)):
        return file, rest
    if isinstance(rest, tuple):
        return None, (str(file), *rest)
    return (file, rest) if rest else (None, str(file))


def find_definition(rest: Any = None) -> Path:
    """Return the only definition in this folder. Raises `Refusal` with the command to type if none or several exist.

    `rest` is the word or words after it.
    """
    from runners.definitions.definition import list_definitions
    from runners.model.errors import Refusal

    words = [*rest] if isinstance(rest, tuple) else [str(rest)] if rest else []
    found = list_definitions(Path())
    typed = click.get_current_context().command_path
    if len(found) == 1:
        if found[0].absolute() in {Path(word).absolute() for word in words}:
            raise Refusal("There is one definition in this folder.", hint=f"Name two:  {typed} OLD NEW")
        return found[0]
    if not found:
        raise Refusal("There is no definition in this folder.", hint="Name its file; or write one:  wherry init")
    names = [file.name for file in found]
    listed = ", ".join(names) if len(names) <= _MOST_NAMED else f"{', '.join(names[:_MOST_NAMED])} and more"
    takes = {parameter.name for parameter in click.get_current_context().command.params}
    all_of_them = f"\nOr all of them:  {typed} --all" if "everything" in takes else ""
    one = next((name for name in names if name not in words), names[0])
    what, wanted = ("Name two", names[:2]) if "new" in takes and not words else ("Name one", [one, *words])
    raise Refusal(
        f"There are {len(names)} definitions in this folder: {listed}.",
        hint=f"{what}:  {typed} {shlex.join(wanted)}{all_of_them}",
    )


_MOST_NAMED = 10


def with_move_options(command: F) -> F:
    """Add the options for the reason, and for not asking, to a command that changes what a run does next."""
    return with_reason(option("--yes", is_flag=True, help="Do it without asking.")(command))


def with_reason(command: F) -> F:
    return option("--reason", default="", metavar="TEXT", help="Say why; the ledger keeps it.")(command)


def time_option(*names: str, **how: Any) -> Callable[[F], F]:
    """Return an option that takes a time. The command gets it in UTC, or None."""
    return option(*names, metavar="TIME", callback=_parse_moment, **how)


def _parse_moment(ctx: click.Context, parameter: click.Parameter, text: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError as error:
        message = f"expected a time such as 2026-01-31T06:00, got {text!r}"
        raise click.BadParameter(message, param_hint=parameter.opts[0]) from error
    return moment.replace(tzinfo=moment.tzinfo or timezone.utc).astimezone(timezone.utc) if moment else None


def with_wide(command: F) -> F:
    """Add --wide to a command that shows tables. Without a terminal, which has a width, tables are always whole."""

    def is_wide(ctx: click.Context, parameter: click.Parameter, wide: bool) -> bool:
        return wide or not sys.stdout.isatty()

    return option("--wide", is_flag=True, callback=is_wide, help="Show all columns and whole values.")(command)


@dataclass(frozen=True, kw_only=True)
class CarryOptions:
    """How a command runs a pipeline: what it prints meanwhile, and what it does if another run is active."""

    quiet: bool
    if_running: str
    json: bool


def with_carry_options(command: F) -> F:
    """Give a command that runs a pipeline its `CarryOptions`, and set up its log lines."""

    @functools.wraps(command)
    def carry(*, quiet: bool, if_running: str, log_format: str, json: bool, **given: Any) -> Any:
        from runners.listeners.log_lines import configure_logs

        configure_logs(log_format)
        return command(carrying=CarryOptions(quiet=quiet, if_running=if_running, json=json), **given)

    return option(
        "--if-running",
        type=click.Choice(["fail", "skip"]),
        default="fail",
        metavar="fail|skip",
        help="If another run is active: exit with 4, or 0.",
    )(cast(F, carry))


def complete_kinds(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the kinds whose names begin with this text, for the completion of a shell."""
    from runners.definitions.kinds import CONTRACTS, get_our_kinds

    return sorted(
        {name for role in CONTRACTS for name in get_our_kinds().list_names(role) if name.startswith(incomplete)}
    )


def complete_codes(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    return [code for code in read_codes() if code.startswith(incomplete.upper())]


def load_for_reading(**given: Any) -> AnyPipeline:
    """Load the pipeline of a definition for reading its state, which needs no secret."""
    return load_pipeline(needs_secrets=False, **given)


def load_pipeline(file: Path, values: GivenValues, needs_secrets: bool = True) -> AnyPipeline:
    """Load the pipeline of a definition, or return the pipeline of this name of a server."""
    if values.server:
        return open_server(values).open_pipeline(str(file))
    from runners.pipeline import Pipeline

    return Pipeline.of(load_definition(file, values, needs_secrets).pipeline)


def open_server(values: GivenValues) -> RemoteFolder:
    """Return the pipelines of the server. The token comes from the environment, because other users see arguments."""
    from runners.service.remote import RemoteFolder

    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if token:
        list_secrets_to_mask()[token] = TOKEN_VARIABLE
    return RemoteFolder.open(values.server, token)


TOKEN_VARIABLE = "WHERRY_TOKEN"  # noqa: S105 -- the name of the variable
"""The environment variable with the token for a server."""


def load_definition(file: Path, values: GivenValues, needs_secrets: bool = True) -> Definition:
    from runners.definitions.definition import list_secrets, load

    masked = list_secrets_to_mask()
    definition = load(
        file,
        variables=values.read_variables(),
        overrides=values.read_overrides(),
        secrets=values.read_secrets(),
        needs_secrets=needs_secrets,
        note_secrets=masked.update,
    )
    masked.update(list_secrets(definition.pipeline))
    return definition


def list_secrets_to_mask() -> dict[str, str]:
    """Return the secrets that the command masks in unexpected errors, each with its reference."""
    return click.get_current_context().ensure_object(dict)


def check_duration(ctx: click.Context, parameter: click.Parameter, text: str) -> str:
    """Return the text if it is a duration or empty. This is the callback of an option."""
    from origins.quantities import parse_seconds

    try:
        parse_seconds(text or "0s")
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=parameter.opts[0]) from error
    return text


def confirm(*, yes: bool) -> None:
    """Ask for a yes, unless `yes` is set. Raises `Refusal` if no question can be asked."""
    from runners.model.errors import Refusal

    if yes:
        return
    if not is_terminal():
        raise Refusal(
            "Nothing was done: without a terminal Wherry cannot ask for a yes.",
            hint="Add --yes to do it without a question.",
        )
    click.confirm("Do it?", abort=True, err=True)


def is_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def refuse_options(names: Collection[str], reason: str) -> None:
    """Raise a usage error if one of these options was given, because the command cannot use it."""
    ctx, typed = click.get_current_context(), click.core.ParameterSource.COMMANDLINE
    for parameter in ctx.command.get_params(ctx):
        is_given = parameter.name in list_given(ctx) or ctx.get_parameter_source(str(parameter.name)) is typed
        if parameter.name in names and is_given:
            raise click.UsageError(f"{parameter.opts[0]} {reason}")


def find_command() -> str:
    """Return the path of `wherry` on this machine, because cron and systemd search only a few places."""
    beside = Path(sys.executable).with_name("wherry")
    return str(beside) if beside.exists() else shutil.which("wherry") or "wherry"
