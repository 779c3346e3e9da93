"""The suite for stages passes for stages that could raise, and finds each broken promise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from stages.columns import Select, WithColumns
from stages.conditions import Filter, Require
from stages.conformance import StageConformance
from stages.sql import Sql
from stages.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stages.rows import Rows

pytestmark = [pytest.mark.spark, pytest.mark.variant]


class TestWithColumnsOnAnyName(StageConformance):
    """A division that raises for zero, unusual names, and a label."""

    schema = "x int, `unit price` string"
    rows: ClassVar[list[tuple[Any, ...]]] = [(2, "a"), (None, None)]
    raising: ClassVar[list[tuple[Any, ...]]] = [(0, "b")]

    def stage(self) -> Stage:
        return WithColumns({"X": "10 / x", "new.one": "upper(`unit price`)", "lane": ":lane"})


class TestSelectOfParts(StageConformance):
    """Columns that are kept, computed, or taken from structs."""

    schema = "x int, s struct<`a b`: int, c: array<string>>, gone string"
    rows: ClassVar[list[tuple[Any, ...]]] = [(2, (1, ["x", None]), "z"), (None, None, None)]
    raising: ClassVar[list[tuple[Any, ...]]] = [(0, (1, None), None)]

    def stage(self) -> Stage:
        return Select(["X", "s.`a b`", "s", "1 / x as `a.b`", ":batch_time as t", "null"])


@pytest.mark.promise("DQ-11", "DQ-02", "CD-16")
class TestRequireThatCouldRaise(StageConformance):
    """Two rules, one of which raises for zero."""

    schema = "x int, y string"
    rows: ClassVar[list[tuple[Any, ...]]] = [(4, "a"), (-4, "a"), (4, "b"), (None, "a"), (4, None), (None, None)]
    raising: ClassVar[list[tuple[Any, ...]]] = [(0, "a")]

    def stage(self) -> Stage:
        return Require({"positive": "1 / x > 0", "is a": "y = 'a'"})


@pytest.mark.promise("CD-10")
class TestFilterThatCouldRaise(StageConformance):
    """A condition that is NULL is not true."""

    schema = "x int"
    rows: ClassVar[list[tuple[Any, ...]]] = [(1,), (-1,), (None,)]
    raising: ClassVar[list[tuple[Any, ...]]] = [(0,)]

    def stage(self) -> Stage:
        return Filter("1 / x > 0")


class TestFilterByChance(StageConformance):
    """A stage that is not repeatable is still computed once."""

    schema = "x int"
    rows: ClassVar[list[tuple[Any, ...]]] = [(1,), (None,)]

    def stage(self) -> Stage:
        return Filter("rand() < 2")


class TestSqlThatCouldRaise(StageConformance):
    """A statement with a named subquery, an explode, a label, and a comment at its end."""

    schema = "id int, tags string"
    rows: ClassVar[list[tuple[Any, ...]]] = [(1, "a b"), (2, "c"), (3, None)]
    raising: ClassVar[list[tuple[Any, ...]]] = [(0, "x")]

    def stage(self) -> Stage:
        return Sql(
            "with t as (select 6 / id as part, explode(split(tags, ' ')) as tag from rows)\n"
            "select tag, sum(part) as part, max(:number) as n, '{rows}' as `{source}` from t group by tag -- {x}\n;"
        )


@dataclass(frozen=True, kw_only=True)
class Halving(Stage):
    """Refuses -1, filters -2 and halves the other values, with one promise broken."""

    fault: str
    decided: list[int]
    """The number of times that the stage has decided rows."""

    def apply(self, rows: Rows) -> Rows:
        from pyspark.sql import functions as F

        from origins.nack import make_reason

        straight, fault, x = not rows.explains, self.fault, rows.column("x")
        self.decided[0] += not straight
        by = 3 if (fault == "gives other rows" and straight) or (fault == "changes" and self.decided[0] > 1) else 2
        if fault == "starts a job":
            rows.frame.count()
        elif fault == "drops rows":
            rows = rows.with_frame(rows.frame.where("x <> -2 or x is null"))
        elif fault == "looks at refused rows" and not straight:
            rows = rows.with_frame(rows.frame.withColumn("x", F.expr("if(1 div x = 7, null, x)")))
        elif fault == "looks at filtered rows" and straight:
            rows = rows.with_frame(rows.frame.where("x is null or 1 div x <> 7"))
        elif fault == "changes rows before it refuses them" and not straight:
            rows = rows.with_columns({"x": x.cast("double")})
        elif fault == "lets bad rows pass" and straight:
            rows = rows.filter(F.coalesce(x != -1, F.lit(True)))
        elif fault == "makes a row out of nothing" and straight:
            other = rows.frame.sparkSession.createDataFrame([(0, 8)], "state int, x int")
            rows = rows.with_frame(rows.frame.union(other.join(rows.frame.limit(1), F.lit(True), "left_anti")))
        why = F.when(x == -1, make_reason("" if fault == "gives no code" else "BAD", F.lit("bad")))
        return rows.refuse(why).filter(F.coalesce(x != -2, F.lit(True))).with_columns({"x": x / by})


class HalvingConformance(StageConformance):
    """The suite for a stage with this fault."""

    schema = "x int"
    rows: ClassVar[list[tuple[Any, ...]]] = [(5,), (None,), (-2,), (-1,)]
    raising: ClassVar[list[tuple[Any, ...]]] = [(0,)]

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.decided = [0]

    def stage(self) -> Stage:
        return Halving(fault=self.fault, decided=self.decided)


CHECKS = [name for name in dir(StageConformance) if name.startswith("test_")]
FAULTS = {
    "gives other rows": "test_both_ways_keep_the_same_rows",
    "lets bad rows pass": "test_a_straight_batch_raises_at_a_row_that_is_refused",
    "drops rows": "test_every_row_is_kept_filtered_or_refused",
    "looks at refused rows": "test_nothing_is_evaluated_on_a_refused_row",
    "looks at filtered rows": "test_nothing_is_evaluated_on_a_filtered_row_of_a_clean_batch",
    "changes rows before it refuses them": "test_a_refused_row_is_kept_unchanged",
    "gives no code": "test_a_refused_row_is_kept_unchanged",
    "changes": "test_a_repeatable_stage_gives_the_same_result_again",
    "starts a job": "test_the_stage_starts_no_spark_job",
    "makes a row out of nothing": "test_an_empty_batch_gives_no_rows",
}


@pytest.mark.parametrize(("fault", "found_by"), [("", None), *FAULTS.items()])
def test_each_fault_is_found_by_its_check_only(spark: SparkSession, fault: str, found_by: str | None) -> None:
    """A correct stage passes all checks."""
    failed = [name for name in CHECKS if _fails(getattr(HalvingConformance(fault), name), spark)]
    assert failed == [name for name in CHECKS if name == found_by]


def test_every_check_has_a_fault() -> None:
    """Each check fails for at least one fault."""
    assert set(CHECKS) == set(FAULTS.values())


def _fails(check: Callable[[SparkSession], None], spark: SparkSession) -> bool:
    try:
        check(spark)
    except Exception:
        return True
    return False
