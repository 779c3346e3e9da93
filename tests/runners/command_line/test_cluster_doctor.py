"""`doctor --cluster` without a cluster. Tests with a real cluster are in `tests/cluster`."""

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
from runners.spark.executors import ExecutorFacts
from runners.spark.late import LateSession, LateSpark
from runners.spark.start import SparkMissing
from stages.claim import Claim

PIPELINE = PipelineSpec(name="orders", origin=Generate(), destinations=[Memory()])


def refuse_spark(*_: Any) -> Any:
    raise AssertionError("Spark was started")


def test_a_spark_on_this_machine_is_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check does not start Spark."""
    monkeypatch.setattr(
        cluster_doctor, "open_session", lambda _: LateSession(LateSpark(refuse_spark, {}), refuse_spark)
    )
    (check,) = examine_cluster(PIPELINE)
    assert (check.state, check.found) == ("problem", "Spark is on this machine")
    assert "spark: {master:" in check.advice


def test_a_spark_that_cannot_start_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The finding has the error's message and hint."""

    def refuse(_: PipelineSpec) -> None:
        raise SparkMissing("Java is missing.", hint="Install it.")

    monkeypatch.setattr(cluster_doctor, "open_session", refuse)
    (check,) = examine_cluster(PIPELINE)
    assert (check.state, check.found, check.advice) == ("problem", "Java is missing.", "Install it.")


@pytest.fixture
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace a cluster's answers, so that a test can set those that it needs."""
    monkeypatch.setattr(cluster_doctor, "open_session", lambda _: None)
    monkeypatch.setattr(cluster_doctor, "is_connect", lambda _: False)
    monkeypatch.setattr(cluster_doctor, "is_here", lambda _: False)
    come = DoctorCheck(name="Cluster", state="ok", found="it is there")
    monkeypatch.setattr(cluster_doctor, "_await_executors", lambda _: come)
    for name in ("_check_folders", "_check_stores"):
        monkeypatch.setattr(cluster_doctor, name, lambda *_: [])
    facts = [ExecutorFacts(host="w1", delta="4.4.0", java="17", clock=0.0)]
    monkeypatch.setattr(cluster_doctor, "ask_executors", lambda _: facts)


STORING = replace(PIPELINE, stages=[Claim(path="s3://bucket/claims", format="delta")])


@pytest.mark.usefixtures("no_cluster")
def test_a_worker_without_the_packages_of_a_store_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The advice is the command that installs them."""

    def lack(_: object, packages: set[str]) -> list[dict[str, Any]]:
        missing = sorted(packages - {"pyarrow"})
        return [{"host": "w1", "program": "python3", "version": "3.11", "missing": missing}]

    monkeypatch.setattr(cluster_doctor, "ask_python", lack)
    *_, check = examine_cluster(STORING)
    assert (check.state, check.found) == ("problem", "w1 lacks deltalake, obstore")
    assert check.advice == "Install them there:  python3 -m pip install deltalake obstore"


@pytest.mark.usefixtures("no_cluster")
def test_a_worker_that_cannot_run_tasks_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tasks succeed only on another worker, which has all packages."""
    fine = {"host": "w1", "program": "python3", "version": "3.11", "missing": []}
    monkeypatch.setattr(cluster_doctor, "ask_python", lambda *_: [fine, {"host": "w2"}])
    found = [each for each in examine_cluster(STORING) if each.name == "Python"]
    assert [each.state for each in found] == ["problem"]
    assert "of w2 is missing, or is not Python 3." in found[0].found


@pytest.mark.usefixtures("no_cluster")
@pytest.mark.parametrize(("delta", "words"), [("", "w2 has no Delta"), ("4.3.0", "w2 has Delta 4.3.0")])
def test_each_worker_without_the_delta_version_of_the_driver_is_a_finding(
    monkeypatch: pytest.MonkeyPatch, delta: str, words: str
) -> None:
    """The worker is named. Another worker has the right version."""
    facts = [
        ExecutorFacts(host=host, delta=each, java="17", clock=0.0) for host, each in (("w1", "4.4.0"), ("w2", delta))
    ]
    monkeypatch.setattr(cluster_doctor, "ask_executors", lambda _: facts)
    found = [each for each in examine_cluster(PIPELINE) if each.name == "Delta"]
    assert [(each.state, each.found) for each in found] == [("problem", f"{words}; the driver has 4.4.0")]


@pytest.mark.parametrize("values", [["--set", "run.runners=2"], ["--var", "a=b"], ["--secrets", "secrets.yaml"]])
def test_values_for_a_definition_need_the_cluster_option(values: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Without `--cluster` the doctor checks only this machine."""
    assert cli.execute(["doctor", *values]) == 2
    assert f"{values[0]} is for a definition" in capsys.readouterr().err


def test_the_file_of_a_cluster_check_is_a_definition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not taken for the path of a state, and this machine is not checked."""
    monkeypatch.setattr("runners.command_line.learn_commands.examine", refuse_spark)
    monkeypatch.setattr(
        cluster_doctor, "open_session", lambda _: LateSession(LateSpark(refuse_spark, {}), refuse_spark)
    )
    file = tmp_path / "orders.yaml"
    file.write_text("name: orders\norigin: {generate: {rows: 1}}\ndestinations: [{memory: {}}]\n")
    assert cli.execute(["doctor", "--cluster", str(file)]) == 1
    assert "Spark is on this machine" in capsys.readouterr().out
