"""What it costs to wait: `python -m tests.benchmarks.idle` follows a folder in which nothing happens.

Prints the share of one core that Python and the JVM took together, and how many Spark jobs were started meanwhile.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import threading
from pathlib import Path

from runners.definition import load
from runners.events import BatchSettled, Event, RunStarted
from runners.session import jvm_process, own, start
from tests.benchmarks.small_batches import SCHEMA, land


def spent(*processes: int) -> float:
    """Seconds of the processor that these processes have taken."""
    ticks = 0
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--files", type=int, default=1_000, help="how many files lie there, all carried")
    asked = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="wherry-benchmark-"))
    spark = own(start({}))
    jvm = jvm_process(spark)
    assert jvm is not None
    definition = place / "orders.yaml"
    definition.write_text(
        "name: orders\n"
        f'origin: {{files: {{path: "landing/*.json", format: json, schema: "{SCHEMA}"}}}}\n'
        "destinations: [delta: {path: tables/orders}]\n",
        encoding="utf-8",
    )
    land(place / "landing", asked.files, 1, 0)
    pipeline, carried = load(definition).pipeline, threading.Event()

    groups: list[str | None] = [None]

    def listen(event: Event) -> None:
        if isinstance(event, RunStarted):
            groups.append(f"wherry-{event.run}")
        if isinstance(event, BatchSettled):
            carried.set()

    run = threading.Thread(target=lambda: pipeline.run(follow=True, listeners=[listen]))
    run.start()
    try:
        carried.wait(600)
        run.join(10)  # what the JVM does behind a batch is not idling
        tracker = spark.sparkContext.statusTracker()
        before = spent(os.getpid(), jvm)
        jobs = {job for group in groups for job in tracker.getJobIdsForGroup(group)}
        run.join(asked.seconds)
        share = (spent(os.getpid(), jvm) - before) / asked.seconds
        started = len({job for group in groups for job in tracker.getJobIdsForGroup(group)} - jobs)
    finally:
        pipeline.stop()
        run.join()
        shutil.rmtree(place, ignore_errors=True)
    print(f"{asked.files:,} files, {asked.seconds:.0f} s: {share:.1%} of a core, {started} Spark jobs")  # noqa: T201


if __name__ == "__main__":
    main()
