"""A ledger that is damaged, full or read-only.

The error is clear, nothing is lost, and a repaired ledger works again.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from destinations.destination import DestinationError
from runners.model.entry import Entry
from runners.model.errors import Refusal
from runners.state import ledger
from runners.state.delta_ledger import DeltaLedger
from runners.state.journal import Journal, list_settled_ever
from runners.state.ledger import LedgerError
from runners.state.location import StateLocation
from runners.state.run_history import RunHistory, RunRow
from tests.runners.operations.audit.evidence import Carried
from tests.small_disk import SmallDisk


def open_journal(carried: Carried) -> Journal:
    """Return the ledger as another process finds it."""
    return Journal(DeltaLedger(carried.folder / "state" / "ledger"))


def find_newest(folder: Path, pattern: str) -> Path:
    """Return the newest file that matches the pattern."""
    return max(folder.glob(pattern), key=lambda path: (path.stat().st_mtime_ns, path.name))


def delete_file(file: Path) -> None:
    """Delete the file."""
    file.unlink()


def cut_file(file: Path) -> None:
    """Keep only half of the file."""
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize("harm", [delete_file, cut_file])
@pytest.mark.parametrize(
    ("which", "newest"),
    [("ledger", "*.parquet"), ("ledger/_delta_log", "*00003.json"), ("ledger_history", "*.parquet")],
)
def test_a_missing_or_cut_file_is_reported(
    tmp_path: Path, which: str, newest: str, harm: Callable[[Path], None]
) -> None:
    """The error names the ledger and has a hint. With the file restored, everything works again."""
    carried = Carried(tmp_path)
    carried.carry(1)
    carried.compact()
    carried.carry(2)
    before = list_settled_ever(open_journal(carried))
    file = find_newest(tmp_path / "state" / which, newest)
    kept = file.read_bytes()
    harm(file)
    with pytest.raises(LedgerError, match=f"ledger at {tmp_path}/state/ledger") as told:
        list_settled_ever(open_journal(carried))
    assert told.value.hint
    file.write_bytes(kept)
    assert list_settled_ever(open_journal(carried)) == before
    carried.carry(3)
    assert carried.list_codes() == []


def list_data(carried: Carried) -> set[str]:
    """Return the names of the files with entries and large bodies."""
    state = carried.folder / "state"
    return {file.name for table in ("ledger", "ledger_bodies") for file in (state / table).glob("*.parquet")}


def age_files(carried: Carried) -> None:
    """Let all files of the state be two hours old."""
    for file in (file for file in (carried.folder / "state").rglob("*") if file.is_file()):
        os.utime(file, (file.stat().st_atime, file.stat().st_mtime - 7_200))


def test_files_that_left_the_ledger_long_ago_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file stays for an hour, and until the second snapshot after it. Another process may be reading it."""
    monkeypatch.setattr(ledger, "LARGEST", 250)
    carried = Carried(tmp_path)
    carried.carry(1, 2)
    first = list_data(carried)
    age_files(carried)
    carried.compact()
    assert first < list_data(carried)
    carried.carry(3)
    young = list_data(carried) - first
    carried.compact()
    assert (first & list_data(carried), young <= list_data(carried)) == (set(), True)
    assert sorted(each.number for each in list_settled_ever(open_journal(carried))) == [1, 2, 3]
    carried.carry(4)
    assert carried.list_codes() == []


@pytest.mark.parametrize("what", ["ledger_history", "ledger_history/_delta_log"])
def test_a_missing_history_is_reported(tmp_path: Path, what: str) -> None:
    """Otherwise files would be processed again. A restored history works again."""
    carried = Carried(tmp_path)
    carried.carry(1)
    carried.compact()
    place, aside = tmp_path / "state" / what, tmp_path / "aside"
    shutil.move(place, aside)
    with pytest.raises(LedgerError, match="it lacks batch 1 of lane 0, which was settled"):
        open_journal(carried).list_settled()
    shutil.move(aside, place)
    assert [each.number for each in open_journal(carried).list_settled()] == [1]


def test_a_full_disk_loses_no_entry(small_disk: SmallDisk, capfd: pytest.CaptureFixture[str]) -> None:
    """Recorded entries are whole, and failed ones are absent. An entry lands when the disk has room again. No library
    prints its own lines about the disk."""
    carried = Carried(small_disk.folder)
    carried.carry(1)
    small_disk.fill()
    with pytest.raises(LedgerError, match="No space left on device") as told:
        carried.journal.record(Entry(kind="stop", body={"reason": "x"}))
    assert "with free space" in told.value.hint
    assert capfd.readouterr().err == ""
    small_disk.empty()
    assert (open_journal(carried).state.get_lane("0").committed, open_journal(carried).state.stopping) == (1, "")
    carried.carry(2)
    assert open_journal(carried).state.get_lane("0").committed == 2
    assert carried.list_codes() == []


def test_a_full_disk_fails_the_history_without_lines_of_a_library(
    small_disk: SmallDisk, capfd: pytest.CaptureFixture[str]
) -> None:
    """A run that cannot record its history goes on, and says so itself."""
    history = RunHistory(small_disk.folder / "runs", timedelta(days=1))
    began = RunRow.make_running("orders", "r1", "h", datetime(2026, 1, 1, tzinfo=timezone.utc))
    history.write([began])
    small_disk.fill()
    with pytest.raises(LedgerError, match=r"The run history at .* cannot be written: No space left on device"):
        history.write([began])
    assert capfd.readouterr().err == ""
    small_disk.empty()
    history.write([replace(began, run="r2")])
    assert {run["run"] for run in history.list_runs()} == {"r1", "r2"}


def test_an_unreadable_ledger_is_not_mistaken_for_a_missing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise everything would be processed again, and a running run could not be asked to stop."""
    carried = Carried(tmp_path)
    carried.carry(1)

    def forbidden(folder: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(folder))

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", forbidden)
        with pytest.raises(LedgerError, match="cannot be read: Permission denied") as told:
            open_journal(carried)
    assert "Give this user the right to read it" in told.value.hint
    assert open_journal(carried).state.get_lane("0").committed == 1


def test_a_read_only_ledger_can_be_read_and_audited(small_disk: SmallDisk) -> None:
    """A run that begins reports that it cannot write."""
    carried = Carried(small_disk.folder)
    carried.carry(1)
    small_disk.read_only()
    with pytest.raises(LedgerError, match="Read-only file system"):
        carried.journal.record(Entry(kind="stop", body={"reason": "x"}))
    with pytest.raises(Refusal, match="The state cannot be written"):
        StateLocation.of(carried.pipeline).make()
    assert (open_journal(carried).state.get_lane("0").committed, carried.list_codes()) == (1, [])
    small_disk.writable()
    carried.carry(2)
    assert open_journal(carried).state.get_lane("0").committed == 2


@pytest.mark.parametrize("harm", [delete_file, cut_file])
def test_a_damaged_dlq_is_reported(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    """The error of a read and the finding of an audit name the table."""
    carried = Carried(tmp_path)
    carried.carry(1, nacked=1)
    harm(find_newest(tmp_path / "state" / "dlq", "*.parquet"))
    with pytest.raises(DestinationError, match=f"The DLQ at {tmp_path}/state/dlq cannot be read"):
        carried.pipeline.refused.list()
    ((_, destination, _),) = carried.list_codes()
    assert destination == "dlq"
