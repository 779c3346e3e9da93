"""What a start costs: a session, the first batch of a run, and runs that start no Spark; each in a new process."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from runners.pipeline import Pipeline
from runners.spark.start import DELTA, DELTA_CATALOG
from tests.benchmarks.case import Bar, Case, Taken
from tests.benchmarks.landing import land
from tests.benchmarks.small import STAGES, orders

PLAIN, SCRIPT, QUICK = "plain pyspark", "Wherry's session without the quick start", "Wherry's session"
FIRST, MORE = "the first batch behind three stages", "more than Wherry's session"
NOTHING, FEW, IDLE = "a run with nothing new", "a run with one small file", "20 idle runs, seconds of the processor"
PLAIN_SESSION = f"""
import sys
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[*]").config("spark.jars.packages", "{DELTA}")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "{DELTA_CATALOG}").getOrCreate()
)
spark.read.format("delta").load(sys.argv[1]).where("id > 10").count()
print("up", flush=True)
sys.stdin.read()
"""
SESSION = """
import sys
from runners.spark.start import start
start({}).read.format("delta").load(sys.argv[1]).where("id > 10").count()
print("up", flush=True)
sys.stdin.read()
"""
RUN = """
import sys
from runners.model.events import BatchSettled
from runners.pipeline import Pipeline
Pipeline.load(sys.argv[1]).run(listeners=[lambda event: isinstance(event, BatchSettled) and print("up", flush=True)])
"""
WHOLE_RUN = """
import sys
from runners.pipeline import Pipeline
Pipeline.load(sys.argv[1]).run()
print("up", flush=True)
"""


def start(place: Path, turns: int) -> Taken:
    """All in turn. The first starts, which leave the archive of classes in a cache of their own, are not counted."""
    cache = {"XDG_CACHE_HOME": str(place / "cache")}
    staged, plain = place / "staged", place / "plain"
    for folder in (staged, plain):
        land(folder / "landing", 1)
    plain_orders = orders(plain)
    Pipeline.load(plain_orders).run()
    table = str(plain / "tables" / "orders")
    _time(SESSION, table, environment=cache)
    (recipe,) = (place / "cache" / "wherry" / "spark").glob("*.json")
    makes = [sys.executable, "-m", "runners.spark.make_archive", str(recipe.parent), recipe.stem, "2g"]
    subprocess.run(makes, check=True, env={**os.environ, **cache})
    taken: dict[str, list[float]] = {name: [] for name in (PLAIN, SCRIPT, QUICK, FIRST, MORE, NOTHING, FEW, IDLE)}
    for turn in range(turns):
        taken[PLAIN].append(_time(PLAIN_SESSION, table))
        taken[SCRIPT].append(_time(SESSION, table, environment={"WHERRY_QUICK_START": "off"}))
        taken[QUICK].append(_time(SESSION, table, environment=cache))
        own = place / f"first-{turn}"
        land(own / "landing", 1)
        taken[FIRST].append(_time(RUN, str(orders(own, STAGES)), environment=cache))
        taken[MORE].append(taken[FIRST][-1] - taken[QUICK][-1])
        taken[NOTHING].append(_time(WHOLE_RUN, str(plain_orders)))
        land(plain / "landing", 1, first=turn + 1)
        taken[FEW].append(_time(WHOLE_RUN, str(plain_orders)))
    before = _spend()
    for _ in range(20):
        _time(WHOLE_RUN, str(plain_orders))
    taken[IDLE].append(_spend() - before)
    return taken


def _time(program: str, *words: str, environment: Mapping[str, str] | None = None) -> float:
    """Seconds from the start of a process until the program says that it is up; then the process may end."""
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", program, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    ) as process:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "up":
            raise RuntimeError("the program ended before it was up")
        took = time.perf_counter() - began
        process.communicate()
    return took


def _spend() -> float:
    """The seconds of the processor that ended child processes have taken."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


CASES = (
    Case(
        name="start",
        says="from the start of a process: a session with one Delta query, a first batch, and runs without Spark",
        measure=start,
        turns=5,
        bars=(Bar(of=QUICK, to=SCRIPT, most=0.7), Bar(of=MORE, most=0.5)),
        unit="s",
    ),
)
