"""Makes a first suite of expectations, which hold for given rows. It reads the rows once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date, datetime
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DateType, NumericType, StringType, TimestampType

from origins.batch import JSON
from origins.lazy import Column, DataFrame, T
from origins.names import quote_name
from runners.definitions.definition import Definition
from runners.operations.batch_trial import select_live
from runners.operations.trial import TrialRun
from runners.ways.batch_source import list_columns, strip_lane_prefix
from runners.ways.stage_chain import apply_chain, make_labels
from stages.expect.expectation import VERSION
from stages.rows import MarkedRows
from stages.stage import Stage

FEW = 20
"""A column with at most this many different values gets an expectation of the set."""
_TRACKED = 1_000
_SHARE = 0.05
"""How much the share of values that are not NULL may fall."""
_YEAR = 1000
"""Great Expectations cannot pass Spark a date before this year, because the year would have fewer than four digits."""
_EXACT = 2**53
"""Whole numbers up to this are exact as a float, with which Great Expectations compares."""


def read_next_rows(definition: Definition, without: type[Stage]) -> DataFrame | None:
    """Return the live rows of the next batch after the stages that all rows pass, or None if nothing waits.

    Stages of the class `without` are left out. Filtered and refused rows are not among the result. Nothing is written.
    """
    trial = TrialRun.open(definition)
    for origin in definition.pipeline.every_origin:
        waiting = next(trial.list_waiting(origin, [*definition.pipeline.lanes_of(origin)]), None)
        if waiting is not None:
            chain, plan = waiting
            steps = [step for step in chain.common if not isinstance(step.stage, without)]
            batch = strip_lane_prefix(plan.batch)
            frame = origin.fetch(trial.spark, [batch], places=True).frame()
            rows = MarkedRows.begin(frame, list_columns(plan.batch), make_labels(plan.batch), select_live)
            rows = replace(rows, parts=origin.parts(batch), claims=None)
            return select_live(apply_chain(rows, steps, plan.pins, checked=True))
    return None


def profile_rows(rows: DataFrame, name: str) -> dict[str, JSON]:
    """Return the suite in the JSON of Great Expectations. Runs one query. Raises `ValueError` if there are no rows."""
    asked = {"rows": F.count(F.lit(1))}
    for at, field in enumerate(rows.schema):
        asked.update({f"{at} {what}": column for what, column in _make_figures(field.name, field.dataType).items()})
    (found,) = rows.agg(*[column.alias(what) for what, column in asked.items()]).collect()
    if not found["rows"]:
        raise ValueError("there are no rows")
    expectations = [_make_expectation("expect_table_columns_to_match_set", {"column_set": rows.columns}, "warning")]
    for at, field in enumerate(rows.schema):
        own = {what.partition(" ")[2]: found[what] for what in asked if what.startswith(f"{at} ")}
        expectations += _profile_column(field.name, own, found["rows"])
    return {"name": name, "expectations": expectations, "meta": {"great_expectations_version": VERSION}}


def _make_figures(name: str, kind: T.DataType) -> Mapping[str, Column]:
    column = F.col(quote_name(name))
    figures = {"there": F.count(column)}
    if isinstance(kind, NumericType | DateType | TimestampType):
        figures.update(least=F.min(column), most=F.max(column))
    if isinstance(kind, StringType):
        figures.update(shortest=F.min(F.length(column)), longest=F.max(F.length(column)))
    if isinstance(kind, StringType | BooleanType):
        figures.update(values=F.expr(f"approx_top_k({quote_name(name)}, {FEW + 1}, {_TRACKED})"))
    return figures


def _profile_column(name: str, figures: Mapping[str, Any], rows: int) -> Iterator[dict[str, JSON]]:
    of = {"column": name}
    if figures["there"] == rows:
        yield _make_expectation("expect_column_values_to_not_be_null", of, "critical")
    elif figures["there"]:
        mostly = max(0.0, math.floor((figures["there"] / rows - _SHARE) * 100) / 100)
        yield _make_expectation("expect_column_values_to_not_be_null", {**of, "mostly": mostly}, "warning")
    least, most = _to_plain(figures.get("least")), _to_plain(figures.get("most"))
    if least is not None and most is not None:
        limits = {"min_value": least, "max_value": most}
        yield _make_expectation("expect_column_values_to_be_between", {**of, **limits}, "warning")
    values = [counted["item"] for counted in figures.get("values") or () if counted["item"] is not None]
    if 0 < len(values) <= FEW and len(values) * 2 <= figures["there"]:
        yield _make_expectation("expect_column_values_to_be_in_set", {**of, "value_set": sorted(values)}, "warning")
    elif figures.get("longest") is not None:
        lengths = {"min_value": figures["shortest"], "max_value": figures["longest"]}
        yield _make_expectation("expect_column_value_lengths_to_be_between", {**of, **lengths}, "warning")


def _to_plain(value: Any) -> JSON:
    """Return a limit as JSON, or None if it cannot be compared exactly."""
    if isinstance(value, datetime | date):
        if value.year < _YEAR:
            return None
        return value.isoformat(sep=" ") if isinstance(value, datetime) else value.isoformat()
    if value is None or not math.isfinite(value) or abs(value) > _EXACT:
        return None
    return value if isinstance(value, int | float) else float(value)


def _make_expectation(name: str, kwargs: Mapping[str, JSON], severity: str) -> dict[str, JSON]:
    return {"type": name, "kwargs": dict(kwargs), "meta": {}, "severity": severity}
