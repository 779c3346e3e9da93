"""The activity of a run, while the run is active."""

from __future__ import annotations

import json
import logging
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from origins.batch import Batch, Span
from runners.engine.worker_pool import WorkerPool
from runners.model.entry import OwnerBody
from runners.model.pipeline_state import PipelineState
from runners.model.tasks import EmptyBatchShown, Outcome, ShowEmptyBatch, Task
from runners.model.text import describe_thread, describe_work
from runners.operations.status import _read_activity
from runners.running.activity import (
    EVERY,
    RunActivity,
    find_place,
    log_on_signal,
    read_activities,
    sweep_activities,
    write_activity,
)
from runners.state.location import StateLocation
from tests.manual_clock import ManualClock

BATCH = Batch(
    pipeline="orders",
    run="r1",
    origin="files",
    lane="0",
    number=7,
    plan="p",
    span=Span(start=None, end=1, label="a.json"),
    schema="{}",
    time=datetime(2026, 1, 1, tzinfo=timezone.utc),
)
TASK = ShowEmptyBatch(batch=BATCH)
FACTS: Mapping[str, Any] = {"run": "r1", "at": "2026-01-01T00:00:00+00:00", "threads": [], "spark": None}
THREAD: dict[str, Any] = {
    "doing": "writing",
    "seconds": 61.4,
    "batches": [{"lane": "0", "number": 1}],
    "rows": 1_000,
    "place": "",
}


class HeldTask:
    """A task that a thread runs until the context ends."""

    def __init__(self, activity: RunActivity) -> None:
        self._begun, self._end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=activity.watch(self._process), args=[TASK], daemon=True)

    def __enter__(self) -> HeldTask:
        self._thread.start()
        assert self._begun.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _process(self, task: Task) -> Outcome:
        self._begun.set()
        self._end.wait(60)
        return EmptyBatchShown()


def read_stored(folder: Path) -> Any:
    return read_activities(folder, ["r1"])["r1"]


def make_activity(folder: Path | None = None, clock: ManualClock | None = None) -> RunActivity:
    return RunActivity(pipeline="orders", run="r1", folder=folder, clock=clock or ManualClock())


def test_a_task_is_shown_while_it_runs() -> None:
    """It has its batch and its duration. After its end it is not shown."""
    clock = ManualClock()
    activity = make_activity(clock=clock)
    with HeldTask(activity):
        clock.move(90)
        (thread,) = activity.describe()["threads"]
    assert (thread["doing"], thread["seconds"], thread["rows"]) == ("showing an empty batch", 90.0, None)
    assert thread["batches"] == [{"lane": "0", "number": 7, "label": "a.json"}]
    assert activity.describe()["threads"] == []


def test_a_task_that_fails_is_no_longer_shown() -> None:
    """The caller gets the error."""
    activity = make_activity()

    def fail(task: Task) -> Outcome:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        activity.watch(fail)(TASK)
    assert activity.describe()["threads"] == []


def test_a_short_run_writes_no_file(tmp_path: Path) -> None:
    """A long run without a batch writes none either."""
    clock = ManualClock()
    activity = make_activity(tmp_path / "activity", clock)
    with activity:
        with HeldTask(activity):
            clock.move(EVERY - 0.1)
            activity.store()
        clock.move(100)
        activity.store()
        activity.flush()
    assert not (tmp_path / "activity").exists()


def test_a_long_run_stores_its_activity_until_it_ends(tmp_path: Path) -> None:
    """It stores it at most every five seconds. The first time it does not ask Spark, which may block."""
    clock, folder = ManualClock(), tmp_path / "activity"
    activity = make_activity(folder, clock)
    with activity:
        with HeldTask(activity):
            clock.move(EVERY)
            activity.store()
            activity.flush()
            before = read_stored(folder)
            clock.move(EVERY - 0.1)
            activity.store()
            activity.flush()
            assert read_stored(folder) == before
        clock.move(EVERY)
        activity.store()
        activity.flush()
        assert read_stored(folder)["threads"] == []
    assert (before["run"], before["threads"][0]["seconds"], before["spark"]) == ("r1", 5.0, None)
    assert read_activities(folder, ["r1"]) == {}


def test_the_work_of_spark_is_stored_if_it_is_known(tmp_path: Path) -> None:
    """It is stored beside the threads."""
    clock = ManualClock()
    activity = make_activity(tmp_path / "activity", clock)
    activity.count_work = lambda: {"jobs": 1, "tasks": 2, "done": 3, "left": 4}
    with activity, HeldTask(activity):
        clock.move(EVERY)
        activity.store()
        activity.flush()
        stored = read_stored(tmp_path / "activity")
    assert describe_work(stored["spark"]) == "Spark has 1 job and 2 tasks active; 3 tasks are done, 4 wait"


def test_files_of_killed_runs_are_deleted_and_broken_files_ignored(tmp_path: Path) -> None:
    """Only the files of runs that own the pipeline are read."""
    folder = tmp_path / "activity"
    write_activity(folder, "dead", FACTS)
    write_activity(folder, "r1", FACTS)
    sweep_activities(folder, ["r1", "r2"])
    (folder / "r2.json").write_text("{", encoding="utf-8")
    assert [file.name for file in sorted(folder.iterdir())] == ["r1.json", "r2.json"]
    assert dict(read_activities(folder, ["dead", "r1", "r2"])) == {"r1": FACTS}


