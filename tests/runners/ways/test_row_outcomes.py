"""The outcomes of rows are observed while a decided batch is written, and counted again when they are uncertain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import pytest

from runners.ways.row_outcomes import OutcomeObserver, RowOutcomes, group_by_spark
from runners.ways.stage_chain import PlacedStage
from tests.scenarios.conftest import Place, make_order, place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

__all__ = ["place"]

TWO = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, schema: "id long, email string, amount string"}
stages:
  - cast: {amount: "decimal(10,2)"}
  - filter: "id <> 2"
destinations:
  - delta: {path: tables/all}
  - delta: {path: tables/some}
    stages: [filter: "id > 3", filter: "id < 6"]
dlq: {window: 0}
"""


def make_observer(found: Mapping[str, int]) -> OutcomeObserver:
    """Return an observer with these counts of one common stage, and of a second stage for one destination."""

    class Observed:
        get = found

    return OutcomeObserver(
        cast("DataFrame", None), cast("Observation", Observed()), {"state 1": ("state", 1), "f0 2": ("f0", 2)}
    )


def test_observed_counts_are_used_if_the_written_number_agrees() -> None:
    """The remaining rows were not filtered."""
    verdicts = make_observer({"rows": 10, "refused": 0, "state 1": 3, "f0 2": 2}).read_outcomes(10)
    assert verdicts == RowOutcomes(states=Counter({0: 7, 1: 3}), filters={"f0": Counter({2: 2})})


@pytest.mark.parametrize(
    ("found", "written"),
    [
        ({"rows": 12, "refused": 0, "state 1": 5, "f0 2": 2}, 10),
        ({"rows": 10, "refused": 0, "state 1": 3, "f0 2": 2}, None),
        ({"rows": 10, "refused": 1, "state 1": 3, "f0 2": 2}, 10),
        ({}, 0),
    ],
)
def test_uncertain_counts_are_not_used(found: Mapping[str, int], written: int | None) -> None:
    """A task ran twice, the written number or the position of a refused row is unknown, or nothing was observed."""
    assert make_observer(found).read_outcomes(written) is None


def test_groups_give_the_same_outcomes() -> None:
    """The rows of the store are grouped by their state and the columns of filters."""
    groups = [
        {"part": "a", "block": 0, "state": 0, "f0": 0, "rows": 5},
        {"part": "b", "block": 0, "state": 0, "f0": 2, "rows": 2},
        {"part": "b", "block": 0, "state": 1, "f0": 0, "rows": 3},
        {"part": "b", "block": 0, "state": -4, "f0": 0, "rows": 1},
    ]
    verdicts = RowOutcomes.of(groups)
    assert verdicts == RowOutcomes(states=Counter({0: 7, 1: 3, -4: 1}), filters={"f0": Counter({2: 2})})
    assert (verdicts.rows, verdicts.refused) == (11, 1)


def test_too_many_counts_are_not_observed() -> None:
    """The rows are then read again."""
    many = [PlacedStage(number=number, name=str(number), stage=cast("Any", None)) for number in range(1, 18)]
    frame = cast("DataFrame", object())
    assert OutcomeObserver.of(frame, many, {}, most=16) == OutcomeObserver(frame, None, {})


@pytest.mark.spark
@pytest.mark.connect
@pytest.mark.parametrize("bad", [False, True])
def test_a_batch_without_refused_rows_is_not_read_again_to_count_it(
    place: Place, bad: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large batch with a refused row is read for its position. Both batches are balanced."""
    asked: list[Any] = []

    def noted(frame: Any) -> Any:
        asked.append(frame)
        return group_by_spark(frame)

    monkeypatch.setattr("runners.ways.written.group_by_spark", noted)
    place.land("a.json", [make_order(number) for number in range(1, 8)])
    place.land("b.json", [make_order(8, amount="x" if bad else "8")])
    report = place.carry(TWO, small_bytes=0)
    assert (report.balanced, report.read, report.nacked) == (True, 8, int(bad))
    assert report.delivered == {"all": 7 - bad, "some": 2}
    assert {name: each.filtered for name, each in report.destinations.items()} == {"all": 1, "some": 6 - bad}
    assert len(asked) == int(bad)
