"""A process that appends to a ledger and prints what landed: `python appender.py PLACE NAME TURNS COMPACT_EVERY`.

The place is a folder, or `table:` and the name of a table that the active Spark session finds.
"""

from __future__ import annotations

import sys

from runners.model.entry import Entry, Settled
from runners.model.planned_batch import SettledCounts
from runners.state.delta_ledger import DeltaLedger
from runners.state.ledger import Conflict, Ledger
from tests.runners.state.ledger.conformance import NOWHERE


def open_ledger(place: str) -> Ledger:
    """Return the ledger in a folder or in a table."""
    if not place.startswith("table:"):
        return DeltaLedger(place)
    from pyspark.sql import SparkSession

    from runners.state.spark_ledger import SparkLedger

    spark = SparkSession.getActiveSession()
    assert spark is not None
    return SparkLedger(spark, place.removeprefix("table:"))


def main(place: str, name: str, turns: int, compact_every: int) -> None:
    """Append entries `<name>0`, `<name>1` and so on, each once. Print each after it has landed."""
    ledger, end, turn = open_ledger(place), 0, 0
    while turn < turns:
        try:
            end = ledger.append([Entry(kind="plan", id=f"{name}{turn}", body={"turn": turn})], after=end)[-1].seq
            print(f"{name}{turn}", flush=True)  # noqa: T201  (the test reads it)
            turn += 1
            if turn % compact_every == 0:
                batch = Settled(
                    lane=name, number=turn, plan=f"{name}{turn}", run="r", at="", span=NOWHERE, counts=SettledCounts()
                )
                end = ledger.compact(Entry(kind="snapshot", body={"turn": turn}), [batch], after=end).seq
        except Conflict:
            end = max((entry.seq for entry in ledger.read(end)), default=end)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
