"""A ledger that has lost a file: its errors name the file, and a repair restores what is certain."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from runners.definitions.definition import definition_of
from runners.model.entry import Entry
from runners.model.errors import Owned
from runners.operations.mend_ledger import mend_ledger
from runners.state import ledger
from runners.state.delta_ledger import DeltaLedger
from runners.state.journal import Journal, list_settled_ever
from runners.state.ledger import LedgerError
from runners.state.location import StateLocation
from runners.state.process_locks import StateLock
from tests.runners.operations.audit.evidence import Carried

REASON = "a file was lost"


def find_file(carried: Carried, seq: int, table: str = "ledger") -> Path:
    """Return the file with this entry."""
    place = carried.folder / "state" / table
    files = DeltaTable(place).get_add_actions(flatten=True)
    columns = zip(*(files.column(name).to_pylist() for name in ("path", "min.seq", "max.seq")), strict=True)
    return next(place / str(path) for path, first, last in columns if first <= seq <= last)


def lose_entry(carried: Carried, kind: str, number: int) -> int:
    """Remove the file with the entry of this kind of a batch. Return the entry's number."""
    plan = f"0-p{number}"
    entry = next(each for each in carried.journal.tail if (each.kind, each.plan) == (kind, plan))
    find_file(carried, entry.seq).unlink()
    return entry.seq


def open_journal(carried: Carried) -> Journal:
    """Return the ledger as another process finds it."""
    return Journal(DeltaLedger(carried.folder / "state" / "ledger"))


def list_numbers(carried: Carried) -> list[int]:
    return sorted(each.number for each in list_settled_ever(open_journal(carried)))


def delete(file: Path) -> None:
    file.unlink()


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:50])


@pytest.mark.parametrize(("harm", "word"), [(delete, "missing"), (cut, "broken")])
def test_the_error_names_the_file_its_version_and_the_command(
    tmp_path: Path, harm: Callable[[Path], None], word: str
) -> None:
    """Every reader of the ledger says so."""
    carried = Carried(tmp_path)
    carried.carry(1, 2)
    file = find_file(carried, 3)
    harm(file)
    expected = rf"the file {file.name} of version 3 is {word}, and had entries 3 to 3\."
    with pytest.raises(LedgerError, match=expected) as raised:
        open_journal(carried)
    assert 'wherry repair FILE --reason "…"' in raised.value.hint
    for read in (carried.pipeline.status, carried.pipeline.audit, carried.pipeline.run):
        with pytest.raises(LedgerError, match=expected):
            read()


@pytest.mark.parametrize(("kind", "number"), [("plan", 1), ("plan", 2), ("plan", 3), ("settle", 1), ("settle", 2)])
def test_a_lost_entry_of_a_delivered_batch_is_restored(tmp_path: Path, kind: str, number: int) -> None:
    """Its offsets are known from the other entries, and its rows from the table. Nothing comes again."""
    carried = Carried(tmp_path)
    carried.record_opening()
    carried.carry(1, 2, 3)
    lose_entry(carried, kind, number)
    carried.pipeline.repair(reason=REASON)
    state = open_journal(carried).state
    lane = state.get_lane("0")
    assert (list_numbers(carried), lane.offset, lane.open, state.paused) == ([1, 2, 3], 30, None, None)
    assert {code for code, _, _ in carried.list_codes()} <= {"NOT_PROVED"}


def test_a_batch_whose_end_is_lost_at_the_end_of_the_ledger_is_open(tmp_path: Path) -> None:
    """The next run asks its destinations, as after a crash."""
    carried = Carried(tmp_path)
    carried.carry(1, 2)
    lose_entry(carried, "settle", 2)
    mend_ledger(definition_of(carried.pipeline).pipeline, reason=REASON)
    state = open_journal(carried).state
    assert ([plan.batch.number for plan in state.open_plans], state.get_lane("0").offset) == ([2], 10)


