"""Run a definition and kill the process at a point: `python -m tests.kafka.killed FILE POINT DESTINATION`."""

from __future__ import annotations

import sys
from typing import Any

from origins.crash_points import watch_points
from runners.pipeline import Pipeline
from tests.crash_injector import die


def main(file: str, point: str, destination: str) -> None:
    """Run the definition, and kill the process at the point."""

    def watch(reached: str, of: str, rows: Any) -> Any:
        if (reached, of) == (point, destination):
            die()
        return rows

    with watch_points(watch):
        Pipeline.load(file).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
