"""Kinds are found by name, and described from their dataclasses."""

from __future__ import annotations

import pytest

from runners.definitions.kinds import KindMissing, describe_kind, list_kinds, list_options
from tests.runners.engine.toys import TOYS, Call, Keep, Table


def test_a_kind_is_described_from_its_dataclass() -> None:
    """Each option has a name, type, default and sentence. Options beside the kind are listed separately."""
    kind = describe_kind("origin", "folder", TOYS)
    assert kind.summary == "The files of a folder, each once."
    options = {option.name: (option.type, option.required, option.default) for option in kind.options}
    assert options == {
        "path": ("text", True, None),
        "format": ("'json' or 'csv'", False, "json"),
        "schema": ("text or a mapping", False, None),
        "options": ("a mapping", False, {}),
        "max_files": ("a whole number", False, None),
        "share": ("a number", False, 0.5),
        "header": ("true or false", False, False),
        "rows": ("anything", False, None),
    }
    assert [option.name for option in kind.beside] == ["name", "lanes", "read", "batch", "stages"]
    assert next(option.text for option in kind.options if option.name == "path") == "Where they are stored."


def test_a_kind_has_the_promises_of_its_class() -> None:
    """A destination has its guarantee, and an origin has the limits of its batches."""
    assert describe_kind("destination", "table", TOYS).promises == {
        "guarantee": "effectively once: the table remembers"
    }
    assert describe_kind("origin", "folder", TOYS).promises["a batch is limited by"] == "files, rows"
    assert describe_kind("stage", "keep", TOYS).promises == {}


def test_the_option_that_a_kind_takes_as_its_value_is_marked() -> None:
    """It is the field that Python takes by position."""
    assert [option.name for option in list_options(Keep).values() if option.main] == ["condition"]
    assert [option.name for option in list_options(Call).values() if option.main] == ["function"]
    assert [option.name for option in list_options(Table).values() if option.main] == []


def test_a_kind_that_cannot_be_imported_is_reported_by_its_name() -> None:
    """A missing package causes no stack trace."""
    with pytest.raises(KindMissing, match=r"the destination 'lost' cannot be used here: No module named"):
        TOYS.resolve("destination", "lost")


def test_every_kind_has_a_summary_and_described_options() -> None:
    """`wherry kinds` shows them as documentation."""
    for kind in list_kinds():
        assert kind.summary.endswith("."), kind.name
        assert kind.json()["name"] == kind.name
