"""`doctor` finds what is missing, and states what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from origins.spark_versions import find_parts
from runners.command_line import doctor

ROOT = Path(__file__).resolve().parents[3]
NEEDS = "but Delta 4.4.0 needs Spark 4.0, 4.1 or 4.2"
FITS = {"pyspark": "4.2.0", "delta-spark": "4.4.0", "pandas": "2.3.3"}


def fake_java(folder: Path, says: str) -> None:
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)


@pytest.mark.parametrize("pyspark", ["4.0.1", "4.1.1", "4.2.0"])
def test_matching_packages_are_ok(pyspark: str) -> None:
    """These are versions that `wherry[spark]` can install."""
    check = doctor.check_spark(lambda name: {**FITS, "pyspark": pyspark}.get(name, ""))
    assert (check.state, check.found) == ("ok", f"pyspark {pyspark}, Delta 4.4.0")


@pytest.mark.parametrize(("there", "state"), [("4.2.0", "ok"), ("4.1.1", "problem")])
def test_a_spark_home_with_another_spark_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str, state: str
) -> None:
    """pyspark would start the Spark in SPARK_HOME."""
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / f"spark-core_2.13-{there}.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    check = doctor.check_spark(lambda name: FITS.get(name, ""))
    wrong = f"pyspark 4.2.0 is installed, but SPARK_HOME starts Spark {there}"
    assert (check.state, wrong in check.found, "SPARK_HOME" in check.advice) == (state, *[state == "problem"] * 2)


@pytest.mark.parametrize(
    ("installed", "found"),
    [
        ({}, "pyspark is not installed"),
        ({"pyspark": "4.3.0"}, f"pyspark 4.3.0 is installed, {NEEDS}; Delta does not support Spark 4.3 yet"),
        ({"pyspark": "4.20.0"}, f"pyspark 4.20.0 is installed, {NEEDS}; Delta does not support Spark 4.20 yet"),
        ({"pyspark": "3.5.9"}, f"pyspark 3.5.9 is installed, {NEEDS}"),
        ({**FITS, "delta-spark": "4.3.0"}, "delta-spark 4.3.0 is installed, but Delta 4.4.0 is started"),
        ({**FITS, "pandas": "3.0.1"}, "pandas 3.0.1 is installed, but pyspark 4.2.0 needs pandas 2"),
        (
            {**FITS, "databricks-connect": "17.0"},
            "databricks-connect 17.0 and pyspark 4.2.0 overwrite each other's files",
        ),
    ],
)
def test_packages_that_do_not_match_are_named_with_what_to_install(installed: dict[str, str], found: str) -> None:
    """The finding has each package's name and version."""
    check = doctor.check_spark(lambda name: installed.get(name, ""))
    assert (check.state, check.found) == ("problem", found)
    assert "nstall" in check.advice


def test_databricks_connect_needs_no_other_package() -> None:
    """It includes Spark. Before runtime 17 that is Spark 3.5."""
    check = doctor.check_spark(lambda name: {"databricks-connect": "17.3"}.get(name, ""))
    assert (check.state, check.found) == ("ok", "databricks-connect 17.3")
    check = doctor.check_spark(lambda name: {"databricks-connect": "16.4.1"}.get(name, ""))
    assert (check.state, check.found) == (
        "problem",
        "databricks-connect 16.4.1 has Spark 3.5, but Wherry needs Spark 4",
    )


@pytest.mark.parametrize("says", ['java version "1.8.0_392"', 'openjdk version "25" 2025-09-16', "Bus error"])
def test_an_unsupported_java_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str) -> None:
    """The finding has its path, and the advice names the supported versions."""
    fake_java(tmp_path, says)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    check = doctor.check_java_version()
    assert check.state == "problem"
    assert str(tmp_path) in check.found
    assert "17 or 21" in check.advice


