"""Kill runs and merges at random while the DLQ fails and recovers. Each refused row is in the DLQ once.

    python -m tests.scenarios.fallback_kills --into FOLDER                  20 kills
    python -m tests.scenarios.fallback_kills --into FOLDER --most 5         five more of these kills and no others
    python -m tests.scenarios.fallback_kills --into FOLDER --to files       the fallback is files, not a Delta table
    python -m tests.scenarios.fallback_kills --into FOLDER --seed 7         the same moments as before with this seed

The script continues an earlier call. It writes `kills.md` with the point of each kill and the final result.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tests.scenarios.random_kills import RandomKills, main

DEFINITION = """
name: orders
origin:
  files: {{path: "landing/*.json", format: json, schema: "id long, amount string"}}
stages:
  - cast: {{amount: int}}
destinations:
  - delta: {{path: tables/orders}}
dlq:
  window: 0
  on_failure: fallback
  fallback: {{{fallback}: {{path: fallback}}}}
  delta: {{path: disk/refused}}
run: {{batch: {{files: 1}}}}
"""
FILES, ROWS, REFUSED = 6, 20, 4
"""How many files arrive before each process, how many rows each has, and one in how many rows is refused."""
RUNS = ("run", "run with a broken DLQ", "run, the DLQ breaks", "run, the DLQ comes back")
MERGE = "merge"


@dataclass(frozen=True)
class FallbackKills(RandomKills):
    """A trial whose DLQ is on a disk that can be removed at once. The disk is a symbolic link."""

    module: ClassVar[str] = "tests.scenarios.fallback_kills"
    fallback: str = "delta"

    def prepare(self, number: int, dice: random.Random) -> str:
        self._define()
        for file in range((number - 1) * FILES, number * FILES):
            self._land(file)
        waits = self.count_waiting() > 0
        what = MERGE if waits and dice.random() < 0.4 else dice.choice(RUNS)
        self._connect(works=what not in (RUNS[1], RUNS[3]))
        return what

    def _define(self) -> None:
        for name in ("landing", "real"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "nothing").touch()
        self.file.write_text(DEFINITION.format(fallback=self.fallback), encoding="utf-8")

    def _land(self, file: int) -> None:
        rows = [{"id": file * ROWS + row, "amount": "x" if row % REFUSED == 0 else "1"} for row in range(ROWS)]
        path = self.folder / "landing" / f"{file:05}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        os.utime(path, (1_700_000_000 + file,) * 2)

    def _connect(self, *, works: bool) -> None:
        """Connect or remove the disk. The link is replaced atomically."""
        new = self.folder / "new"
        new.unlink(missing_ok=True)
        new.symlink_to("real" if works else "nothing")
        new.replace(self.folder / "disk")

    def interfere(self, what: str, point: int, dies_at: int) -> None:
        if what in RUNS[2:] and point == (dies_at + 1) // 2:
            self._connect(works=what == RUNS[3])

    def carry(self, what: str) -> None:
        if what == MERGE:
            self.load().refused.merge_fallback()
        else:
            self.load().run()

    def count_waiting(self) -> int:
        """Return how many rows wait in the fallback."""
        return int(self.load().status()["dlq"].get("fallback") or 0)

    def describe_left(self) -> str:
        return f"{self.count_waiting()} rows in the fallback"

    def finish(self) -> Mapping[str, Any]:
        from deltalake import DeltaTable

        self._connect(works=True)
        pipeline = self.load()
        pipeline.run()
        pipeline.refused.merge_fallback()
        delivered = DeltaTable(str(self.folder / "tables/orders")).to_pyarrow_table(columns=["id"])["id"].to_pylist()
        refused = [row["original"]["id"] for row in pipeline.refused.list()]
        landed = set(range(len(list((self.folder / "landing").iterdir())) * ROWS))
        return {
            "landed": len(landed),
            "delivered": len(delivered),
            "refused": len(refused),
            "lost": len(landed.difference(delivered, refused)),
            "twice": sum(count - 1 for count in Counter(delivered + refused).values()),
            "waiting": self.count_waiting(),
            "balanced": pipeline.audit().balanced,
        }

    def expect(self) -> Mapping[str, Any]:
        landed = len(list((self.folder / "landing").iterdir())) * ROWS
        refused = landed // REFUSED
        counts = {"landed": landed, "delivered": landed - refused, "refused": refused}
        return {**counts, "lost": 0, "twice": 0, "waiting": 0, "balanced": True}


def make_trial(asked: argparse.Namespace) -> FallbackKills:
    """Return the trial in this folder. It keeps the kind of fallback of the first call."""
    chosen = Path(asked.into, "fallback_kind")
    if not chosen.exists():
        chosen.write_text(asked.to, encoding="utf-8")
    return FallbackKills(asked.into, chosen.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", make_trial, ("--to", ("delta", "files"))))
