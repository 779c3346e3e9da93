"""Measure how long a new run takes after a kill, from the start of its process to its first new batch."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tests.benchmarks.case import Bar, Case, Taken
from tests.benchmarks.landing import land
from tests.benchmarks.small import define_orders

BARE, AGAIN, MORE = "a bare session", "restart to the first new batch", "more than a bare session"
SESSION = """
import sys
from runners.spark.own_session import make_own_session
from runners.spark.start import start
make_own_session(start({})).range(1).collect()
print("up", flush=True)
sys.stdin.read()
"""
RUN = """
import sys
from runners.model.events import BatchPlanned, BatchSettled
from runners.pipeline import Pipeline
planned = set()
def listen(event):
    if isinstance(event, BatchPlanned):
        planned.add(event.batch.plan)
    if isinstance(event, BatchSettled) and event.batch.plan in planned:
        print("settled", flush=True)
Pipeline.load(sys.argv[1]).run(listeners=[listen])
"""


def measure_restart(place: Path, turns: int) -> Taken:
    """Measure restarts. The first run is killed after its third batch, while the fourth is being processed. Its JVM
    keeps running, as it would in practice."""
    land(place / "landing", 400)
    file = define_orders(place)
    _time_until("settled", 3, RUN, str(file))
    bare, again = [], []
    for _ in range(turns):
        bare.append(_time_until("up", 1, SESSION))
        again.append(_time_until("settled", 1, RUN, str(file)))
    return {BARE: bare, AGAIN: again, MORE: [more - less for more, less in zip(again, bare, strict=True)]}


def _time_until(word: str, times: int, program: str, *words: str) -> float:
    """Return the seconds until the program has printed the word this many times. Then kill the program."""
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", program, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for _ in range(times):
            if process.stdout.readline().strip() != word:
                raise RuntimeError(f"the program ended before it said {word!r} {times} times")
        took = time.perf_counter() - began
        process.kill()
    return took


CASES = (
    Case(
        name="restart",
        says="restart after SIGKILL on the same host, to the first new batch",
        measure=measure_restart,
        turns=5,
        bars=(Bar(of=MORE, most=1.0),),
        unit="s",
    ),
)
