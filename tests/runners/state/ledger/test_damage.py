"""A ledger that is damaged, full or read-only: a clear error, nothing lost, and it goes on when mended."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from destinations.destination import DestinationError
from runners.model.entry import Entry
from runners.model.errors import Refusal
from runners.state.delta_ledger import DeltaLedger
from runners.state.journal import Journal, list_settled_ever
from runners.state.ledger import LedgerError
from runners.state.location import StateLocation
from tests.runners.operations.audit.evidence import Carried
from tests.small_disk import SmallDisk


def opened(carried: Carried) -> Journal:
    """The ledger as another process finds it."""
    return Journal(DeltaLedger(carried.folder / "state" / "ledger"))


def last(folder: Path, pattern: str) -> Path:
    """The newest file of this kind."""
    return max(folder.glob(pattern), key=lambda path: (path.stat().st_mtime_ns, path.name))


def gone(file: Path) -> None:
    """Take it away."""
    file.unlink()


def cut(file: Path) -> None:
    """Leave half of it."""
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize("harm", [gone, cut])
@pytest.mark.parametrize(
    ("which", "newest"),
    [("ledger", "*.parquet"), ("ledger/_delta_log", "*00003.json"), ("ledger_history", "*.parquet")],
)
def test_a_file_that_is_missing_or_cut_off(
    tmp_path: Path, which: str, newest: str, harm: Callable[[Path], None]
) -> None:
    """The error names the ledger and says what to do; with the file put back all is as it was."""
    carried = Carried(tmp_path)
    carried.carry(1)
    carried.compacted()
    carried.carry(2)
    before = list_settled_ever(opened(carried))
    file = last(tmp_path / "state" / which, newest)
    kept = file.read_bytes()
    harm(file)
    with pytest.raises(LedgerError, match=f"ledger at {tmp_path}/state/ledger") as told:
        list_settled_ever(opened(carried))
    assert told.value.hint
    file.write_bytes(kept)
    assert list_settled_ever(opened(carried)) == before
    carried.carry(3)
    assert carried.codes() == []


@pytest.mark.parametrize("what", ["ledger_history", "ledger_history/_delta_log"])
def test_a_history_that_is_gone(tmp_path: Path, what: str) -> None:
    """Else files that were carried before would be carried again; put back, all is as it was."""
    carried = Carried(tmp_path)
    carried.carry(1)
    carried.compacted()
    place, aside = tmp_path / "state" / what, tmp_path / "aside"
    shutil.move(place, aside)
    with pytest.raises(LedgerError, match="it lacks batch 1 of lane 0, which was settled"):
        opened(carried).list_settled()
    shutil.move(aside, place)
    assert [each.number for each in opened(carried).list_settled()] == [1]


def test_a_full_disk(small_disk: SmallDisk) -> None:
    """What was recorded is whole, what was not is not, and the same entry lands once there is room."""
    carried = Carried(small_disk.folder)
    carried.carry(1)
    small_disk.fill()
    with pytest.raises(LedgerError, match="No space left on device") as told:
        carried.journal.record(Entry(kind="stop", body={"reason": "x"}))
    assert "with free space" in told.value.hint
    small_disk.empty()
    assert (opened(carried).state.get_lane("0").committed, opened(carried).state.stopping) == (1, "")
    carried.carry(2)
    assert opened(carried).state.get_lane("0").committed == 2
    assert carried.codes() == []


def test_a_ledger_that_may_not_be_read_is_not_taken_for_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else everything would be carried again, and who runs it could not be asked to stop."""
    carried = Carried(tmp_path)
    carried.carry(1)

    def forbidden(folder: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(folder))

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", forbidden)
        with pytest.raises(LedgerError, match="cannot be read: Permission denied") as told:
            opened(carried)
    assert "Give this user the right to read it" in told.value.hint
    assert opened(carried).state.get_lane("0").committed == 1


def test_a_folder_that_became_read_only(small_disk: SmallDisk) -> None:
    """It can still be looked at and audited; a run begins by saying that it cannot write."""
    carried = Carried(small_disk.folder)
    carried.carry(1)
    small_disk.read_only()
    with pytest.raises(LedgerError, match="Read-only file system"):
        carried.journal.record(Entry(kind="stop", body={"reason": "x"}))
    with pytest.raises(Refusal, match="The state cannot be written"):
        StateLocation.of(carried.pipeline).make()
    assert (opened(carried).state.get_lane("0").committed, carried.codes()) == (1, [])
    small_disk.writable()
    carried.carry(2)
    assert opened(carried).state.get_lane("0").committed == 2


@pytest.mark.parametrize("harm", [gone, cut])
def test_a_damaged_queue(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    """It is said which table cannot be read, also by an audit."""
    carried = Carried(tmp_path)
    carried.carry(1, nacked=1)
    harm(last(tmp_path / "state" / "dlq", "*.parquet"))
    with pytest.raises(DestinationError, match=f"The DLQ at {tmp_path}/state/dlq cannot be read"):
        carried.pipeline.dead_letters()
    ((_, destination, _),) = carried.codes()
    assert destination == "dlq"
