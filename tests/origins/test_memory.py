"""The origin `memory` gives rows and events from a script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import pytest

from origins.batch import JSON, Limits
from origins.errors import OriginError
from origins.memory import Crash, Crashed, End, Item, Memory, Pause
from origins.origin import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOBODY = cast("SparkSession", None)
"""Planning needs no Spark."""


def carry_batches(memory: Memory, offset: JSON = None, rows: int | None = None) -> list[JSON]:
    """Return the offsets at which the batches of a run end."""
    backlog, ends = memory.survey(NOBODY, Progress(offsets={"0": offset})), []
    while span := backlog.take("0", offset, Limits(rows=rows)):
        offset = span.end
        ends.append(offset)
    return ends


def make_scripted(*items: Item) -> Memory:
    """Return an origin with this script."""
    return Memory(items=items, schema="id int")


@pytest.mark.promise("HP-12", "SS-03")
def test_a_batch_has_as_many_rows_as_its_limit() -> None:
    """An offset is the number of items before it."""
    memory = make_scripted({"id": 1}, {"id": 2}, {"id": 3})
    assert carry_batches(memory) == [3]
    assert carry_batches(memory, rows=2) == [2, 3]
    assert carry_batches(memory, offset=1, rows=1) == [2, 3]
    assert carry_batches(memory, offset=3) == []


def test_a_crash_happens_once_after_the_items_before_it() -> None:
    """The next run continues after it."""
    memory = make_scripted({"id": 1}, Crash(), {"id": 2})
    backlog = memory.survey(NOBODY, Progress())
    span = backlog.take("0", None, Limits())
    assert span is not None
    assert span.end == 1
    with pytest.raises(Crashed, match="item 2"):
        backlog.take("0", span.end, Limits())
    assert carry_batches(memory, offset=span.end) == [3]


@pytest.mark.parametrize(
    ("items", "runs"),
    [
        ([{"id": 1}, End(), {"id": 2}], [[1], [3], []]),
        ([{"id": 1}, End(), End(), {"id": 2}], [[1], [4], []]),
        ([End(), {"id": 1}], [[2], []]),
        ([{"id": 1}, End()], [[1], []]),
    ],
)
def test_a_run_stops_at_an_end_in_the_script(items: Sequence[Item], runs: list[list[JSON]]) -> None:
    """The run finds no more rows. The next run continues after the end."""
    memory, offset = make_scripted(*items), None
    for run in runs:
        assert carry_batches(memory, offset) == run
        offset = run[-1] if run else offset


def test_a_pause_starts_when_it_is_reached() -> None:
    """The origin gives no further rows until the pause is over."""
    now = [100.0]
    memory = Memory(items=[{"id": 1}, Pause(5), {"id": 2}], schema="id int", clock=lambda: now[0])
    assert carry_batches(memory) == [1]
    now[0] = 104.9
    assert carry_batches(memory, 1) == []
    now[0] = 105.0
    assert carry_batches(memory, 1) == [3]


@pytest.mark.promise("SS-14")
def test_each_lane_has_a_separate_script() -> None:
    """The scripts are given by the names of the lanes."""
    memory = Memory(items={"a": [{"id": 1}], "b": [{"id": 2}, End(), {"id": 3}]}, schema="id int")
    backlog = memory.survey(NOBODY, Progress())
    assert memory.lane_names() == ("a", "b")
    assert backlog.take("b", 1, Limits()) is None


def test_several_lanes_need_a_script_each() -> None:
    """A number of lanes does not assign rows to lanes."""
    with pytest.raises(ValueError, match=r"^lanes: expected 1; for several lanes"):
        Memory(items=[], schema="id int", lanes=2)


@pytest.mark.spark
def test_a_key_outside_the_schema_is_an_error(spark: SparkSession) -> None:
    """Its value would be lost without a message."""
    memory = make_scripted({"id": 1}, {"ID": 2, "extra": 3})
    with pytest.raises(OriginError, match="has 'extra', which its schema does not have"):
        memory.columns(spark, memory.survey(spark, Progress()))
