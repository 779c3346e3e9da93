"""Help in sections: the options of a command, and the commands of a group, under headings."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

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


class SectionedGroup(click.Group):
    """Commands under headings, in the order in which a person needs them. Without a command, `default` is used."""

    command_class = SectionedCommand
    group_class = type

    def __init__(self, *given: Any, default: str = "", **how: Any) -> None:
        super().__init__(*given, **how)
        self.default = default
        self.sections: dict[str, Sequence[str]] = {}
        """The names of the commands, by heading."""

    def record_section(self, heading: str, *commands: click.Command) -> None:
        """Add commands that help shows under this heading."""
        for added in commands:
            self.add_command(added)
        self.sections[heading] = [added.name or "" for added in commands]

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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        named = {name for names in self.sections.values() for name in names}
        rest = [name for name in self.commands if name not in named]
        room = formatter.width - 6 - max(map(len, self.commands))
        _write_sections(
            {
                heading: [(name, self.commands[name].get_short_help_str(room)) for name in names]
                for heading, names in {**self.sections, "More" if named else "Commands": rest}.items()
            },
            formatter,
        )


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
