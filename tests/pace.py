"""Measure how fast this machine is now, so that limits in seconds also hold on a busy machine."""

from __future__ import annotations

import ast
import time
import typing
from pathlib import Path

# The seconds that the work below takes on a quiet CI machine.
QUIET = 0.1


def measure_pace() -> float:
    """Return how many seconds of processor time one second of quiet work takes now, but at least 1.

    Other processes that share a core's caches lengthen processor time too, by up to a half.
    """
    source = Path(typing.__file__).read_text(encoding="utf-8")
    began = time.process_time()
    for _ in range(2):
        tree = ast.parse(source)
        assert sum(1 for _ in ast.walk(tree)) > 1_000
        compile(tree, "work", "exec")
    return max(1.0, (time.process_time() - began) / QUIET)
