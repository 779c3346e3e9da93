"""Measure the cost of many lanes and of many batches, without Spark. The dispatcher, the journal and the ledger are
real, and batches are not written anywhere. Each figure comes from a separate process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from destinations.destination import Written
from origins.batch import Backlog, Json, Limits, Span
from origins.codec import encode
from origins.origin import read_count
from origins.store_access import StoreUrl
from runners.engine.batch_machine import DeliveryRules
from runners.engine.batch_planner import BatchPlanner, OriginFeed
from runners.engine.dispatcher import Dispatcher
from runners.engine.worker_pool import WorkerPool
from runners.model.clock import Clock
from runners.model.entry import Entry, Settled
from runners.model.pipeline_state import PipelineState
from runners.model.planned_batch import BranchCounts, Counts, SettledCounts
from runners.model.tasks import Landed, Outcome, Task, WriteStraight
from runners.state.delta_ledger import DeltaLedger
from runners.state.journal import Journal
from tests.benchmarks.case import Bar, Case, Taken
from tests.stores.fault_proxy import start_proxy
from tests.stores.s3 import make_bucket, make_client, make_spark_settings, start_s3

LANES = (10, 1_000, 10_000)
CARRIED = 2_000
"""The least number of batches to carry. Each lane gets at least one."""
MILLION, A_COMPACTION, APPENDS = 1_000_000, 1_000, 150
T = TypeVar("T")


def measure_lanes(place: Path, turns: int) -> Taken:
    """Measure each number of lanes in turn."""
    taken: dict[str, list[float]] = {}
    for turn in range(turns):
        for lanes in LANES:
            folder = place / f"{lanes}-{turn}"
            for name, figure in _measure("carry_lanes", str(folder / "ledger"), str(lanes)).items():
                taken.setdefault(f"{lanes:,} lanes, {name}", []).append(figure)
            requests = _count_requests(folder, lambda url: Journal(DeltaLedger(url)))
            taken.setdefault(f"{lanes:,} lanes, requests to open", []).append(requests)
    return taken


def measure_history(place: Path, turns: int) -> Taken:
    """Measure the opening of a ledger with a million settled batches, with its history and without it."""
    ledger, after = DeltaLedger(place / "ledger"), 0
    for first in range(1, MILLION, A_COMPACTION):
        settled = [_make_settled(number) for number in range(first, first + A_COMPACTION)]
        after = ledger.compact(Entry(kind="snapshot", body=_SNAPSHOT), settled, after=after).seq
    taken: dict[str, list[float]] = {}
    for _ in range(turns):
        for name in ("open_ledger", "read_history"):
            for what, figure in _measure(name, str(place / "ledger")).items():
                taken.setdefault(what, []).append(figure)
    taken["requests to open"] = [_count_requests(place, lambda url: Journal(DeltaLedger(url)))]
    taken["requests with the history"] = [_count_requests(place, lambda url: Journal(DeltaLedger(url)).list_settled())]
    appended = _count_requests(place / "new", _append) - _count_requests(place / "new", _append_one)
    taken["requests of an append"] = [appended / (APPENDS - 1)]
    return taken


def _append(url: StoreUrl, appends: int = APPENDS) -> None:
    journal = Journal(DeltaLedger(url))
    journal.acquire({"pipeline": "numbers"})
    for _ in range(appends):
        journal.record(Entry(kind="renew", body={"lease": 60.0}))


def _append_one(url: StoreUrl) -> None:
    _append(url, 1)


def _count_requests(folder: Path, does: Callable[[StoreUrl], object]) -> float:
    """Return how many requests the action takes if the ledger of this folder is in S3."""
    folder.mkdir(exist_ok=True)
    with start_s3(folder / "moto.log") as url, start_proxy(url) as proxy:
        make_bucket(url, "bucket")
        client = make_client(url)
        for file in (file for file in folder.rglob("*") if file.is_file() and "ledger" in str(file)):
            client.upload_file(str(file), "bucket", str(file.relative_to(folder)))
        does(StoreUrl("s3a://bucket/ledger", make_spark_settings(proxy.endpoint)))
        return float(sum(proxy.count().values()))


def carry_lanes(place: str, lanes: str) -> dict[str, float]:
    """Measure the cost of at least `CARRIED` batches, and at least one for each lane."""
    before = _read_memory("VmRSS")
    count = int(lanes)
    rounds = max(1, CARRIED // count)
    ledger = _Timed(place)
    journal = Journal(ledger)
    journal.acquire({"pipeline": "numbers"})
    journal.record(Entry(kind="open", body={"pipeline": "numbers", "run": ""}))
    names = {str(lane): str(lane) for lane in range(count)}
    feed = OriginFeed(origin="numbers", lanes=names, schema="id long", backlog=_Rounds(rounds), straight=True)
    worker_pool = WorkerPool(4, _carry_out)
    dispatcher = Dispatcher(
        journal=journal,
        worker_pool=worker_pool,
        clock=Clock(),
        rules=DeliveryRules(),
        max_in_flight=8,
        committed={},
        forget=lambda _: None,
    )
    dispatcher.planning.source = BatchPlanner(
        pipeline="numbers", run="", definition="", destinations=("orders",), feeds=[feed]
    )
    began = time.perf_counter()
    dispatcher.run()
    spent = time.perf_counter() - began
    worker_pool.close()
    if dispatcher.errors:
        raise dispatcher.errors[0]
    batches = rounds * count
    if sum(lane.number for lane in journal.state.lanes.values()) != batches:
        raise RuntimeError(f"expected {batches} batches in {count} lanes")
    began = time.perf_counter()
    Journal(DeltaLedger(place))
    return {
        "ms of the dispatcher for a batch": (spent - ledger.spent) / batches * 1_000,
        "ms of the ledger for a batch": ledger.spent / batches * 1_000,
        "s to open the ledger": time.perf_counter() - began,
        "MiB of memory": _read_memory() - before,
    }


def open_ledger(place: str) -> dict[str, float]:
    before, began = _read_memory("VmRSS"), time.perf_counter()
    Journal(DeltaLedger(place))
    return {"s to open": time.perf_counter() - began, "MiB to open": _read_memory() - before}


def read_history(place: str) -> dict[str, float]:
    before, began = _read_memory("VmRSS"), time.perf_counter()
    batches = len(Journal(DeltaLedger(place)).list_settled())
    if batches != MILLION:
        raise RuntimeError(f"expected {MILLION} batches, got {batches}")
    return {"s with the history": time.perf_counter() - began, "MiB with the history": _read_memory() - before}


class _Timed(DeltaLedger):
    """A ledger that records the time of its calls."""

    spent = 0.0

    def append(self, entries: Sequence[Entry], *, after: int) -> list[Entry]:
        return self._time(lambda: super(_Timed, self).append(entries, after=after))

    def compact(self, snapshot: Entry, settled: Sequence[Settled], *, after: int) -> Entry:
        return self._time(lambda: super(_Timed, self).compact(snapshot, settled, after=after))

    def _time(self, do: Callable[[], T]) -> T:
        began = time.perf_counter()
        try:
            return do()
        finally:
            self.spent += time.perf_counter() - began


class _Rounds(Backlog):
    """A backlog with the same number of batches in each lane."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def take(self, lane: str, start: Json, limits: Limits) -> Span | None:
        done = read_count(start)
        if done == self.rounds:
            return None
        path = f"landing/{lane}/part-{done:05}.json"
        return Span(start=start, end=done + 1, parts=([path, 123_456, 1_700_000_000_000],), label=path, full=True)


