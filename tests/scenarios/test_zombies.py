"""Run a small sample of the long suite. `python -m tests.scenarios.zombies --into FOLDER` runs the whole suite."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.scenarios.zombies import CELLS, Trial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.promise("CN-21")
def test_a_frozen_run_that_lost_its_lease_lands_nothing_and_ends_as_fenced(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """The processes are real, and `--seed` chooses the moment."""
    cell = random.Random(seed).randrange(len(CELLS))
    ended = Trial(tmp_path / "zombie", cell).run()
    assert ended.good, ended
