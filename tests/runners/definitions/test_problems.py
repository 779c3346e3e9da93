"""How problems are told."""

from __future__ import annotations

import pytest

from runners.definitions.problems import DefinitionError, Problem, suggest_nearest
from runners.model.text import shorten


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("pth", ["format", "path"], "did you mean 'path'?"),
        ("PATH", ["format", "path"], "did you mean 'path'?"),
        ("xyz", ["format", "path"], "expected one of format, path"),
        ("xyz", ["path"], "expected 'path'"),
        ("xyz", [], "none is expected here"),
        ("x" * 100_000, ["path"], "expected 'path'"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_or_with_all(name: str, known: list[str], said: str) -> None:
    """However it is written, and however long it is."""
    assert suggest_nearest(name, known) == said


def test_what_was_given_is_quoted_on_one_line_and_not_for_ever() -> None:
    """So that a message stays a line."""
    assert shorten("a\nb") == r"'a\nb'"
    assert len(shorten("x" * 1_000)) == 62


def test_problems_are_listed_with_their_lines_in_a_column() -> None:
    """One that stands in no line leaves the column empty; without any line there is no column."""
    placed = Problem(path="a.b", message="is wrong", line=12)
    free = Problem(path="", message="is missing")
    assert str(DefinitionError("x.yaml", [placed, free])) == (
        "x.yaml: 2 problems\n  line 12  a.b: is wrong\n           is missing"
    )
    assert str(DefinitionError("x.yaml", [free], hint="Do.")) == "x.yaml: 1 problem\n  is missing\nDo."


def test_a_thousand_problems_are_counted_and_not_all_printed() -> None:
    """All of them are in `problems`."""
    error = DefinitionError("x.yaml", [Problem(path=f"a{n}", message="is wrong") for n in range(1_000)])
    assert len(error.problems) == 1_000
    assert str(error).splitlines()[-1] == "  and 950 more"
