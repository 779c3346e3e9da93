"""The report lists the promises that no test carries."""

from __future__ import annotations

import pytest

from tests.promises import Promises

TEXT = """
| X1 | When? | `after_all` (CD-02…04) |
- SS-08/09 After any, or after all (X1). (SS-21: one suite.)
- CN-07..10 *later* Large values. HP-05 *later* Kafka: HP-06 keeps its lease; HP-05 again.
- CN-11/12/13/14 A run. UTF-8, ISO-8601, A-12, XX-123 and X-1 are none.
"""


def test_ids_are_found_one_by_one_and_in_ranges() -> None:
    """Slashes join several ids, and dots span a range. Text that only resembles an id is ignored."""
    due = ("X1", "CD-02", "CD-03", "CD-04", "SS-08", "SS-09", "SS-21", "HP-06", "CN-11", "CN-12", "CN-13", "CN-14")
    assert Promises.of(TEXT).due == due


def test_what_is_marked_later_is_not_due() -> None:
    """The mark applies to the ids directly before it, and not to other ids in the same line."""
    assert Promises.of(TEXT).later == ("CN-07", "CN-08", "CN-09", "CN-10", "HP-05")


def test_the_report_names_missing_and_misspelled_promises() -> None:
    """The report names promises without a mark, and marks that are not promises."""
    lines = list(Promises.of("SS-01 SS-02/03 HP-05 *later*").report(["SS-01", "SS-03", "SS-99"]))
    assert lines == [
        "due: 2 of 3 carried; by no test: SS-02",
        "later: 0 of 1 carried; by no test: HP-05",
        "marked, but no promise: SS-99",
    ]


def test_the_report_runs_no_test(pytester: pytest.Pytester) -> None:
    """Tests are only collected, and the command succeeds even if a test would fail."""
    pytester.makeconftest("from tests.promises import *")
    pytester.makeini("[pytest]\nmarkers = promise(*ids): what it proves\n")
    pytester.makepyfile("import pytest\n@pytest.mark.promise('SS-01')\ndef test_fails(): assert False")
    promises = pytester.makefile(".md", requirements="SS-01 SS-02")
    result = pytester.runpytest(f"--promises={promises}")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["due: 1 of 2 carried; by no test: SS-02"])
    assert pytester.runpytest("--promises=nowhere").ret == pytest.ExitCode.USAGE_ERROR
