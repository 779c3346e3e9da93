"""The ledger in a folder keeps its contract despite failures around a commit and other writers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from runners.model.entry import FORMAT, Entry, Settled
from runners.model.planned_batch import SettledCounts
from runners.state import delta_ledger
from runners.state.delta_ledger import CHECKPOINT_EVERY, DeltaLedger, LocalTable
from runners.state.ledger import ENTRIES, FILES, Conflict, Ledger, LedgerError
from tests.destinations.delta.features import demand_feature
from tests.runners.state.ledger.conformance import NOWHERE, LedgerConformance

ROOT = Path(__file__).parents[4]
APPENDER = [sys.executable, str(Path(__file__).with_name("appender.py"))]

Write = Callable[..., None]


@pytest.mark.promise("CN-04", "CN-06")
class TestDeltaLedger(LedgerConformance):
    """Each handle is opened separately."""

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "state" / "ledger"

    def ledger(self) -> Ledger:
        return DeltaLedger(self.path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a ledger."""
    return tmp_path / "ledger"


@pytest.fixture
def writing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Write], None]:
    """Return a function that replaces the library's write."""
    return lambda instead: monkeypatch.setattr(delta_ledger, "write_deltalake", instead)


def make_entries(*ids: str) -> list[Entry]:
    return [Entry(kind="plan", id=name) for name in ids]


def list_ids(ledger: Ledger) -> list[str]:
    return [entry.id for entry in ledger.read()]


def make_settled(plan: str, number: int) -> Settled:
    return Settled(lane="0", number=number, plan=plan, run="r", at="", span=NOWHERE, counts=SettledCounts())


def test_reading_creates_nothing(path: Path) -> None:
    """A status of a pipeline that never ran leaves no trace."""
    assert DeltaLedger(path).read() == []
    assert list(path.parent.iterdir()) == []


def test_an_append_that_landed_and_then_raised_counts_as_landed(path: Path, writing: Callable[[Write], None]) -> None:
    """A checkpoint that fails after its commit is not mistaken for a failed commit."""

    def lands_and_raises(*args: Any, **options: Any) -> None:
        write_deltalake(*args, **options)
        raise OSError("the checkpoint could not be written")

    writing(lands_and_raises)
    ledger = DeltaLedger(path)
    ledger.append(make_entries("a", "b"), after=0)
    ledger.append(make_entries("c"), after=2)
    assert list_ids(DeltaLedger(path)) == ["a", "b", "c"]


def test_an_append_that_did_not_land_is_tried_again(path: Path, writing: Callable[[Write], None]) -> None:
    """A write that fails once only takes more time."""
    faults = [OSError("busy"), OSError("busy")]

    def raises_twice(*args: Any, **options: Any) -> None:
        if faults:
            raise faults.pop()
        write_deltalake(*args, **options)

    writing(raises_twice)
    DeltaLedger(path).append(make_entries("a"), after=0)
    assert list_ids(DeltaLedger(path)) == ["a"]


def test_an_append_that_never_lands_reports_the_cause(path: Path, writing: Callable[[Write], None]) -> None:
    """The error has the message of the system, and no entry is stored."""

    def raises(*args: Any, **options: Any) -> None:
        raise OSError(
            "Generic LocalFileSystem error: Unable to copy data to file: No space left on device (os error 28)"
        )

    ledger = DeltaLedger(path)
    ledger.append(make_entries("a"), after=0)
    writing(raises)
    with pytest.raises(LedgerError, match="ledger cannot be written: No space left on device") as caught:
        ledger.append(make_entries("b"), after=1)
    assert "writable, with free space" in caught.value.hint
    assert list_ids(DeltaLedger(path)) == ["a"]


def test_an_interrupt_after_a_commit_leaves_the_handle_correct(path: Path, writing: Callable[[Write], None]) -> None:
    """The handle does not assume that its last append failed."""

    def lands_and_is_interrupted(*args: Any, **options: Any) -> None:
        write_deltalake(*args, **options)
        raise KeyboardInterrupt

    ledger = DeltaLedger(path)
    ledger.append(make_entries("a"), after=0)
    writing(lands_and_is_interrupted)
    with pytest.raises(KeyboardInterrupt):
        ledger.append(make_entries("b"), after=1)
    writing(write_deltalake)
    with pytest.raises(Conflict):
        ledger.append(make_entries("c"), after=1)
    assert list_ids(ledger) == ["a", "b"]


