"""Random changes are merged into a table by any way. The table holds what a calculation in Python says."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import destinations
from destinations.destination import Destination
from destinations.dlq import Dlq
from origins.files import Files
from runners.model.spec import BatchOptions, RunOptions
from runners.pipeline import Pipeline
from tests.scenarios.conftest import Place, carry_pipeline

pytestmark = [pytest.mark.spark]

Change: TypeAlias = "dict[str, Any]"
Key: TypeAlias = "tuple[Any, ...]"
SCHEMA = "id long, part string, at long, op string, note string"
THERE = pa.schema([("id", pa.int64()), ("part", pa.string()), ("at", pa.int64()), ("note", pa.string())])
WAYS: Sequence[Sequence[str]] = [(), (), ["straight"], ["apart"], ["grouped", "straight"], ["written"]]
LIMITS: Sequence[Mapping[str, Any]] = [{}, {}, {"small_bytes": 0}, {"small_refused": 1}]


@dataclass
class Expected:
    """The merged table and the numbers of rows, by a calculation in Python."""

    keys: Sequence[str]
    by_sequence: bool
    deletes: bool
    table: dict[Key, Change] = field(default_factory=dict)
    passed: list[Change] = field(default_factory=list)
    """The changes that the merge does not refuse."""
    refused: int = 0
    merged: int = 0

    def merge(self, changes: Sequence[Change]) -> None:
        """Merge the changes of one batch, in the order in which they are read."""
        winners: dict[Key, Change] = {}
        for change in changes:
            key = tuple(change[name] for name in self.keys)
            if None in key or (self.by_sequence and change["at"] is None):
                self.refused += 1
                continue
            self.passed.append(change)
            best = winners.get(key)
            if best is None or not self.by_sequence or self.rank(change) >= self.rank(best):
                winners[key] = change
        self.merged += len(winners)
        for key, change in winners.items():
            there = self.table.get(key)
            late = there is not None and self.by_sequence and (there["at"] or -1) > change["at"]
            if self.is_delete(change):
                self.table = {other: row for other, row in self.table.items() if other != key or late}
            elif not late:
                self.table[key] = {name: change[name] for name in THERE.names}

    def is_delete(self, change: Change) -> bool:
        return self.deletes and change["op"] == "D"

    def rank(self, change: Change) -> tuple[int, bool]:
        """Return the rank of a change in its batch. A delete is below a change with the same sequence."""
        return change["at"], not self.is_delete(change)


def draw_change(chance: random.Random, parts: Sequence[str], note: str, *, nulls: bool) -> Change:
    """Return a random change. Changes of one batch with the same key and sequence have the same content, but `op`."""
    found = {
        "id": chance.choice([1, 2, 3, 4, 5, *([None] if nulls else [])]),
        "part": chance.choice([*parts, *([None] if nulls and len(parts) > 1 else [])]),
        "at": chance.choice([0, 1, 2, 3, 4, *([None] if nulls else [])]),
        "op": chance.choice(["U", "D", None]),
    }
    return {**found, "note": f"{found['id']} {found['at']} {note}"}


FEW, MANY = 5, 60
"""How many merges are always drawn, and how many in all."""


@pytest.mark.promise("CD-16")
@pytest.mark.parametrize("draw", range(FEW))
def test_a_table_holds_the_merge_of_any_changes(place: Place, draw: int) -> None:
    """Keys, sequence, deletes, NULLs, ties, batches, ways and rows of another program are random. Two runs merge."""
    check_merge(place, random.Random(draw))


@pytest.mark.long
def test_a_table_holds_the_merge_of_many_changes(place: Place) -> None:
    """Each merge has a folder of its own, named after the number that draws it."""
    for draw in range(FEW, MANY):
        folder = place.folder / str(draw)
        folder.mkdir()
        check_merge(Place(folder, place.spark), random.Random(draw))


def check_merge(place: Place, chance: random.Random) -> None:
    """Draw changes, merge them in two runs, and compare the tables and the counts with the calculation."""
    folder, landing = place.folder, place.folder / "landing"
    landing.mkdir()
    nulls, size = chance.random() < 0.5, chance.randint(1, 3)
    expected = Expected(
        keys=chance.choice([["id"], ["id", "part"]]),
        by_sequence=chance.random() < 0.7,
        deletes=chance.random() < 0.6,
    )
    parts = ["x", "y"][: len(expected.keys)]
    if chance.random() < 0.4:
        rows: list[Change] = [
            {"id": number, "part": "x", "at": chance.choice([None, 1, 3]), "note": "old"} for number in (1, 2, 9)
        ]
        write_deltalake(str(folder / "latest"), pa.Table.from_pylist(rows, THERE))
        expected.table = {tuple(row[name] for name in expected.keys): row for row in rows}
    merge = destinations.Delta(
        path=str(folder / "latest"),
        mode="merge",
        keys=expected.keys,
        sequence_by="at" if expected.by_sequence else None,
        apply_as_deletes="op = 'D'" if expected.deletes else None,
        except_column_list=["op"],
    )
    log = destinations.Delta(path=str(folder / "log"))
    drawn: list[Destination] = [merge, log] if chance.random() < 0.5 else [merge]
    pipeline = Pipeline(
        name="orders",
        origin=Files(path=str(landing), format="json", schema=SCHEMA),
        destinations=drawn,
        dlq=Dlq(window=0),
        state=str(folder / ".wherry/orders"),
        run=RunOptions(batch=BatchOptions(files=size)),
    )
    limits = {**chance.choice(LIMITS), "ways": chance.choice(WAYS)}
    merged = refused = 0
    for run in range(2):
        read, files = 0, chance.randint(1, 5)
        for first in range(0, files, size):
            batch = []
            for number in range(first, min(first + size, files)):
                file = landing / f"{run}-{number}.json"
                note = f"{run}.{first}" if expected.by_sequence else f"{run}.{number}"
                changes = [draw_change(chance, parts, note, nulls=nulls) for _ in range(chance.choice([0, 1, 4, 9]))]
                file.write_text("".join(json.dumps(change) + "\n" for change in changes))
                os.utime(file, (1_700_000_000 + 10 * run + number,) * 2)
                batch += changes
            read += len(batch)
            expected.merge(batch)
        report = carry_pipeline(pipeline, **limits)
        assert (report.read, report.balanced) == (read, True)
        merged += report.delivered["latest"]
        refused += report.nacked
    assert (merged, refused) == (expected.merged, expected.refused)
    found = place.rows("latest") if (folder / "latest").exists() else []
    assert sorted(map(str, found)) == sorted(map(str, expected.table.values()))
    if len(drawn) == 2 and expected.passed:
        assert sorted(map(str, place.rows("log"))) == sorted(map(str, expected.passed))
    assert pipeline.audit().balanced
