"""`files` in a run that goes on: what waits when it looks again."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from origins.batch import JSON, Limits
from origins.files import Files, Waiting
from origins.origin import Backlog, Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_SPARK: SparkSession = None  # type: ignore[assignment]
"""A folder of this machine is looked at without Spark."""


def land(folder: Path, *names: str, age: int = 0) -> None:
    """Files of ten bytes, each a second younger than the one before."""
    for index, name in enumerate(names):
        (folder / name).write_text("x" * 10)
        os.utime(folder / name, (1_000 + age + index, 1_000 + age + index))


def waiting(folder: Path, **options: JSON) -> Waiting:
    """What waits in the folder, of which nothing was carried."""
    return Files(path=str(folder), format="text", **options).survey(NO_SPARK, Progress())


def names(backlog: Backlog, start: JSON, limits: Limits | None = None) -> list[str]:
    """The files of the next batch."""
    span = backlog.take("0", start, limits or Limits())
    return [name for name, _, _ in span.parts] if span else []


def test_what_was_handed_out_is_not_handed_out_again(tmp_path: Path) -> None:
    """Though the ledger is not asked; and what waited goes on waiting in its order."""
    land(tmp_path, "a", "b", "c")
    first = waiting(tmp_path)
    end = first.take("0", None, Limits(files=2)).end  # type: ignore[union-attr]
    second = first.again(NO_SPARK, {"0": end})
    assert names(second, end) == ["c"]
    third = second.again(NO_SPARK, {"0": end})
    assert names(third, end) == ["c"]
    last = third.take("0", end, Limits()).end  # type: ignore[union-attr]
    assert names(third.again(NO_SPARK, {"0": last}), last) == []


def test_a_file_that_is_older_than_those_that_wait_comes_before_them(tmp_path: Path) -> None:
    """In order of time among what waits."""
    land(tmp_path, "b", "d", age=10)
    first = waiting(tmp_path)
    end = first.take("0", None, Limits(files=1)).end  # type: ignore[union-attr]
    land(tmp_path, "late", age=5)
    land(tmp_path, "e", age=20)
    assert names(first.again(NO_SPARK, {"0": end}), end) == ["late", "d", "e"]


def test_a_file_that_changed_after_it_was_handed_out_is_noticed(tmp_path: Path) -> None:
    """It is not handed out again."""
    land(tmp_path, "a")
    first = waiting(tmp_path)
    end = first.take("0", None, Limits()).end  # type: ignore[union-attr]
    land(tmp_path, "a", age=30)
    second = first.again(NO_SPARK, {"0": end})
    assert (names(second, end), len(second.notices)) == ([], 1)


def test_a_batch_is_full_when_no_other_file_would_fit(tmp_path: Path) -> None:
    """By files, by bytes, or since one more that is there would be too many."""
    land(tmp_path, "a", "b", "c")
    cases = [
        (Limits(), False),
        (Limits(files=4), False),
        (Limits(files=3), True),
        (Limits(bytes=31), False),
        (Limits(bytes=30), True),
        (Limits(bytes=25), True),
    ]
    for limits, full in cases:
        span = waiting(tmp_path).take("0", None, limits)
        assert span is not None
        assert (limits, span.full) == (limits, full)
    by_origin = waiting(tmp_path, max_files=3).take("0", None, Limits())
    assert by_origin is not None
    assert by_origin.full


def test_an_idle_look_at_a_thousand_files_takes_less_than_a_fiftieth_of_a_second(tmp_path: Path) -> None:
    """The quickest of five, so that a busy machine does not fail it."""
    land(tmp_path, *(f"{number:04}" for number in range(1_000)))
    backlog: Backlog = waiting(tmp_path)
    end = backlog.take("0", None, Limits()).end  # type: ignore[union-attr]
    took = []
    for _ in range(5):
        began = time.perf_counter()
        backlog = backlog.again(NO_SPARK, {"0": end})
        took.append(time.perf_counter() - began)
    assert min(took) < 0.02