def test_a_crash_between_history_and_snapshot_is_repaired(path: Path, writing: Callable[[Write], None]) -> None:
    """The entries are still stored. The next compaction does not add the batches to the history again."""

    def dies_before_the_snapshot(*args: Any, **options: Any) -> None:
        if options["mode"] == "overwrite":
            raise SystemExit
        write_deltalake(*args, **options)

    ledger = DeltaLedger(path)
    ledger.append(make_entries("a"), after=0)
    writing(dies_before_the_snapshot)
    with pytest.raises(SystemExit):
        ledger.compact(Entry(kind="snapshot"), [make_settled("p", 1)], after=1)
    writing(write_deltalake)

    later = DeltaLedger(path)
    assert list_ids(later) == ["a"]
    later.append(make_entries("b"), after=1)
    later.compact(Entry(kind="snapshot"), [make_settled("p", 1), make_settled("q", 2)], after=2)
    assert sorted(each.plan for each in later.history()) == ["p", "q"]


def test_a_commit_without_an_entry_does_no_harm(path: Path) -> None:
    """Another program may set a property of the table or vacuum it. The last number stays the last."""
    ledger = DeltaLedger(path)
    ledger.append(make_entries("a"), after=0)
    DeltaTable(str(path)).alter.set_table_properties({"delta.checkpointInterval": "10"})
    ledger.append(make_entries("b"), after=1)
    assert list_ids(DeltaLedger(path)) == ["a", "b"]


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each checkpoint clean up the log at once."""
    monkeypatch.setitem(delta_ledger.PROPERTIES, "delta.logRetentionDuration", "interval 0 seconds")


def append_beyond_cleanup(path: Path, *, after: int) -> None:
    """Append by another process until the log is cleaned up behind it."""
    other = DeltaLedger(path)
    for end in range(after, after + CHECKPOINT_EVERY):
        other.append(make_entries(f"other{end}"), after=end)


@pytest.mark.usefixtures("forgetful")
def test_a_handle_behind_a_cleaned_log_reads_on(path: Path) -> None:
    """The part of the log that the handle has not read is gone."""
    behind = DeltaLedger(path)
    behind.append(make_entries("a"), after=0)
    append_beyond_cleanup(path, after=1)
    assert not (path / "_delta_log" / f"{2:020}.json").exists()
    assert [entry.seq for entry in behind.read(1)] == list(range(2, CHECKPOINT_EVERY + 2))


def test_a_log_that_is_cleaned_during_a_read_is_read_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listed file may be gone when it is opened. Its checkpoint has the same content."""
    faults = [DeltaError("File not found: 00000000000000000007.json"), OSError("File not found")]

    class Vanishing(DeltaTable):
        def __init__(self, *args: Any, **options: Any) -> None:
            if faults:
                raise faults.pop()
            super().__init__(*args, **options)

    DeltaLedger(path).append(make_entries("a"), after=0)
    monkeypatch.setattr(delta_ledger, "DeltaTable", Vanishing)
    assert list_ids(DeltaLedger(path)) == ["a"]


@pytest.mark.usefixtures("forgetful")
def test_a_handle_behind_a_cleaned_log_cannot_append(path: Path) -> None:
    """The version that it would take is free again, but the append is refused."""
    behind = DeltaLedger(path)
    behind.append(make_entries("a"), after=0)
    append_beyond_cleanup(path, after=1)
    with pytest.raises(Conflict):
        behind.append(make_entries("b"), after=1)
    assert "b" not in list_ids(DeltaLedger(path))


@pytest.mark.usefixtures("forgetful")
def test_a_writer_that_sleeps_in_the_middle_of_its_commit_gets_a_conflict(
    path: Path, tmp_path: Path, writing: Callable[[Write], None]
) -> None:
    """It saw a free version and slept. Other processes went on and cleaned the log, and then it took the version."""
    log, aside = path / "_delta_log", tmp_path / "aside"

    def sleeps(*args: Any, **options: Any) -> None:
        seen = shutil.copytree(log, tmp_path / "seen")
        writing(write_deltalake)
        append_beyond_cleanup(path, after=1)
        log.rename(aside)
        seen.rename(log)
        write_deltalake(*args, **options)
        shutil.copytree(log, aside, dirs_exist_ok=True)
        shutil.rmtree(log)
        aside.rename(log)

    sleeper = DeltaLedger(path)
    sleeper.append(make_entries("a"), after=0)
    writing(sleeps)
    with pytest.raises(Conflict):
        sleeper.append(make_entries("b"), after=1)
    assert "b" not in list_ids(DeltaLedger(path))
    assert "b" not in list_ids(sleeper)


