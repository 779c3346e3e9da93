"""The core expectations of Great Expectations 1.24: how each is applied here, and the options that it takes.

A copy of what Great Expectations says of itself, so that a definition is checked without it, which takes seconds to
import. A test makes the table anew and compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Way: TypeAlias = Literal["row", "window", "order", "statistics", "batch", ""]
"""What an answer takes: the row alone, the rows that are equal to it, the row read before it, or figures of the whole
batch; one answer for the batch; or nothing, for what Great Expectations cannot do on Spark."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """An expectation that there is."""

    way: Way
    options: tuple[str, ...]
    required: tuple[str, ...]
    why: str = ""
    """Why it is not supported."""

    @property
    def of_rows(self) -> bool:
        """Whether it has an answer for each row."""
        return self.way not in ("batch", "")

    @property
    def how(self) -> str:
        """As the table in the README says it."""
        return _HOW[self.way] + self.why


_HOW: Mapping[Way, str] = {
    "row": "as a column",
    "window": "as a column, over all rows of the batch that are equal",
    "order": "as a column, over the rows in the order in which they were read",
    "statistics": "as a column, after one look at the whole batch",
    "batch": "on the batch",
    "": "not supported: ",
}
_NO_METRIC = "Great Expectations has it for SQL databases or pandas only"
_NOWHERE = "Great Expectations has no implementation of it at all"
_DATABASES = "Great Expectations asks another table of an SQL database for it"
_BATCH = "row_condition condition_parser"
_ROWS = f"mostly {_BATCH}"
BESIDE = ("severity", "meta", "notes", "description")
"""What may stand beside the options of any expectation."""


def _known(way: Way, own: str, common: str, why: str = "") -> Known:
    given = [*own.split(), *common.split()]
    required = tuple(word.rstrip("*") for word in given if word.endswith("*"))
    return Known(way=way, options=tuple(word.rstrip("*") for word in given), required=required, why=why)


EXPECTATIONS: Mapping[str, Known] = {
    "expect_column_distinct_values_to_be_in_set": _known("batch", "column* value_set*", _BATCH),
    "expect_column_distinct_values_to_contain_set": _known("batch", "column* value_set*", _BATCH),
    "expect_column_distinct_values_to_equal_set": _known("batch", "column* value_set*", _BATCH),
    "expect_column_kl_divergence_to_be_less_than": _known(
        "batch",
        "column* partition_object threshold internal_weight_holdout tail_weight_holdout bucketize_data"
        " min_value max_value",
        _BATCH,
    ),
    "expect_column_max_to_be_between": _known("batch", "column* min_value max_value strict_min strict_max", _BATCH),
    "expect_column_mean_to_be_between": _known("batch", "column* min_value max_value strict_min strict_max", _BATCH),
    "expect_column_median_to_be_between": _known("batch", "column* min_value max_value strict_min strict_max", _BATCH),
    "expect_column_min_to_be_between": _known("batch", "column* min_value max_value strict_min strict_max", _BATCH),
    "expect_column_most_common_value_to_be_in_set": _known("batch", "column* value_set* ties_okay", _BATCH),
    "expect_column_pair_values_a_to_be_greater_than_b": _known(
        "row",
        "column_A* column_B* or_equal ignore_row_if",
        _ROWS,
    ),
    "expect_column_pair_values_to_be_equal": _known("row", "column_A* column_B* ignore_row_if", _ROWS),
    "expect_column_pair_values_to_be_in_set": _known(
        "row",
        "column_A* column_B* value_pairs_set* ignore_row_if",
        _ROWS,
    ),
    "expect_column_proportion_of_non_null_values_to_be_between": _known(
        "batch",
        "column* min_value max_value strict_min strict_max",
        _BATCH,
    ),
    "expect_column_proportion_of_unique_values_to_be_between": _known(
        "batch",
        "column* min_value max_value strict_min strict_max",
        _BATCH,
    ),
    "expect_column_quantile_values_to_be_between": _known(
        "batch",
        "column* quantile_ranges* allow_relative_error",
        _BATCH,
    ),
    "expect_column_stdev_to_be_between": _known("batch", "column* min_value max_value strict_min strict_max", _BATCH),
    "expect_column_sum_to_be_between": _known("batch", "column* min_value max_value strict_min strict_max", _BATCH),
    "expect_column_to_exist": _known("batch", "column* column_index", ""),
    "expect_column_type_to_be": _known("batch", "column* type_*", ""),
    "expect_column_unique_value_count_to_be_between": _known(
        "batch",
        "column* min_value max_value strict_min strict_max",
        _BATCH,
    ),
    "expect_column_value_lengths_to_be_between": _known(
        "row",
        "column* min_value max_value strict_min strict_max",
        _ROWS,
    ),
    "expect_column_value_lengths_to_equal": _known("row", "column* value*", _ROWS),
    "expect_column_value_z_scores_to_be_less_than": _known("statistics", "column* threshold* double_sided*", _ROWS),
    "expect_column_values_to_be_between": _known("row", "column* min_value max_value strict_min strict_max", _ROWS),
    "expect_column_values_to_be_dateutil_parseable": _known("", "column*", _ROWS, why=_NO_METRIC),
    "expect_column_values_to_be_decreasing": _known("order", "column* strictly", _ROWS),
    "expect_column_values_to_be_in_set": _known("row", "column* value_set*", _ROWS),
    "expect_column_values_to_be_in_type_list": _known("batch", "column* type_list", _ROWS),
    "expect_column_values_to_be_increasing": _known("order", "column* strictly", _ROWS),
    "expect_column_values_to_be_json_parseable": _known("row", "column*", _ROWS),
    "expect_column_values_to_be_null": _known("row", "column*", _ROWS),
    "expect_column_values_to_be_of_type": _known("batch", "column* type_*", _ROWS),
    "expect_column_values_to_be_unique": _known("window", "column*", _ROWS),
    "expect_column_values_to_match_json_schema": _known("row", "column* json_schema*", _ROWS),
    "expect_column_values_to_match_like_pattern": _known("", "column* like_pattern* escape", _ROWS, why=_NO_METRIC),
    "expect_column_values_to_match_like_pattern_list": _known(
        "",
        "column* like_pattern_list* match_on escape",
        _ROWS,
        why=_NO_METRIC,
    ),
    "expect_column_values_to_match_regex": _known("row", "column* regex", _ROWS),
    "expect_column_values_to_match_regex_list": _known("row", "column* regex_list* match_on", _ROWS),
    "expect_column_values_to_match_strftime_format": _known("row", "column* strftime_format*", _ROWS),
    "expect_column_values_to_not_be_in_set": _known("row", "column* value_set*", _ROWS),
    "expect_column_values_to_not_be_null": _known("row", "column*", _ROWS),
    "expect_column_values_to_not_be_outliers": _known("statistics", "column* method multiplier", _ROWS),
    "expect_column_values_to_not_match_like_pattern": _known("", "column* like_pattern* escape", _ROWS, why=_NO_METRIC),
    "expect_column_values_to_not_match_like_pattern_list": _known(
        "",
        "column* like_pattern_list* escape",
        _ROWS,
        why=_NO_METRIC,
    ),
    "expect_column_values_to_not_match_regex": _known("row", "column* regex*", _ROWS),
    "expect_column_values_to_not_match_regex_list": _known("row", "column* regex_list*", _ROWS),
    "expect_compound_columns_to_be_unique": _known("window", "column_list* ignore_row_if", _ROWS),
    "expect_multicolumn_sum_to_equal": _known("row", "column_list* ignore_row_if sum_total*", _ROWS),
    "expect_multicolumn_values_to_be_equal": _known("row", "column_list* ignore_row_if", _ROWS),
    "expect_multicolumn_values_to_be_unique": _known("", "column* column_list* ignore_row_if", _ROWS, why=_NOWHERE),
    "expect_query_results_to_match_comparison": _known(
        "",
        "base_query* comparison_data_source_name* comparison_query*",
        "mostly",
        why=_DATABASES,
    ),
    "expect_select_column_values_to_be_unique_within_record": _known("row", "column_list* ignore_row_if", _ROWS),
    "expect_table_column_count_to_be_between": _known("batch", "min_value max_value", ""),
    "expect_table_column_count_to_equal": _known("batch", "value*", ""),
    "expect_table_columns_to_match_ordered_list": _known("batch", "column_list", ""),
    "expect_table_columns_to_match_set": _known("batch", "column_set exact_match", ""),
    "expect_table_row_count_to_be_between": _known("batch", "min_value max_value strict_min strict_max", _BATCH),
    "expect_table_row_count_to_equal": _known("batch", "value*", _BATCH),
    "expect_table_row_count_to_equal_other_table": _known("", "other_table_name*", _BATCH, why=_DATABASES),
    "unexpected_rows_expectation": _known("batch", "unexpected_rows_query*", ""),
}
"""By name. A star says that an option must be given."""
