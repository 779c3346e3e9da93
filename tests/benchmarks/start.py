"""Measure the cost of starting: a session, the first batch of a run, and runs that start no Spark. Each runs in a new
process. Measure also scheduled runs without new rows."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from origins.spark_versions import find_parts
from runners.pipeline import Pipeline
from runners.spark.start import DELTA_CATALOG
from tests.benchmarks.case import Bar, Case, Taken
from tests.benchmarks.landing import SCHEMA, land
from tests.benchmarks.small import STAGES, define_orders
from tests.child import WHERRY

PLAIN, SCRIPT, QUICK = "plain pyspark", "Wherry's session without the quick start", "Wherry's session"
FIRST, MORE = "the first batch behind three stages", "more than Wherry's session"
NOTHING, FEW, IDLE = "a run with nothing new", "a run with one small file", "20 idle runs, seconds of the processor"
SCHEDULED, CALLED = "`wherry schedule`, its seconds for each run", "`wherry run`, the seconds of each"
PIPELINES, FILES = 10, 100
WARM_RUN, WARM_PREVIEW = "`wherry run` behind three stages", "`wherry preview`"
COLD_CASES, WARM_CASES = "50 cases, a Spark that the command starts", "50 cases, a warm Spark"
MIXED_CASES = "45 cases with rows and 5 with files, a warm Spark"
PLAIN_SESSION = f"""
import sys
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[*]").config("spark.jars.packages", "{find_parts().delta}")
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


def measure_starts(place: Path, turns: int) -> Taken:
    """Measure all starts in turn. The first starts write an archive of classes into a separate cache, and are not
    counted."""
    _keep_compiled_modules()
    cache = {"XDG_CACHE_HOME": str(place / "cache")}
    staged, plain = place / "staged", place / "plain"
    for folder in (staged, plain):
        land(folder / "landing", 1)
    plain_orders = define_orders(plain)
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
        taken[FIRST].append(_time(RUN, str(define_orders(own, STAGES)), environment=cache))
        taken[MORE].append(taken[FIRST][-1] - taken[QUICK][-1])
        taken[NOTHING].append(_time(WHOLE_RUN, str(plain_orders)))
        land(plain / "landing", 1, first=turn + 1)
        taken[FEW].append(_time(WHOLE_RUN, str(plain_orders)))
    before = _read_children_time()
    for _ in range(20):
        _time(WHOLE_RUN, str(plain_orders))
    taken[IDLE].append(_read_children_time() - before)
    return taken


def _time(program: str, *words: str, environment: Mapping[str, str] | None = None) -> float:
    """Return the seconds from the start of a process until the program prints `up`. Then let the process end."""
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


def _keep_compiled_modules() -> None:
    """Let processes that start after this use compiled modules, as the processes of an installed Wherry do."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def _read_children_time() -> float:
    """Return the seconds of processor time that ended child processes have used."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def measure_warm(place: Path, turns: int) -> Taken:
    """Measure commands that use a Spark of `wherry warm`, one after the other."""
    _keep_compiled_modules()
    land(place / "landing", 1)
    file = str(define_orders(place, STAGES))
    taken: dict[str, list[float]] = {WARM_RUN: [], WARM_PREVIEW: []}
    with _keep_spark(file):
        for command in ("run", "preview"):
            _time_command(command, file, "--quiet")
        for turn in range(turns):
            for name, command in ((WARM_RUN, "run"), (WARM_PREVIEW, "preview")):
                land(place / "landing", 1, first=turn + 1)
                taken[name].append(_time_command(command, file, "--quiet"))
    return taken


@contextlib.contextmanager
def _keep_spark(file: str) -> Iterator[None]:
    """Let commands use a Spark that `wherry warm` keeps."""
    with subprocess.Popen([*WHERRY, "warm", file, "--json"], stdout=subprocess.PIPE, text=True) as keeper:
        assert keeper.stdout is not None
        try:
            os.environ["SPARK_REMOTE"] = json.loads("".join(iter(keeper.stdout.readline, "}\n")) + "}")["spark_remote"]
            yield
        finally:
            os.environ.pop("SPARK_REMOTE", None)
            keeper.kill()


def measure_cases(place: Path, turns: int) -> Taken:
    """Measure `wherry test` with 50 cases of three rows. The stages deliver one row, filter one and refuse one."""
    _keep_compiled_modules()
    land(place / "landing", 5)
    file = define_orders(place, STAGES)
    rows = _write_cases(place / "rows.test.yaml", rows=50)
    mixed = _write_cases(place / "mixed.test.yaml", rows=45, files=5)
    taken: dict[str, list[float]] = {name: [] for name in (COLD_CASES, WARM_CASES, MIXED_CASES)}
    _time_command("test", str(file), *rows)
    taken[COLD_CASES] = [_time_command("test", str(file), *rows) for _ in range(turns)]
    with _keep_spark(str(file)):
        _time_command("test", str(file), *rows)
        for _ in range(turns):
            taken[WARM_CASES].append(_time_command("test", str(file), *rows))
            taken[MIXED_CASES].append(_time_command("test", str(file), *mixed))
    return taken


