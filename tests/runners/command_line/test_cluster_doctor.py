"""The doctor of a cluster, where there is none. Its findings on a real one are in `tests/cluster`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from destinations.memory import Memory
from origins.generate import Generate
from runners.command_line import cli, cluster_doctor
from runners.command_line.cluster_doctor import examine_cluster
from runners.command_line.doctor import DoctorCheck
from runners.model.spec import PipelineSpec
from runners.spark.late import LateSession, LateSpark
from runners.spark.start import SparkMissing
from stages.claim import Claim

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


def test_a_worker_that_lacks_what_a_store_of_large_values_needs_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that installs it."""

    def lack(_: object, packages: set[str]) -> list[dict[str, Any]]:
        missing = sorted(packages - {"pyarrow"})
        return [{"host": "w1", "program": "python3", "version": "3.11", "missing": missing}]

    monkeypatch.setattr(cluster_doctor, "open_session", lambda _: None)
    monkeypatch.setattr(cluster_doctor, "is_connect", lambda _: False)
    monkeypatch.setattr(cluster_doctor, "is_here", lambda _: False)
    come = DoctorCheck(name="Cluster", state="ok", found="it is there")
    monkeypatch.setattr(cluster_doctor, "_await_executors", lambda _: come)
    for name in ("_check_delta_and_clocks", "_check_folders", "_check_stores"):
        monkeypatch.setattr(cluster_doctor, name, lambda *_: [])
    monkeypatch.setattr(cluster_doctor, "ask_python", lack)
    pipeline = replace(PIPELINE, stages=[Claim(path="s3://bucket/claims", format="delta")])
    *_, check = examine_cluster(pipeline)
    assert (check.state, check.found) == ("problem", "w1 lacks deltalake, obstore")
    assert check.advice == "Install them there:  python3 -m pip install deltalake obstore"


@pytest.mark.parametrize("values", [["--set", "run.runners=2"], ["--var", "a=b"], ["--secrets", "secrets.yaml"]])
def test_values_for_a_definition_are_refused_where_none_is_read(
    values: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --cluster the doctor looks at this machine only."""
    assert cli.execute(["doctor", *values]) == 2
    assert f"{values[0]} is for a definition" in capsys.readouterr().err


def test_a_clusters_definition_is_not_taken_for_a_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of this machine nothing is asked then."""
    monkeypatch.setattr("runners.command_line.doctor.examine", fail)
    monkeypatch.setattr(cluster_doctor, "open_session", lambda _: LateSession(LateSpark(fail, {}), fail))
    file = tmp_path / "orders.yaml"
    file.write_text("name: orders\norigin: {generate: {rows: 1}}\ndestinations: [{memory: {}}]\n")
    assert cli.execute(["doctor", "--cluster", str(file)]) == 1
    assert "Spark is on this machine" in capsys.readouterr().out
