"""What a suite found out about a batch: from notes beside rows to figures, and to a verdict. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from origins.batch import JSON
from stages.expectation import Expectation

ELSEWHERE, MISSING, MET, BROKEN, WARNED = "01234"
"""What a note says of a row, a character for each expectation of rows: its `row_condition` leaves the row out, there is
nothing to look at, it is as expected, it is not, it is not and that is only told."""
_NEVER_MISSING = ("expect_column_values_to_be_null", "expect_column_values_to_not_be_null")


def findings(
    rules: Sequence[Expectation], notes: Mapping[str, int], judged: Sequence[Mapping[str, JSON]]
) -> list[dict[str, JSON]]:
    """For each expectation what was found, in order; `judged` is what was said of the batch to those that have one
    answer for it. Nothing for those where the batch was not asked."""
    answers = iter(judged)
    numbers = iter(range(len(rules)))
    return [
        _counted(rule, next(numbers), notes) if rule.known.of_rows else dict(next(answers, {"success": None}))
        for rule in rules
    ]


def failures(rules: Sequence[Expectation], found: Sequence[Mapping[str, JSON]]) -> list[str]:
    """Why the batch fails as a whole, in a line for each expectation that says so."""
    said = []
    for rule, each in zip(rules, found, strict=True):
        if rule.judges_batch and each["success"] is False:
            said.append(_line(rule, each))
    return said


def _counted(rule: Expectation, at: int, notes: Mapping[str, int]) -> dict[str, JSON]:
    figures = dict.fromkeys((ELSEWHERE, MISSING, MET, BROKEN, WARNED), 0)
    for note, rows in notes.items():
        figures[note[at] if note else MET] += rows
    missing, unexpected = figures[MISSING], figures[BROKEN] + figures[WARNED]
    considered = figures[MET] + unexpected
    unknown = "" in notes or rule.type in _NEVER_MISSING
    return {
        "success": considered == 0 or (considered - unexpected) / considered >= rule.mostly,
        "element_count": considered + missing,
        "missing_count": None if unknown else missing,
        "unexpected_count": unexpected,
    }


def _line(rule: Expectation, found: Mapping[str, JSON]) -> str:
    of = f" of {', '.join(rule.columns)}" if rule.columns else ""
    expected = f", expected {rule.expected}" if rule.expected else ""
    if not rule.known.of_rows:
        observed = found["exception"] or f"found {(found.get('result') or {}).get('observed_value')!r}"
        return f"{rule.type}{of}{expected}, {observed}"
    rows = found["element_count"] - (found["missing_count"] or 0)
    share = (rows - found["unexpected_count"]) / rows
    return f"{rule.type}{of}{expected}, in {rule.mostly:.6g} of the rows or more, found {share:.6g} of {rows:,}"
