"""Commands whose help is in sections, and the options that all of them share."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import click
from click.formatting import wrap_text
from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])

SELECTION, FIX, EXPERTS = "Selection", "Fix for the rows", "For experts"
COMMON = "Common options"
"""The headings of options. Options for the command itself have none of these."""
FIRST = "Options"
_FILE_HELP = "The definition; optional if a folder holds one."
_ROW_ID = re.compile(r"[0-9a-f]{32}/\d+")
"""The pattern of the id of a row in the DLQ."""
_WIDEST = 26
"""The widest option whose text begins on the same line."""


class SectionedOption(click.Option):
    """An option that help shows under a heading."""

    def __init__(self, *given: Any, section: str = FIRST, here: bool = False, **how: Any) -> None:
        super().__init__(*given, **how)
        self.section = section
        self.here = here
        """Whether it can only be used where the definition is, and not over a server."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the option and its phrase, without the limits that click adds."""
        record = super().get_help_record(ctx)
        return record and (record[0], self.help or "")


def option(*names: str, section: str = FIRST, **how: Any) -> Callable[[F], F]:
    return click.option(*names, cls=SectionedOption, section=section, **how)


select_option, fix_option, expert_option = (partial(option, section=heading) for heading in (SELECTION, FIX, EXPERTS))

_GIVEN = f"{__name__}.given"
"""Where the contexts of a call keep the shared options that it was given."""


