"""The decision about a batch follows from the outcomes of its rows, without reading the rows again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import pytest

from destinations.memory import Memory
from runners.model.planned_batch import BranchCounts, StageCount
from runners.state.prepared_store import PreparedStore
from runners.ways.deciding import BatchDecision
from runners.ways.row_outcomes import split_sections
from runners.ways.stage_chain import StageChain
from stages.cast import Cast
from stages.conditions import Filter
from stages.rows import REFUSED_BY_ORIGIN
from stages.sql import Sql
from stages.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CAST, STOPPING, FILTER = Cast({"id": "long"}), Cast({"id": "long"}, on_error="stop"), Filter("id")
SQL = Sql("select * from rows")


class UnaskedStore(PreparedStore):
    """A store of which nothing is asked."""

    def write(self, name: str, frame: DataFrame, by: str = "") -> int | None:
        raise AssertionError("nothing asks Spark")

    def read(self, spark: SparkSession, name: str) -> DataFrame:
        raise AssertionError("nothing asks Spark")

    def _list_places(self, spark: SparkSession) -> Sequence[str]:
        raise AssertionError("nothing is removed")

    def _delete(self, spark: SparkSession, place: str) -> None:
        raise AssertionError("nothing is removed")


def make_decision(*stages: Stage, order: Sequence[str] = ("a",), **branches: Sequence[Stage]) -> BatchDecision:
    """Return the decision of a batch that passes these stages. Its destinations may have more stages."""
    destinations = {name: Memory(stages=mine) for name, mine in (branches or {"orders": ()}).items()}
    return BatchDecision(
        spark=cast("SparkSession", None),
        store=UnaskedStore(),
        name="p1-x",
        chain=StageChain.of(stages, destinations),
        pins={},
        order=order,
    )


def make_group(
    part: str, block: int, state: int, rows: int, *, first: int, refused: Sequence[int] = (), **own: int
) -> Any:
    """Return the group of rows of one block with one state, as the store returns it."""
    return {"part": part, "block": block, "state": state, "rows": rows, "first": first, "refused": refused, **own}


def make_groups(states: Mapping[int, int], part: str = "a", **own: int) -> list[Any]:
    """Return the groups of so many rows with each state, all of one block."""
    refused = {state: list(range(rows)) if state < 0 else [] for state, rows in states.items()}
    return [make_group(part, 0, state, rows, first=0, refused=refused[state], **own) for state, rows in states.items()]


def test_a_filter_of_one_destination_affects_no_other() -> None:
    """The other destination gets the rows."""
    groups = [*make_groups({0: 6}, f1=0), *make_groups({0: 4}, f1=2)]
    prepared = make_decision(CAST, all=(), some=[FILTER]).decide_by([groups])
    assert prepared.counts.branches == {
        "all": BranchCounts(expected=10),
        "some": BranchCounts(expected=6, filtered=4),
    }


def test_rows_that_a_stage_adds_are_counted_as_changed() -> None:
    """For a stage that changes rows, only the rows before and after it are known."""
    prepared = make_decision(CAST, SQL).decide_by([make_groups({0: 10}), make_groups({0: 25}, "")])
    assert prepared.counts.branches == {"orders": BranchCounts(expected=25, changed=15)}
    assert prepared.counts.stages[-1] == StageCount(stage="sql", entered=10, left=25)


def test_a_stage_does_not_change_rows_that_it_refuses() -> None:
    """They are refused, and neither added nor merged."""
    prepared = make_decision(CAST, SQL).decide_by([make_groups({0: 8, -2: 2}), make_groups({0: 8}, "")])
    assert (prepared.counts.nacked, prepared.counts.branches["orders"].changed) == (2, 0)


def test_rows_that_the_origin_refused_enter_no_stage() -> None:
    """They still count as refused."""
    prepared = make_decision(CAST).decide_by([make_groups({0: 6, REFUSED_BY_ORIGIN: 4})])
    assert (prepared.counts.read, prepared.counts.nacked) == (10, 4)
    assert prepared.counts.stages == [StageCount(stage="cast", entered=6, left=6)]


def test_refused_rows_have_positions_in_the_order_in_which_parts_were_read() -> None:
    """The order of the groups does not matter. Blocks of a part are ordered by their beginning."""
    groups = [
        make_group("b", 0, -1, 1, first=100, refused=[100]),
        make_group("a", 128, -1, 1, first=50, refused=[50]),
        make_group("b", 0, 0, 2, first=101),
        make_group("a", 0, 0, 3, first=0),
    ]
    prepared = make_decision(CAST, order=("a", "b")).decide_by([groups])
    assert prepared.nacks == [4, 5]
    assert prepared.bases == {"0:128#a": 4 - 50, "0:0#b": 5 - 100}


def test_a_block_without_refused_rows_has_no_recorded_position() -> None:
    """This keeps the ledger entry of a batch with many files short."""
    groups = [make_group("a", 0, 0, 3, first=0), make_group("b", 0, -1, 1, first=0, refused=[0])]
    assert list(make_decision(CAST, order=("a", "b")).decide_by([groups]).bases) == ["0:0#b"]


def test_a_row_that_is_refused_after_a_changing_stage_has_the_last_position() -> None:
    """Its position is never beyond the last row that was read."""
    later = [make_group("", 0, -3, 1, first=0, refused=[0]), make_group("", 0, 0, 4, first=1)]
    prepared = make_decision(CAST, SQL, CAST).decide_by([[make_group("a", 0, 0, 3, first=0)], later])
    assert (prepared.counts.read, prepared.nacks) == (3, [3])


@pytest.mark.parametrize(("stage", "stops"), [(CAST, []), (STOPPING, ["cast"])])
def test_a_refusing_stage_stops_the_run_only_if_it_has_on_error_stop(stage: Stage, stops: list[str]) -> None:
    """By default a refused row goes to the DLQ."""
    prepared = make_decision(stage).decide_by([[make_group("a", 0, -1, 1, first=0, refused=[0])]])
    assert list(prepared.stops) == stops


def test_a_batch_is_written_before_each_stage_that_changes_rows() -> None:
    """The first section has no such stage, and every later one begins with one."""
    line = StageChain.of([CAST, SQL, FILTER, SQL], {"orders": Memory()})
    assert [[step.number for step in steps] for steps in split_sections(line.common)] == [[1], [2, 3], [4]]