def _write_cases(file: Path, *, rows: int, files: int = 0) -> tuple[str, str]:
    """Write this many cases with rows, and cases with files of 1,000 rows. Return the options that name them."""
    cases: list[dict[str, object]] = [
        {
            "name": f"rows {number}",
            "rows": [
                {"id": 5 * number + 1, "amount": f"{number}.50", "at": "2026-01-31T10:00:00Z"},
                {"id": 5 * number, "amount": "1", "at": "2026-01-31T10:00:00Z"},
                {"id": 5 * number + 2, "amount": "twelve", "at": "2026-01-31T10:00:00Z"},
            ],
            "delivered": [{"id": 5 * number + 1, "amount": number + 0.5}],
            "filtered": 1,
            "refused": [{"code": "CAST", "row": {"id": 5 * number + 2}}],
        }
        for number in range(rows)
    ]
    landed = sorted((file.parent / "landing").glob("*.json"))[:files]
    cases += [{"name": f"file {one.name}", "file": f"landing/{one.name}", "delivered": 800} for one in landed]
    file.write_text(json.dumps({"cases": cases}), encoding="utf-8")
    return "--cases", str(file)


def _time_command(command: str, file: str, *options: str) -> float:
    """Return the seconds that a command takes when it is called as a user calls it."""
    began = time.perf_counter()
    subprocess.run([*WHERRY, command, file, *options], check=True, capture_output=True)
    return time.perf_counter() - began


def measure_scheduled(place: Path, turns: int) -> Taken:
    """Measure runs of pipelines with three stages whose files are all delivered already. One scheduler performs many of
    the runs and then ends. Separate commands perform the others, as cron would call them. The figures are seconds of
    processor time, with all child processes."""
    _keep_compiled_modules()
    files = [place / f"p{number}.yaml" for number in range(PIPELINES)]
    for file in files:
        land(place / "landing" / file.stem, FILES, 1)
        file.write_text(
            f'name: {file.stem}\norigin:\n  files: {{path: "landing/{file.stem}/*.json", format: json, '
            f'schema: "{SCHEMA}"}}\n{STAGES}destinations: [delta: {{path: "tables/{file.stem}"}}]\n'
            "schedule: {every: 1s}\n"
        )
    carries = "import sys; from runners.pipeline import Pipeline; [Pipeline.load(each).run() for each in sys.argv[1:]]"
    subprocess.run([sys.executable, "-c", carries, *map(str, files)], check=True)
    subprocess.run([*WHERRY, "run", str(files[0]), "--quiet"], check=True, capture_output=True)
    before, runs = _read_children_time(), _run_scheduler(place, turns)
    taken = {SCHEDULED: [(_read_children_time() - before) / runs], CALLED: list[float]()}
    for turn in range(turns):
        before = _read_children_time()
        command = [*WHERRY, "run", str(files[turn % PIPELINES]), "--quiet", "--json"]
        report = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        taken[CALLED].append(_read_children_time() - before)
        _check_idle(report["status"], report["batches"])
    return taken


def _run_scheduler(folder: Path, runs: int) -> int:
    """Let a scheduler begin at least `runs` runs. Return how many have ended."""
    command = [*WHERRY, "schedule", str(folder), "--log-format", "json"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        ended = 0
        for line in process.stderr:
            facts = json.loads(line)
            if facts.get("event") != "ended":
                continue
            if ended < runs:
                _check_idle(facts["status"], 0 if "no new rows" in facts["message"] else 1)
            ended += 1
            if ended == runs:
                process.send_signal(signal.SIGTERM)
    return ended


def _check_idle(status: str, batches: int) -> None:
    if (status, batches) != ("succeeded", 0):
        raise RuntimeError(f"expected a run with nothing to do, it {status} with {batches} batches")


CASES = (
    Case(
        name="start",
        says="from the start of a process: a session with one Delta query, a first batch, and runs without Spark",
        measure=measure_starts,
        turns=5,
        bars=(Bar(of=QUICK, to=SCRIPT, most=0.7), Bar(of=MORE, most=0.5)),
        unit="s",
    ),
    Case(
        name="cases",
        says="`wherry test` with 50 cases, from the start of its process to its end",
        measure=measure_cases,
        turns=5,
        bars=(
            Bar(of=COLD_CASES, most=25),
            Bar(of=WARM_CASES, most=10),
            Bar(of=MIXED_CASES, most=10),
        ),
        unit="s",
    ),
    Case(
        name="warm",
        says="commands that find a warm Spark, from the start of their process to its end",
        measure=measure_warm,
        turns=8,
        bars=tuple(Bar(of=name, most=1.5) for name in (WARM_RUN, WARM_PREVIEW)),
        unit="s",
    ),
    Case(
        name="scheduled",
        says="a scheduled run with nothing new, behind three stages and 100 files: seconds of the processor",
        measure=measure_scheduled,
        turns=1_000,
        bars=(Bar(of=SCHEDULED, most=0.5), Bar(of=CALLED, most=0.5)),
        unit="s",
    ),
)
