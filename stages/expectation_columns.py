"""The columns that expectations look at, beside the rows under names of our own, and their answers as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pyspark.sql import Window
from pyspark.sql import functions as F

from origins.names import HIDDEN
from stages import gx
from stages.expectation import Expectation

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from stages.rows import Rows

R = TypeVar("R", bound="Rows")
_NAN = ("bigint", "double", "int")
"""The types of which Great Expectations leaves out NaN where it looks at the row before."""


@dataclass
class Beside(Generic[R]):
    """Rows with what expectations ask of them: values only where an expectation is about the row and it is live, so
    that nothing is evaluated on another one, and no window sees it."""

    rows: R
    asked: dict[str, Any] = field(default_factory=dict)
    """What Great Expectations answered before."""
    concerned: dict[str, str] = field(default_factory=dict)
    """By condition the column that says whether a row is meant."""
    values: dict[tuple[str, str], str] = field(default_factory=dict)
    """By the group of rows and the name of a column, the column with its values."""
    looked_at: DataFrame | None = None
    """The rows with these columns only."""
    figures: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """What an expectation has to know of the whole batch, by what it asks."""
    arrival: Column | None = None
    """What rises in the order in which rows were read."""

    @staticmethod
    def of(rows: R, rules: Sequence[Expectation], asked: dict[str, Any]) -> Beside[R]:
        """The rows with all that these expectations ask. What was `asked` before is not asked again."""
        beside = Beside(rows, asked)
        if not rules:
            return beside
        conditions, ignoring, values = {}, {}, {}
        for rule in rules:
            key = f"row_condition {_condition(rule)} {rows.schema.simpleString()}"
            if key not in asked:
                asked[key] = gx.row_condition(rule, rows.frame) if "row_condition" in rule.options else None
            condition = asked[key]
            meant = F.when(rows.live, F.lit(True) if condition is None else F.coalesce(condition, F.lit(False)))
            key = _condition(rule)
            name = beside.concerned.setdefault(key, f"{HIDDEN}meant{len(beside.concerned)}")
            conditions[name] = meant
            group = _group(rule)
            if group not in beside.concerned:
                beside.concerned[group] = f"{HIDDEN}meant{len(beside.concerned)}"
                ignoring[beside.concerned[group]] = F.when(F.col(name) & ~_ignored(rule, rows), F.lit(True))
            for column in rule.columns:
                own = beside.values.setdefault((group, column), f"{HIDDEN}value{len(beside.values)}")
                values[own] = F.when(F.col(beside.concerned[group]), _column(column, rows))
        if any(rule.known.way == "order" for rule in rules):
            ordered, beside.arrival = rows.in_order()
            rows = ordered
        frame = rows.frame
        for each in (conditions, ignoring, values):
            frame = frame.select("*", *[column.alias(name) for name, column in each.items()])
        beside.rows = replace(rows, frame=frame)
        beside.looked_at = frame.select(*beside.concerned.values(), *beside.values.values())
        for rule in rules:
            if rule.known.way == "statistics":
                judged = rows.hold is not None
                figures = gx.figures(rule, beside.looked_at, beside._names(rule)) if judged else gx.NOTHING
                beside.figures[_asking(rule)] = figures
        return beside

    def answers(self, rule: Expectation) -> tuple[Column | None, Column | None, Column]:
        """Of each row whether it is meant (None: every one), whether there is nothing to look at (None: never), and
        whether it is not as expected."""
        meant = F.col(self.concerned[_condition(rule)]) if "row_condition" in rule.options else None
        group, names = _group(rule), self._names(rule)
        missing = None
        if "column" not in rule.options:
            missing = F.col(self.concerned[group]).isNull()
        elif rule.type not in ("expect_column_values_to_be_null", "expect_column_values_to_not_be_null"):
            missing = F.col(names[rule.options["column"]]).isNull()
        return meant, missing, self._unexpected(rule, names, group)

    def _unexpected(self, rule: Expectation, names: Mapping[str, str], group: str) -> Column:
        assert self.looked_at is not None
        if rule.known.way == "order":
            (name,) = names.values()
            return self._out_of_order(rule, name, F.col(self.concerned[group]))
        if rule.type == "expect_compound_columns_to_be_unique":
            listed = [*rule.options["column_list"], self.concerned[group]]
            rule = replace(rule, options={**rule.options, "column_list": listed})
        if rule.known.way == "statistics":
            return gx.unexpected(rule, self.looked_at, names, self.figures[_asking(rule)])
        key = f"{rule.type} {dict(rule.options)} {dict(names)} {self.looked_at.schema.simpleString()}"
        if key not in self.asked:
            self.asked[key] = gx.unexpected(rule, self.looked_at, names)
        column: Column = self.asked[key]
        return column

    def _names(self, rule: Expectation) -> Mapping[str, str]:
        """From each of its columns to where the values stand."""
        return {column: self.values[_group(rule), column] for column in rule.columns}

    def _out_of_order(self, rule: Expectation, name: str, meant: Column) -> Column:
        """Whether the value is on the wrong side of the one before it. Great Expectations asks the same of whatever
        order Spark has its rows in; here it is the order in which they were read."""
        assert self.looked_at is not None
        assert self.arrival is not None
        value, kind = F.col(name), self.looked_at.schema[name].dataType.simpleString()
        compared = meant & value.isNotNull() & ~F.isnan(value) if kind in _NAN else meant
        compared = F.coalesce(compared, F.lit(False))
        before = Window.partitionBy(compared).orderBy(self.arrival)
        if kind in ("date", "timestamp"):
            rise = F.datediff(value, F.lag(value).over(before))
        else:
            exact = value.cast("decimal(38,0)") if kind in ("tinyint", "smallint", "int", "bigint") else value
            rise = exact - F.lag(exact).over(before)
        rising = rule.type == "expect_column_values_to_be_increasing"
        wrong = rise < 0 if rising else rise > 0
        if rule.options.get("strictly"):
            wrong = wrong | (rise == 0)
        return compared & F.coalesce(wrong, F.lit(False))


def _asking(rule: Expectation) -> str:
    return f"{rule.type} {rule.options.get('method')} {list(rule.columns)} {_condition(rule)}"


def _condition(rule: Expectation) -> str:
    return f"{rule.options.get('condition_parser')}: {rule.options.get('row_condition')}"


def _group(rule: Expectation) -> str:
    """What is the same for expectations that are about the same rows."""
    if "column" in rule.options:
        return _condition(rule)
    return f"{_condition(rule)} of {list(rule.columns)} but {_ignoring(rule)}"


def _ignoring(rule: Expectation) -> str:
    default = "all_values_are_missing" if "column_list" in rule.options else "both_values_are_missing"
    return str(rule.options.get("ignore_row_if", default))


def _ignored(rule: Expectation, rows: Rows) -> Column:
    """Whether a row is left out because values are missing."""
    missing = [_column(name, rows).isNull() for name in rule.columns]
    how = _ignoring(rule)
    if how in ("all_values_are_missing", "both_values_are_missing"):
        return reduce(lambda one, other: one & other, missing)
    if how in ("any_value_is_missing", "either_value_is_missing"):
        return reduce(lambda one, other: one | other, missing)
    return F.lit(False)


def _column(name: str, rows: Rows) -> Column:
    return rows.column(name) if rows.spelled(name) in rows.names else F.col(name)
