"""Every check of the ledgers' suite is needed: each has faults that no other check finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from runners.model.entry import FORMAT, Entry, Settled, as_text
from runners.model.planned_batch import SettledCounts
from runners.state.ledger import Conflict, Ledger
from tests.runners.state.ledger.conformance import NOWHERE, LedgerConformance
from tests.runners.state.ledger.memory_ledger import MemoryLedger

CHECKS = [name for name in vars(LedgerConformance) if name.startswith("test_")]


class BeginsWithAnEntry(MemoryLedger):
    def read(self, after: int = 0) -> list[Entry]:
        return super().read(after) if self._entries else [Entry(kind="open")]


class BeginsWithABatch(MemoryLedger):
    def history(self) -> Iterator[Settled]:
        nothing = Settled(lane="", number=0, plan="", run="", at="", span=NOWHERE, counts=SettledCounts())
        return super().history() if self._entries else iter([nothing])


class LiesNowhere(MemoryLedger):
    place = ""


class LosesTheOwner(MemoryLedger):
    def read(self, after: int = 0) -> list[Entry]:
        return [replace(entry, owner="") for entry in super().read(after)]


class SpoilsText(MemoryLedger):
    def append(self, entries: Sequence[Entry], *, after: int) -> list[Entry]:
        numbered = super().append(entries, after=after)
        for row in self._entries:
            row["body"] = row["body"].encode("ascii", "replace").decode()
        return numbered


class CutsWhatIsLarge(MemoryLedger):
    def read(self, after: int = 0) -> list[Entry]:
        found = super().read(after)
        return [entry if len(as_text(entry.body)) < 1 << 16 else replace(entry, body={}) for entry in found]


class ReturnsThemInAnotherOrder(MemoryLedger):
    def append(self, entries: Sequence[Entry], *, after: int) -> list[Entry]:
        return super().append(entries, after=after)[::-1]


class ReadsTheNewestFirst(MemoryLedger):
    def read(self, after: int = 0) -> list[Entry]:
        entries = super().read(after)
        return entries if len(entries) < 10 else entries[::-1]


class ReadsTheKnownOneAgain(MemoryLedger):
    def read(self, after: int = 0) -> list[Entry]:
        return super().read(after - 1)


class AppendsForAnybody(MemoryLedger):
    def append(self, entries: Sequence[Entry], *, after: int) -> list[Entry]:
        last = self._entries[-1]["seq"] if self._entries else 0
        return super().append(entries, after=max(after, last))


class ClosesGaps(MemoryLedger):
    def append(self, entries: Sequence[Entry], *, after: int) -> list[Entry]:
        last = self._entries[-1]["seq"] if self._entries else 0
        return super().append(entries, after=min(after, last))


class ReadsAnyFormat(MemoryLedger):
    def append(self, entries: Sequence[Entry], *, after: int) -> list[Entry]:
        return super().append([replace(entry, format=FORMAT) for entry in entries], after=after)


class LosesOneOfMany(MemoryLedger):
    def append(self, entries: Sequence[Entry], *, after: int) -> list[Entry]:
        return list(entries) if after == 10 else super().append(entries, after=after)


class KeepsOldEntries(MemoryLedger):
    def compact(self, snapshot: Entry, settled: Sequence[Settled], *, after: int) -> Entry:
        before = self._entries
        landed = super().compact(snapshot, settled, after=after)
        self._entries = before + self._entries
        return landed


class EndsWithASnapshot(MemoryLedger):
    def append(self, entries: Sequence[Entry], *, after: int) -> list[Entry]:
        if self._entries and self._entries[-1]["kind"] == "snapshot":
            raise Conflict("no more")
        return super().append(entries, after=after)


class CompactsForAnybody(MemoryLedger):
    def compact(self, snapshot: Entry, settled: Sequence[Settled], *, after: int) -> Entry:
        return super().compact(snapshot, settled, after=self._entries[-1]["seq"])


class RemembersTheLastCompaction(MemoryLedger):
    def compact(self, snapshot: Entry, settled: Sequence[Settled], *, after: int) -> Entry:
        self._settled.clear()
        return super().compact(snapshot, settled, after=after)


class RemembersAsOftenAsItIsTold(MemoryLedger):
    def __init__(self) -> None:
        super().__init__()
        self.told: list[Settled] = []

    def compact(self, snapshot: Entry, settled: Sequence[Settled], *, after: int) -> Entry:
        self.told.extend(settled)
        return super().compact(snapshot, settled, after=after)

    def history(self) -> Iterator[Settled]:
        return iter(self.told)


class RemembersByNumber(MemoryLedger):
    def history(self) -> Iterator[Settled]:
        return iter({settled.number: settled for settled in super().history()}.values())


FAULTS = {
    "test_a_ledger_that_does_not_exist_is_empty": (BeginsWithAnEntry, BeginsWithABatch),
    "test_a_ledger_names_its_place": (LiesNowhere,),
    "test_entries_are_read_as_they_were_written": (LosesTheOwner, SpoilsText),
    "test_a_large_body_is_read_completely": (CutsWhatIsLarge,),
    "test_numbers_count_up_from_one": (ReturnsThemInAnotherOrder,),
    "test_entries_are_read_in_order": (ReadsTheNewestFirst,),
    "test_reading_after_a_number_leaves_out_what_is_known": (ReadsTheKnownOneAgain,),
    "test_an_append_before_reading_the_end_is_refused": (AppendsForAnybody,),
    "test_an_append_after_a_missing_number_is_refused": (ClosesGaps,),
    "test_an_entry_of_a_newer_format_is_not_read": (ReadsAnyFormat,),
    "test_concurrent_appends_leave_no_gap_and_no_duplicate": (LosesOneOfMany,),
    "test_a_snapshot_stands_for_all_entries_before_it": (KeepsOldEntries,),
    "test_entries_continue_after_a_snapshot": (EndsWithASnapshot,),
    "test_a_compaction_before_reading_the_end_is_refused": (CompactsForAnybody,),
    "test_settled_batches_are_read_as_they_were_written": (RemembersTheLastCompaction,),
    "test_a_batch_is_in_the_history_once": (RemembersAsOftenAsItIsTold, RemembersByNumber),
}


def list_failing(faulty: type[MemoryLedger]) -> list[str]:
    """Return the checks that find a fault in this kind of ledger."""

    class Suite(LedgerConformance):
        def __init__(self) -> None:
            self.shared = faulty()

        def ledger(self) -> Ledger:
            return self.shared

    def finds_a_fault(check: str) -> bool:
        try:
            getattr(Suite(), check)()
        except (AssertionError, Conflict):
            return True
        return False

    return [check for check in CHECKS if finds_a_fault(check)]


def test_every_check_has_a_fault_to_find() -> None:
    """A check without a fault might check nothing."""
    assert list(FAULTS) == CHECKS


@pytest.mark.parametrize(("check", "faulty"), [(check, fault) for check, all_of in FAULTS.items() for fault in all_of])
def test_a_fault_is_found_only_by_its_check(check: str, faulty: type[MemoryLedger]) -> None:
    """A failed check therefore shows what is broken."""
    assert list_failing(faulty) == [check]


def test_a_ledger_without_a_fault_passes() -> None:
    """The faulty ledgers fail only because of their faults."""
    assert list_failing(MemoryLedger) == []
