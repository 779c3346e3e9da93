"""A run from acquiring to releasing the pipeline, as far as it needs no Spark."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

import pytest

from destinations.delta import Delta
from destinations.memory import Memory as MemoryTable
from origins.memory import Memory
from origins.protection import Protection
from runners.model.entry import Entry
from runners.model.errors import Owned, Refusal
from runners.model.run_report import Report
from runners.model.spec import RunOptions
from runners.pipeline import Pipeline
from runners.running import run as runs
from runners.running.backfill import Backfill
from runners.running.choice import count_causes_of_report
from runners.running.compatibility import OperatorOverrides
from runners.running.replay import Replay
from runners.running.run import PipelineRun
from runners.running.work import OpenBatches
from runners.state.journal import Journal
from runners.state.location import StateLocation
from runners.state.process_locks import StateLock, identify_host
from tests.runners.running.letterbox import append_letters, make_letters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class NoSparkHere(Exception):
    """The run has asked for Spark."""


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise NoSparkHere if the code asks for Spark."""

    def refuse(*_: object) -> NoReturn:
        raise NoSparkHere

    monkeypatch.setattr(runs, "obtain_for", refuse)


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """A pipeline whose state is a folder of the test."""
    return Pipeline(
        name="orders",
        origin=Memory(schema="id long"),
        destinations=[MemoryTable(name="table")],
        state=str(tmp_path / "state"),
    )


def make_run(pipeline: Pipeline, **how: Any) -> PipelineRun:
    return PipelineRun(pipeline=pipeline, text="text", hash="hash", **how)


def list_locks(pipeline: Pipeline) -> list[str]:
    """Return the lock files of runs beside the lock of the state."""
    lock = StateLocation.of(pipeline).lock
    return sorted(file.name for file in lock.parent.glob(f"{lock.name}-*"))


def record_owner(pipeline: Pipeline, **how: Any) -> None:
    """Record a living owner: a run on another host that wrote just now."""
    place = StateLocation.of(pipeline)
    place.make()
    body: Mapping[str, Any] = {
        **vars(identify_host()),
        "host": "elsewhere",
        "pipeline": pipeline.name,
        "run": "other",
        "jvm": None,
        "ownership": "on",
        "lock": None,
        "lease": 3600.0,
        **how,
    }
    journal = Journal(place.open_ledger(None))
    taken = Entry(kind="acquire", epoch=journal.state.epoch + 1, owner="other", body=body)
    journal.ledger.append([taken], after=journal.state.seq)


@pytest.mark.parametrize(
    "how",
    [
        {"work": Backfill(reason="a new table")},
        {"work": Replay(reason="mended")},
        {"work": OpenBatches()},
        {"ruling": OperatorOverrides(fresh=("table",), reason="emptied")},
    ],
    ids=["backfill", "replay", "finish", "ruling"],
)
def test_a_run_that_concerns_all_lanes_owns_the_pipeline_alone(pipeline: Pipeline, how: dict[str, Any]) -> None:
    """The definition's setting does not matter. An ordinary run shares the pipeline."""
    shared = replace(pipeline, run_options=RunOptions(assignment="round_robin"))
    assert (make_run(shared, **how).assignment, make_run(shared).assignment) == ("single", "round_robin")


def test_a_running_pipeline_is_refused_before_spark_starts(pipeline: Pipeline) -> None:
    """The message names the host."""
    record_owner(pipeline)
    with pytest.raises(Owned, match="elsewhere"):
        make_run(pipeline).carry()


def test_a_run_with_take_over_does_not_wait(pipeline: Pipeline) -> None:
    """It continues and asks for Spark."""
    record_owner(pipeline)
    with pytest.raises(NoSparkHere):
        make_run(pipeline, take_over="the machine is gone").carry()


def test_a_state_of_another_pipeline_is_refused_before_spark_starts(pipeline: Pipeline) -> None:
    """Otherwise two pipelines in one folder would use each other's offsets."""
    record_owner(replace(pipeline, name="other"), ownership="off")
    with pytest.raises(Refusal, match="other"):
        make_run(pipeline).carry()


def test_a_run_that_fails_to_start_releases_the_lock(pipeline: Pipeline) -> None:
    """So the next run need not wait."""
    with pytest.raises(NoSparkHere):
        make_run(pipeline).carry()
    lock = StateLock(StateLocation.of(pipeline).lock)
    assert lock.acquire()
    lock.release()


@pytest.mark.parametrize(
    ("options", "beside"),
    [(RunOptions(), 0), (RunOptions(assignment="round_robin"), 1), (RunOptions(ownership="off"), 0)],
    ids=["alone", "shared", "without ownership"],
)
def test_a_run_that_shares_has_a_separate_lock(
    pipeline: Pipeline, options: RunOptions, beside: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other runs see by this lock that it lives. The lock is deleted at the end."""
    given = replace(pipeline, run_options=options)
    during: list[int] = []

    def look(*_: object) -> NoReturn:
        during.append(len(list_locks(given)))
        raise NoSparkHere

    monkeypatch.setattr(runs, "obtain_for", look)
    with pytest.raises(NoSparkHere):
        make_run(given).carry()
    assert (during, list_locks(given)) == ([beside], [])


def test_a_run_beside_another_of_this_host_is_refused(pipeline: Pipeline) -> None:
    """The other run holds the lock. No separate lock is left."""
    place = StateLocation.of(pipeline)
    place.make()
    other = StateLock(place.lock)
    assert other.acquire()
    try:
        with pytest.raises(Owned, match="on this host"):
            make_run(pipeline).carry()
    finally:
        other.release()
    assert list_locks(pipeline) == []


def test_a_run_that_has_not_begun_can_be_stopped(pipeline: Pipeline) -> None:
    """The call has no effect."""
    waiting = make_run(pipeline)
    waiting.stop("changed my mind")
    waiting.stop(force=True)
    assert waiting.dispatcher is None


def test_a_short_secret_causes_a_warning_first(pipeline: Pipeline, caplog: pytest.LogCaptureFixture) -> None:
    """It cannot be masked. The warning does not show it."""
    given = replace(pipeline, secrets={"abc": "${secret:KEY}"})
    with caplog.at_level(logging.WARNING), pytest.raises(NoSparkHere):
        make_run(given).carry()
    (said,) = [record.getMessage() for record in caplog.records]
    assert "KEY" in said
    assert "abc" not in said


@pytest.mark.parametrize("row", ["{", None])
def test_a_dlq_whose_causes_cannot_be_counted_fails_no_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, row: str | None
) -> None:
    """A warning is logged, and the report has no causes."""
    append_letters(tmp_path / "dlq", make_letters(1, run="r", row=row))
    queue = Delta(path=str(tmp_path / "dlq"), name="dlq")
    report = Report(pipeline="orders", run="r", status="succeeded", nacked=1)
    assert count_causes_of_report(report, queue, lambda: cast("SparkSession", None), Protection(("id",))).found == ()
    assert "the causes of the refused rows could not be counted" in caplog.text
