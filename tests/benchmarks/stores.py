"""Measure an object store: small batches beside Structured Streaming, and a large batch on a cluster beside plain
Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from runners.model.events import BatchSettled
from tests.benchmarks import peers
from tests.benchmarks.carried import carry_batches, define
from tests.benchmarks.case import Bar, Case, Taken, Way, measure_in_turns, open_session
from tests.benchmarks.landing import AMOUNT, SCHEMA, make_lines, make_orders
from tests.cluster.cluster import start_cluster
from tests.stores.fault_proxy import FaultProxy, start_proxy
from tests.stores.jars import FOLDER, join_store_jars
from tests.stores.s3 import make_bucket, make_client, make_spark_settings, start_s3

BUCKET, LARGE = "bucket", 4_000_000
A_TURN, WARM = 20, 3
WHERRY, STAGED, SINK, PLAIN = "Wherry", "Wherry, behind three stages", "Structured Streaming", "plain Spark"
BATCH = "Wherry, the batch alone"
ONE, TWO = "one worker", "two workers"
LANES, ROUNDS, ROWS = 8, 2, 80
WAIT = """
import time

def ask(rows: list[dict]) -> list:
    time.sleep(0.05 * len(rows))
    return [{"answer": row["id"]} for row in rows]
"""
"""A stage that waits a twentieth of a second for each row, one row after another. It computes nothing."""
STAGES = f'[{{cast: {{amount: "{AMOUNT}"}}}}, {{require: {{positive: "amount >= 0"}}}}, {{filter: "id % 5 > 0"}}]'


def measure_small(place: Path, turns: int) -> Taken:
    """Measure batches of 1,000 rows in S3, with the table and the state there: the seconds of a batch, and its requests
    by kind."""
    return _carry_small(place, turns, {})


def measure_small_on_cluster(place: Path, turns: int) -> Taken:
    """Measure the same on two workers that share nothing with the driver."""
    with start_cluster(place / "cluster", [FOLDER]) as cluster:
        return _carry_small(place, turns, cluster.settings)


def _carry_small(place: Path, turns: int, more: Mapping[str, str]) -> Taken:
    requests: dict[str, list[float]] = {}
    with start_s3(place / "s3.log") as url, start_proxy(url) as proxy:
        make_bucket(url, BUCKET)
        conf = {**_make_settings(proxy.endpoint), **more}
        spark = open_session(conf)

        def count(name: str, where: Path, turn: int, way: Way) -> Iterator[float]:
            files = _land(url, where, turn)
            proxy.reset_counts()
            yield from way(where, files)
            if "warm" not in where.parts:
                _note(requests, name, proxy, files)

        def by_wherry(name: str, stages: str) -> Way:
            return lambda where, turn: count(
                name, where, turn, lambda where, files: carry_batches(_define(where, conf, "json", stages), files)
            )

        def by_stream(where: Path, _: int) -> Iterator[float]:
            read = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(_make_url(where, "landing"))
            yield from peers.stream_into_table(spark, _make_url(where), read)

        ways: dict[str, Way] = {
            WHERRY: by_wherry(WHERRY, "[]"),
            STAGED: by_wherry(STAGED, STAGES),
            SINK: lambda where, turn: count(SINK, where, turn, by_stream),
        }
        return {**measure_in_turns(ways, place, turns), **requests}


def measure_large(place: Path, turns: int) -> Taken:
    """Measure 4,000,000 rows of a store in one batch, on two workers that share nothing with the driver."""
    with start_s3(place / "s3.log") as url, start_cluster(place / "cluster", [FOLDER]) as cluster:
        make_bucket(url, BUCKET)
        conf = {**_make_settings(url), **cluster.settings, "spark.executor.memory": "700m"}
        spark = open_session(conf)
        make_orders(spark, LARGE).write.parquet(_make_url(place, "rows"))
        alone: list[float] = []

        def by_wherry(where: Path, turn: int) -> Iterator[float]:
            file, spent = _define(where / str(turn), conf, "parquet", STAGES, _make_url(place, "rows")), list[float]()

            def note(event: BatchSettled) -> None:
                spent.append(sum(event.seconds.values()))

            began = time.perf_counter()
            list(carry_batches(file, 1, note))
            yield time.perf_counter() - began
            alone.append(spent[-1])

        def by_hand(where: Path, turn: int) -> Iterator[float]:
            table = _make_url(where / str(turn), "table")
            schema = SCHEMA.replace("amount string", f"amount {AMOUNT}")
            spark.sql(f"create table delta.`{table}` ({schema}) using delta {peers.OURS}")
            began = time.perf_counter()
            rows = peers.apply_stages_by_hand(spark.read.schema(SCHEMA).parquet(_make_url(place, "rows")))
            rows.write.format("delta").mode("append").save(table)
            yield time.perf_counter() - began

        taken = measure_in_turns({PLAIN: by_hand, WHERRY: by_wherry}, place, turns)
        return {**taken, BATCH: alone[-turns:]}


def measure_workers(place: Path, turns: int) -> Taken:
    """Measure eight lanes whose rows wait in a Python stage, as for a service: with one worker of one core, and with
    two. Nothing else differs. The driver and the store are the same. The second worker is killed and started again
    between the turns."""
    with start_s3(place / "s3.log") as url, start_cluster(place / "cluster", [FOLDER]) as cluster:
        make_bucket(url, BUCKET)
        conf = {**_make_settings(url), **cluster.settings}
        open_session(conf)

        def carry(where: Path, turn: int) -> Iterator[float]:
            batches, folder = (1 if "warm" in where.parts else ROUNDS) * LANES, where / str(turn)
            folder.mkdir()
            (folder / "service.py").write_text(WAIT)
            stages = "[{python: {function: 'service:ask', columns: {answer: long}}}]"
            origin = f"generate: {{rows: {batches * ROWS}}}, lanes: {LANES}"
            run = f"runners: {LANES}, batch: {{rows: {ROWS}}}"
            file = _define(folder, conf, "json", stages, origin=origin, run=run)
            began = time.perf_counter()
            list(carry_batches(file, batches))
            yield (time.perf_counter() - began) / batches

        def by_one(where: Path, turn: int) -> Iterator[float]:
            if cluster.count_workers() == 2:
                cluster.kill_worker(1)
            yield from carry(where, turn)

        def by_two(where: Path, turn: int) -> Iterator[float]:
            cluster.start_missing_workers()
            for number in range(2):
                cluster.wait_for_executor(number)
            yield from carry(where, turn)

        return measure_in_turns({TWO: by_two, ONE: by_one}, place, turns)


def _note(requests: dict[str, list[float]], name: str, proxy: FaultProxy, batches: int) -> None:
    counts = proxy.count()
    requests.setdefault(f"{name}, requests of a batch", []).append(sum(counts.values()) / batches)
    for kind, number in sorted(counts.items()):
        requests.setdefault(f"{name}, {kind}", []).append(number / batches)


def _make_settings(endpoint: str) -> dict[str, str]:
    return {**make_spark_settings(endpoint), "spark.jars": join_store_jars()}


def _make_url(place: Path, *parts: str) -> str:
    """Return the URL in the bucket for this folder."""
    return "/".join([f"s3a://{BUCKET}", *place.parts[-3:], *parts])


def _land(url: str, place: Path, turn: int) -> int:
    """Put the files of a turn into the store. Return how many files it has put."""
    client, files = make_client(url), WARM if "warm" in place.parts else A_TURN
    prefix = _make_url(place, "landing").removeprefix(f"s3a://{BUCKET}/")
    for number in range(turn * files, (turn + 1) * files):
        client.put_object(Bucket=BUCKET, Key=f"{prefix}/{number:05}.json", Body=make_lines(number).encode())
    return files


def _define(
    place: Path, conf: Mapping[str, str], kind: str, stages: str, rows: str = "", origin: str = "", run: str = ""
) -> Path:
    """Write the definition that delivers the files of this folder. JSON files come one a batch. With `origin` and
    `run`, it uses these instead."""
    place.mkdir(parents=True, exist_ok=True)
    path = f"{rows or _make_url(place, 'landing')}/*.{kind}"
    spark = {"conf": {key: value for key, value in conf.items() if key != "spark.master"}}
    if "spark.master" in conf:
        spark["master"] = conf["spark.master"]  # type: ignore[assignment]
    origin = origin or f'files: {{path: "{path}", format: {kind}, schema: "{SCHEMA}"}}'
    run = run or f"batch: {{files: {1 if kind == 'json' else 1_000}}}"
    return define(
        place,
        f"origin: {{{origin}}}\nstages: {stages}\n"
        f'destinations: [delta: {{path: "{_make_url(place, "table")}"}}]\nstate: "{_make_url(place, "state")}"\n'
        f"run: {{{run}}}\nspark: {json.dumps(spark)}\n",
    )


STORE_BARS = (
    Bar(of=WHERRY, to=SINK, most=0.35),
    Bar(of=STAGED, to=SINK, most=0.35),
    Bar(of=f"{WHERRY}, requests of a batch", to=f"{SINK}, requests of a batch", most=0.5),
    Bar(of=f"{STAGED}, requests of a batch", to=f"{SINK}, requests of a batch", most=0.5),
)
CASES = (
    Case(
        name="store",
        says="1,000-row JSON files in S3, one a batch, into Delta there, with the state there: seconds, and requests",
        measure=measure_small,
        bars=STORE_BARS,
        unit="",
    ),
    Case(
        name="store_on_cluster",
        says="the same as `store`, on a cluster with two workers",
        measure=measure_small_on_cluster,
        bars=STORE_BARS,
        unit="",
    ),
    Case(
        name="cluster",
        says="4,000,000 parquet rows in S3 in one batch, cast, require, filter, on a cluster with two workers",
        measure=measure_large,
        turns=5,
        bars=(Bar(of=BATCH, to=PLAIN, most=1.10),),
        unit="s",
    ),
    Case(
        name="workers",
        says="8 lanes whose rows wait in a Python stage, by one worker with one core and by two: seconds a batch",
        measure=measure_workers,
        turns=2,
        bars=(Bar(of=TWO, to=ONE, most=1 / 1.7),),
        unit="s",
    ),
)