def test_a_missing_java_is_a_problem_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME is wrong, or there is no Java on the PATH."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert f"JAVA_HOME is {tmp_path}, but bin/java is missing there" in doctor.check_java_version().found
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "there is no `java` on the PATH" in doctor.check_java_version().found
    assert "openjdk-17" in doctor.check_java_version().advice


def test_a_java_that_cannot_be_started_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be built for another kind of machine."""
    fake_java(tmp_path, "")
    (tmp_path / "bin" / "java").write_bytes(b"\x7fELF nonsense")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert doctor.check_java_version().state == "problem"


def test_fetched_jars_need_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first start of Spark stores them."""
    monkeypatch.setenv("HOME", str(tmp_path))
    group, artifact, version = find_parts().delta.split(":")
    jars = tmp_path / ".ivy2.5.2" / "jars"
    jars.mkdir(parents=True)
    (jars / f"{group}_{artifact}-{version}.jar").touch()
    assert doctor.check_jars(lambda _: "no network").state == "ok"


def test_jars_are_looked_for_where_spark_fetches_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This is Maven Central, or the mirror that is set for Spark."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", "https://mirror.example/m2/")
    check = doctor.check_jars(lambda address: f"nothing at {address}")
    jar = "https://mirror.example/m2/io/delta/delta-spark_4.2_2.13/4.4.0/delta-spark_4.2_2.13-4.4.0.jar"
    assert check.state == "problem"
    assert jar in check.found
    assert "DEFAULT_ARTIFACT_REPOSITORY" in check.advice
    assert doctor.check_jars(lambda _: "").state == "ok"


def test_a_state_is_writable_if_its_folder_can_be_created(tmp_path: Path) -> None:
    """The check leaves no file and does not create the folder."""
    assert doctor.check_writable(tmp_path / "a" / "b").state == "ok"
    assert list(tmp_path.iterdir()) == []


def test_a_state_inside_a_file_is_a_problem(tmp_path: Path) -> None:
    """The advice names the option."""
    (tmp_path / "file").touch()
    check = doctor.check_writable(tmp_path / "file" / "state")
    assert check.state == "problem"
    assert "`state:`" in check.advice


def test_a_disk_without_hard_links_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger needs them: only one of two writers can create a name."""

    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    check = doctor.check_writable(tmp_path)
    assert (check.state, check.found) == ("problem", f"{tmp_path} cannot hold the state: Operation not supported")


def test_a_remote_spark_needs_no_java_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With SPARK_REMOTE set, nothing is started on this machine."""
    monkeypatch.setenv("SPARK_REMOTE", "sc://elsewhere")
    states = {check.name: check.state for check in doctor.examine(tmp_path)}
    assert (states["Java"], states["JARs"]) == ("not needed", "not needed")


def test_another_package_with_the_name_of_ours_is_found(tmp_path: Path) -> None:
    """`doctor` finds it, and each other command reports it."""
    name = "stages"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("raise RuntimeError('not ours')")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", "from runners.command_line.cli import main; main()"]
    found = subprocess.run(
        [*command, "doctor"], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert found.returncode == 1
    assert f"{tmp_path / name} hides Wherry's own package '{name}'" in found.stdout
    assert "PYTHONPATH" in found.stdout
    other = subprocess.run(
        [*command, "kinds"], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert other.returncode == 1
    assert f"{tmp_path / name} hides" in other.stderr


@pytest.mark.parametrize("words", [["doctor"], ["explain", "WINDOW"]])
def test_missing_packages_keep_no_one_from_help(words: list[str], tmp_path: Path) -> None:
    """The commands that a person types then work without any of them."""
    missing = ["apscheduler", "arro3", "deltalake", "pyarrow", "ruamel"]
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({missing})); from runners.command_line.cli import main; main()"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode in (0, 1), "unknown error" in done.stderr) == (True, False), done.stderr
    assert ("Python" if words == ["doctor"] else "WINDOW") in done.stdout
