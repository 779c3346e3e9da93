"""What a suite found out about a batch, as Great Expectations writes a validation result: its tools read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from origins.batch import JSON
from stages.expectation import Expectation

VERSION = "1.24.1"
"""The version of Great Expectations whose format this is."""


def validation_result(
    rules: Sequence[Expectation], found: Sequence[Mapping[str, JSON]], *, suite: str, run: str, batch: str, at: str
) -> dict[str, JSON]:
    """The validation result of a batch; `at` is when the batch was planned."""
    results = [_result(rule, each) for rule, each in zip(rules, found, strict=True)]
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


def _result(rule: Expectation, found: Mapping[str, JSON]) -> dict[str, JSON]:
    raised = found.get("exception")
    return {
        "success": bool(found["success"]),
        "expectation_config": rule.config(),
        "result": _figures(found) if rule.known.of_rows else dict(found.get("result") or {}),
        "exception_info": {
            "raised_exception": raised is not None,
            "exception_message": raised,
            "exception_traceback": None,
        },
        "meta": {},
    }


def _figures(found: Mapping[str, JSON]) -> dict[str, JSON]:
    """The figures of an expectation of rows. Values are left out: the rows are in the DLQ, where they are protected."""
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
