"""What a person is told to type."""

from __future__ import annotations

import pytest

from runners.model.text import with_file


@pytest.mark.parametrize(
    ("said", "file", "told"),
    [
        ("Again:  wherry run FILE --fresh NAME", "orders.yaml", "Again:  wherry run orders.yaml --fresh NAME"),
        ("wherry offsets set FILE, or\nwherry status FILE.", "a/b", "wherry offsets set a/b, or\nwherry status a/b."),
        ("wherry run FILE", "my orders.yaml", "wherry run 'my orders.yaml'"),
        ("wherry run FILE", r"a\1.yaml", r"wherry run 'a\1.yaml'"),
        ("See in/FILE.csv; or --secrets FILE", "orders.yaml", "See in/FILE.csv; or --secrets FILE"),
    ],
)  # fmt: skip
def test_commands_name_the_definition_and_nothing_else_does(said: str, file: str, told: str) -> None:
    """A file with spaces stands in quotes; another file that is to be given keeps its place."""
    assert with_file(said, file) == told
