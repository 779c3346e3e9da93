"""The doctor: what is found, what is missing, and what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runners.command_line import doctor
from runners.spark.start import DELTA

ROOT = Path(__file__).resolve().parents[3]
FITS = {"pyspark": "4.2.0", "delta-spark": "4.4.0", "pandas": "2.3.3"}


def fake_java(folder: Path, says: str) -> None:
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)


def test_what_fits_together_is_ok() -> None:
    """The versions that `wherry[spark]` installs."""
    assert doctor.check_spark(lambda name: FITS.get(name, "")).state == "ok"


@pytest.mark.parametrize(
    ("installed", "found"),
    [
        ({}, "pyspark is not installed"),
        ({"pyspark": "4.3.0"}, "pyspark 4.3.0 is installed, but Delta 4.4.0 needs Spark 4.2"),
        ({"pyspark": "4.20.0"}, "pyspark 4.20.0 is installed, but Delta 4.4.0 needs Spark 4.2"),
        ({**FITS, "delta-spark": "4.3.0"}, "delta-spark 4.3.0 is installed, but Delta 4.4.0 is started"),
        ({**FITS, "pandas": "3.0.1"}, "pandas 3.0.1 is installed, but pyspark 4.2.0 needs pandas 2"),
        (
            {**FITS, "databricks-connect": "17.0"},
            "databricks-connect 17.0 and pyspark 4.2.0 overwrite each other's files",
        ),
    ],
)
def test_packages_that_do_not_fit_are_told_with_what_to_install(installed: dict[str, str], found: str) -> None:
    """Each by its name and version."""
    check = doctor.check_spark(lambda name: installed.get(name, ""))
    assert (check.state, check.found) == ("problem", found)
    assert "nstall" in check.advice


def test_databricks_brings_its_own_spark() -> None:
    """Nothing of ours is needed beside it."""
    check = doctor.check_spark(lambda name: {"databricks-connect": "17.0"}.get(name, ""))
    assert (check.state, check.found) == ("ok", "databricks-connect 17.0")


def test_a_java_that_fits_is_ok(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """17 and 21 are what Spark 4.2 runs on."""
    fake_java(tmp_path, 'openjdk version "21.0.1" 2023-10-17')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    check = doctor.check_java_version()
    assert (check.state, check.found) == ("ok", f"Java 21 ({tmp_path}/bin/java)")


@pytest.mark.parametrize("says", ['java version "1.8.0_392"', 'openjdk version "25" 2025-09-16', "Bus error"])
def test_a_java_that_does_not_fit_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str) -> None:
    """With where it lies and which are needed."""
    fake_java(tmp_path, says)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    check = doctor.check_java_version()
    assert check.state == "problem"
    assert str(tmp_path) in check.found
    assert "17 or 21" in check.advice


def test_a_missing_java_is_told_with_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether JAVA_HOME is wrong or there is none on the PATH."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert f"JAVA_HOME is {tmp_path}, but bin/java is missing there" in doctor.check_java_version().found
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "there is no `java` on the PATH" in doctor.check_java_version().found
    assert "openjdk-17" in doctor.check_java_version().advice


def test_a_java_that_cannot_be_started_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on another kind of machine than it was built for."""
    fake_java(tmp_path, "")
    (tmp_path / "bin" / "java").write_bytes(b"\x7fELF nonsense")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert doctor.check_java_version().state == "problem"


def test_jars_that_were_fetched_need_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first start of Spark keeps them."""
    monkeypatch.setenv("HOME", str(tmp_path))
    group, artifact, version = DELTA.split(":")
    jars = tmp_path / ".ivy2.5.2" / "jars"
    jars.mkdir(parents=True)
    (jars / f"{group}_{artifact}-{version}.jar").touch()
    assert doctor.check_jars(lambda _: "no network").state == "ok"


def test_jars_are_looked_for_where_spark_would_fetch_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Maven Central, or the mirror that Spark is told of."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", "https://mirror.example/m2/")
    check = doctor.check_jars(lambda address: f"nothing at {address}")
    jar = "https://mirror.example/m2/io/delta/delta-spark_4.2_2.13/4.4.0/delta-spark_4.2_2.13-4.4.0.jar"
    assert check.state == "problem"
    assert jar in check.found
    assert "DEFAULT_ARTIFACT_REPOSITORY" in check.advice
    assert doctor.check_jars(lambda _: "").state == "ok"


def test_an_address_without_an_answer_is_a_reason_and_no_exception(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A port that nobody listens on, and an address that is none."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", "http://127.0.0.1:1/")
    assert "cannot be read" in doctor.check_jars().found
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", "nonsense")
    assert "cannot be read" in doctor.check_jars().found


def test_a_state_is_writable_where_its_folder_can_be_made(tmp_path: Path) -> None:
    """Nothing is left behind, and the folder itself is not made."""
    assert doctor.check_writable(tmp_path / "a" / "b").state == "ok"
    assert list(tmp_path.iterdir()) == []


def test_a_state_inside_of_a_file_is_a_problem(tmp_path: Path) -> None:
    """The reason is the system's own, the advice names the option."""
    (tmp_path / "file").touch()
    check = doctor.check_writable(tmp_path / "file" / "state")
    assert check.state == "problem"
    assert "`state:`" in check.advice


def test_a_disk_without_hard_links_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger tells two writers apart by a name that can be taken once."""

    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    check = doctor.check_writable(tmp_path)
    assert (check.state, check.found) == ("problem", f"{tmp_path} cannot hold the state: Operation not supported")


def test_a_spark_that_runs_elsewhere_needs_no_java_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With SPARK_REMOTE set, nothing is started on this machine."""
    monkeypatch.setenv("SPARK_REMOTE", "sc://elsewhere")
    states = {check.name: check.state for check in doctor.examine(tmp_path)}
    assert (states["Java"], states["JARs"]) == ("not needed", "not needed")


@pytest.mark.parametrize("name", ["stages", "origins", "destinations"])
def test_a_foreign_package_that_hides_ours_is_found(tmp_path: Path, name: str) -> None:
    """By `doctor`, and by any other command that stumbles over it."""
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
