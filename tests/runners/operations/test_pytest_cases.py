"""`pytest orders.test.yaml`, as a user types it."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest

DEFINITION = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, schema: "id long"}
stages:
  - filter: "id > 1"
destinations:
  - delta: {path: tables/orders}
"""
CASES = """
cases:
- {name: a small id is filtered, rows: [{id: 1}], filtered: 1}
- {name: a large id is filtered, rows: [{id: 2}], filtered: 1}
"""
PLUGIN = () if entry_points(group="pytest11", name="wherry_cases") else ("-p", "runners.operations.pytest_cases")


def write_files(pytester: pytest.Pytester, **texts: str) -> None:
    """Write YAML files. Each `_` in a name becomes a point."""
    for name, text in texts.items():
        (pytester.path / f"{name.replace('_', '.')}.yaml").write_text(text, encoding="utf-8")


@pytest.mark.spark
def test_each_case_is_a_test(pytester: pytest.Pytester) -> None:
    """The failure has the unexpected counts, and no stack trace."""
    write_files(pytester, orders=DEFINITION, orders_test=CASES)
    ended = pytester.runpytest_subprocess(*PLUGIN)
    ended.assert_outcomes(passed=1, failed=1)
    ended.stdout.fnmatch_lines(["*a large id is filtered*", "filtered: expected 1, got 0"])
    ended.stdout.no_fnmatch_line("*Traceback*")


def test_a_broken_file_of_cases_is_a_collection_error(pytester: pytest.Pytester) -> None:
    """The error states what to write. A YAML file with another name is ignored."""
    write_files(pytester, orders=DEFINITION, orders_test="cases: [{name: a}]", other_test="cases: 1")
    ended = pytester.runpytest_subprocess(*PLUGIN)
    ended.assert_outcomes(errors=1)
    ended.stdout.fnmatch_lines(["*expected rows or a file, got neither"])
