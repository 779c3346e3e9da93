"""Bodies of entries that are stored beside the ledger in a folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from origins.batch import Json, Span
from origins.codec import encode
from origins.files.listing import list_files
from runners.model.entry import Entry
from runners.state.delta_ledger import DeltaLedger, LocalTable
from runners.state.journal import Journal
from runners.state.ledger import LARGEST, LedgerError
from tests.runners.state.ledger.test_progress import COUNTS, make_planned

LARGE = {"parts": list(range(10_000))}
FILES = 100_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a ledger."""
    return tmp_path / "ledger"


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a table."""
    found: list[dict[str, Any]] = pa.table(DeltaTable(str(path)).to_pyarrow_table()).to_pylist()
    return found


def measure_largest(path: Path) -> int:
    """Return the size of the largest row of a ledger, in characters of JSON."""
    return max(len(json.dumps(row)) for row in read_rows(path))


def record_batch(journal: Journal, number: int, span: Span) -> None:
    """Plan a batch of this span, and settle it."""
    planned = make_planned(number, start=span.start, end=span.end)
    body = {**encode(planned), "span": {"start": None, "end": span.end, "parts": list(span.parts), "label": ""}}
    journal.record(Entry(kind="plan", lane="0", plan=planned.batch.plan, body=body))
    counts = {**encode(COUNTS), "delivered": {}, "discarded": 0, "balanced": True}
    settled = {"offset": span.end, "counts": counts, "window": {"rows": 0, "nacks": []}, "clean": 0, "owed": []}
    journal.record(Entry(kind="settle", lane="0", plan=planned.batch.plan, body=settled))


def test_no_entry_is_larger_than_16_kib_after_100_000_files(path: Path) -> None:
    """The plans have many files or a thousand each, and the snapshot is small too. All files are known."""
    journal = Journal(DeltaLedger(path))
    journal.acquire({"pipeline": "orders"})
    parts: tuple[Json, ...] = tuple(
        [f"landing/2026-01-01/part-{number:06}.json", 1_000, number] for number in range(FILES)
    )
    record_batch(journal, 1, Span(start=None, end={"file": "x", "modified": 1}, parts=parts[: FILES // 2]))
    for number in range(2, 52):
        first = FILES // 2 + (number - 2) * 1_000
        record_batch(
            journal, number, Span(start=None, end={"file": "x", "modified": 1}, parts=parts[first : first + 1_000])
        )
    assert measure_largest(path) < 16 * 1024
    journal.compact(every=1)
    assert measure_largest(path) < 16 * 1024
    again = Journal(DeltaLedger(path))
    assert again.state.get_lane("0").settled == journal.state.get_lane("0").settled
    assert sorted(
        number for settled in again.list_settled() for number, _, _ in list_files(settled.span.parts)
    ) == list(range(FILES))


def make_plan(span: Span) -> Mapping[str, Any]:
    """Return the body of a plan with this span."""
    planned = make_planned(1)
    return {**encode(replace(planned, batch=replace(planned.batch, span=span)))}


OFFSET: Json = {"partitions": {f"orders-{number}": 1_000_000 + number for number in range(10_000)}}
GROWING: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "a plan of 10,000 files": (
        "plan",
        make_plan(
            Span(start=None, end=None, parts=tuple([f"landing/part-{at:06}.json", 1_000, at] for at in range(10_000)))
        ),
    ),
    "a plan between offsets with 10,000 partitions": ("plan", make_plan(Span(start=OFFSET, end=OFFSET))),
    "a settled offset with 10,000 partitions": ("settle", {"offset": OFFSET, "counts": encode(COUNTS)}),
    "an error message of 1 MiB": ("release", {"status": "failed", "error": {"lane": "0", "message": "x" * 2**20}}),
    "a message of signs that take four bytes each": ("pause", {"reason": "\U0001f600" * 4_000}),
    "offsets of 10,000 lanes": ("set", {"lanes": {f"{lane}": {"offset": lane} for lane in range(10_000)}}),
}


@pytest.mark.parametrize(("kind", "body"), GROWING.values(), ids=GROWING)
def test_a_growing_entry_stays_below_16_kib(path: Path, kind: str, body: Mapping[str, Any]) -> None:
    """Its body is read back whole."""
    DeltaLedger(path).append([Entry(kind=kind, lane="0", body=body)], after=0)
    (row,) = read_rows(path)
    assert sum(len(str(value).encode()) for value in row.values()) < 16 * 1024
    (entry,) = DeltaLedger(path).read()
    assert json.dumps(entry.body) == json.dumps(body)


def test_a_small_body_needs_no_second_commit(path: Path) -> None:
    """A batch of few files without refused rows costs nothing more."""
    ledger = DeltaLedger(path)
    fits = {"text": "x" * (LARGEST - len('{"text":""}'))}
    ledger.append([Entry(kind="plan", body=fits)], after=0)
    assert not path.with_name("ledger_bodies").exists()
    ledger.append([Entry(kind="plan", body={"text": fits["text"] + "x"})], after=1)
    assert len(read_rows(path.with_name("ledger_bodies"))) == 1


def test_a_body_is_removed_with_its_entry(path: Path) -> None:
    """Compaction removes bodies without an entry. It keeps bodies of the snapshot and of entries after it."""
    ledger = DeltaLedger(path)
    ledger.append([Entry(kind="plan", id="a", body=LARGE)], after=0)
    ledger.compact(Entry(kind="snapshot", id="s", body=LARGE), [], after=1)
    ledger.append([Entry(kind="plan", id="b", body=LARGE)], after=2)
    assert sorted(row["id"] for row in read_rows(path.with_name("ledger_bodies"))) == ["b", "s"]


def test_a_ledger_that_is_compacted_during_a_read_is_read_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader has read an entry whose body was removed meanwhile."""
    writer, reader = DeltaLedger(path), DeltaLedger(path)
    writer.append([Entry(kind="plan", id="a", body=LARGE)], after=0)
    rows = LocalTable.rows

    def compacts(table: LocalTable, *asked: Any) -> Any:
        found = list(rows(table, *asked))
        monkeypatch.setattr(LocalTable, "rows", rows)
        writer.compact(Entry(kind="snapshot", id="s"), [], after=1)
        return iter(found)

    monkeypatch.setattr(LocalTable, "rows", compacts)
    assert [entry.id for entry in reader.read()] == ["s"]


def test_a_lost_body_is_an_error(path: Path) -> None:
    """Wherry does not guess the body, and the hint names the table to restore."""
    DeltaLedger(path).append([Entry(kind="plan", body=LARGE)], after=0)
    shutil.rmtree(path.with_name("ledger_bodies"))
    with pytest.raises(LedgerError, match="has lost the body of entry 1") as error:
        DeltaLedger(path).read()
    assert "ledger_bodies back" in error.value.hint
