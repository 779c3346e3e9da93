"""A ledger of many batches: what an append costs, and how long it takes to open.

Every batch is settled and the next one planned in one append, and all entries are put together every 200, as a run
does it. Opening is timed in processes of their own, just before a compaction, when there is most to read.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from runners.model.entry import Entry, Settled
from runners.model.planned_batch import SettledCounts, SpanBody
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
SPAN: SpanBody = {
    "start": {"file": 99_999},
    "end": {"file": 100_000},
    "parts": [{"path": "landing/orders/part-100000.json", "size": 123_456, "time": "2026-11-21T06:00:00.000Z"}],
    "label": "landing/orders/part-100000.json",
}
COUNTS: SettledCounts = {
    "read": 1000,
    "nacked": 0,
    "branches": {"orders": {"expected": 1000, "filtered": 0, "changed": 0}},
}


def many(place: Path, turns: int) -> Taken:
    """A ledger of 100,000 batches in a folder."""
    path = place / "ledger"
    appends, compactions, _ = _make(path, BATCHES + COMPACT_EVERY // 2 - 1)
    openings = [_opening(path) for _ in range(turns)]
    return {
        "opening, constructed and read": [each[1] for each in openings],
        "an append of two entries": appends,
        "a compaction, one every 200 entries": compactions,
        "the whole history, read": [each[2] for each in openings],
    }


def _make(path: Path, batches: int) -> tuple[list[float], list[float], int]:
    """A ledger of that many batches; the seconds of each append and of each compaction, and the last number."""
    ledger, appends, compactions = DeltaLedger(path), [], []
    end, kept, settled = 0, 0, []
    for number in range(1, batches + 1):
        plan = {"origin": "orders", "lane": "0", "number": number, "span": SPAN, "schema": "id long, email string"}
        entries = [
            Entry(kind="settle", lane="0", plan=f"{number:032x}", body={"offset": SPAN["end"], "counts": COUNTS}),
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


def _opening(path: Path) -> list[float]:
    """Seconds to import, to open and to read the history, and how many entries and batches were read."""
    words = [sys.executable, "-c", OPENING, str(path)]
    return [float(each) for each in subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()]


CASES = (
    Case(
        name="ledger",
        says="a ledger of 100,000 batches in a folder",
        measure=many,
        turns=5,
        bars=(Bar(of="opening, constructed and read", most=1.0),),
    ),
)
