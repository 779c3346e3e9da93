"""Expectations in a definition or a suite, checked without Great Expectations, and their findings about a batch.

The known ones are the core expectations of Great Expectations 1.24: how each is applied here, and its options. The
table is a copy, because the import of Great Expectations takes seconds. A test compares it with the original.
"""

from __future__ import annotations

import difflib
import itertools
import json
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from origins.batch import JSON
from origins.errors import WherryError
from origins.secret import cut_text, put_references
from stages.expressions import check_condition

Severity: TypeAlias = Literal["critical", "warning", "info"]
_SAME_ERRORS = re.compile(r"unterminated|missing \)|unbalanced|nothing to repeat|bad character range")
"""The errors that are the same in Java's regular expressions as in Python's."""
_LONGEST = 200


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """A rule about each row, or about a batch."""

    type: str
    options: Mapping[str, JSON] = field(default_factory=dict)
    severity: Severity = "critical"
    meta: JSON = None

    @property
    def known(self) -> KnownExpectation:
        return EXPECTATIONS[self.type]

    @property
    def mostly(self) -> float:
        """Return the share of rows that must meet the expectation for the batch to meet it."""
        return float(self.options.get("mostly", 1))

    @property
    def columns(self) -> Sequence[str]:
        """Return the columns that it reads, in order."""
        several = self.options.get("column_list")
        named = [self.options[key] for key in ("column", "column_A", "column_B") if key in self.options]
        return [*named, *(several if isinstance(several, list | tuple) else ())]

    @property
    def judges_batch(self) -> bool:
        """Return whether a batch can fail it as a whole, even if its rows are handled separately.

        That is so if it has one result for the batch, or states which share of its rows is enough.
        """
        return self.severity == "critical" and (not self.of_rows or "mostly" in self.options)

    @property
    def of_rows(self) -> bool:
        return self.known.way not in ("batch", "")

    @property
    def label(self) -> str:
        of = f"({', '.join(self.columns)})" if self.columns else ""
        return f"{self.type}{of}{f' {self.expected}' if self.expected else ''}"

    @property
    def expected(self) -> str:
        """Return the expected values for a person; empty if the expectation's name is enough."""
        apart = ("column", "column_A", "column_B", "column_list", "mostly", "condition_parser")
        options = ", ".join(f"{name} {value!r}" for name, value in self.options.items() if name not in apart)
        return cut_text(options, _LONGEST)

    def config(self) -> dict[str, JSON]:
        """Return the expectation in the form of Great Expectations' JSON."""
        meta = self.meta if isinstance(self.meta, Mapping) else {}
        return {
            "type": self.type,
            "kwargs": put_references(self.options),
            "meta": put_references(meta),
            "severity": self.severity,
        }


def parse_expectation(name: object, options: object) -> Expectation:
    """Return the expectation of this name. `options` may also contain the keys of `BESIDE`.

    Raise ValueError with the problem if it is invalid.
    """
    if not isinstance(name, str) or name not in EXPECTATIONS:
        raise ValueError(f"unknown expectation {name!r}; {_suggest_name(str(name), EXPECTATIONS)}")
    known, given = EXPECTATIONS[name], {} if options is None else options
    if not isinstance(given, Mapping):
        raise ValueError(f"{name}: expected a mapping of its options, got {given!r}")
    if not known.way:
        raise ValueError(f"{name} is {known.way_in_words}")
    for option in given:
        if option not in known.options and option not in BESIDE:
            raise ValueError(f"{name}: unknown option '{option}'; {_suggest_name(str(option), known.options)}")
    for option in known.required:
        if option not in given:
            raise ValueError(f"{name}: '{option}' is missing")
    severity = given.get("severity", "critical")
    if severity not in get_args(Severity):
        raise ValueError(f"{name}: severity is critical, warning or info, got {severity!r}")
    own = {option: value for option, value in given.items() if option not in BESIDE}
    found = Expectation(type=name, options=own, severity=severity, meta=given.get("meta"))
    try:
        _check(found)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return found


