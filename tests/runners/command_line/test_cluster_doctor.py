"""The doctor of a cluster, where there is none. Its findings on a real one are in `tests/cluster`."""

from __future__ import annotations

from typing import Any

import pytest

from destinations.memory import Memory
from origins.generate import Generate
from runners.command_line import cluster_doctor
from runners.command_line.cluster_doctor import examine_cluster
from runners.model.spec import PipelineSpec
from runners.spark.late import LateSession, LateSpark
from runners.spark.start import SparkMissing

PIPELINE = PipelineSpec(name="orders", origin=Generate(), destinations=[Memory()])


def fail(*_: Any) -> Any:
    raise AssertionError("Spark was started")


def test_a_spark_on_this_machine_is_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not started to find that out."""
    monkeypatch.setattr(cluster_doctor, "open_session", lambda _: LateSession(LateSpark(fail, {}), fail))
    (check,) = examine_cluster(PIPELINE)
    assert (check.state, check.found) == ("problem", "Spark is on this machine")
    assert "spark: {master:" in check.advice


def test_a_spark_that_cannot_start_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the words of its error."""

    def refuse(_: PipelineSpec) -> None:
        raise SparkMissing("Java is missing.", hint="Install it.")

    monkeypatch.setattr(cluster_doctor, "open_session", refuse)
    (check,) = examine_cluster(PIPELINE)
    assert (check.state, check.found, check.advice) == ("problem", "Java is missing.", "Install it.")