@pytest.mark.usefixtures("forgetful")
def test_the_log_stays_short(path: Path) -> None:
    """Every commit lists the log, so its length must not depend on the number of appends."""
    ledger = DeltaLedger(path)
    for end in range(4 * CHECKPOINT_EVERY):
        ledger.append(make_entries(f"{end}"), after=end)
    assert len(list((path / "_delta_log").iterdir())) <= CHECKPOINT_EVERY + 3


def compact_often(ledger: Ledger, *, after: int) -> None:
    """Compact until the ledger is tidied."""
    for end in range(after, after + 2 * FILES):
        ledger.compact(Entry(kind="snapshot"), [make_settled(f"p{end}", end)], after=end)


def test_the_history_keeps_few_files(path: Path) -> None:
    """Small files are merged, for any number of compactions."""
    ledger = DeltaLedger(path)
    ledger.append(make_entries("a"), after=0)
    compact_often(ledger, after=1)
    assert len(DeltaTable(f"{path}_history").file_uris()) <= FILES
    assert sorted(each.number for each in ledger.history()) == list(range(1, 2 * FILES + 1))


def test_files_are_kept_for_an_hour(path: Path) -> None:
    """Only older files that failed writes left behind are deleted. A writer may be about to add a younger one."""
    ledger = DeltaLedger(path)
    ledger.append(make_entries("a"), after=0)
    replaced = set(path.glob("*.parquet"))
    old, young = path / "old.parquet", path / "young.parquet"
    for left, minutes in ((old, 70), (young, 50)):
        left.write_bytes(b"half a file")
        written = left.stat().st_mtime - minutes * 60
        os.utime(left, (written, written))
    compact_often(ledger, after=1)
    assert not old.exists()
    assert {young, *replaced} < set(path.glob("*.parquet"))
    assert DeltaTable(str(path)).metadata().configuration["delta.deletedFileRetentionDuration"] == "interval 1 hours"


