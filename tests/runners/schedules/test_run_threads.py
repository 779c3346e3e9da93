"""Runs in threads do not affect each other."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from origins.secret import SecretText
from runners.definitions.definition import Definition
from runners.model.errors import Refusal
from runners.model.spec import SparkOptions
from runners.pipeline import Pipeline
from runners.schedules.scheduler import RunOutcome, RunThreads, Stop
from runners.state.location import open_shared_session
from tests.runners.engine.toys import Folder, Table


def make_pipeline(name: str, **conf: str) -> Pipeline:
    return Pipeline(
        name=name,
        origin=Folder(path="landing"),
        destinations=[Table(table="main.orders")],
        spark=SparkOptions(conf=conf),
    )


def make_definition(name: str) -> Definition:
    return Definition(pipeline=make_pipeline(name), path=Path(f"{name}.yaml"), text="{}", hash="0")


@pytest.mark.parametrize("error", [RuntimeError("no disk"), SystemExit(3), KeyboardInterrupt()])
def test_anything_that_a_run_raises_is_its_outcome(error: BaseException) -> None:
    """A user's function may even raise an error that would end the process."""

    def carry(definition: Definition, stoppable: Callable[[Stop], None]) -> RunOutcome:
        if definition.pipeline.name == "bad":
            raise error
        return RunOutcome(name="good", status="succeeded", message="")

    run_workers = RunThreads(carry)
    for name in ("bad", "good"):
        run_workers.start(name, make_definition(name))
    ended: dict[str, RunOutcome] = {}
    while len(ended) < 2:
        ended.update({each.name: each for each in run_workers.wait(30)})
    assert ended["good"].status == "succeeded"
    assert (ended["bad"].status, ended["bad"].message) == ("failed", f"{type(error).__name__}: {error}")


def test_all_active_runs_are_asked_to_stop() -> None:
    """They get the reason, and whether the stop is forced. A run that has ended is not asked."""
    asked: list[tuple[str, str, bool]] = []
    ready, go = threading.Barrier(3), threading.Event()

    def carry(definition: Definition, stoppable: Callable[[Stop], None]) -> RunOutcome:
        name = definition.pipeline.name
        stoppable(lambda reason, force: asked.append((name, reason, force)))
        ready.wait(30)
        go.wait(30)
        return RunOutcome(name=name, status="stopped", message="")

    run_workers = RunThreads(carry)
    for name in ("a", "b"):
        run_workers.start(name, make_definition(name))
    ready.wait(30)
    run_workers.stop("SIGTERM", force=False)
    assert sorted(asked) == [("a", "SIGTERM", False), ("b", "SIGTERM", False)]
    go.set()
    ended = [*run_workers.wait(30)]
    while len(ended) < 2:
        ended += run_workers.wait(30)
    run_workers.stop("SIGTERM", force=True)
    assert len(asked) == 2


def test_a_wait_can_be_ended() -> None:
    """A signal handler ends it. Otherwise the test would block."""
    run_workers = RunThreads(lambda definition, stoppable: RunOutcome(name="", status="", message=""))
    run_workers.wake()
    assert run_workers.wait(600) == []


def test_definitions_with_different_spark_settings_are_refused() -> None:
    """The message has both pipelines, and the value of each."""
    with pytest.raises(Refusal, match=r"orders and prices share one Spark, but they set spark\.x to 1 and 2"):
        open_shared_session([make_pipeline("orders", **{"spark.x": "1"}), make_pipeline("prices", **{"spark.x": "2"})])


@pytest.mark.parametrize("other", ["4321-word", SecretText("4321-word", "${secret:B}")])
def test_settings_with_secrets_are_not_shown_in_the_refusal(other: str) -> None:
    """One of the two values may be plain text."""
    key = "spark.hadoop.fs.s3a.secret.key"
    mine = SecretText("word-1234", "${secret:A}")
    with pytest.raises(Refusal, match=rf"they set {re.escape(key)} to two values, which stay secret") as refused:
        open_shared_session([make_pipeline("orders", **{key: mine}), make_pipeline("prices", **{key: other})])
    assert "word" not in f"{refused.value} {refused.value.hint}"


def test_one_spark_has_the_settings_of_all_definitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has their packages too."""
    wanted: list[object] = []
    monkeypatch.setattr("runners.state.location.obtain", wanted.append)
    open_shared_session(
        [make_pipeline("orders", **{"spark.x": "1"}), make_pipeline("prices", **{"spark.y": "2", "spark.x": "1"})]
    )
    assert wanted == [SparkOptions(conf={"spark.x": "1", "spark.y": "2"}, packages=())]
