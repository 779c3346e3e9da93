"""Runs a definition and dies at a point: `python -m tests.kafka.killed FILE POINT`."""

from __future__ import annotations

import sys

from origins.crash_points import watch_points
from runners.crashes.crash_trial import CrashInjector
from runners.pipeline import Pipeline


def main(file: str, point: str) -> None:
    """Carry the first batch up to the point."""
    crash = CrashInjector(point)
    with watch_points(crash):
        Pipeline.load(file).run(listeners=[crash.hear])


if __name__ == "__main__":
    main(*sys.argv[1:])
