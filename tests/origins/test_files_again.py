"""What waits in the origin `files` when a continuous run looks again."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from origins.batch import JSON, Backlog, Json, Limits
from origins.files import Files
from origins.files import listing as file_backlog
from origins.files.file_systems import File
from origins.files.listing import FileBacklog, list_files
from origins.origin import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_SPARK: SparkSession = None  # type: ignore[assignment]
"""A folder of this machine is read without Spark."""


def write_files(folder: Path, *names: str, age: int = 0) -> None:
    """Write files of ten bytes, each a second newer than the one before."""
    for index, name in enumerate(names):
        (folder / name).write_text("x" * 10)
        os.utime(folder / name, (1_000 + age + index, 1_000 + age + index))


def survey_folder(folder: Path, **options: JSON) -> FileBacklog:
    """Return what waits in a folder from which no file was processed."""
    return Files(path=str(folder), format="text", **options).survey(NO_SPARK, Progress())


def list_names(backlog: Backlog, start: JSON, limits: Limits | None = None) -> list[str]:
    """Return the files of the next batch."""
    span = backlog.take("0", start, limits or Limits())
    return [name for _, name, _ in list_files(span.parts)] if span else []


def test_planned_files_are_not_planned_again(tmp_path: Path) -> None:
    """The ledger is not asked. The waiting files keep their order."""
    write_files(tmp_path, "a", "b", "c")
    first = survey_folder(tmp_path)
    end = first.take("0", None, Limits(files=2)).end  # type: ignore[union-attr]
    second = first.again(NO_SPARK, {"0": end})
    assert list_names(second, end) == ["c"]
    third = second.again(NO_SPARK, {"0": end})
    assert list_names(third, end) == ["c"]
    last = third.take("0", end, Limits()).end  # type: ignore[union-attr]
    assert list_names(third.again(NO_SPARK, {"0": last}), last) == []


def test_a_file_older_than_the_waiting_files_comes_before_them(tmp_path: Path) -> None:
    """Waiting files are ordered by time."""
    write_files(tmp_path, "b", "d", age=10)
    first = survey_folder(tmp_path)
    end = first.take("0", None, Limits(files=1)).end  # type: ignore[union-attr]
    write_files(tmp_path, "late", age=5)
    write_files(tmp_path, "e", age=20)
    assert list_names(first.again(NO_SPARK, {"0": end}), end) == ["late", "d", "e"]


def test_a_file_that_changed_after_it_was_planned_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not planned again. Wherry checks only once a minute, since checking each file takes most of a look."""
    write_files(tmp_path, "a")
    first = survey_folder(tmp_path)
    end = first.take("0", None, Limits()).end  # type: ignore[union-attr]
    write_files(tmp_path, "a", age=30)
    second = first.again(NO_SPARK, {"0": end})
    assert (list_names(second, end), second.notices) == ([], [])
    monkeypatch.setattr(file_backlog, "CHANGED_AGAIN", 0.0)
    third = second.again(NO_SPARK, {"0": end})
    assert (list_names(third, end), len(third.notices)) == ([], 1)


def test_a_batch_is_full_when_no_other_file_would_fit(tmp_path: Path) -> None:
    """It is full by files, by bytes, or because the next waiting file would exceed the limit."""
    write_files(tmp_path, "a", "b", "c")
    cases = [
        (Limits(), False),
        (Limits(files=4), False),
        (Limits(files=3), True),
        (Limits(bytes=31), False),
        (Limits(bytes=30), True),
        (Limits(bytes=25), True),
    ]
    for limits, full in cases:
        span = survey_folder(tmp_path).take("0", None, limits)
        assert span is not None
        assert (limits, span.full) == (limits, full)
    by_origin = survey_folder(tmp_path, max_files=3).take("0", None, Limits())
    assert by_origin is not None
    assert by_origin.full


def test_an_idle_look_at_a_thousand_files_takes_less_than_20_milliseconds(tmp_path: Path) -> None:
    """The fastest of five looks counts, so that a busy machine does not fail the test."""
    write_files(tmp_path, *(f"{number:04}" for number in range(1_000)))
    backlog: Backlog = survey_folder(tmp_path)
    end = backlog.take("0", None, Limits()).end  # type: ignore[union-attr]
    took = []
    for _ in range(5):
        began = time.perf_counter()
        backlog = backlog.again(NO_SPARK, {"0": end})
        took.append(time.perf_counter() - began)
    assert min(took) < 0.02


