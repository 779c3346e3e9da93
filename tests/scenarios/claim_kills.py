"""Kill runs at random while large values go to a Delta table. Each value can be read, and none is stored twice.

    python -m tests.scenarios.claim_kills --into FOLDER                  20 kills
    python -m tests.scenarios.claim_kills --into FOLDER --most 5         five more of these kills and no others
    python -m tests.scenarios.claim_kills --into FOLDER --to files       the values are files, not rows of a Delta table
    python -m tests.scenarios.claim_kills --into FOLDER --seed 7         the same moments as before with this seed

The script continues an earlier call. It writes `kills.md` with the point of each kill and the final result.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from stages.claim import open_store
from stages.claim_store import ValueClaims
from tests.scenarios.random_kills import RandomKills, main

DEFINITION = """
name: mails
origin:
  files: {{path: "landing/*.json", format: json, schema: "id long, body string"}}
stages:
  - claim: {{path: claims, format: {kind}, over: 1KiB, refuse_over: 4KiB}}
destinations:
  - delta: {{path: tables/references}}
  - delta: {{path: tables/mails}}
    stages:
      - unclaim: {{path: claims, format: {kind}}}
dlq: {{window: 0}}
run: {{batch: {{files: 1}}}}
"""
FILES, ROWS = 4, 12
"""How many files arrive before each process, and how many rows each file has."""
SHORT, HUGE = 3, 11
"""Every `SHORT`th row has a short value, and every `HUGE`th row has a value that is too large."""


@dataclass(frozen=True)
class ClaimKills(RandomKills):
    """A trial whose rows have large values. Two neighbouring rows share a value."""

    module: ClassVar[str] = "tests.scenarios.claim_kills"
    kind: str = "delta"

    def prepare(self, number: int, dice: random.Random) -> str:
        (self.folder / "landing").mkdir(parents=True, exist_ok=True)
        self.file.write_text(DEFINITION.format(kind=self.kind), encoding="utf-8")
        for file in range((number - 1) * FILES, number * FILES):
            rows = [{"id": row, "body": make_body(row)} for row in range(file * ROWS, (file + 1) * ROWS)]
            path = self.folder / "landing" / f"{file:05}.json"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
            os.utime(path, (1_700_000_000 + file,) * 2)
        return "run"

    def carry(self, what: str) -> None:
        self.load().run()

    def count_settled(self) -> int:
        """Return how many batches are settled."""
        return sum(lane["number"] for lane in self.load().status()["lanes"].values())

    def describe_left(self) -> str:
        return f"{self._count_files() - self.count_settled()} batches"

    def _count_files(self) -> int:
        return len(list((self.folder / "landing").iterdir()))

    def finish(self) -> Mapping[str, Any]:
        self.load().run()
        mails, references = self._read("mails"), self._read("references")
        refused = {row["original"]["id"]: row["original"]["body"] for row in self.load().refused.list(reveal=True)}
        store = open_store(str(self.folder / "claims"), self.kind)  # type: ignore[arg-type]
        claims = ValueClaims(store)
        values = {**references, **refused}
        dangling = [id_ for id_, text in values.items() if _resolve(claims, text) != make_body(id_)]
        stored = Counter(each.name for each in store.list_values())
        named = {hashlib.sha256(make_body(id_).encode()).hexdigest() for id_ in values if _is_large(id_)}
        return {
            "rows": self._count_files() * ROWS,
            "mails": len(mails),
            "wrong": sum(text != make_body(id_) for id_, text in mails.items()),
            "refused": len(refused),
            "dangling": len(dangling),
            "values": len(stored),
            "twice": sum(stored.values()) - len(stored),
            "of no row": len(stored.keys() - named),
            "balanced": self.load().audit().balanced,
        }

    def _read(self, table: str) -> Mapping[int, str]:
        from deltalake import DeltaTable

        rows = DeltaTable(str(self.folder / "tables" / table)).to_pyarrow_table(columns=["id", "body"]).to_pylist()
        found = {row["id"]: row["body"] for row in rows}
        assert len(found) == len(rows), f"rows are twice in {table}"
        return found

    def expect(self) -> Mapping[str, Any]:
        rows = self._count_files() * ROWS
        refused = len([id_ for id_ in range(rows) if id_ % HUGE == 0])
        values = {make_body(id_) for id_ in range(rows) if _is_large(id_)}
        counts = {"rows": rows, "mails": rows - refused, "wrong": 0, "refused": refused, "dangling": 0}
        return {**counts, "values": len(values), "twice": 0, "of no row": 0, "balanced": True}


def make_body(id_: int) -> str:
    """Return the value of this row."""
    if id_ % HUGE == 0:
        return f"{id_:010}" * 500
    return f"{id_}" if id_ % SHORT == 0 else f"{id_ // 2:010}" * 200


def _is_large(id_: int) -> bool:
    return len(make_body(id_)) > 1_024


def _resolve(claims: ValueClaims, text: str) -> str:
    """Return the value to which this text refers, or the text itself if it is not a reference."""
    if not claims.is_reference(text.encode()):
        return text
    found = claims.find_value(text.encode())
    return found.decode() if isinstance(found, bytes) else f"nothing: {found}"


def make_trial(asked: argparse.Namespace) -> ClaimKills:
    """Return the trial in this folder. It keeps the kind of store of the first call."""
    chosen = Path(asked.into, "store_kind")
    if not chosen.exists():
        chosen.write_text(asked.to, encoding="utf-8")
    return ClaimKills(asked.into, chosen.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", make_trial, ("--to", ("delta", "files"))))