def _carry_out(task: Task) -> Outcome:
    if not isinstance(task, WriteStraight):
        raise TypeError(f"expected a batch to be written, got {task}")
    counts = Counts(read=1_000, branches={"orders": BranchCounts(expected=1_000)})
    return Landed(written={"orders": Written(rows=1_000)}, counts=counts)


def _make_settled(number: int) -> Settled:
    path = f"landing/orders/part-{number:07}.json"
    span = Span(start=number - 1, end=number, parts=([path, 123_456, 1_700_000_000_000],), label=path)
    counts = SettledCounts(read=1_000, branches={"orders": BranchCounts(expected=1_000)})
    return Settled(lane="0", number=number, plan=f"{number:032x}", run="r", at="", span=span, counts=counts)


_SNAPSHOT = encode(PipelineState(pipeline="numbers"))


def _read_memory(what: str = "VmHWM") -> float:
    """Return the highest memory use of this process so far in MiB, or with `VmRSS` the present use."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition(f"{what}:")[2].split()[0]) / 1_024


def _measure(name: str, *words: str) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.benchmarks.scale", name, *words]
    told: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return told


CASES = (
    Case(
        name="many_lanes",
        says="the dispatcher and the ledger with 10, 1,000 and 10,000 lanes; batches are carried nowhere",
        measure=measure_lanes,
        turns=1,
        bars=(Bar(of="10,000 lanes, ms of the dispatcher for a batch", most=5.0),),
        unit="",
    ),
    Case(
        name="million",
        says="a ledger of a million batches: opened, and read with its history",
        measure=measure_history,
        turns=3,
        bars=(Bar(of="s to open", most=1.0), Bar(of="s with the history", most=20.0)),
        unit="",
    ),
)

if __name__ == "__main__":
    does: dict[str, Callable[..., Any]] = {each.__name__: each for each in (carry_lanes, open_ledger, read_history)}
    sys.stdout.write(json.dumps(does[sys.argv[1]](*sys.argv[2:])))
