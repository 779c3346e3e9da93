"""Two first starts of Spark on one machine at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runners.spark.start import fetch_one_at_a_time

STARTS = """
import sys
from runners.spark.start import start
print(start({"spark.jars.ivy": sys.argv[1]}).range(3).count())
"""


@pytest.mark.spark
def test_two_that_start_first_at_the_same_time_both_start(tmp_path: Path) -> None:
    """Both fetch the JARs into the same empty folder, as two scheduled jobs on a new machine do."""
    given = {**os.environ, "PYTHONPATH": os.getcwd()}
    starts = [sys.executable, "-c", STARTS, str(tmp_path / "ivy")]
    both = [subprocess.Popen(starts, env=given, stdout=-1, stderr=-1, text=True) for _ in range(2)]
    said = [each.communicate(timeout=300) for each in both]
    assert [(each.returncode, out) for each, (out, _) in zip(both, said, strict=True)] == [(0, "3\n")] * 2, said


def test_nobody_waits_for_jars_that_are_there(tmp_path: Path) -> None:
    """While another process fetches others."""
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "org.example_some_2.13-1.0.jar").touch()
    fetches = {"spark.jars.ivy": str(tmp_path), "spark.jars.packages": "org.example:other:1.0"}
    has = {"spark.jars.ivy": str(tmp_path), "spark.jars.packages": "org.example:some_2.13:1.0"}
    with fetch_one_at_a_time(fetches), fetch_one_at_a_time(has):
        assert True


def test_a_folder_that_cannot_be_made_is_left_to_spark(tmp_path: Path) -> None:
    """Which says what is wrong with it."""
    (tmp_path / "file").touch()
    with fetch_one_at_a_time(
        {"spark.jars.ivy": str(tmp_path / "file" / "ivy"), "spark.jars.packages": "org.example:a:1"}
    ):
        assert not (tmp_path / "file" / "ivy").exists()
