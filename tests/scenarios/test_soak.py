"""Run a small sample of the long suite. `python -m tests.scenarios.soak --into FOLDER` runs the whole suite."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.scenarios.shared_jvm import Server
from tests.scenarios.soak import Load


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.promise("CD-22")
def test_a_load_with_repeated_kills_is_delivered_once(tmp_path: Path, seed: int) -> None:
    """The random choices begin with `--seed`."""
    load, server = Load(tmp_path, rows=400, batches=20), Server(tmp_path / "jvm")
    load.prepare()
    try:
        for kill in range(2):
            load.kill(random.Random(seed + kill), server)
        assert load.finish(server) == load.expected
    finally:
        server.close()
