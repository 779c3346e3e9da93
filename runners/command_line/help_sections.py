"""Help in sections: the options of a command, and the commands of a group, under headings."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])

SELECTION, FIX, VALUES, EXPERTS = "Selection", "Fix for the rows", "Values for the definition", "For experts"
"""The headings of options. Options for the command itself have none of these."""
_FIRST = "Options"
_FILE = "The definition; optional if a folder holds one."
_ROW_ID = re.compile(r"[0-9a-f]{32}/\d+")
"""The pattern of the id of a row in the DLQ."""
_WIDEST = 26
"""The widest option whose text begins on the same line."""


class SectionedOption(click.Option):
    """An option that help shows under a heading."""

    def __init__(self, *given: Any, section: str = _FIRST, **how: Any) -> None:
        super().__init__(*given, **how)
        self.section = section

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the option and its phrase, without the limits that click adds."""
        record = super().get_help_record(ctx)
        return record and (record[0], self.help or "")


def option(*names: str, section: str = _FIRST, **how: Any) -> Callable[[F], F]:
    return click.option(*names, cls=SectionedOption, section=section, **how)


select_option, fix_option, value_option, expert_option = (
    partial(option, section=heading) for heading in (SELECTION, FIX, VALUES, EXPERTS)
)


class SectionedCommand(click.Command):
    """A command whose help groups its options. It says what to use in place of an option that is gone."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and not args[0].startswith("-") and not is_definition(args[0]):
            _refuse_gone(ctx, args[0])
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            _refuse_gone(ctx, error.option_name)
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {
            heading: [] for heading in ("Arguments", _FIRST, SELECTION, FIX, VALUES, EXPERTS)
        }
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Argument):
                sections["Arguments"] += [("FILE", _FILE)] if parameter.name == "file" else []
            elif record := parameter.get_help_record(ctx):
                sections[getattr(parameter, "section", _FIRST)].append(record)
        _write_sections(sections, formatter)


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


def command(name: str | None = None) -> Callable[[Callable[..., Any]], click.Command]:
    return click.command(name, cls=SectionedCommand)


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
