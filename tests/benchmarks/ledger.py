"""Measure a ledger of many batches: the cost of an append, and the time to open the ledger.

As in a run, one append settles a batch and plans the next one, and all entries are compacted after every 200. Each
opening is timed in a separate process, just before a compaction, when the ledger is at its longest.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from origins.batch import Span
from origins.codec import encode
from runners.model.entry import Entry, Settled
from runners.model.planned_batch import BranchCounts, SettledCounts
from runners.state.delta_ledger import DeltaLedger
from runners.state.journal import COMPACT_EVERY
from tests.benchmarks.case import Bar, Case, Taken

BATCHES = 100_000
OPENING = """
import sys, time
begun = time.perf_counter()
from runners.state.delta_ledger import DeltaLedger
imported = time.perf_counter()
ledger = DeltaLedger(sys.argv[1])
entries = ledger.read()
opened = time.perf_counter()
batches = sum(1 for _ in ledger.history())
print(imported - begun, opened - imported, time.perf_counter() - opened, len(entries), batches)
"""
SPAN = Span(
    start={"file": 99_999},
    end={"file": 100_000},
    parts=({"path": "landing/orders/part-100000.json", "size": 123_456, "time": "2026-11-21T06:00:00.000Z"},),
    label="landing/orders/part-100000.json",
)
COUNTS = SettledCounts(read=1000, branches={"orders": BranchCounts(expected=1000)})


def measure_ledger(place: Path, turns: int) -> Taken:
    """Measure a ledger of 100,000 batches in a folder."""
    path = place / "ledger"
    appends, compactions, _ = _write_ledger(path, BATCHES + COMPACT_EVERY // 2 - 1)
    openings = [_time_opening(path) for _ in range(turns)]
    return {
        "opening, constructed and read": [each[1] for each in openings],
        "an append of two entries": appends,
        "a compaction, one every 200 entries": compactions,
        "the whole history, read": [each[2] for each in openings],
    }


def _write_ledger(path: Path, batches: int) -> tuple[list[float], list[float], int]:
    """Write a ledger of that many batches. Return the seconds of each append and of each compaction, and the last
    number."""
    ledger, appends, compactions = DeltaLedger(path), [], []
    end, kept, settled = 0, 0, []
    for number in range(1, batches + 1):
        plan = {"origin": "orders", "lane": "0", "number": number, "span": SPAN, "schema": "id long, email string"}
        entries = [
            Entry(kind="settle", lane="0", plan=f"{number:032x}", body={"offset": SPAN.end, "counts": encode(COUNTS)}),
            Entry(kind="plan", lane="0", plan=f"{number + 1:032x}", body=plan),
        ]
        begun = time.perf_counter()
        end = ledger.append(entries, after=end)[-1].seq
        appends.append(time.perf_counter() - begun)
        settled.append(
            Settled(lane="0", number=number, plan=f"{number:032x}", run="r", at="", span=SPAN, counts=COUNTS)
        )
        kept += len(entries)
        if kept >= COMPACT_EVERY:
            begun = time.perf_counter()
            end = ledger.compact(Entry(kind="snapshot", body={"lanes": {"0": plan}}), settled, after=end).seq
            compactions.append(time.perf_counter() - begun)
            kept, settled = 0, []
    return appends, compactions, end


def _time_opening(path: Path) -> list[float]:
    """Return the seconds to import, to open the ledger and to read the history, and the numbers of entries and
    batches."""
    words = [sys.executable, "-c", OPENING, str(path)]
    return [float(each) for each in subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()]


CASES = (
    Case(
        name="ledger",
        says="a ledger of 100,000 batches in a folder",
        measure=measure_ledger,
        turns=5,
        bars=(Bar(of="opening, constructed and read", most=1.0),),
    ),
)
