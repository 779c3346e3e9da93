"""Run a small sample of the long suite. `python -m tests.scenarios.replay_kills --into FOLDER` runs the whole suite."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.scenarios.replay_kills import Trial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.promise("CD-30")
def test_a_random_kill_of_a_replay_delivers_refused_rows_once(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """The random choices begin with `--seed`."""
    trial = Trial(tmp_path, rows=400, batch=100)
    trial.prepare()
    trial.kill(random.Random(seed))
    assert trial.finish() == trial.expected


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.promise("CD-30")
def test_a_random_kill_of_a_replay_with_a_fix_delivers_rows_once(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """Rows that the fix does not mend are refused again, each with its earlier entry."""
    trial = Trial(tmp_path, rows=400, batch=100, fixed=True)
    trial.prepare()
    trial.kill(random.Random(seed))
    assert trial.finish() == trial.expected
