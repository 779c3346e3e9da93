"""The merge of a fallback into the DLQ."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from destinations.delta.delta import Delta
from destinations.memory import Memory
from origins.generate import Generate
from runners.model.entry import Settled
from runners.model.planned_batch import SettledCounts
from runners.pipeline import Pipeline
from runners.running.merge_fallback import FallbackMerge
from tests.runners.running.letterbox import append_letters, make_letters
from tests.runners.running.open_run import make_open_run


def make_merge() -> FallbackMerge:
    return FallbackMerge(source=Delta(path="refused"))


def test_batches_are_read_together_up_to_a_number_of_rows() -> None:
    """A batch with many rows is read alone."""
    groups = make_merge()._group({"a": 4_000, "b": 6_000, "c": 1, "d": 10_001, "e": 1})
    assert [list(group) for group in groups] == [["a", "b"], ["c"], ["d"], ["e"]]


@pytest.mark.parametrize("id_", ["p/07", "p/00", "p/7 ", "p/x", "p/", "P/7", None])
def test_a_row_with_an_invalid_id_is_not_merged(tmp_path: Path, id_: str | None) -> None:
    """A user may have typed the id. In the DLQ, its row could not be found by its place in the batch."""
    append_letters(tmp_path, [*make_letters(7, 10), {**make_letters(7)[0], "id": id_}])
    orders = Pipeline(name="orders", origin=Generate(), destinations=[Memory(name="a")])
    batch = Settled(lane="0", number=1, plan="p", run="r", at="", span=cast("Any", {}), counts=SettledCounts())
    merge = FallbackMerge(source=Delta(path=str(tmp_path)))
    assert sorted(merge._read_few(make_open_run(orders), {"p": batch})["p"]) == ["p/10", "p/7"]
