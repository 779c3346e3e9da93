"""Kinds: found by name, described from their own dataclasses."""

from __future__ import annotations

import pytest

from runners.definitions.kinds import KindMissing, describe_kind, find_kind, list_kinds, list_options
from tests.runners.engine.toys import TOYS, Call, Folder, Keep, Table


def test_a_kind_is_described_from_its_dataclass() -> None:
    """Name, type, default and the sentence beneath each field; what stands beside a kind is apart."""
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
    assert next(option.text for option in kind.options if option.name == "path") == "Where they lie."


def test_a_kind_promises_what_its_class_promises() -> None:
    """A destination its guarantee, an origin the limits that bind."""
    assert describe_kind("destination", "table", TOYS).promises == {
        "guarantee": "effectively once: the table remembers"
    }
    assert describe_kind("origin", "folder", TOYS).promises["a batch is limited by"] == "files, rows"
    assert describe_kind("stage", "keep", TOYS).promises == {}


def test_the_option_that_a_kind_takes_as_its_whole_value_is_marked() -> None:
    """The one that Python takes by position."""
    assert [option.name for option in list_options(Keep).values() if option.main] == ["condition"]
    assert [option.name for option in list_options(Call).values() if option.main] == ["function"]
    assert [option.name for option in list_options(Table).values() if option.main] == []


def test_inherited_options_are_described_by_their_contract() -> None:
    """A kind need not repeat what holds for all of its role."""
    was = next(option for option in describe_kind("destination", "say", TOYS).beside if option.name == "was")
    assert was.text == "The destination's earlier name, so that it keeps its history when you rename it."


def test_the_kind_of_a_component_is_its_name_in_a_definition() -> None:
    """Or its class's name as one would be written, where it is no kind of ours."""

    class HalfDone(Folder):
        """A kind of the user's own."""

    assert find_kind(Keep("a"), TOYS) == "keep"
    assert find_kind(HalfDone(path="x"), TOYS) == "half_done"


def test_a_kind_that_cannot_be_imported_is_told_by_its_name() -> None:
    """A missing package is no stack trace."""
    with pytest.raises(KindMissing, match=r"the destination 'lost' cannot be used here: No module named"):
        TOYS.resolve("destination", "lost")


def test_a_name_knows_of_what_it_is_a_kind() -> None:
    """One name may be a kind of several roles."""
    assert TOYS.list_roles("keep") == ["stage"]
    assert TOYS.list_roles("nothing") == []


def test_every_kind_of_ours_has_a_summary_and_explained_options() -> None:
    """What `wherry kinds` shows is the documentation."""
    for kind in list_kinds():
        assert kind.summary.endswith("."), kind.name
        assert kind.json()["name"] == kind.name
