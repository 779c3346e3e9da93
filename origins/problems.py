"""What is wrong with a definition, in YAML or in Python: the problems, and the names that a person may have meant."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass
from typing import TypeVar

from origins.errors import WherryError
from origins.gone import describe_gone, name_option

_SHOWN = 50


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One problem to correct."""

    path: str
    """Where it is in the definition, such as `origin.files.path` or `stages[0].cast`.

    Empty for the whole definition.
    """
    message: str
    line: int | None = None
    """The line, from 1. None without a line, for example for a `--set` or a definition in Python."""
    column: int | None = None

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class DefinitionError(WherryError):
    """A definition that cannot be carried. `problems` has everything that is wrong with it."""

    code = "DEFINITION"

    def __init__(self, name: str, problems: Sequence[Problem], *, hint: str = "") -> None:
        self.problems = tuple(problems)
        count = f"{len(problems)} problems" if len(problems) > 1 else "1 problem"
        super().__init__("\n".join([f"{name}: {count}", *_format_problems(problems)]), hint=hint)


def _format_problems(problems: Sequence[Problem]) -> list[str]:
    lines = [f"line {problem.line}" if problem.line else "" for problem in problems[:_SHOWN]]
    width = max(map(len, lines), default=0)
    gap = "  " if width else ""
    listed = [f"  {line:<{width}}{gap}{problem}" for line, problem in zip(lines, problems, strict=False)]
    return [*listed, f"  and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else listed


def find_nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to this one, or None if none is similar."""
    by_lower_case = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.lower()[:100], by_lower_case, n=1, cutoff=0.6)
    return by_lower_case[close[0]] if close else None


def suggest_nearest(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown name: the nearest name, or all names."""
    names = list(known)
    near = find_nearest(name, names)
    if near:
        return f"did you mean '{near}'?"
    if len(names) == 1:
        return f"expected '{names[0]}'"
    return f"expected one of {', '.join(names)}" if names else "none is expected here"


def describe_unknown(holder: str, option: str, known: Iterable[str]) -> str:
    """Return what to say about an option that its holder does not have."""
    return describe_gone(name_option(holder, option)) or f"unknown option; {suggest_nearest(option, known)}"


class UnknownOption(DefinitionError, TypeError):
    """An option in Python that its class does not have. It is also a `TypeError`, as for any other class."""


T = TypeVar("T")


def refuse_unknown(cls: type[T]) -> type[T]:
    """Let a dataclass and its subclasses raise `UnknownOption`, in the words of a definition, for unknown options."""
    cls.__new__ = _make_checked  # type: ignore[method-assign]
    return cls


def _make_checked(cls: type[T], *_: object, **options: object) -> T:
    fields: Mapping[str, Field[object]] = cls.__dataclass_fields__  # type: ignore[attr-defined]
    if not options.keys() <= fields.keys():
        _check_names(cls, options, {name for name, field in fields.items() if field.metadata.get("hidden")})
    return object.__new__(cls)


def _check_names(cls: type, options: Mapping[str, object], hidden: Collection[str]) -> None:
    _, *parameters = inspect.signature(cls.__init__).parameters.values()  # type: ignore[misc]
    names = [each.name for each in parameters]
    unknown = [name for name in options if name not in names]
    if unknown and not any(each.kind is each.VAR_KEYWORD for each in parameters):
        known, name = [each for each in names if each not in hidden], options.get("name")
        whose = f"{cls.__name__} {name!r}" if isinstance(name, str) else cls.__name__
        problems = [Problem(path=each, message=describe_unknown(cls.__name__, each, known)) for each in unknown]
        raise UnknownOption(whose, problems)
