"""The findings of a suite about a batch: notes beside rows become figures, and figures a verdict. Pure functions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from origins.batch import JSON
from origins.errors import WherryError
from stages.expect.expectation import Expectation

ELSEWHERE, MISSING, MET, BROKEN, WARNED = "01234"
"""The characters of a note, one for each expectation of rows. They mean: `row_condition` excludes the row, no value
to check, met, broken, and broken but only reported."""
_NEVER_MISSING = ("expect_column_values_to_be_null", "expect_column_values_to_not_be_null")


class BatchRefused(WherryError):
    """A batch fails a suite as a whole, and that stops the run."""

    code = "EXPECTATION"

    def __init__(self, stage: str, failures: Sequence[str]) -> None:
        message = f"the batch does not meet the expectations of stage '{stage}'. No row of it was delivered."
        super().__init__(
            "\n".join([message, *failures]),
            hint="see it       wherry preview FILE\n"
            "let it pass  on_batch_failure: report  at the stage; with quarantine the whole batch goes to the DLQ",
        )
        self.stage = stage


def list_findings(
    rules: Sequence[Expectation], notes: Mapping[str, int], judged: Sequence[Mapping[str, JSON]]
) -> list[dict[str, JSON]]:
    """Return the finding of each expectation, in order.

    `judged` has the findings of expectations that judge a whole batch. Such a finding is empty if the batch was not
    judged.
    """
    answers, numbers = iter(judged), itertools.count()
    return [
        _count_finding(rule, next(numbers), notes) if rule.known.of_rows else dict(next(answers, {"success": None}))
        for rule in rules
    ]


def list_failures(rules: Sequence[Expectation], found: Sequence[Mapping[str, JSON]]) -> list[str]:
    """Return why the batch fails as a whole, one line for each expectation that it fails."""
    judged = ((rule, each) for rule, each in zip(rules, found, strict=True) if rule.judges_batch)
    return [_describe_failure(rule, each) for rule, each in judged if each["success"] is False]


def _count_finding(rule: Expectation, at: int, notes: Mapping[str, int]) -> dict[str, JSON]:
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


def _describe_failure(rule: Expectation, found: Mapping[str, JSON]) -> str:
    of = f" of {', '.join(rule.columns)}" if rule.columns else ""
    expected = f", expected {rule.expected}" if rule.expected else ""
    if not rule.known.of_rows:
        observed = found["exception"] or f"found {(found.get('result') or {}).get('observed_value')!r}"
        return f"{rule.type}{of}{expected}, {observed}"
    rows = found["element_count"] - (found["missing_count"] or 0)
    share = (rows - found["unexpected_count"]) / rows
    return f"{rule.type}{of}{expected}, in {rule.mostly:.6g} of the rows or more, found {share:.6g} of {rows:,}"


VERSION = "1.24.1"
"""The version of Great Expectations whose format is used."""


def make_validation_result(
    rules: Sequence[Expectation], found: Sequence[Mapping[str, JSON]], *, suite: str, run: str, batch: str, at: str
) -> dict[str, JSON]:
    """Return the validation result of a batch. `at` is when the batch was planned."""
    results = [_make_result(rule, each) for rule, each in zip(rules, found, strict=True)]
    met = sum(each["success"] for each in results)
    return {
        "success": met == len(results),
        "results": results,
        "suite_name": suite,
        "suite_parameters": {},
        "statistics": {
            "evaluated_expectations": len(results),
            "successful_expectations": met,
            "unsuccessful_expectations": len(results) - met,
            "success_percent": met / len(results) * 100 if results else None,
        },
        "meta": {
            "great_expectations_version": VERSION,
            "run_id": {"run_name": run, "run_time": at},
            "validation_time": at,
            "active_batch_definition": {"data_asset_name": batch, "batch_identifiers": {}},
        },
        "id": None,
    }


def _make_result(rule: Expectation, found: Mapping[str, JSON]) -> dict[str, JSON]:
    raised = found.get("exception")
    return {
        "success": bool(found["success"]),
        "expectation_config": rule.config(),
        "result": _select_figures(found) if rule.known.of_rows else dict(found.get("result") or {}),
        "exception_info": {
            "raised_exception": raised is not None,
            "exception_message": raised,
            "exception_traceback": None,
        },
        "meta": {},
    }


def _select_figures(found: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the figures of an expectation of rows, without values.

    The DLQ has the rows, with protected values masked.
    """
    elements, missing, unexpected = (found[f"{name}_count"] for name in ("element", "missing", "unexpected"))
    there = elements - (missing or 0)
    figures = {
        "element_count": elements,
        "unexpected_count": unexpected,
        "unexpected_percent": unexpected / there * 100 if there else None,
    }
    if missing is None:
        return figures
    return {
        **figures,
        "missing_count": missing,
        "missing_percent": missing / elements * 100 if elements else None,
        "unexpected_percent_total": unexpected / elements * 100 if elements else None,
        "unexpected_percent_nonmissing": figures["unexpected_percent"],
    }