def keep_shared(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Keep the value of a shared option for the command. This is the callback of the option."""
    if value:
        given = ctx.meta.setdefault(_GIVEN, {})
        name = str(parameter.name)
        given[name] = (*given.get(name, ()), *value) if parameter.multiple else value


def _share(names: str, metavar: str | None, text: str, **how: Any) -> SectionedOption:
    how |= {"metavar": metavar, "help": text, "expose_value": False, "callback": keep_shared}
    return SectionedOption(names.split(), section=COMMON, **how)


_FILE, _FORMAT = click.Path(path_type=Path), click.Choice(["text", "json"])
_VALUES = (
    _share("--set overrides", "PATH=VALUE", "Override a field for this call only.", multiple=True),
    _share("--var variables", "NAME=VALUE", "Set ${NAME}; falls back to the environment.", multiple=True),
    _share("--vars variable_file", "FILE", "Read values for ${NAME} from a YAML file.", type=_FILE),
    _share("--secrets secret_file", "FILE", "Read values for ${secret:NAME} from a YAML file.", type=_FILE),
)
_QUIET = _share("--quiet", None, "Print no progress.", is_flag=True)
_JSON = _share("--json", None, "Print JSON for a program.", is_flag=True)
_LOG_FORMAT = _share("--log-format", "text|json", "Choose the format of standard error.", type=_FORMAT)
_SERVER = _share("--server", "URL", "Let `wherry serve` do it; FILE is then a pipeline.")
SERVER_VARIABLE = "WHERRY_SERVER"
"""The environment variable with the server of commands that get no `--server`."""
SHARED = (*_VALUES, _QUIET, _JSON, _LOG_FORMAT, _SERVER)
"""The options of all commands. A person may type them before the command too."""
_PLAIN = {"json": False, "quiet": False, "log_format": "text"}
"""What a command gets for a shared option that is not given."""


@dataclass(frozen=True, kw_only=True)
class GivenValues:
    """The values for definitions that a command was given."""

    overrides: Sequence[str] = ()
    variables: Sequence[str] = ()
    variable_file: Path | None = None
    secret_file: Path | None = None
    server: str = ""
    """The address of the server that has the definitions. Empty if they are here."""

    def read_overrides(self) -> Mapping[str, str]:
        """Return the values by their paths in the definition, such as `dlq.window`."""
        return dict(split_pair(pair, "--set", "PATH=VALUE") for pair in self.overrides)

    def read_variables(self) -> Mapping[str, str]:
        """Return the values for `${NAME}`. The command line has priority over the file."""
        pairs = (split_pair(pair, "--var", "NAME=VALUE") for pair in self.variables)
        return {**_read_values(self.variable_file), **dict(pairs)}

    def read_secrets(self) -> Mapping[str, str]:
        """Return the values for `${secret:NAME}`."""
        return _read_values(self.secret_file)


def _read_values(file: Path | None) -> Mapping[str, str]:
    from runners.definitions.parameters import read_variables

    return read_variables(file) if file else {}


def split_pair(text: str, option: str, shape: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"expected {shape}, got '{text}'", param_hint=option)
    return name, value


def read_groups(pairs: Sequence[str]) -> Mapping[str, int]:
    """Return how many runs each group has at a time, from pairs such as `warehouse=2`."""
    limits: dict[str, int] = {}
    for group, most in (split_pair(pair, "--group", "NAME=N") for pair in pairs):
        if group in limits or not re.fullmatch("[1-9][0-9]{0,5}", most):
            raise click.UsageError(f"--group: expected each group once, with a number from 1, got '{group}={most}'.")
        limits[group] = int(most)
    return limits


def list_given(ctx: click.Context) -> Mapping[str, Any]:
    """Return the values of the shared options that a call was given, by their names."""
    given: Mapping[str, Any] = ctx.meta.get(_GIVEN, {})
    return given


_USERS = {
    "quiet": "show progress",
    "log_format": "log progress",
    "server": "a server can do. Type this one without it, where the definition is",
}
"""By shared option, what the commands do that can use it."""


class SectionedCommand(click.Command):
    """A command whose help groups its options. It says what to use in place of an option that is gone.

    Its function gets `json`. It also gets the `GivenValues` if the command reads definitions, `quiet` if it shows
    progress, and the `log_format` if it logs. The command refuses shared options that it cannot use. It may have one of
    them as an option of its own, with another help.

    `over_server` is true if a server can do the command, and false if it is about a state and a server cannot do it.
    """

    def __init__(
        self,
        *given: Any,
        reads_definitions: bool = True,
        shows_progress: bool = False,
        logs: bool = False,
        over_server: bool | None = None,
        **how: Any,
    ) -> None:
        super().__init__(*given, **how)
        self._over_server = over_server
        used = (
            (_VALUES, reads_definitions),
            ((_QUIET,), shows_progress),
            ((_JSON,), True),
            ((_LOG_FORMAT,), logs),
            ((_SERVER,), over_server is True),
        )
        self._own = {each.name for each in self.params}
        self.shared = [each for options, is_used in used if is_used for each in options if each.name not in self._own]

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        shared = self.shared if ctx.resilient_parsing else [each for each in SHARED if each.name not in self._own]
        return [*super().get_params(ctx), *shared]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and not args[0].startswith("-") and not is_definition(args[0]):
            _refuse_gone(ctx, args[0])
        try:
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            _refuse_gone(ctx, error.option_name)
            raise
        given = list_given(ctx)
        for each in SHARED:
            if each.name in given and each not in self.shared and each.name not in self._own:
                can = _USERS.get(str(each.name), "read definitions")
                raise click.UsageError(f"{each.opts[0]} is for commands that {can}.", ctx)
        server = self._find_server(ctx, given)
        names = {str(each.name) for each in self.shared}
        ctx.params |= {name: given.get(name, plain) for name, plain in _PLAIN.items() if name in names}
        if _VALUES[-1] in self.shared:
            values = {str(each.name): given[each.name] for each in _VALUES if each.name in given}
            ctx.params["values"] = GivenValues(**values, server=server)
        return rest

    def _find_server(self, ctx: click.Context, given: Mapping[str, Any]) -> str:
        """Return the address of the server for this call, or an empty text.

        Raise a usage error for a command or an option that needs the definition.
        """
        server = str(given.get("server") or os.environ.get(SERVER_VARIABLE, ""))
        if not server or self._over_server is None or ctx.resilient_parsing:
            return ""
        if not self._over_server:
            raise click.UsageError(
                f"A server cannot do this command. Do it where the definition is, without {SERVER_VARIABLE}.", ctx
            )
        typed = click.core.ParameterSource.COMMANDLINE
        own = [each for each in self.params if getattr(each, "here", False)]
        used = [each for each in own if ctx.get_parameter_source(str(each.name)) is typed]
        for each in (*used, *(each for each in _VALUES if each.name in given)):
            raise click.UsageError(f"{each.opts[0]} needs the definition. Do it where that is, without a server.", ctx)
        return server

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {
            heading: [] for heading in ("Arguments", FIRST, SELECTION, FIX, EXPERTS)
        }
        for parameter in super().get_params(ctx):
            if isinstance(parameter, click.Argument):
                sections["Arguments"] += [("FILE", _FILE_HELP)] if parameter.name == "file" else []
            elif record := parameter.get_help_record(ctx):
                sections[getattr(parameter, "section", FIRST)].append(record)
        _write_sections(sections, formatter)
        names = ", ".join(each.opts[0] for each in self.shared)
        listed = wrap_text(f"{COMMON}: {names}", 80)
        formatter.write(f"\n{listed}\n`wherry --help` explains them.\n")


@dataclass
class CommandFiles(MutableMapping[str, click.Command]):
    """Commands by name. The file of a command is imported when the command is asked for, so that help is quick."""

    sections: Mapping[str, Mapping[str, tuple[str, str]]]
    """By heading and command: the file here that has the command, and the line about it in help."""
    _loaded: dict[str, click.Command] = field(default_factory=dict, init=False)

    @cached_property
    def places(self) -> Mapping[str, tuple[str, str]]:
        """The same by command alone."""
        return {name: place for section in self.sections.values() for name, place in section.items()}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            file, _ = self.places[name]
            try:
                module = importlib.import_module(f"{__package__}.{file}")
            except KeyError as error:  # to click it would mean that there is no such command
                raise ImportError(f"{file} cannot be imported: {error!r}") from error
            self[name] = next(
                each for each in vars(module).values() if isinstance(each, click.Command) and each.name == name
            )
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self.places

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


class SectionedGroup(click.Group):
    """Commands, perhaps under headings, in the order in which a person needs them.

    Without a command, `default` is used.
    """

    command_class = SectionedCommand
    group_class = type

    def __init__(self, *given: Any, default: str = "", **how: Any) -> None:
        super().__init__(*given, **how)
        self.default = default

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if self.default and self._means_default(ctx, args):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands:
            _refuse_gone(ctx, args[0])
        return super().resolve_command(ctx, args)

    def _means_default(self, ctx: click.Context, args: Sequence[str]) -> bool:
        """Whether no command is named: no word at all, an option of the default command, or its file."""
        if not args:
            return not ctx.resilient_parsing
        first = args[0]
        is_option = first.startswith("-") and first not in ctx.help_option_names
        return first not in self.commands and (is_option or is_file(first))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return what may follow. It imports no file of a command."""
        if not isinstance(self.commands, CommandFiles):
            return super().shell_complete(ctx, incomplete)
        places = self.commands.places.items()
        found = [CompletionItem(name, help=line) for name, (_, line) in places if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        own, shared = (
            [record for each in options if (each in SHARED) is is_shared and (record := each.get_help_record(ctx))]
            for is_shared in (False, True)
        )
        _write_sections({FIRST: own}, formatter)
        self.format_commands(ctx, formatter)
        _write_sections({COMMON: shared}, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        room = formatter.width - 6 - max(map(len, self.commands))
        if isinstance(self.commands, CommandFiles):
            sections = {
                heading: [
                    (name, click.Command(name, help=line).get_short_help_str(room))
                    for name, (_, line) in section.items()
                ]
                for heading, section in self.commands.sections.items()
            }
        else:
            sections = {"Commands": [(name, each.get_short_help_str(room)) for name, each in self.commands.items()]}
        _write_sections(sections, formatter)


def command(name: str | None = None, **how: Any) -> Callable[[Callable[..., Any]], click.Command]:
    return click.command(name, cls=SectionedCommand, **how)


def group(*, default: str = "", **how: Any) -> Callable[[Callable[..., Any]], SectionedGroup]:
    return click.group(cls=SectionedGroup, default=default, **how)


def _refuse_gone(ctx: click.Context, word: str) -> None:
    """Raise a usage error if this word after the command is gone. A command that is there needs no package of ours."""
    from origins.gone import describe_gone

    typed = f"{ctx.command_path} {word}"
    if gone := describe_gone(typed):
        raise click.UsageError(f"'{typed}' {gone}", ctx) from None


def is_file(word: str) -> bool:
    """Whether a word of a command line means a definition, and not a command, a run, a refused row or a setting."""
    return is_definition(word) or ("/" in word and not _ROW_ID.fullmatch(word))


def is_definition(word: str) -> bool:
    """Whether a word means a definition, if other words may have a slash too, such as a text to search for."""
    return word.endswith((".yaml", ".yml")) or Path(word).exists()


def _write_sections(sections: Mapping[str, Sequence[tuple[str, str]]], formatter: click.HelpFormatter) -> None:
    """Write each section that has content, all with the same width for names."""
    names = [name for rows in sections.values() for name, _ in rows]
    width = max((len(name) for name in names if len(name) <= _WIDEST), default=0)
    for heading, rows in sections.items():
        if rows:
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), text) for name, text in rows], col_max=width)
