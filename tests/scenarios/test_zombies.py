"""A small sample of the long suite: `python -m tests.scenarios.zombies --into FOLDER` is all of it."""

from __future__ import annotations

import os
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
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With real processes, at a moment that is chosen by a seed, which is printed and can be given as WHERRY_SEED."""
    seed = int(os.environ.get("WHERRY_SEED") or random.SystemRandom().randrange(1 << 32))
    cell = random.Random(seed).randrange(len(CELLS))
    with capsys.disabled():
        print(f"\nWHERRY_SEED={seed}: {CELLS[cell]}")  # noqa: T201
    ended = Trial(tmp_path / "zombie", cell).run()
    assert ended.good, ended
