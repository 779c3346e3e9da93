"""The state that follows from the entries of a ledger."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from origins.batch import Batch, Json, Span
from origins.codec import encode
from runners.model.entry import Entry
from runners.model.nack_window import NackWindow
from runners.model.pipeline_state import PipelineState
from runners.model.planned_batch import BranchCounts, Counts, DecidedBatch, PlannedBatch
from runners.state.ledger import LedgerError
from runners.state.progress import apply_entries, apply_entry, list_settled_among


def make_planned(number: int, *, start: Json = None, end: Json = 10) -> PlannedBatch:
    batch = Batch(
        pipeline="orders",
        run="r",
        origin="origin",
        lane="0",
        number=number,
        plan=f"p{number}",
        span=Span(start=start, end=end, parts=(["a.json", 3, 7],), label="a.json"),
        schema="{}",
        time=datetime(2026, 1, 1, tzinfo=timezone.utc),
    )
    return PlannedBatch(batch=batch, destinations=("orders",), straight=True)


def number_entries(*entries: Entry) -> list[Entry]:
    return [replace(entry, seq=number) for number, entry in enumerate(entries, start=1)]


OPENED = Entry(kind="open", body={"pipeline": "orders", "schema": "{}"})
PLANNED = Entry(kind="plan", lane="0", plan="p1", body=encode(make_planned(1)))
COUNTS = Counts(read=3, nacked=1, branches={"orders": BranchCounts(expected=2)})
DECISION = DecidedBatch(path="p1-a", counts=COUNTS, window=NackWindow(rows=3, nacks=(2,)), bases={"0:0#a.json": 1})
PREPARED = Entry(kind="prepared", lane="0", plan="p1", body=encode(DECISION))


def make_settle_entry(*owed: str) -> Entry:
    body = {
        "offset": 10,
        "counts": {**encode(COUNTS), "delivered": {"orders": 2}, "discarded": 0, "balanced": True},
        "window": {"rows": 3, "nacks": [2]},
        "clean": 0,
        "owed": list(owed),
    }
    return Entry(kind="settle", lane="0", plan="p1", body=body)


def test_a_planned_batch_is_open_until_it_is_settled() -> None:
    """Only then does the offset of its lane move."""
    opened = apply_entries(number_entries(OPENED, PLANNED))
    settled = apply_entries(number_entries(OPENED, PLANNED, make_settle_entry()))
    assert (opened.get_lane("0").offset, opened.open_plans) == (None, (make_planned(1),))
    assert (settled.get_lane("0").offset, settled.open_plans) == (10, ())


def test_a_prepared_batch_keeps_its_decision() -> None:
    """The run that finishes it reads the decision."""
    (found,) = apply_entries(number_entries(OPENED, PLANNED, PREPARED)).open_plans
    assert found.decision == DECISION


@pytest.mark.promise("SS-08")
def test_a_batch_that_is_owed_has_its_offset_committed_and_stays_open() -> None:
    """The remaining destinations still get it, even after a crash."""
    state = apply_entries(number_entries(OPENED, PLANNED, PREPARED, make_settle_entry("orders")))
    assert state.get_lane("0").offset == 10
    assert [found.published for found in state.open_plans] == [True]


def test_the_history_has_the_destinations_to_which_a_batch_is_owed() -> None:
    """It stays known which destinations were to get the batch."""
    (found,) = list_settled_among(number_entries(OPENED, PLANNED, PREPARED, make_settle_entry("copy")))
    assert found.counts.owed == ("copy",)


def test_the_history_has_the_way_of_a_settled_batch() -> None:
    """An entry of an older version has no way."""
    entry = make_settle_entry()
    for body, way in (({**entry.body, "way": "apart"}, "apart"), (entry.body, "")):
        (found,) = list_settled_among(number_entries(PLANNED, replace(entry, body=body)))
        assert found.counts.way == way


def test_a_cancelled_plan_uses_up_its_number() -> None:
    """No later batch of the lane gets the same number."""
    state = apply_entries(number_entries(OPENED, PLANNED, Entry(kind="cancel", lane="0", plan="p1")))
    assert (state.open_plans, state.get_lane("0").number, state.get_lane("0").committed) == ((), 1, 0)


@pytest.mark.promise("SS-12")
def test_offsets_that_are_set_by_hand_move_the_lane_but_not_its_number() -> None:
    """The next batch is new, so no destination mistakes it for an earlier batch."""
    moved = Entry(kind="set", body={"lanes": {"0": {"offset": None}}, "forgotten": [["0", 1, 1]], "reason": "again"})
    state = apply_entries(number_entries(OPENED, PLANNED, make_settle_entry(), moved))
    assert (state.get_lane("0").offset, state.get_lane("0").number) == (None, 1)
    assert state.get_lane("0").window == NackWindow()


@pytest.mark.parametrize(
    "entries", [[OPENED, PLANNED, PREPARED], [OPENED, PLANNED, PREPARED, make_settle_entry("orders")]]
)
def test_a_snapshot_replaces_all_entries_before_it(entries: list[Entry]) -> None:
    """Its state, read back from JSON, equals the state from which it was made."""
    state = apply_entries(number_entries(*entries, Entry(kind="acquire", epoch=3, owner="me", body={"host": "h"})))
    body = json.loads(json.dumps(encode(state)))
    again = apply_entry(PipelineState(), Entry(kind="snapshot", seq=state.seq + 1, body=body))
    assert replace(again, seq=state.seq) == state


def test_settled_batches_are_listed_once_with_their_spans() -> None:
    """A batch that was owed and then completed is one batch."""
    found = list(
        list_settled_among(number_entries(OPENED, PLANNED, PREPARED, make_settle_entry("orders"), make_settle_entry()))
    )
    assert [(settled.plan, settled.span.parts) for settled in found] == [("p1", (["a.json", 3, 7],))]


def test_a_gap_is_an_error() -> None:
    """Wherry does not continue with a ledger that lost an entry."""
    with pytest.raises(LedgerError, match="gap: entry 2 follows 0"):
        apply_entry(PipelineState(), replace(OPENED, seq=2))


def test_an_entry_for_a_plan_that_is_not_open_is_an_error() -> None:
    """Only a planned batch can be settled."""
    with pytest.raises(LedgerError, match="which is not open"):
        apply_entries(number_entries(OPENED, make_settle_entry()))


@pytest.mark.parametrize(
    ("entries", "midway"),
    [
        ([], False),
        ([PLANNED], False),
        ([PLANNED, make_settle_entry()], True),
        ([PLANNED, make_settle_entry(), Entry(kind="release", body={"status": "stopped"})], True),
        ([PLANNED, make_settle_entry(), Entry(kind="release", body={"status": "succeeded"})], False),
        ([PLANNED, make_settle_entry(), Entry(kind="set", body={"lanes": {}})], False),
    ],
)
def test_a_load_ends_when_a_run_has_processed_all_rows_that_it_found(entries: list[Entry], midway: bool) -> None:
    """Until then the next run continues it. A batch that is only planned begins no load."""
    state = apply_entries(number_entries(OPENED, *entries))
    assert state.midway is midway
    assert apply_entry(PipelineState(), Entry(kind="snapshot", seq=1, body=encode(state))).midway is midway


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        ("settle", {"offset": 1, "counts": {"read": "3"}}, "counts.read: expected a whole number, found '3'"),
        ("settle", {"offset": 1, "counts": {}}, "expected a mapping with `window`"),
        ("plan", {**encode(make_planned(2)), "span": {"start": None}}, "span: expected a mapping with `end`"),
        ("acquire", {"lease": "long"}, "lease: expected a number or null, found 'long'"),
        ("snapshot", {}, "expected a mapping with `"),
        ("set", {"lanes": {"0": 7}}, "lanes.0: expected a mapping, found 7"),
    ],
)
def test_an_invalid_entry_is_refused_with_a_reason(kind: str, body: dict[str, Any], said: str) -> None:
    """The message names the entry and what is wrong. The error has a hint."""
    entry = Entry(kind=kind, lane="0", plan="p1", body=body, seq=2)
    with pytest.raises(LedgerError, match=r"^Entry 2 of the ledger") as raised:
        apply_entry(apply_entries(number_entries(PLANNED)), entry)
    assert f"({kind}) cannot be understood: " in raised.value.message
    assert said in raised.value.message
    assert "from a backup" in raised.value.hint