def write_aged(folder: Path, name: str, seconds: float) -> None:
    """Write a file with this age."""
    (folder / name).write_text("x")
    os.utime(folder / name, (time.time() - seconds, time.time() - seconds))


def test_a_file_younger_than_min_age_waits(tmp_path: Path) -> None:
    """Its writer may not have finished. A notice counts such files once, and they are read when they are old enough."""
    write_aged(tmp_path, "old", 100)
    write_aged(tmp_path, "young", 10)
    write_aged(tmp_path, "of_the_future", -100)
    first = survey_folder(tmp_path, min_age="1m")
    assert list_names(first, None) == ["old"]
    assert first.notices == ["2 files younger than min_age will be read later"]
    end = first.take("0", None, Limits()).end  # type: ignore[union-attr]
    write_aged(tmp_path, "young", 70)
    second = first.again(NO_SPARK, {"0": end})
    assert (list_names(second, end), second.notices) == (["young"], [])


def test_an_unreadable_file_is_noticed_and_the_others_are_read(tmp_path: Path) -> None:
    """Each notice names the file in one line of printable characters."""
    write_files(tmp_path, "good.json", "good\n.json")
    (tmp_path / os.fsdecode(b"a\xff.json")).write_text("x")
    os.mkfifo(tmp_path / "b\n.json")
    (tmp_path / "c.json").symlink_to("c.json")
    first = survey_folder(tmp_path)
    assert list_names(first, None) == ["good.json", "good\n.json"]
    assert sorted(first.notices) == [
        r"'a\udcff.json' has a name that is not UTF-8, so Spark cannot open the file",
        r"'b\n.json' is a named pipe; Wherry reads only regular files",
        "c.json cannot be read: Too many levels of symbolic links",
    ]
    assert sorted(first.again(NO_SPARK, {}).notices) == sorted(first.notices)


def time_quickest_plan(folder: Path, count: int) -> float:
    """Return the seconds of the fastest of fifty plans, with this many processed and as many waiting files."""
    parts: list[Json] = [[f"carried-{number:06}", 1, number] for number in range(count)]
    backlog = Files(path=str(folder), format="text").survey(NO_SPARK, Progress(parts=parts))
    backlog._lanes["0"].extend(File(2_000_000 + number, f"{number:06}", 1) for number in range(count))
    start: JSON = None
    took = []
    for _ in range(50):
        began = time.perf_counter()
        span = backlog.take("0", start, Limits(files=100))
        took.append(time.perf_counter() - began)
        assert span is not None
        start = span.end
    assert start == {"file": "004998", "modified": 2_004_998}
    return min(took)


def test_the_time_of_a_plan_does_not_grow_with_the_processed_files(tmp_path: Path) -> None:
    """Planning a hundred files takes similar time with 5,000 processed and waiting files and with 100,000."""
    write_files(tmp_path, "first")
    assert time_quickest_plan(tmp_path, 100_000) < 3 * time_quickest_plan(tmp_path, 5_000)


def test_a_file_that_changed_after_it_was_processed_is_reported(tmp_path: Path) -> None:
    """It changed by size or time. An unchanged file and a missing file are not reported."""
    write_files(tmp_path, "a", "b", "c", "d")
    origin = Files(path=str(tmp_path), format="text")
    parts: list[Json] = [[file.name, file.size, file.modified] for file in survey_folder(tmp_path).files]
    assert origin.find_changed(parts) == {}
    (tmp_path / "b").write_text("longer than it was")
    os.utime(tmp_path / "c", (90_000, 90_000))
    (tmp_path / "d").unlink()
    assert origin.find_changed(parts) == {
        "b": "it had 10 bytes and now has 18",
        "c": "it was written at 1970-01-01 00:16:42.000 UTC, and written again or copied at "
        "1970-01-02 01:00:00.000 UTC; its size is the same",
    }