def test_an_error_of_the_tidying_has_no_effect(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compaction has already landed."""

    def raises(table: LocalTable) -> None:
        raise DeltaError("busy")

    monkeypatch.setattr(LocalTable, "optimize", raises)
    ledger = DeltaLedger(path)
    ledger.append(make_entries("a"), after=0)
    compact_often(ledger, after=1)
    assert [entry.kind for entry in ledger.read()] == ["snapshot"]


def test_threads_share_a_handle(path: Path, writing: Callable[[Write], None]) -> None:
    """One handle gives each thread its numbers, and serves one thread at a time."""
    busy, overlaps = threading.Lock(), []

    def notices(*args: Any, **options: Any) -> None:
        alone = busy.acquire(blocking=False)
        write_deltalake(*args, **options)
        busy.release() if alone else overlaps.append(options)

    writing(notices)
    ledger = DeltaLedger(path)

    def work(name: str) -> None:
        end, turn = 0, 0
        while turn < 5:
            try:
                end = ledger.append(make_entries(f"{name}{turn}"), after=end)[0].seq
                turn += 1
            except Conflict:
                end = ledger.read(end)[-1].seq

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = ledger.read()
    assert [entry.seq for entry in found] == list(range(1, 16))
    assert {entry.id for entry in found} == {f"{name}{turn}" for name in "abc" for turn in range(5)}
    assert overlaps == []


def start_appender(path: Path, name: str, *, turns: int, compact_every: int) -> subprocess.Popen[str]:
    words = [*APPENDER, str(path), name, str(turns), str(compact_every)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})


@pytest.mark.promise("CN-20")
def test_processes_that_append_at_once_leave_no_gap_and_no_duplicate(path: Path) -> None:
    """Each of them may find no ledger and make it."""
    processes = [start_appender(path, name, turns=30, compact_every=1000) for name in "abcd"]
    assert [process.communicate()[0].count("\n") for process in processes] == [30] * 4
    found = DeltaLedger(path).read()
    assert [entry.seq for entry in found] == list(range(1, 121))
    assert {entry.id for entry in found} == {f"{name}{turn}" for name in "abcd" for turn in range(30)}


def test_entries_that_a_killed_process_appended_are_kept(path: Path) -> None:
    """A SIGKILL at any moment of an append or a compaction leaves a whole ledger that takes the next entry."""
    for life, told in enumerate((1, 25, 60)):
        process = start_appender(path, f"life{life}-", turns=10_000, compact_every=10)
        assert process.stdout is not None
        said = [process.stdout.readline().strip() for _ in range(told)]
        process.kill()
        said += process.communicate()[0].split()
        ledger = DeltaLedger(path)
        found = ledger.read()
        assert [entry.seq for entry in found] == list(range(found[0].seq, found[-1].seq + 1))
        since = found[0].body["turn"] if found[0].kind == "snapshot" else 0
        last = int(said[-1].rpartition("-")[2])
        assert last < since or said[-1] in [entry.id for entry in found]
        batches = [each.plan for each in ledger.history()]
        assert len(batches) == len(set(batches))
        ledger.append(make_entries(f"after life {life}"), after=found[-1].seq)


@pytest.mark.parametrize("name", ["with space", "größe", "it's", 'say "so"', "100%", "a#b?c", "ledger.v1"])
def test_a_folder_may_have_any_usual_name(tmp_path: Path, name: str) -> None:
    """Characters in the name of a folder are not read as part of an address."""
    DeltaLedger(tmp_path / name / "ledger").append(make_entries("a"), after=0)
    assert list_ids(DeltaLedger(tmp_path / name / "ledger")) == ["a"]
    assert [each.name for each in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["a%20b", "a[1]", "a\\b", "a|b", "a^b", "a\nb"])
def test_a_folder_in_which_no_delta_table_works_is_refused(tmp_path: Path, name: str) -> None:
    """The error comes before anything is written, and names the character."""
    with pytest.raises(LedgerError, match="Delta tables do not work below a name with"):
        DeltaLedger(tmp_path / name / "ledger")


def test_a_folder_that_cannot_keep_two_writers_apart_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No append is conditional if a second file may replace the first one of that name."""
    monkeypatch.setattr(os, "link", shutil.copyfile)
    with pytest.raises(LedgerError, match="Wherry cannot keep two writers apart"):
        DeltaLedger(path).append(make_entries("a"), after=0)
    assert DeltaLedger(path).read() == []


def test_a_broken_ledger_is_not_mistaken_for_an_empty_one(path: Path) -> None:
    """An empty ledger would process everything again."""
    DeltaLedger(path).append(make_entries("a"), after=0)
    for file in (path / "_delta_log").iterdir():
        file.write_text("broken")
    with pytest.raises(LedgerError, match="ledger cannot be read"):
        DeltaLedger(path).read()


@pytest.mark.parametrize("of_readers", [False, True])
def test_a_ledger_that_demands_an_unknown_feature_gets_no_entry(path: Path, *, of_readers: bool) -> None:
    """A newer program may have made it, for a promise that this one does not keep."""
    first = DeltaLedger(path)
    first.append(make_entries("first"), after=0)
    demand_feature(path, of_readers=of_readers)
    before = sorted(path.rglob("*.json"))
    for ledger in (first, DeltaLedger(path)):
        with pytest.raises(LedgerError, match="invented"):
            ledger.append(make_entries("second"), after=1)
    assert sorted(path.rglob("*.json")) == before


def test_another_table_in_place_of_the_ledger_is_refused(path: Path) -> None:
    """Reads and appends are refused.

    The error names the expected and the found columns, and the table is not changed.
    """
    write_deltalake(str(path), pa.table({"seq": [1], "amount": ["7"]}))
    with pytest.raises(
        LedgerError, match=r"not a ledger .* expected the columns seq long, kind .* found seq long, amount"
    ):
        DeltaLedger(path).read()
    with pytest.raises(LedgerError, match="not a ledger"):
        DeltaLedger(path).append(make_entries("a"), after=0)
    assert DeltaTable(str(path)).version() == 0


def test_a_newer_ledger_with_other_columns_is_recognized(path: Path) -> None:
    """It is not mistaken for another table. The error names the format that is needed."""
    columns = {
        name: pa.array([FORMAT + 1], pa.int32()) if name == "format" else pa.array([None], pa.string())
        for name in ENTRIES
    }
    write_deltalake(str(path), pa.table({**columns, "shiny": ["new"]}))
    with pytest.raises(LedgerError, match=f"has entries of format {FORMAT + 1}") as caught:
        DeltaLedger(path).read()
    assert f"a version that reads format {FORMAT + 1}" in caught.value.hint
