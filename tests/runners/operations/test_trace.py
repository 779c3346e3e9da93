"""A trace records each row after every step, and its outcome for every destination."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pytest

from destinations.memory import Memory
from origins.batch import Batch, Span
from origins.origin import PLACE
from runners.operations.trace import Examples, PassRows, Trace, ask, begin_rows
from runners.ways.stage_chain import StageChain
from stages.columns import WithColumns
from stages.conditions import Filter, Require
from stages.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stages.rows import Rows

pytestmark = pytest.mark.spark


def read_numbers(spark: SparkSession, count: int) -> Rows:
    """Return the rows with the numbers from 1, ready for a trace."""
    place = f"named_struct('part', 'a', 'block', 0L, 'row', id) AS {PLACE}"
    frame = spark.range(count).selectExpr("id + 1 AS number", place)
    batch = Batch(
        pipeline="p",
        run="r",
        origin="o",
        lane="0",
        number=1,
        plan="p",
        span=Span(start=None, end=None),
        schema='{"type":"struct","fields":[{"name":"number","type":"long","nullable":true,"metadata":{}}]}',
        time=datetime(2026, 1, 1, tzinfo=timezone.utc),
    )
    return begin_rows(frame, batch, ["a"])


def make_chain(common: Sequence[Stage], large: Sequence[Stage] = ()) -> StageChain:
    return StageChain.of(common, {"every": Memory(), "large": Memory(stages=large)})


def collect(spark: SparkSession, chain: StageChain, count: int = 4) -> Examples:
    def view(pass_rows: PassRows) -> Examples:
        return pass_rows(read_numbers(spark, count), chain, {}).collect(count)

    return ask(view)


def test_a_row_is_recorded_after_each_step_with_its_outcome(spark: SparkSession) -> None:
    """A step of one destination changes and filters rows for that destination only."""
    chain = make_chain(
        [Require({"no_two": "number <> 2"}), Filter("number <> 3")],
        [WithColumns({"number": "number * 10"}), Filter("number > 10")],
    )
    found = collect(spark, chain)
    (section,) = found.trace.sections
    outcomes = [[row.find_outcome(at) for at in section.snapshots] for row in found.rows]
    assert outcomes == [
        ["kept", "kept", "kept", "kept", "filtered"],
        ["kept", "refused", "", "", ""],
        ["kept", "kept", "filtered", "", ""],
        ["kept", "kept", "kept", "kept", "kept"],
    ]
    assert [found.find_delivered(row, "every") for row in found.rows] == ['{"number":1}', None, None, '{"number":4}']
    assert [found.find_delivered(row, "large") for row in found.rows] == [None, None, None, '{"number":40}']
    assert found.count_delivered() == {"every": 2, "large": 1}


def test_a_row_at_which_a_stage_raises_is_refused_by_that_stage(spark: SparkSession) -> None:
    """The other rows pass."""
    found = collect(spark, make_chain([WithColumns({"half": "1 div (number - 2)"}, name="half")]), count=3)
    assert [found.trace.name_step(row.state) for row in found.rows] == ["", "half", ""]


def test_rows_pass_another_chain_as_they_were_read(spark: SparkSession) -> None:
    """The outcome of the first trace stays beside each row."""
    first = Trace.of(read_numbers(spark, 3), make_chain([Filter("number > 1"), WithColumns({"number": "-number"})]), {})
    second = Trace.of(first.begin_again("first"), make_chain([Require({"small": "number < 3"})]), {})
    (before,), (after,) = first.sections, second.sections
    exits = after.frame.select(before.find_exit("every", "first"), after.find_exit("every")).collect()
    assert sorted(map(tuple, exits)) == [(0, -1), (0, 0), (1, 0)]
    assert sorted(row["row"] for row in second.select_delivered("every").collect()) == ['{"number":1}', '{"number":2}']
