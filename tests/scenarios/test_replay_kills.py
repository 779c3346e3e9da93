"""A small sample of the long suite: `python -m tests.scenarios.replay_kills --into FOLDER` is all of it."""

from __future__ import annotations

import os
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
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By dice with a seed, which is printed and can be given as WHERRY_SEED."""
    seed = int(os.environ.get("WHERRY_SEED") or random.SystemRandom().randrange(1 << 32))
    with capsys.disabled():
        print(f"\nWHERRY_SEED={seed}")  # noqa: T201
    trial = Trial(tmp_path, rows=400, batch=100)
    trial.prepare()
    trial.kill(random.Random(seed))
    assert trial.finish() == trial.expected
