"""Run small samples of two long trials. `fallback_kills` and `claim_kills`, each with `--into FOLDER`, run them
completely."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.scenarios.claim_kills import ClaimKills
from tests.scenarios.fallback_kills import RUNS, FallbackKills
from tests.scenarios.random_kills import Kill, list_lines, print_points

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
@pytest.mark.spark
def test_refused_rows_come_back_from_a_fallback_once(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """The disk of the DLQ is removed and connected again, and one process is killed."""
    trial = FallbackKills(tmp_path)
    trial.kill(1, seed)
    assert trial.finish() == trial.expect()


@pytest.mark.long
@pytest.mark.spark
def test_a_random_kill_stores_large_values_once(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """The random choices begin with `--seed`."""
    trial = ClaimKills(tmp_path)
    trial.kill(1, seed)
    assert trial.finish() == trial.expect()


def test_a_process_prints_its_points(capsys: pytest.CaptureFixture[str]) -> None:
    """A trial chooses one of the printed points."""
    from origins.crash_points import reach

    print_points(lambda: reach("before-dlq", "dlq"))
    assert capsys.readouterr().out == "before-dlq dlq\n"


def test_a_trial_reports_where_each_process_died(tmp_path: Path) -> None:
    """It also reports what is wrong in the end."""
    kill = Kill(number=3, what=RUNS[1], who="Python", points=2, last="before-dlq", after=0.5, left="4 rows")
    trial = FallbackKills(tmp_path)
    (tmp_path / "landing").mkdir()
    lines = list(list_lines([kill], 7, trial, {"lost": 1}))
    assert lines[0] == "1 kills, seed 7"
    assert lines[4] == "| 3 | run with a broken DLQ | Python | before-dlq | 0.5 | 4 rows |"
    assert lines[-2].startswith("In the end: {'lost': 1}: WRONG, expected ")
