"""What every ledger must do, as tests. Inherit `LedgerConformance`, define how your ledger is made, and run pytest."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace

from origins.batch import Json, Span
from runners.model.entry import FORMAT, Entry, Settled
from runners.model.planned_batch import SettledCounts
from runners.state.ledger import Conflict, Ledger, LedgerError

BODY: dict[str, Json] = {
    "größe": [1, 2.5, None, True, {"naïve 🚢": ["", '"\\', "\n\u0000", "'; --", "\ud800"]}],
    "2**63": 2**63,
    "": {},
}
"""A body with all that JSON can hold and a table might spoil."""
NOWHERE = Span(start=None, end=None)
"""The span of a batch of which only the number matters."""


class LedgerConformance(ABC):
    """The contract of `runners.state.ledger.Ledger`. Every test gets a new ledger."""

    @abstractmethod
    def ledger(self) -> Ledger:
        """Return a new handle on this test's ledger, which does not exist before the first append."""

    def test_a_ledger_that_does_not_exist_is_empty(self) -> None:
        """Before the first append it has neither entries nor history."""
        ledger = self.ledger()
        assert ledger.read() == []
        assert list(ledger.history()) == []

    def test_a_ledger_names_its_place(self) -> None:
        """Its place is a text for users."""
        assert self.ledger().place

    def test_entries_are_read_as_they_were_written(self) -> None:
        """Every field, and every value of a nested body, is read as it was written, through any handle."""
        entry = Entry(kind="plan", lane="süd/0'", plan="p", epoch=7, owner='o`"', body=BODY, at="gestern")
        (written,) = self.ledger().append([entry], after=0)
        assert self.ledger().read() == [written]
        assert written == Entry(**{**vars(entry), "seq": 1})

    def test_a_large_body_is_read_completely(self) -> None:
        """The body may be in an entry, in one of several entries of an append, or in a snapshot."""
        large = {"parts": list(range(30_000))}
        ledger = self.ledger()
        ledger.append([Entry(kind="plan", id="a", body=large), *_make_entries("b")], after=0)
        ledger.append([*_make_entries("c"), Entry(kind="plan", id="d", body={**large, "of": "d"})], after=2)
        assert [entry.body for entry in self.ledger().read()] == [large, {"of": "b"}, {"of": "c"}, {**large, "of": "d"}]
        ledger.compact(Entry(kind="snapshot", id="s", body=large), [], after=4)
        assert self.ledger().read(after=3)[-1].body == large

    def test_numbers_count_up_from_one(self) -> None:
        """The number of an entry is one more than that of the entry before, within an append and across appends."""
        ledger = self.ledger()
        first = ledger.append(_make_entries("a", "b", "c"), after=0)
        second = ledger.append(_make_entries("d"), after=3)
        assert [(entry.seq, entry.id) for entry in first + second] == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]

    def test_entries_are_read_in_order(self) -> None:
        """They are ordered by their number, for any number of appends."""
        ledger = self.ledger()
        for end in (0, 3, 6, 9):
            ledger.append(_make_entries(*"xyz"), after=end)
        assert [entry.seq for entry in ledger.read()] == list(range(1, 13))

    def test_reading_after_a_number_leaves_out_what_is_known(self) -> None:
        """The entry with that number is left out too."""
        ledger = self.ledger()
        ledger.append(_make_entries("a", "b", "c"), after=0)
        assert _list_ids(ledger.read(after=2)) == ["c"]
        assert ledger.read(after=3) == []

    def test_an_append_before_reading_the_end_is_refused(self) -> None:
        """Another handle was faster. None of the entries lands, and the next append succeeds after a read."""
        quick, slow = self.ledger(), self.ledger()
        quick.append(_make_entries("a"), after=0)
        slow.read()
        quick.append(_make_entries("b"), after=1)
        assert _catch_message(Conflict, lambda: slow.append(_make_entries("c", "d"), after=1))
        assert _list_ids(slow.read()) == ["a", "b"]
        slow.append(_make_entries("e"), after=2)
        assert _list_ids(quick.read()) == ["a", "b", "e"]

    def test_an_append_after_a_missing_number_is_refused(self) -> None:
        """The ledger must have no gap."""
        ledger = self.ledger()
        ledger.append(_make_entries("a"), after=0)
        assert _catch_message(Conflict, lambda: ledger.append(_make_entries("b"), after=5))
        assert _list_ids(ledger.read()) == ["a"]

    def test_an_entry_of_a_newer_format_is_not_read(self) -> None:
        """Wherry does not guess at an entry of a later version. The error names the format."""
        ledger = self.ledger()
        ledger.append([Entry(kind="new", format=FORMAT + 1)], after=0)
        said = _catch_message(LedgerError, self.ledger().read)
        assert f"format {FORMAT + 1}" in said

    def test_concurrent_appends_leave_no_gap_and_no_duplicate(self) -> None:
        """Each of three threads appends four entries one by one, and repeats those that were refused."""
        threads = [threading.Thread(target=_append_persistently, args=(self.ledger(), name, 4)) for name in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        entries = self.ledger().read()
        assert sorted(entry.seq for entry in entries) == list(range(1, 13))
        assert sorted(_list_ids(entries)) == sorted(f"{name}{turn}" for name in "abc" for turn in range(4))

    def test_a_snapshot_stands_for_all_entries_before_it(self) -> None:
        """A read then gives only the snapshot, even after a part of the entries was read. It has the next number."""
        ledger, other = self.ledger(), self.ledger()
        ledger.append(_make_entries("a", "b", "c"), after=0)
        other.read()
        landed = ledger.compact(Entry(kind="snapshot", id="s", body=BODY), [], after=3)
        assert landed.seq == 4
        assert ledger.read() == other.read(after=1) == [landed]

    def test_entries_continue_after_a_snapshot(self) -> None:
        """Numbers never start again."""
        ledger = self.ledger()
        ledger.append(_make_entries("a"), after=0)
        ledger.compact(Entry(kind="snapshot", id="s"), [], after=1)
        ledger.append(_make_entries("b"), after=2)
        assert [(entry.seq, entry.id) for entry in self.ledger().read(after=1)] == [(2, "s"), (3, "b")]

    def test_a_compaction_before_reading_the_end_is_refused(self) -> None:
        """A snapshot must not replace an entry that it does not include."""
        ledger, other = self.ledger(), self.ledger()
        ledger.append(_make_entries("a"), after=0)
        other.read()
        ledger.append(_make_entries("b"), after=1)
        assert _catch_message(Conflict, lambda: other.compact(Entry(kind="snapshot"), [], after=1))
        assert _list_ids(ledger.read()) == ["a", "b"]

    def test_settled_batches_are_read_as_they_were_written(self) -> None:
        """The history keeps every field, for all compactions."""
        ledger = self.ledger()
        first, second = [_make_settled("p1", 1), _make_settled("p2", 2)], [_make_settled("p3", 3)]
        ledger.append(_make_entries("a"), after=0)
        ledger.compact(Entry(kind="snapshot"), first, after=1)
        ledger.compact(Entry(kind="snapshot"), second, after=2)
        assert sorted(self.ledger().history(), key=lambda settled: settled.number) == first + second

    def test_settled_batches_are_read_since_a_time(self) -> None:
        """The time itself counts."""
        ledger = self.ledger()
        batches = [replace(_make_settled(f"p{day}", day), at=f"2026-01-0{day}T00:00:00.000+00:00") for day in (1, 2, 3)]
        ledger.append(_make_entries("a"), after=0)
        ledger.compact(Entry(kind="snapshot"), batches, after=1)
        assert sorted(each.plan for each in ledger.history("2026-01-02T00:00:00.000+00:00")) == ["p2", "p3"]

    def test_a_batch_is_in_the_history_once(self) -> None:
        """It may be given several times. A batch with the same number in another lane is another batch."""
        ledger = self.ledger()
        ledger.append(_make_entries("a"), after=0)
        ledger.compact(Entry(kind="snapshot"), [_make_settled("p1", 1), _make_settled("p1", 1)], after=1)
        ledger.compact(Entry(kind="snapshot"), [_make_settled("p1", 1), _make_settled("q1", 1, lane="1")], after=2)
        assert sorted(settled.plan for settled in ledger.history()) == ["p1", "q1"]


def _make_entries(*ids: str) -> list[Entry]:
    return [Entry(kind="plan", id=name, body={"of": name}) for name in ids]


def _make_settled(plan: str, number: int, lane: str = "0") -> Settled:
    return Settled(
        lane=lane,
        number=number,
        plan=plan,
        run="r",
        at="heute",
        span=Span(start=BODY, end=None, parts=(BODY,)),
        counts=SettledCounts(read=3),
    )


def _list_ids(entries: Sequence[Entry]) -> list[str]:
    return [entry.id for entry in entries]


def _append_persistently(ledger: Ledger, name: str, turns: int) -> None:
    """Append the entries one by one. After each conflict, read the end again."""
    end, turn = 0, 0
    while turn < turns:
        try:
            end = ledger.append(_make_entries(f"{name}{turn}"), after=end)[-1].seq
            turn += 1
        except Conflict:
            end = max((entry.seq for entry in ledger.read(end)), default=end)


def _catch_message(kind: type[LedgerError | Conflict], call: Callable[[], object]) -> str:
    """Return the message of the error, or an empty text if none was raised."""
    try:
        call()
    except kind as error:
        return str(error)
    return ""
