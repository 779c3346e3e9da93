"""Measure the cost of waiting: a run follows a folder with a thousand delivered files, and no new file arrives."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from runners.model.events import BatchSettled, Event, RunStarted
from runners.pipeline import Pipeline
from runners.spark.session import find_jvm_process
from tests.benchmarks.carried import define
from tests.benchmarks.case import Bar, Case, Taken, open_session
from tests.benchmarks.landing import SCHEMA, land

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS, FILES = 20.0, 1_000


def read_processor_time(*processes: int) -> float:
    """Return the seconds of processor time that these processes have used."""
    ticks = 0
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def measure_idle(place: Path, turns: int) -> Taken:
    """Measure a run that follows a folder without new files."""
    definition = define(
        place,
        f'origin: {{files: {{path: "landing/*.json", format: json, schema: "{SCHEMA}"}}}}\n'
        "destinations: [delta: {path: tables/orders}]\n",
    )
    land(place / "landing", FILES, 1)
    return watch(open_session(), definition, turns)


def watch(spark: SparkSession, definition: Path, turns: int) -> Taken:
    """Return the share of one core that Python and the JVM use together while a run follows its origin. Return also how
    many Spark jobs start."""
    jvm = find_jvm_process(spark)
    assert jvm is not None
    pipeline, carried = Pipeline.load(definition), threading.Event()
    groups: list[str | None] = [None]

    def listen(event: Event) -> None:
        if isinstance(event, RunStarted):
            groups.append(f"wherry-{event.run}")
        if isinstance(event, BatchSettled):
            carried.set()

    def started() -> int:
        tracker = spark.sparkContext.statusTracker()
        return len({job for group in groups for job in tracker.getJobIdsForGroup(group)})

    run = threading.Thread(target=lambda: pipeline.run(follow=True, listeners=[listen]))
    run.start()
    shares, jobs = [], []
    try:
        carried.wait(600)
        run.join(10)  # work of the JVM after a batch does not count as idle
        for _ in range(turns):
            before, earlier = read_processor_time(os.getpid(), jvm), started()
            run.join(SECONDS)
            shares.append((read_processor_time(os.getpid(), jvm) - before) / SECONDS)
            jobs.append(float(started() - earlier))
    finally:
        pipeline.stop()
        run.join()
    return {"share of a core": shares, "Spark jobs": jobs}


CASES = (
    Case(
        name="idle",
        says="a run follows a quiet folder of 1,000 files that are carried",
        measure=measure_idle,
        bars=(Bar(of="share of a core", most=0.02), Bar(of="Spark jobs", most=0)),
        unit="",
    ),
)
