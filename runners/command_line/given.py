"""What commands are given: a definition file, and what is put into it for this call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

if TYPE_CHECKING:
    from runners.definitions.definition import Definition
    from runners.pipeline import Pipeline

F = TypeVar("F", bound=Callable[..., Any])


def with_definition(command: F) -> F:
    """A command over a definition file: what is put into it."""
    change = click.option(
        "--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a field for this once."
    )
    return click.argument("file", type=click.Path(path_type=Path))(with_variables(change(_named(command))))


def _named(command: F) -> F:
    """The command; what its errors say to type names the definition."""

    @functools.wraps(command)
    def naming(**given: Any) -> Any:
        from origins.errors import WherryError
        from runners.command_line.to_type import with_file

        try:
            return command(**given)
        except WherryError as error:
            error.hint = with_file(error.hint, given["file"])
            raise

    return cast(F, naming)


def with_variables(command: F) -> F:
    """A command that reads definitions: what is put into them."""
    file = click.option("--vars", "variable_file", type=click.Path(path_type=Path), help="A YAML file of such values.")
    one = click.option("--var", "variables", multiple=True, metavar="NAME=VALUE", help="Put VALUE in for ${NAME}.")
    secrets = click.option(
        "--secrets", "secret_file", type=click.Path(path_type=Path), help="A YAML file of values for ${secret:NAME}."
    )
    return one(file(secrets(command)))


def variables_given(variables: Sequence[str], variable_file: Path | None) -> dict[str, str]:
    """The values that were given for `${NAME}`; one that stands on the command line wins."""
    from runners.definitions.parameters import variables_in

    given = variables_in(variable_file) if variable_file else {}
    return {**given, **dict(_pair(each, "--var", "NAME=VALUE") for each in variables)}


def moves(command: F) -> F:
    """A command that moves offsets: why, and without asking."""
    command = click.option("--yes", is_flag=True, help="Do not ask.")(command)
    return click.option("--reason", default="", metavar="TEXT", help="Why; it is kept in the ledger.")(command)


as_json = click.option("--json", "json", is_flag=True, help="Print JSON for a program.")


@dataclass(frozen=True, kw_only=True)
class Carrying:
    """How a command carries: what it says meanwhile, and what it does where another run does."""

    quiet: bool
    if_running: str
    log_format: str
    json: bool

    @property
    def skips(self) -> bool:
        """Whether nothing is done where another run has the pipeline."""
        return self.if_running == "skip"


def carries(command: F) -> F:
    """A command that carries: it is given a `Carrying`, and from then on speaks as that says."""

    @functools.wraps(command)
    def carrying(*, quiet: bool, if_running: str, log_format: str, json: bool, **given: Any) -> Any:
        from runners.listeners.log_lines import speak

        speak(log_format)
        how = Carrying(quiet=quiet, if_running=if_running, log_format=log_format, json=json)
        return command(carrying=how, **given)

    options = [
        click.option("--quiet", is_flag=True, help="No progress."),
        click.option(
            "--if-running",
            type=click.Choice(["fail", "skip"]),
            default="fail",
            help="What to do where another run has the pipeline: exit with 4, or with 0.",
        ),
        click.option(
            "--log-format", type=click.Choice(["text", "json"]), default="text", help="How standard error is written."
        ),
        as_json,
    ]
    return functools.reduce(lambda given, option: option(given), reversed(options), cast(F, carrying))


def kinds_that_begin(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The kinds whose names begin like this, for a shell that completes them."""
    from runners.definitions.kinds import CONTRACTS, ours

    return sorted({name for role in CONTRACTS for name in ours().of(role) if name.startswith(incomplete)})


def codes_that_begin(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The codes that begin like this."""
    from runners.codes import codes

    return [code for code in codes() if code.startswith(incomplete.upper())]


class InOrder(click.Group):
    """Commands in the order in which a person needs them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def looked_at(**given: Any) -> Pipeline:
    """The pipeline of a definition whose state is looked at, for which no secret is needed."""
    return loaded(needs_secrets=False, **given).pipeline


def loaded(
    file: Path,
    variables: Sequence[str],
    variable_file: Path | None,
    overrides: Sequence[str],
    secret_file: Path | None = None,
    needs_secrets: bool = True,
) -> Definition:
    """The definition, with what was put into it."""
    from runners.definitions.definition import load
    from runners.definitions.parameters import variables_in

    return load(
        file,
        variables=variables_given(variables, variable_file),
        overrides=dict(_pair(each, "--set", "PATH=VALUE") for each in overrides),
        secrets=variables_in(secret_file) if secret_file else {},
        needs_secrets=needs_secrets,
    )


def _pair(text: str, option: str, shape: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"expected {shape}, got '{text}'", param_hint=option)
    return name, value