def test_a_batch_that_no_destination_shows_is_planned_again(tmp_path: Path) -> None:
    """Its plan was cancelled, because the batch after it begins where it began."""
    carried = Carried(tmp_path)
    carried.carry(1)
    carried.plan(2, plan="given up")
    carried.journal.record(Entry(kind="cancel", lane="0", plan="given up"))
    carried.carry(3, start=10)
    find_file(carried, 5).unlink()
    mend_ledger(definition_of(carried.pipeline).pipeline, reason=REASON)
    assert (list_numbers(carried), carried.list_codes()) == ([1, 3], [])


def test_a_delivered_batch_of_which_everything_is_lost_pauses_the_pipeline(tmp_path: Path) -> None:
    """Otherwise the next run would deliver its rows again. The message names the rows."""
    carried = Carried(tmp_path)
    carried.carry(1, 2)
    lose_entry(carried, "plan", 2)
    lose_entry(carried, "settle", 2)
    done = mend_ledger(definition_of(carried.pipeline).pipeline, reason=REASON)
    paused = open_journal(carried).state.paused
    assert paused is not None
    assert (paused.lane, paused.number) == ("0", 2)
    assert "orders has 3 rows" in paused.reason
    assert done[-1].startswith("batch 2 of lane 0 is not restored: orders has 3 rows")
    assert carried.list_codes() == [("NOT_COMMITTED", "orders", 2)]


def test_a_large_body_that_is_lost_is_a_lost_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the file of the table for bodies."""
    monkeypatch.setattr(ledger, "LARGEST", 250)
    carried = Carried(tmp_path)
    carried.carry(1, 2, 3)
    seq = next(each.seq for each in carried.journal.tail if (each.kind, each.plan) == ("plan", "0-p2"))
    file = find_file(carried, seq, "ledger_bodies")
    file.unlink()
    with pytest.raises(LedgerError, match=f"the file {file.name} of version .* is missing, and had entries {seq} to"):
        open_journal(carried)
    mend_ledger(definition_of(carried.pipeline).pipeline, reason=REASON)
    assert list_numbers(carried) == [1, 2, 3]


def test_a_ledger_without_its_beginning_is_not_mended(tmp_path: Path) -> None:
    """Nothing certain is left."""
    carried = Carried(tmp_path)
    carried.carry(1)
    carried.compact()
    carried.carry(2)
    find_file(carried, carried.journal.tail[0].seq).unlink()
    with pytest.raises(LedgerError, match="has lost its first entries") as raised:
        carried.pipeline.repair(reason=REASON)
    assert "backup" in raised.value.hint


def test_a_lost_file_of_the_history_is_named(tmp_path: Path) -> None:
    """Only a backup has it."""
    carried = Carried(tmp_path)
    carried.carry(1)
    carried.compact()
    (file,) = (tmp_path / "state" / "ledger_history").glob("*.parquet")
    file.unlink()
    with pytest.raises(LedgerError, match=f"the file {file.name} of version 1 is missing, and had the batches 1 to 1"):
        list_numbers(carried)


def test_a_ledger_is_not_mended_while_its_run_goes_on(tmp_path: Path) -> None:
    """The run still writes to it."""
    carried = Carried(tmp_path)
    carried.carry(1, 2)
    lose_entry(carried, "settle", 1)
    lock = StateLock(StateLocation.of(definition_of(carried.pipeline).pipeline).lock)
    assert lock.acquire()
    with pytest.raises(Owned, match="orders is running"):
        carried.pipeline.repair(reason=REASON)
    lock.release()


def test_a_repaired_ledger_goes_on(tmp_path: Path) -> None:
    """It has the repair, its reason and what was lost."""
    carried = Carried(tmp_path)
    carried.carry(1, 2)
    lost = lose_entry(carried, "settle", 1)
    carried.pipeline.repair(reason=REASON)
    later = open_journal(carried)
    note = next(entry for entry in later.tail if entry.kind == "repair")
    assert (note.body["reason"], note.body["lost"][0]["first"]) == (REASON, lost)
    assert [entry.seq for entry in later.tail] == [*range(1, len(later.tail) + 1)]
    later.acquire({"host": "h", "boot": "b", "pid": 1, "started": "", "pipeline": "orders", "run": "r"})
    assert carried.pipeline.repair(reason=REASON).done == []
