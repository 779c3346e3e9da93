"""Rows of a preview become a case, and the case is written to a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from origins.protection import Protection
from runners.definitions.document import DefinitionError, parse
from runners.definitions.kinds import get_our_kinds
from runners.definitions.yaml_reader import DefinitionReader
from runners.model.errors import Refusal
from runners.operations.cases import (
    Case,
    CaseFile,
    CaseOutcome,
    add_case,
    check_extensible,
    compare,
    extend_cases,
    load_cases,
)
from runners.operations.save_case import expect_outcome, mask_row

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1), inner, max_size=3),
    max_leaves=8,
)
HIDDEN = "s3cretvalue"
SECRETS = {HIDDEN: "${secret:KEY}"}


def make_outcome(**changes: Any) -> CaseOutcome:
    given: dict[str, Any] = {"delivered": {"orders": []}, "columns": {"orders": ["id"]}, "filtered": 0, "refused": []}
    return CaseOutcome(**{**given, **changes})


@given(st.dictionaries(st.text(min_size=1), VALUES, min_size=1, max_size=4))
def test_a_saved_row_is_read_back_unchanged(row: Mapping[str, Any]) -> None:
    """It may have words of YAML, references and control characters."""
    case = Case(name="a", rows=[row], delivered=[row], refused=[{"row": row}], filtered=0)
    (read,) = load_text(add_case("", case, "a note"))
    assert json.dumps([read.rows[0], read.delivered[0], read.refused[0]["row"]]) == json.dumps([row] * 3)


def load_text(text: str) -> Any:
    return (
        DefinitionReader(directory=Path(), kinds=get_our_kinds()).read_dataclass(parse(text, "x"), CaseFile, "").cases
    )


@pytest.mark.parametrize(
    "before",
    [
        "cases:\n- {name: old, rows: [{id: 1}], filtered: 1}  # by hand\n",
        "cases:\n    - name: old\n      rows: [{id: 1}]\n      filtered: 1",
    ],
)
def test_a_file_of_cases_is_extended_and_not_rewritten(tmp_path: Path, before: str) -> None:
    """Its text and comments stay the same. A name that is taken gets a number."""
    file = tmp_path / "orders.test.yaml"
    file.write_text(before)
    extend_cases(file, [Case(name="old", rows=[{"id": 2}], delivered=1)], "Run r")
    extend_cases(file, [Case(name="old", rows=[{"id": 3}], delivered=1)], "Run s")
    assert file.read_text().startswith(before)
    assert [(case.name, case.rows[0]["id"]) for case in load_cases(file)] == [
        ("old", 1),
        ("old (2)", 2),
        ("old (3)", 3),
    ]
    assert "# Run r\n" in file.read_text()
    assert [each.name for each in tmp_path.iterdir()] == ["orders.test.yaml"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cases: [{name: a, rows: [{id: 1}], filtered: 1}]\n", "cannot take another case"),
        ("name: orders\norigin: {generate: {rows: 1}}\n", "cases"),
        ("cases: [\n", "orders.test.yaml"),
        ("cases:\n- {name: a, rows: [{id: 1}], filtered: 1}\nother: 1\n", "other"),
    ],
)
def test_a_file_that_cannot_be_extended_is_refused_and_kept(tmp_path: Path, text: str, said: str) -> None:
    """The check comes before the preview. One file is a list in brackets, one is a definition, and two are broken."""
    file = tmp_path / "orders.test.yaml"
    file.write_text(text)
    with pytest.raises((Refusal, DefinitionError), match=said):
        check_extensible(file)
    assert file.read_text() == text


def test_a_missing_folder_and_a_file_that_is_too_large_are_refused(tmp_path: Path) -> None:
    """Cases of more than a megabyte could not be read."""
    with pytest.raises(Refusal, match="there is no folder"):
        check_extensible(tmp_path / "cases" / "orders.test.yaml")
    file = tmp_path / "orders.test.yaml"
    check_extensible(file)
    with pytest.raises(Refusal, match="would be larger than"):
        extend_cases(file, [Case(name="a", rows=[{"x": "y" * (1 << 20)}], filtered=0)], "")
    assert not file.exists()


SCHEMA = {
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "email", "type": "string"},
        {"name": "born", "type": "date"},
        {"name": "paid", "type": "decimal(10,2)"},
        {"name": "key", "type": "binary"},
        {"name": "note", "type": "string"},
        {
            "name": "buyer",
            "type": {
                "type": "struct",
                "fields": [
                    {"name": "age", "type": "integer"},
                    {"name": "tags", "type": {"type": "array", "elementType": "string"}},
                ],
            },
        },
    ]
}


def test_a_masked_value_has_the_type_of_its_column() -> None:
    """A copy of the value in another column is masked too. NULL stays NULL."""
    row = {
        "id": 7,
        "email": "ada@x.org",
        "born": "1815-12-10",
        "paid": 1234.5,
        "key": "c2VjcmV0",
        "note": f"for ada@x.org, {HIDDEN}",
        "buyer": {"age": 36, "tags": ["ada@x.org", "vip"]},
    }
    protection = Protection(("EMAIL", "born", "paid", "key", "buyer.age"))
    assert mask_row(row, SCHEMA, protection, SECRETS) == {
        "id": 7,
        "email": "a***@example.org",
        "born": "2000-01-01",
        "paid": 1,
        "key": None,
        "note": "for a***, ${secret:KEY}",
        "buyer": {"age": 1, "tags": ["a***@example.org", "vip"]},
    }
    assert mask_row({**row, "email": None}, SCHEMA, protection, {})["email"] is None


def test_a_protected_value_that_a_stage_adds_is_not_expected() -> None:
    """The case omits the value, so it is not checked."""
    refused = {
        "code": "CAST",
        "stage": "cast",
        "message": f"column age: 'x' is not an int, with {HIDDEN}",
        "row": {"id": 2, "email": "eve@x.org", "age": "x"},
    }
    outcome = make_outcome(
        delivered={"orders": [{"id": 1, "email": "eve@x.org", "key": HIDDEN}, {"id": 2, "email": None}]},
        columns={"orders": ["id", "email", "key"]},
        refused=[refused],
    )
    case = Case(name="a", rows=[{"id": 1}], delivered=0)
    saved = expect_outcome(case, outcome, outcome, Protection(("email",)), SECRETS)
    assert saved.delivered == [{"id": 1}, {"id": 2, "email": None}]
    assert saved.refused == [{"code": "CAST", "stage": "cast", "row": {"id": 2, "age": "x"}}]
    assert compare(saved, outcome).problems == ()


def test_a_masked_value_that_passes_the_stages_is_expected() -> None:
    """This holds also in upper case, and in another column."""
    outcome = make_outcome(
        delivered={"orders": [{"email": "A***@EXAMPLE.ORG", "age": 1, "buyer": "a***@example.org"}]},
        columns={"orders": ["email", "age", "buyer"]},
    )
    case = Case(name="a", rows=[{"email": "a***@example.org", "age": 1}], delivered=0)
    saved = expect_outcome(case, outcome, outcome, Protection(("email", "age")))
    assert saved.delivered == outcome.delivered["orders"]


def test_a_value_that_changes_between_tries_is_not_expected() -> None:
    """It is for example a time or a random number. Counts are expected."""
    first = make_outcome(delivered={"orders": [{"id": 1, "at": "10:00"}]}, columns={"orders": ["id", "at"]}, filtered=2)
    second = make_outcome(
        delivered={"orders": [{"id": 1, "at": "10:01"}]}, columns={"orders": ["id", "at"]}, filtered=2
    )
    saved = expect_outcome(Case(name="a", rows=[{"id": 1}], delivered=0), first, second)
    assert (saved.delivered, saved.filtered, saved.refused) == ([{"id": 1}], 2, [])
