"""A small sample of the long suite: `python -m tests.scenarios.zombies --into FOLDER` is all of it."""

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
def test_a_run_that_was_frozen_and_lost_its_lease_lands_nothing_and_ends_as_fenced(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """With real processes, at a moment that is chosen by `--seed`."""
    cell = random.Random(seed).randrange(len(CELLS))
    ended = Trial(tmp_path / "zombie", cell).run()
    assert ended.good, ended
