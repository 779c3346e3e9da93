"""A ledger of many batches: what an append costs, and how long it takes to open.

    python -m tests.benchmarks.ledger --batches 100000

Every batch is settled and the next one planned in one append, and all entries are put together every 200, as a run
does it. Opening is timed in processes of their own, just before a compaction, when there is most to read.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from runners.delta_ledger import DeltaLedger
from runners.entry import Entry, Settled
from runners.journal import COMPACT_EVERY

OPENING = """
import sys, time
begun = time.perf_counter()
from runners.delta_ledger import DeltaLedger
imported = time.perf_counter()
ledger = DeltaLedger(sys.argv[1])
entries = ledger.read()
opened = time.perf_counter()
batches = sum(1 for _ in ledger.history())
print(imported - begun, opened - imported, time.perf_counter() - opened, len(entries), batches)
"""
SPAN = {
    "start": {"file": 99_999},
    "end": {"file": 100_000},
    "parts": [{"path": "landing/orders/part-100000.json", "size": 123_456, "time": "2026-11-21T06:00:00.000Z"}],
    "label": "landing/orders/part-100000.json",
}
COUNTS = {"read": 1000, "nacked": 0, "branches": {"orders": {"expected": 1000, "filtered": 0, "changed": 0}}}


def main() -> None:
    """Make the ledger, then open it a few times, and print what that took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=100_000)
    parser.add_argument("--openings", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wherry-ledger-") as place:
        path = Path(place, "ledger")
        appends, compactions, last = make(path, options.batches + COMPACT_EVERY // 2 - 1)
        say("append", appends)
        say("compaction", compactions)
        say("of the last 1,000 appends, an append", appends[-1000:])
        for table in (path, path.with_name("ledger_history")):
            files = list(os.scandir(table))
            size = sum(file.stat().st_size for file in files if file.is_file())
            log = len(os.listdir(table / "_delta_log"))
            print(f"{table.name}: {len(files) - 1:,} data files, {size / 1e6:.1f} MB, {log} files in its log")  # noqa: T201
        openings = [opening(path) for _ in range(options.openings)]
        say("import", [each[0] for each in openings])
        say("opening (construct and read)", [each[1] for each in openings])
        say("the whole history, read", [each[2] for each in openings])
        entries, batches = openings[0][3:]
        print(f"last number {last:,}; {entries:.0f} entries and {batches:,.0f} settled batches were read")  # noqa: T201


def make(path: Path, batches: int) -> tuple[list[float], list[float], int]:
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


def opening(path: Path) -> list[float]:
    """Seconds to import, to open and to read the history, and how many entries and batches were read."""
    words = [sys.executable, "-c", OPENING, str(path)]
    return [float(each) for each in subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()]


def say(what: str, seconds: list[float]) -> None:
    """Median, mean and worst."""
    found = (statistics.median(seconds), statistics.mean(seconds), max(seconds))
    median, mean, worst = (f"{each * 1000:.1f} ms" for each in found)
    print(f"{what}: median {median}, mean {mean}, worst {worst} ({len(seconds):,})")  # noqa: T201


if __name__ == "__main__":
    main()
