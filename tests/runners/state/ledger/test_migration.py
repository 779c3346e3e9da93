"""Entries of older formats are read as if this version had written them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from origins.codec import encode
from runners.model.entry import FORMAT, Entry, OriginBody, OwnerBody, Settled
from runners.model.pipeline_state import PipelineState
from runners.model.planned_batch import SettledCounts
from runners.state.ledger import LedgerError, migrate_entry, to_entries, to_row, to_settled
from runners.state.progress import apply_entries
from tests.runners.state.ledger.conformance import NOWHERE
from tests.runners.state.ledger.test_progress import PLANNED, PREPARED, make_planned, make_settle_entry, number_entries

OPENED: Mapping[str, Any] = {
    "pipeline": "orders",
    "schema": "{}",
    "origin": {"name": "files", "lanes": ["0"], "place": "/landing"},
    "destinations": {},
}
"""What the first version recorded of a definition: one origin, with the schema beside it."""


def make_old(entry: Entry, *without: str) -> Entry:
    """Return the entry as the first version wrote it."""
    body = {name: value for name, value in entry.body.items() if name not in without}
    return Entry(**{**vars(entry), "body": body, "format": 1})


def test_entries_of_this_version_are_not_changed() -> None:
    """The same object is returned."""
    assert migrate_entry(PLANNED) is PLANNED


def test_a_ledger_of_the_first_version_gives_the_same_state() -> None:
    """It has plans without pins, decisions without sections and one origin. Its snapshot is read too."""
    entries = [
        make_old(Entry(kind="open", body=OPENED)),
        make_old(PLANNED, "pins", "first"),
        make_old(PREPARED, "sections"),
        make_old(make_settle_entry()),
        make_old(Entry(kind="plan", lane="0", plan="p2", body=encode(make_planned(2))), "pins", "first", "decision"),
    ]
    rows = [to_row(entry) for entry in number_entries(*entries)]
    state = apply_entries(to_entries("here", rows))
    assert (state.get_lane("0").offset, [each.batch.number for each in state.open_plans]) == (10, [2])
    assert state.opened.origins == {"files": OriginBody(lanes=("0",), place="/landing", schema="{}")}
    body: dict[str, Any] = dict(encode(state))
    for name in ("midway", "backfills", "jumps", "accepted", "config"):
        del body[name]
    for lane in body["lanes"].values():
        del lane["tried"], lane["since"], lane["open"]["pins"], lane["open"]["first"], lane["told"]["pins"]
    again = apply_entries(to_entries("here", [to_row(Entry(kind="snapshot", body=body, seq=9, format=1))]))
    assert (again.lanes, again.opened, again.midway) == (state.lanes, state.opened, False)


def test_an_older_wherry_refuses_a_repaired_ledger() -> None:
    """A repair has a format that the older version does not read."""
    assert Entry(kind="repair", body={"accepted": []}).format == FORMAT > 1
    state = apply_entries(number_entries(Entry(kind="repair", body={"accepted": ["a"]})), PipelineState())
    assert apply_entries([Entry(kind="snapshot", body=encode(state), seq=2)]).accepted == {"a"}


@pytest.mark.parametrize("kind", ["acquire", "release", "cancel", "set", "stop"])
def test_entries_of_an_unchanged_kind_keep_their_bodies(kind: str) -> None:
    """Only their format becomes the present one."""
    entry = migrate_entry(Entry(kind=kind, body={"reason": "x"}, format=1))
    assert (entry.format, entry.body) == (FORMAT, {"reason": "x"})


def test_the_owner_in_the_second_format_becomes_one_of_several() -> None:
    """A snapshot had one owner, with its last entry beside it, and no shared lanes."""
    body = {**encode(PipelineState()), "owner": {"owner": "a", "lease": 60}, "heard": [7, "noon"]}
    for name in ("owners", "held", "done"):
        del body[name]
    state = apply_entries([migrate_entry(Entry(kind="snapshot", body=body, seq=9, format=2))])
    assert state.owners == (OwnerBody(owner="a", lease=60, heard=7, heard_at="noon"),)
    assert (state.held, state.done) == ({}, frozenset())


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("stop", "{"),
        ("stop", "7"),
        ("snapshot", '{"lanes": {}, "opened": []}'),
        ("open", '{"pipeline": "orders", "origin": {"name": 7}}'),
    ],
)
def test_an_invalid_row_is_refused_with_a_reason(kind: str, text: str) -> None:
    """This is also true of an old format. The message names the ledger and the entry."""
    row = {**to_row(Entry(kind=kind, seq=4, format=1)), "body": text}
    with pytest.raises(LedgerError, match=rf"^Entry 4 of the ledger at here \({kind}\) cannot be understood: "):
        to_entries("here", [row])


@pytest.mark.parametrize("harm", [{"counts": "{"}, {"counts": '{"read": "1"}'}, {"span": "{}"}])
def test_an_invalid_settled_batch_is_refused_with_a_reason(harm: Mapping[str, str]) -> None:
    """The message names the ledger, the lane and the batch."""
    row = to_row(Settled(lane="a", number=3, plan="p", run="r", at="", span=NOWHERE, counts=SettledCounts()))
    assert to_settled("here", row).number == 3
    with pytest.raises(LedgerError, match=r"^Batch 3 of lane a in the history of the ledger at here cannot be underst"):
        to_settled("here", {**row, **harm})
