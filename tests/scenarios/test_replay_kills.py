"""A small sample of the long suite: `python -m tests.scenarios.replay_kills --into FOLDER` is all of it."""

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
def test_refused_rows_are_delivered_once_though_the_process_is_killed_somewhere(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """By dice that begin with `--seed`."""
    trial = Trial(tmp_path, rows=400, batch=100)
    trial.prepare()
    trial.kill(random.Random(seed))
    assert trial.finish() == trial.expected


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.promise("CD-30")
def test_rows_are_delivered_once_with_one_fix_though_the_process_is_killed_somewhere(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """Those that the fix does not mend are refused once more, each under the entry that it was."""
    trial = Trial(tmp_path, rows=400, batch=100, fixed=True)
    trial.prepare()
    trial.kill(random.Random(seed))
    assert trial.finish() == trial.expected


@pytest.mark.spark
def test_the_trial_leaves_what_the_fix_let_be_refused_again(spark: SparkSession, tmp_path: Path) -> None:
    """A replay that was not killed is over; the next call replays none of these rows once more."""
    trial = Trial(tmp_path, rows=100, batch=100, fixed=True)
    trial.prepare()
    assert trial.finish() == trial.expected
    assert trial.finish() == trial.expected
