"""The suite for stages finds each broken promise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from stages.conformance import StageConformance
from stages.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stages.rows import Rows

pytestmark = pytest.mark.spark


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


@pytest.mark.parametrize(("fault", "check"), FAULTS.items())
def test_a_fault_is_found_by_its_check(spark: SparkSession, fault: str, check: str) -> None:
    """A stage without a fault passes it."""
    getattr(HalvingConformance(""), check)(spark)
    with pytest.raises(Exception):  # noqa: B017, PT011 -- a fault may raise anything
        getattr(HalvingConformance(fault), check)(spark)


def test_every_check_has_a_fault() -> None:
    """Each check fails for at least one fault."""
    assert set(CHECKS) == set(FAULTS.values())
