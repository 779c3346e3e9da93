"""Wherry's list of the core expectations of Great Expectations, and the lists in the documentation made from it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from stages.expect import gx
from stages.expect.expectation import EXPECTATIONS, KnownExpectation

PAGE = Path(__file__).parents[3] / "stages/docs/expect.md"
OF_ALL = {"id", "meta", "notes", "result_format", "description", "catch_exceptions", "rendered_content", "windows"}
OF_ALL |= {"batch_id", "severity", "library_metadata"}


def list_core() -> dict[str, Any]:
    """Return the core expectations of the installed Great Expectations by name."""
    found = gx.load()
    classes = [getattr(found, name) for name in dir(found) if name.startswith(("Expect", "UnexpectedRows"))]
    return {each.__module__.rpartition(".")[2]: each for each in classes}


def test_all_core_expectations_are_known_with_their_options() -> None:
    """There are sixty, each with its options and its required options."""
    found = {
        name: ({*list_own_fields(each)}, {option for option, field in list_own_fields(each).items() if field.required})
        for name, each in list_core().items()
    }
    assert len(found) == 60
    assert {name: ({*known.options}, {*known.required}) for name, known in EXPECTATIONS.items()} == found


def list_own_fields(each: Any) -> dict[str, Any]:
    """Return the fields that only this expectation has."""
    return {name: field for name, field in each.__fields__.items() if name not in OF_ALL}


def test_expectations_with_a_spark_condition_apply_to_rows() -> None:
    """All others do not."""
    gx.load()
    from great_expectations.expectations.registry import _registered_metrics

    def has_condition(each: Any) -> bool:
        metric = _registered_metrics.get(f"{getattr(each, 'map_metric', None)}.condition", {})
        return "SparkDFExecutionEngine" in metric.get("providers", {})

    of_rows = {name for name, known in EXPECTATIONS.items() if known.way not in ("batch", "")}
    assert {name for name, each in list_core().items() if has_condition(each)} == of_rows


def test_the_lists_in_the_documentation_match_the_code() -> None:
    """Each expectation is below the heading that says how it is applied, or why it is not supported."""
    lists = re.findall(r"^### (.+)\n((?:- `\w+`\n)+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    shown = [(name, heading) for heading, names in lists for name in re.findall(r"`(\w+)`", names)]
    words = {name: known.way_in_words for name, known in EXPECTATIONS.items()}
    assert sorted(shown) == sorted((name, f"{way[0].upper()}{way[1:]}") for name, way in words.items())


@pytest.mark.parametrize("name", [name for name, known in EXPECTATIONS.items() if not known.way])
def test_every_unsupported_expectation_has_a_reason(name: str) -> None:
    """Great Expectations has no implementation for Spark."""
    known: KnownExpectation = EXPECTATIONS[name]
    assert "Great Expectations" in known.why