def _check(found: Expectation) -> None:
    options = found.options
    for name in found.columns:
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"expected the name of a column, got {name!r}")
    mostly = options.get("mostly", 1)
    if isinstance(mostly, bool) or not isinstance(mostly, int | float) or not 0 <= mostly <= 1:
        raise ValueError(f"mostly: expected a share from 0 to 1, got {mostly!r}")
    for option in ("value_set", "column_list", "column_set", "regex_list", "type_list"):
        if option in options and not isinstance(options[option], list | tuple):
            raise ValueError(f"{option}: expected a list, got {options[option]!r}")
    if any(isinstance(value, Mapping) and "$PARAMETER" in value for value in options.values()):
        raise ValueError("suite parameters ($PARAMETER) are not supported; write the value instead")
    for regex in [options["regex"]] if "regex" in options else options.get("regex_list", ()):
        _check_regex(regex)
    low, high = options.get("min_value"), options.get("max_value")
    if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
        raise ValueError(f"min_value {low!r} is above max_value {high!r}")
    if options.get("condition_parser") == "pandas":
        raise ValueError("condition_parser: Spark cannot evaluate conditions of pandas; write row_condition in SQL")
    if isinstance(options.get("row_condition"), str) and "great" not in str(options.get("condition_parser")):
        check_condition("row_condition", options["row_condition"])


