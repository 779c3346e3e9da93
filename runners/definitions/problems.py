"""What is wrong with a definition: all of it at once, each with its path."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from origins.errors import WherryError

_SHOWN = 50


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing to mend."""

    path: str
    """Where in the definition, as `origin.files.path` or `stages[0].cast`; empty for the whole of it."""
    message: str
    line: int | None = None
    """From 1; None for what stands in no line, as a `--set` or a definition in Python."""
    column: int | None = None

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class DefinitionError(WherryError):
    """A definition that cannot be carried out; `problems` is all that is wrong with it."""

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
    """The known name that is most like this one, if any is."""
    by_lower_case = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.lower()[:100], by_lower_case, n=1, cutoff=0.6)
    return by_lower_case[close[0]] if close else None


def suggest_nearest(name: str, known: Iterable[str]) -> str:
    """The ending of a sentence about an unknown name: the nearest one, or all of them."""
    names = list(known)
    near = find_nearest(name, names)
    if near:
        return f"did you mean '{near}'?"
    if len(names) == 1:
        return f"expected '{names[0]}'"
    return f"expected one of {', '.join(names)}" if names else "none is expected here"
