"""Run a pipeline, or merge its fallback, and die at a point.

    python -m tests.scenarios.killed_at FILE run|merge POINT N

The process dies when it reaches the point for the Nth time, as `kill -9` would. With N = 0, it does not die.
"""

from __future__ import annotations

import sys
from typing import Any

from origins.crash_points import watch_points
from runners.pipeline import Pipeline
from tests.crash_injector import die


def main(file: str, what: str, at: str, number: int) -> None:
    reached = 0

    def watch(point: str, of: str, rows: Any) -> Any:
        nonlocal reached
        reached += point == at
        if point == at and reached == number:
            die()
        return rows

    pipeline = Pipeline.load(file)
    with watch_points(watch):
        if what == "merge":
            pipeline.refused.merge_fallback()
        else:
            pipeline.run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
