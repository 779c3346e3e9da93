"""How fast this machine is now, so that a bound in seconds means the same on a busy machine."""

from __future__ import annotations

import ast
import time
import typing
from pathlib import Path

# What the work below takes on a quiet machine of the kind that CI uses.
QUIET = 0.1


def measure_pace() -> float:
    """How many seconds of processor time the work of one quiet second takes now; at least one.

    Neighbours that share a core's caches lengthen processor time too, by up to a half."""
    source = Path(typing.__file__).read_text(encoding="utf-8")
    began = time.process_time()
    for _ in range(2):
        tree = ast.parse(source)
        assert sum(1 for _ in ast.walk(tree)) > 1_000
        compile(tree, "work", "exec")
    return max(1.0, (time.process_time() - began) / QUIET)