def _check_regex(regex: object) -> None:
    """Raise ValueError for text that is certainly not a regular expression.

    Spark uses Java's syntax, so some expressions pass here and fail in Spark.
    """
    if not isinstance(regex, str):
        raise ValueError(f"expected a regular expression, got {regex!r}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pythons = re.compile(regex)
    except re.error as error:
        if _SAME_ERRORS.search(error.msg):
            raise ValueError(f"the regular expression {regex!r} does not compile: {error}") from None
        return
    name = next(iter(pythons.groupindex), None)
    if name is not None:
        raise ValueError(
            f"the regular expression {regex!r} does not compile: Spark uses Java's syntax, where a named group is "
            f"(?<{name}>…), not (?P<{name}>…)"
        )


def _suggest_name(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean '{near[0]}'?" if near else f"there are: {', '.join(list(known)[:12])}"


_LARGEST = 4 << 20


def parse_expectations(items: Sequence[object]) -> list[Expectation]:
    """Return the expectations of a list of `{name: {options}}`. Raise ValueError that names the invalid one."""
    found = []
    for number, item in enumerate(items, 1):
        if not isinstance(item, Mapping) or len(item) != 1:
            raise ValueError(f"number {number}: expected `expect_…: {{options}}`, got {item!r}")
        ((name, options),) = item.items()
        found.append(_parse_numbered(number, name, options))
    return found


def read_suite(path: str) -> list[Expectation]:
    """Return the expectations of a suite file. Raise ValueError with the problem if it is invalid."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise ValueError(f"expected at most 4 MiB in {path}")
        suite = json.loads(content.decode("utf-8-sig"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    return parse_suite(suite, path)


def parse_suite(suite: JSON, path: str) -> list[Expectation]:
    items = suite.get("expectations") if isinstance(suite, Mapping) else None
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        raise ValueError(f"{path} is not a suite; expected a mapping with a list of `expectations`")
    if "expectation_suite_name" in suite or any("expectation_type" in item for item in items):
        raise ValueError(
            f"{path} was written by Great Expectations before 1.0 (`expectation_type`); save it with 1.24, or rename "
            "`expectation_suite_name` to `name` and every `expectation_type` to `type`"
        )
    found = []
    for number, item in enumerate(items, 1):
        kwargs = item.get("kwargs")
        if not isinstance(kwargs, Mapping):
            raise ValueError(f"number {number}: expected `type` and `kwargs`, got {item!r}")
        beside = {key: item[key] for key in ("severity", "meta") if item.get(key) is not None}
        options = {key: value for key, value in kwargs.items() if key != "batch_id"}
        found.append(_parse_numbered(number, item.get("type"), {**options, **beside}))
    return found


def _parse_numbered(number: int, name: object, options: object) -> Expectation:
    try:
        return parse_expectation(name, options)
    except ValueError as error:
        raise ValueError(f"number {number}: {error}") from None


Way: TypeAlias = Literal["row", "window", "order", "statistics", "batch", ""]
"""What an expectation needs for its result: only the row, the rows equal to it, the row read before it, or figures
of the whole batch. With `batch` it has one result for the batch. The empty text is for what Great Expectations
cannot do on Spark."""


@dataclass(frozen=True, kw_only=True)
class KnownExpectation:
    """A known expectation."""

    way: Way
    options: tuple[str, ...]
    required: tuple[str, ...]
    why: str = ""
    """Why it is not supported."""

    @property
    def way_in_words(self) -> str:
        """Return the words for the way in the documentation."""
        return _HOW[self.way] + self.why


_HOW: Mapping[Way, str] = {
    "row": "as a column",
    "window": "as a column, over all rows of the batch that are equal",
    "order": "as a column, over the rows in the order in which they were read",
    "statistics": "as a column, after one look at the whole batch",
    "batch": "on the batch",
    "": "not supported: ",
}
_NO_METRIC = "Great Expectations supports it for SQL databases or pandas only"
_NOWHERE = "Great Expectations has no implementation of it at all"
_DATABASES = "Great Expectations needs another table of an SQL database for it"
_BATCH = "row_condition condition_parser"
_ROWS = f"mostly {_BATCH}"
_BETWEEN = "min_value max_value strict_min strict_max"
_PARTITION = "partition_object threshold internal_weight_holdout tail_weight_holdout bucketize_data"
BESIDE = ("severity", "meta", "notes", "description")
"""The keys that may appear among the options of any expectation."""


def _known(way: Way, own: str, common: str | None = None, why: str = "") -> KnownExpectation:
    """Return the expectation with its own options, and with these common ones; by default those of its way."""
    usual = _BATCH if way == "batch" else _ROWS
    given = [*own.split(), *(usual if common is None else common).split()]
    required = tuple(word.rstrip("*") for word in given if word.endswith("*"))
    return KnownExpectation(way=way, options=tuple(word.rstrip("*") for word in given), required=required, why=why)


EXPECTATIONS: Mapping[str, KnownExpectation] = {
    "expect_column_distinct_values_to_be_in_set": _known("batch", "column* value_set*"),
    "expect_column_distinct_values_to_contain_set": _known("batch", "column* value_set*"),
    "expect_column_distinct_values_to_equal_set": _known("batch", "column* value_set*"),
    "expect_column_kl_divergence_to_be_less_than": _known("batch", f"column* {_PARTITION} min_value max_value"),
    "expect_column_max_to_be_between": _known("batch", f"column* {_BETWEEN}"),
    "expect_column_mean_to_be_between": _known("batch", f"column* {_BETWEEN}"),
    "expect_column_median_to_be_between": _known("batch", f"column* {_BETWEEN}"),
    "expect_column_min_to_be_between": _known("batch", f"column* {_BETWEEN}"),
    "expect_column_most_common_value_to_be_in_set": _known("batch", "column* value_set* ties_okay"),
    "expect_column_pair_values_a_to_be_greater_than_b": _known("row", "column_A* column_B* or_equal ignore_row_if"),
    "expect_column_pair_values_to_be_equal": _known("row", "column_A* column_B* ignore_row_if"),
    "expect_column_pair_values_to_be_in_set": _known("row", "column_A* column_B* value_pairs_set* ignore_row_if"),
    "expect_column_proportion_of_non_null_values_to_be_between": _known("batch", f"column* {_BETWEEN}"),
    "expect_column_proportion_of_unique_values_to_be_between": _known("batch", f"column* {_BETWEEN}"),
    "expect_column_quantile_values_to_be_between": _known("batch", "column* quantile_ranges* allow_relative_error"),
    "expect_column_stdev_to_be_between": _known("batch", f"column* {_BETWEEN}"),
    "expect_column_sum_to_be_between": _known("batch", f"column* {_BETWEEN}"),
    "expect_column_to_exist": _known("batch", "column* column_index", ""),
    "expect_column_type_to_be": _known("batch", "column* type_*", ""),
    "expect_column_unique_value_count_to_be_between": _known("batch", f"column* {_BETWEEN}"),
    "expect_column_value_lengths_to_be_between": _known("row", f"column* {_BETWEEN}"),
    "expect_column_value_lengths_to_equal": _known("row", "column* value*"),
    "expect_column_value_z_scores_to_be_less_than": _known("statistics", "column* threshold* double_sided*"),
    "expect_column_values_to_be_between": _known("row", f"column* {_BETWEEN}"),
    "expect_column_values_to_be_dateutil_parseable": _known("", "column*", why=_NO_METRIC),
    "expect_column_values_to_be_decreasing": _known("order", "column* strictly"),
    "expect_column_values_to_be_in_set": _known("row", "column* value_set*"),
    "expect_column_values_to_be_in_type_list": _known("batch", "column* type_list", _ROWS),
    "expect_column_values_to_be_increasing": _known("order", "column* strictly"),
    "expect_column_values_to_be_json_parseable": _known("row", "column*"),
    "expect_column_values_to_be_null": _known("row", "column*"),
    "expect_column_values_to_be_of_type": _known("batch", "column* type_*", _ROWS),
    "expect_column_values_to_be_unique": _known("window", "column*"),
    "expect_column_values_to_match_json_schema": _known("row", "column* json_schema*"),
    "expect_column_values_to_match_like_pattern": _known("", "column* like_pattern* escape", why=_NO_METRIC),
    "expect_column_values_to_match_like_pattern_list": _known(
        "", "column* like_pattern_list* match_on escape", why=_NO_METRIC
    ),
    "expect_column_values_to_match_regex": _known("row", "column* regex"),
    "expect_column_values_to_match_regex_list": _known("row", "column* regex_list* match_on"),
    "expect_column_values_to_match_strftime_format": _known("row", "column* strftime_format*"),
    "expect_column_values_to_not_be_in_set": _known("row", "column* value_set*"),
    "expect_column_values_to_not_be_null": _known("row", "column*"),
    "expect_column_values_to_not_be_outliers": _known("statistics", "column* method multiplier"),
    "expect_column_values_to_not_match_like_pattern": _known("", "column* like_pattern* escape", why=_NO_METRIC),
    "expect_column_values_to_not_match_like_pattern_list": _known(
        "", "column* like_pattern_list* escape", why=_NO_METRIC
    ),
    "expect_column_values_to_not_match_regex": _known("row", "column* regex*"),
    "expect_column_values_to_not_match_regex_list": _known("row", "column* regex_list*"),
    "expect_compound_columns_to_be_unique": _known("window", "column_list* ignore_row_if"),
    "expect_multicolumn_sum_to_equal": _known("row", "column_list* ignore_row_if sum_total*"),
    "expect_multicolumn_values_to_be_equal": _known("row", "column_list* ignore_row_if"),
    "expect_multicolumn_values_to_be_unique": _known("", "column* column_list* ignore_row_if", why=_NOWHERE),
    "expect_query_results_to_match_comparison": _known(
        "", "base_query* comparison_data_source_name* comparison_query*", "mostly", _DATABASES
    ),
    "expect_select_column_values_to_be_unique_within_record": _known("row", "column_list* ignore_row_if"),
    "expect_table_column_count_to_be_between": _known("batch", "min_value max_value", ""),
    "expect_table_column_count_to_equal": _known("batch", "value*", ""),
    "expect_table_columns_to_match_ordered_list": _known("batch", "column_list", ""),
    "expect_table_columns_to_match_set": _known("batch", "column_set exact_match", ""),
    "expect_table_row_count_to_be_between": _known("batch", f"{_BETWEEN}"),
    "expect_table_row_count_to_equal": _known("batch", "value*"),
    "expect_table_row_count_to_equal_other_table": _known("", "other_table_name*", _BATCH, _DATABASES),
    "unexpected_rows_expectation": _known("batch", "unexpected_rows_query*", ""),
}
"""The expectations by name. A star marks a required option."""

ELSEWHERE, MISSING, MET, BROKEN, WARNED = "01234"
"""The characters of a note, one for each expectation of rows. They mean: `row_condition` excludes the row, no value
to check, met, broken, and broken but only reported."""
NEVER_MISSING = ("expect_column_values_to_be_null", "expect_column_values_to_not_be_null")


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
        _count_finding(rule, next(numbers), notes) if rule.of_rows else dict(next(answers, {"success": None}))
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
    unknown = "" in notes or rule.type in NEVER_MISSING
    return {
        "success": considered == 0 or (considered - unexpected) / considered >= rule.mostly,
        "element_count": considered + missing,
        "missing_count": None if unknown else missing,
        "unexpected_count": unexpected,
    }


def _describe_failure(rule: Expectation, found: Mapping[str, JSON]) -> str:
    of = f" of {', '.join(rule.columns)}" if rule.columns else ""
    expected = f", expected {rule.expected}" if rule.expected else ""
    if not rule.of_rows:
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
        "result": _select_figures(found) if rule.of_rows else dict(found.get("result") or {}),
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