@pytest.mark.parametrize(
    "other",
    [
        {"at": None},
        {"at": "noon"},
        {"threads": None},
        {"threads": [{"doing": "writing"}]},
        {"threads": [{**THREAD, "batches": [{"lane": "0"}]}]},
        {"spark": {"jobs": 1}},
    ],
)
def test_incomplete_activity_is_ignored(tmp_path: Path, other: dict[str, Any]) -> None:
    """Another version may store fewer or more facts. A fact that is shown must not be missing."""
    write_activity(tmp_path, "r1", {**FACTS, **other})
    write_activity(tmp_path, "r2", {"run": "r2"})
    write_activity(tmp_path, "r3", {**FACTS, "threads": [THREAD], "more": 1})
    assert [*read_activities(tmp_path, ["r1", "r2", "r3"])] == ["r3"]


@pytest.mark.parametrize("at", ["2999-01-01T00:00:00+00:00", "2999-01-01T00:00:00"])
def test_an_age_is_never_negative(tmp_path: Path, at: str) -> None:
    """The clock of the run may be ahead."""
    write_activity(tmp_path, "r1", {**FACTS, "at": at})
    state, place = SimpleNamespace(owners=[OwnerBody(run="r1")]), SimpleNamespace(activity=tmp_path)
    (activity,) = _read_activity(cast("PipelineState", state), cast("StateLocation", place))
    assert activity["age"] == 0.0


def test_a_thread_is_described_in_one_sentence() -> None:
    """It has the number of rows if that is known, and the place in the code."""
    batches = [{"lane": "0", "number": number, "label": ""} for number in range(1, 6)]
    thread = {"doing": "writing", "seconds": 61.4, "batches": batches[:1], "rows": 1_000, "place": "stages/cast.py:3"}
    assert describe_thread(thread) == "writing for 61 s: batch 1 of lane 0, 1,000 rows; at stages/cast.py:3"
    many = describe_thread({**thread, "batches": batches, "rows": None, "place": ""})
    assert many.endswith("batch 3 of lane 0 and 2 more")


def test_a_place_is_the_innermost_line_of_wherrys_code() -> None:
    """Without a frame there is no place."""
    assert find_place(None) == ""
    seen: queue.SimpleQueue[str] = queue.SimpleQueue()

    def look(task: Task) -> Outcome:
        seen.put(find_place(sys._getframe()))
        return EmptyBatchShown()

    pool = WorkerPool(1, look)
    pool.start("0", TASK)
    pool.wait(60)
    pool.close()
    assert seen.get().startswith("runners/engine/worker_pool.py:")


@pytest.fixture
def said() -> Iterator[Callable[[], str]]:
    """A function that waits for the next line of the log and returns it."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.put(record.getMessage())

    handler, logger = Heard(), logging.getLogger("wherry")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield lambda: lines.get(timeout=60)
    logger.removeHandler(handler)
    logger.setLevel(before)


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="the system has no such signal")
def test_sigusr1_logs_the_activity_of_the_runs(said: Callable[[], str]) -> None:
    """Each signal logs a line, also for a run without a batch. Afterwards the old handler is restored."""
    activity, before = make_activity(), signal.getsignal(signal.SIGUSR1)
    with log_on_signal():
        signal.raise_signal(signal.SIGUSR1)
        assert said().startswith("no run is open")
        with activity:
            signal.raise_signal(signal.SIGUSR1)
            assert said().startswith("orders: no batch is in flight")
            with HeldTask(activity):
                signal.raise_signal(signal.SIGUSR1)
                assert said() == "orders: showing an empty batch for 0 s: batch 7 of lane 0"
    assert signal.getsignal(signal.SIGUSR1) == before


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="the system has no such signal")
def test_an_error_while_logging_the_activity_is_logged(
    said: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run continues, and the next signal works."""

    def fail(activity: RunActivity) -> Mapping[str, Any]:
        raise KeyError("threads")

    with make_activity(), log_on_signal():
        with monkeypatch.context() as patch:
            patch.setattr(RunActivity, "describe", fail)
            signal.raise_signal(signal.SIGUSR1)
            assert said() == "what the runs are doing is unknown: KeyError: 'threads'"
        signal.raise_signal(signal.SIGUSR1)
        assert said().startswith("orders: no batch is in flight")


def test_the_signal_handler_is_set_only_in_the_main_thread() -> None:
    """In another thread, the call has no effect."""
    before = signal.getsignal(signal.SIGUSR1)

    def listen() -> None:
        with log_on_signal():
            seen.append(signal.getsignal(signal.SIGUSR1))

    seen: list[object] = []
    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert seen == [before]


def test_facts_are_json() -> None:
    """Another process can read them."""
    activity = make_activity()
    with HeldTask(activity):
        assert json.loads(json.dumps(activity.describe()))["process"] > 0
