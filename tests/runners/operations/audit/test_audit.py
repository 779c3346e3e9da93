"""The audit as a pure function: whatever was carried balances, and whatever is broken is found, and only that."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from destinations.destination import BatchLabel, BroughtBatch, DeliveryAccount, Loss
from runners.command_line.printing_state import format_problem
from runners.model.entry import Settled
from runners.model.pipeline_state import LaneState, PipelineState
from runners.model.planned_batch import BranchBody, PlannedBatch
from runners.operations.audit import DlqContent, HeldLetters, make_audit
from runners.operations.audit_finding import FOUND, Audit, Finding
from runners.operations.ledger_claims import LedgerClaims
from tests.runners.model.test_codes import commands_in, parse
from tests.runners.operations.audit.evidence import batch

NAMES = ("orders", "copy")


@dataclass
class World:
    """What a ledger says and what two destinations and a DLQ show."""

    settled: list[Settled] = field(default_factory=list)
    brought: dict[str, list[BroughtBatch]] = field(default_factory=lambda: {name: [] for name in NAMES})
    held: list[HeldLetters] = field(default_factory=list)
    lanes: dict[str, LaneState] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    account: Mapping[str, Any] = field(default_factory=dict)
    said: Mapping[str, Any] = field(default_factory=dict)

    def carry(self, lane: str, number: int, *, read: int = 3, nacked: int = 0, filtered: int = 0) -> None:
        """A batch of the lane, as it should be."""
        plan, left = f"{lane}-p{number}", read - nacked - filtered
        branch: BranchBody = {"expected": left, "filtered": filtered, "changed": 0}
        self.settled.append(
            Settled(
                lane=lane,
                number=number,
                plan=plan,
                run="r",
                at=f"2026-01-01T00:{number:02}",
                span={"start": (number - 1) or None, "end": number, "parts": [], "label": ""},
                counts={
                    "read": read,
                    "nacked": nacked,
                    "branches": dict.fromkeys(NAMES, branch),
                    "stages": [],
                    "delivered": dict.fromkeys(NAMES, left),
                    "discarded": 0,
                    "balanced": True,
                    "owed": [],
                },
            )
        )
        self.lanes[lane] = LaneState(offset=number, number=number, committed=number)
        for name in NAMES if left else ():
            self.bring(name, lane, number, left)
        if nacked:
            ids = frozenset(f"{plan}/{place}" for place in range(nacked))
            self.held.append(HeldLetters(plan=plan, lane=lane, number=number, rows=nacked, distinct=nacked, ids=ids))

    def bring(self, name: str, lane: str, number: int, rows: int | None, loss: Loss | None = None) -> None:
        """A commit of the batch."""
        label: BatchLabel = {
            "pipeline": "orders",
            "lane": lane,
            "number": number,
            "plan": f"{lane}-p{number}",
            "destination": name,
            "key": f"{lane}-p{number}/{name}",
        }
        version = len(self.brought[name]) + 1
        together = [str(label["key"])]
        self.brought[name].append(
            BroughtBatch(
                label=label, rows=rows, together=together, version=version, listed=rows, files=["f"], loss=loss
            )
        )

    def audit(self) -> Audit:
        """What the audit says."""
        state = PipelineState(pipeline="orders", lanes=self.lanes, **self.state)
        accounts = {
            name: DeliveryAccount(
                **{"place": name, "proof": "all", "mends": True, "brought": self.brought[name], **self.account}
            )
            for name in NAMES
        }
        queue = DlqContent(place="dlq", held=self.held)
        names = {name: name for name in NAMES}
        return make_audit(LedgerClaims(state=state, settled=self.settled, **self.said), accounts, names, queue)

    def summarise_notes(self) -> list[tuple[str, str | None, str | None, int | None]]:
        """What it finds."""
        return [(each.code, each.destination, each.lane, each.number) for each in self.audit().problems]


sizes = st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 3))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Some lanes with some batches each, some without rows, some with refused and filtered ones."""
    world = World()
    for lane in ("0", "1", "dlq/origin")[: draw(st.integers(1, 3))]:
        for number in range(1, draw(st.integers(1, 6)) + 1):
            left, nacked, filtered = draw(sizes)
            world.carry(lane, number, read=left + nacked + filtered, nacked=nacked, filtered=filtered)
    return world


@settings(max_examples=60)
@given(worlds())
def test_what_was_carried_balances(world: World) -> None:
    """The equation holds for every destination by its own account, from each lane's first batch on."""
    found = world.audit()
    assert found.balanced
    for each in found.destinations.values():
        assert found.read == each.read == each.delivered + each.filtered + found.nacked
        assert each.proved_from == dict.fromkeys(found.lanes, 1)


BREAKS: Mapping[str, Callable[[World, str, int], object]] = {
    "NOT_DELIVERED": lambda world, name, at: world.brought[name].pop(at),
    "TWICE": lambda world, name, at: world.brought[name].append(world.brought[name][at]),
    "MISCOUNT": lambda world, name, at: _changed(world, name, at, rows=99, listed=99),
    "ROWS_GONE": lambda world, name, at: _changed(world, name, at, loss=Loss(code="ROWS_GONE", reason="x", version=9)),
    "RESTORED": lambda world, name, at: _changed(world, name, at, loss=Loss(code="RESTORED", reason="x", whole=True)),
    "FILE_GONE": lambda world, name, at: _changed(world, name, at, loss=Loss(code="FILE_GONE", reason="x")),
    "NOT_COMMITTED": lambda world, name, at: _forgotten(world, name, at),
}


def _changed(world: World, name: str, at: int, **what: Any) -> None:
    world.brought[name][at] = replace(world.brought[name][at], **what)


def _forgotten(world: World, name: str, at: int) -> None:
    """A commit of a batch that nobody planned beside it."""
    label: BatchLabel = {**world.brought[name][at].label, "plan": "stranger", "key": f"stranger/{name}"}
    world.brought[name].append(replace(world.brought[name][at], label=label, together=[f"stranger/{name}"]))


@pytest.mark.parametrize("code", sorted(BREAKS))
@settings(max_examples=20)
@given(world=worlds(), data=st.data())
def test_a_break_is_found_where_it_is_and_nowhere_else(code: str, world: World, data: st.DataObject) -> None:
    """One batch of one destination; the other destination and all other batches are as they were."""
    name = data.draw(st.sampled_from(NAMES))
    if not world.brought[name]:
        return
    at = data.draw(st.integers(0, len(world.brought[name]) - 1))
    label = world.brought[name][at].label
    BREAKS[code](world, name, at)
    assert world.summarise_notes() == [(code, name, label["lane"], label["number"])]


@settings(max_examples=30)
@given(world=worlds(), data=st.data())
def test_missing_and_strange_letters_are_found(world: World, data: st.DataObject) -> None:
    """One batch's refused rows are gone, are there twice, or are nobody's."""
    if not world.held:
        return
    at = data.draw(st.integers(0, len(world.held) - 1))
    held = world.held[at]
    code, rows, distinct, plan = data.draw(
        st.sampled_from(
            [
                ("DLQ_MISSING", held.rows - 1, held.rows - 1, held.plan),
                ("DLQ_TWICE", held.rows + 1, held.rows, held.plan),
                ("DLQ_STRAY", held.rows + 1, held.rows + 1, held.plan),
            ]
        )
    )
    world.held[at] = replace(held, rows=rows, distinct=distinct, plan=plan, ids=frozenset())
    assert world.summarise_notes() == [(code, "dlq", held.lane, held.number)]


@pytest.fixture
def world() -> World:
    """Four batches of one lane."""
    made = World()
    for number in range(1, 5):
        made.carry("0", number)
    return made


def test_neighbours_with_one_fate_are_one_finding(world: World) -> None:
    """It says from where to where, and the command that it names takes all of them."""
    del world.brought["orders"][1:]
    (problem,) = world.audit().problems
    assert (problem.number, problem.last, len(problem.plans)) == (2, 4, 3)
    assert "--from 2 --to 4 --only orders --again" in problem.repair
    assert problem.message.endswith("(2 more like it, up to batch 4)")


def test_neighbours_with_a_whole_batch_between_are_two(world: World) -> None:
    """Nothing is said of the one that is whole."""
    del world.brought["orders"][3], world.brought["orders"][1]
    assert [(each.number, each.last) for each in world.audit().problems] == [(2, 2), (4, 4)]


def test_of_what_is_older_than_the_history_nothing_is_said(world: World) -> None:
    """It begins at the third batch; what is missing behind that is missing."""
    del world.brought["orders"][:2]
    world.account = {"since": 7}
    found = world.audit()
    assert (found.balanced, found.destinations["orders"].proved_from) == (True, {"0": 3})
    assert found.destinations["orders"].delivered == 12
    del world.brought["orders"][1]
    assert world.summarise_notes() == [("NOT_DELIVERED", "orders", "0", 4)]


def test_a_history_that_tells_of_no_batch_proves_nothing(world: World) -> None:
    """And raises no alarm."""
    world.brought["orders"].clear()
    world.account = {"since": 7}
    found = world.audit()
    assert (found.balanced, found.destinations["orders"].proved_from) == (True, None)


def test_a_destination_that_forgets_is_taken_at_the_ledgers_word(world: World) -> None:
    """And the audit says so."""
    state = PipelineState(pipeline="orders", lanes=world.lanes)
    names = {name: name for name in NAMES}
    found = make_audit(LedgerClaims(state, world.settled), dict.fromkeys(NAMES), names, DlqContent(held=[]))
    assert (found.balanced, found.destinations["copy"].delivered) == (True, 12)
    assert found.destinations["copy"].proved_from is None
    assert "keeps no record" in found.destinations["copy"].proof


def test_rows_that_a_merge_was_given_may_leave_no_trace(world: World) -> None:
    """One that changes nothing makes no commit, so a batch without one is no finding; one with wrong figures is."""
    world.account = {"silent": True}
    del world.brought["orders"][1]
    assert world.summarise_notes() == []
    _changed(world, "orders", 0, rows=5, listed=None)
    assert world.summarise_notes() == [("MISCOUNT", "orders", "0", 1)]


def test_a_backfill_to_one_destination_is_asked_of_that_one_alone(world: World) -> None:
    """Also where the ledger was written before what is owed stood in the history."""
    world.carry("backfill-1/0", 1)
    settled = world.settled[-1]
    world.settled[-1] = replace(settled, counts={**settled.counts, "delivered": {"copy": 3}})
    world.brought["orders"].pop()
    assert world.summarise_notes() == []
    del world.settled[-1].counts["owed"]
    assert world.summarise_notes() == []


def test_a_destination_that_was_waived_is_not_asked(world: World) -> None:
    """Rows were decided for it, and then nobody was to bring them."""
    settled = world.settled[3]
    world.settled[3] = replace(settled, counts={**settled.counts, "delivered": {"orders": 3}})
    world.brought["copy"].pop()
    assert world.summarise_notes() == []


def test_a_part_of_a_batch_beside_the_whole_of_it_is_twice(world: World) -> None:
    """Somebody put a batch back of which a part was left."""
    world.bring("orders", "0", 2, 3, loss=Loss(code="ROWS_GONE", reason="x", version=9))
    assert world.summarise_notes() == [("TWICE", "orders", "0", 2)]
    _changed(world, "orders", 4, loss=Loss(code="ROWS_GONE", reason="x", version=9, whole=True))
    assert world.summarise_notes() == []


def test_a_commit_of_several_batches_has_the_rows_of_all(world: World) -> None:
    """By their sum; one that is another is a finding of each."""
    world.carry("1", 1)
    first, second = world.brought["orders"][0], world.brought["orders"].pop()
    together = [first.key, second.key]
    world.brought["orders"][0] = replace(first, rows=6, listed=6, together=together)
    world.brought["orders"].append(replace(second, rows=6, listed=6, together=together))
    assert (world.summarise_notes(), world.audit().destinations["orders"].delivered) == ([], 15)
    for at in (0, 4):
        _changed(world, "orders", at, rows=5, listed=5)
    assert world.summarise_notes() == [("MISCOUNT", "orders", "0", 1), ("MISCOUNT", "orders", "1", 1)]


def _uncounted(world: World, lane: str, number: int, **counts: Any) -> None:
    """What the next run settles of a batch that it found in a commit of several and could not count."""
    at = next(at for at, each in enumerate(world.settled) if (each.lane, each.number) == (lane, number))
    settled = world.settled[at]
    branches: dict[str, BranchBody] = {
        name: {"expected": settled.counts["read"], "filtered": 0, "changed": 0} for name in settled.counts["branches"]
    }
    unknown: Any = {"delivered": {"orders": None, "copy": 3}, "branches": branches, "balanced": "unknown", **counts}
    world.settled[at] = replace(settled, counts={**settled.counts, **unknown})


def _shared(world: World, rows: int) -> None:
    """The first batches of lanes 0 and 1 are one commit of so many rows."""
    world.carry("1", 1)
    first, second = world.brought["orders"][0], world.brought["orders"].pop()
    together = [first.key, second.key]
    world.brought["orders"][0] = replace(first, rows=rows, listed=rows, together=together)
    world.brought["orders"].append(replace(second, rows=rows, listed=rows, together=together))


def test_a_commit_proves_batches_that_were_not_counted_if_it_has_all_rows_that_were_read(world: World) -> None:
    """The audit gives each batch the rows that were read of it, and the equation holds."""
    _shared(world, rows=6)
    _uncounted(world, "0", 1)
    _uncounted(world, "1", 1)
    found = world.audit()
    assert (found.problems, found.read, found.destinations["orders"].delivered) == ([], 15, 15)


@pytest.mark.parametrize("rows", [5, 7])
def test_batches_that_were_not_counted_are_named_if_their_commit_has_other_rows(world: World, rows: int) -> None:
    """Rows may have been filtered, added or lost, so only the batch of which the ledger has figures is proved."""
    _shared(world, rows=rows)
    _uncounted(world, "1", 1)
    assert world.summarise_notes() == [("NOT_PROVED", "orders", "1", 1)]
    assert world.audit().destinations["orders"].delivered == 12


def test_a_batch_whose_read_rows_were_never_counted_is_not_proved(world: World) -> None:
    """Its file was gone, so the ledger has the delivered rows in the place of those that were read."""
    _uncounted(world, "0", 2, delivered={"orders": 3, "copy": 3})
    assert world.summarise_notes() == [("NOT_PROVED", "copy", "0", 2), ("NOT_PROVED", "orders", "0", 2)]


def test_a_batch_that_neither_ledger_nor_history_counts_is_not_proved(world: World) -> None:
    """The history begins behind it."""
    _uncounted(world, "0", 1)
    del world.brought["orders"][0]
    world.account = {"since": 7}
    assert world.summarise_notes() == [("NOT_PROVED", "orders", "0", 1)]


def test_rows_that_were_carried_again_count_once(world: World) -> None:
    """One destination lost a batch and has it from a backfill; the equation holds for each by its own batches."""
    world.carry("backfill-1/0", 2)
    settled = replace(world.settled[-1], at="2026-01-02")
    world.settled[-1] = replace(settled, counts={**settled.counts, "delivered": {"copy": 3}})
    world.brought["orders"].pop()
    del world.brought["copy"][1]
    found = world.audit()
    assert found.problems == []
    assert {name: (each.read, each.delivered) for name, each in found.destinations.items()} == {
        "orders": (12, 12),
        "copy": (12, 12),
    }


@settings(max_examples=60)
@given(world=worlds(), data=st.data())
def test_it_balances_only_where_the_equation_holds(world: World, data: st.DataObject) -> None:
    """Whatever figures of a batch the ledger lacks or has wrong."""
    at = data.draw(st.integers(0, len(world.settled) - 1))
    settled = world.settled[at]
    wrong: Any = data.draw(
        st.sampled_from(
            [
                {"read": settled.counts["read"] + 1},
                {"nacked": settled.counts["nacked"] + 1},
                {"delivered": {"orders": None, "copy": 0}, "balanced": "unknown"},
                {"delivered": dict.fromkeys(NAMES, None), "balanced": "unknown"},
                {"branches": {name: {"expected": 0, "filtered": 1, "changed": 0} for name in NAMES}},
            ]
        )
    )
    world.settled[at] = replace(settled, counts={**settled.counts, **wrong})
    found = world.audit()
    holds = all(
        each.read + each.changed == each.delivered + each.filtered + each.nacked for each in found.destinations.values()
    )
    assert holds or not found.balanced


def test_what_came_before_does_not_stand_for_a_backfill(world: World) -> None:
    """The same rows were there before it, and its own are gone: they were wanted once more."""
    world.carry("backfill-1/0", 1)
    world.settled[-1] = replace(world.settled[-1], at="2026-01-02")
    world.brought["orders"].pop()
    assert world.summarise_notes() == [("NOT_DELIVERED", "orders", "backfill-1/0", 1)]
    world.bring("orders", "backfill-1/0", 1, 3)
    del world.brought["orders"][0]
    assert world.summarise_notes() == []


def test_what_was_owed_is_expected_once_it_was_settled(world: World) -> None:
    """The ledger noted it as owed when the offset was published."""
    settled = world.settled[3]
    world.settled[3] = replace(settled, counts={**settled.counts, "delivered": {"orders": 3}, "owed": ["copy"]})
    assert world.summarise_notes() == []
    world.brought["copy"].pop()
    assert world.summarise_notes() == [("NOT_DELIVERED", "copy", "0", 4)]


def test_an_owed_batch_that_is_on_its_way_is_said_once(world: World) -> None:
    """As owed, unless a run is at it."""
    settled = world.settled[3]
    world.settled[3] = replace(settled, counts={**settled.counts, "delivered": {"orders": 3}, "owed": ["copy"]})
    world.brought["copy"].pop()
    plan = PlannedBatch(batch=replace(batch(4), plan=settled.plan), destinations=NAMES, straight=False, published=True)
    world.lanes["0"] = replace(world.lanes["0"], open=plan)
    assert world.summarise_notes() == [("OWED", "copy", "0", 4)]
    world.said = {"running": True}
    assert world.summarise_notes() == []


def test_what_landed_while_the_audit_looked_is_no_stranger(world: World) -> None:
    """The ledger knew it a moment later."""
    world.bring("orders", "0", 9, 3)
    assert world.summarise_notes() == [("NOT_COMMITTED", "orders", "0", 9)]
    world.said = {"later": frozenset({"0-p9"})}
    assert world.summarise_notes() == []


def test_a_stranger_whose_rows_are_gone_is_none(world: World) -> None:
    """Somebody took them out already."""
    world.bring("orders", "0", 9, 3, loss=Loss(code="RESTORED", reason="x", whole=True))
    assert world.summarise_notes() == []


def test_another_table_is_one_finding(world: World) -> None:
    """And not one for each batch that it lacks."""
    world.brought["orders"].clear()
    known = {"orders": {"place": "orders", "id": "first", "version": 0}}
    world.state = {"opened": {"destinations": known}}
    world.account = {"id": "second"}
    assert world.summarise_notes() == [("REPLACED", "orders", None, None)]


def test_a_place_that_is_gone_is_one_finding(world: World) -> None:
    """For each destination that is gone."""
    world.account = {"there": False}
    assert world.summarise_notes() == [("TABLE_GONE", "copy", None, None), ("TABLE_GONE", "orders", None, None)]


def test_what_the_ledger_itself_could_not_balance_stays_a_finding(world: World) -> None:
    """Until somebody accepts it."""
    settled = world.settled[0]
    world.settled[0] = replace(settled, counts={**settled.counts, "balanced": False})
    (problem,) = world.audit().problems
    assert problem.code == "UNBALANCED"
    world.state = {"accepted": frozenset({problem.id})}
    assert (world.summarise_notes(), [each.code for each in world.audit().accepted]) == ([], ["UNBALANCED"])


def test_what_is_accepted_stays_so_when_more_is_lost(world: World) -> None:
    """It is kept batch by batch, and the next batch is a finding of its own."""
    _changed(world, "orders", 1, loss=Loss(code="ROWS_GONE", reason="x", version=9))
    (problem,) = world.audit().problems
    world.state = {"accepted": frozenset(problem.members)}
    _changed(world, "orders", 2, loss=Loss(code="ROWS_GONE", reason="x", version=9))
    assert world.summarise_notes() == [("ROWS_GONE", "orders", "0", 3)]


def test_a_part_that_two_batches_carried(world: World) -> None:
    """Of an origin that names its parts, files for example; not one that was rewound in between."""
    for at in (0, 2):
        world.settled[at] = replace(world.settled[at], span={**world.settled[at].span, "parts": [["a.json", 1, 2]]})
    assert world.summarise_notes() == []
    world.said = {"whole": frozenset({"0"})}
    assert world.summarise_notes() == [("OVERLAP", None, "0", 3)]
    world.state = {"forgotten": (("0", 1, 1),), "jumps": (("0", 0),)}
    assert world.summarise_notes() == []


def test_a_file_that_changed_after_it_was_carried(world: World) -> None:
    """It is a finding of the batch that carried it, unless that one was rewound."""
    world.settled[2] = replace(world.settled[2], span={**world.settled[2].span, "parts": [["a.json", 1, 2]]})
    world.said = {"whole": frozenset({"0"}), "changed": {"0": {"a.json": "it had 1 bytes and now has 2"}}}
    (problem,) = world.audit().problems
    assert (problem.code, problem.number) == ("ORIGIN_CHANGED", 3)
    assert problem.message == "a.json changed after it was processed: it had 1 bytes and now has 2"
    assert "wherry offsets rewind FILE --batches 2 " in problem.repair
    assert "wherry redo FILE --file NAME\n" in problem.repair
    world.said = {**world.said, "doubles": ("orders", "copy")}
    (problem,) = world.audit().problems
    assert "offsets rewind" not in problem.repair
    assert "orders and copy would have its rows, and rows of later batches, twice" in problem.repair
    world.state = {"forgotten": (("0", 3, 4),), "jumps": (("0", 4),)}
    assert world.summarise_notes() == []


def test_an_offset_that_is_not_where_the_last_batch_ended(world: World) -> None:
    """Somebody wrote in the ledger; or set it, which is no finding."""
    world.lanes["0"] = replace(world.lanes["0"], offset=99)
    assert world.summarise_notes() == [("GAP", None, "0", 4)]
    (problem,) = world.audit().problems
    assert "wherry offsets set FILE --lane 0 --offset 4 " in problem.repair
    world.said = {"whole": frozenset({"0"})}
    (problem,) = world.audit().problems
    assert "offsets set" not in problem.repair
    world.state = {"jumps": (("0", 4),)}
    assert world.summarise_notes() == []


def _broken(change: Callable[[World, str, int], object], world: World) -> None:
    """The second batch of a destination is broken in this way."""
    change(world, "orders", 1)


def _worlds_of_every_kind() -> Iterator[World]:
    """Of each kind of thing that can be wrong, one."""
    changes: list[Callable[[World], object]] = [
        *(functools.partial(_broken, change) for change in BREAKS.values()),
        lambda world: _changed(world, "orders", 1, loss=Loss(code="RESTORED", reason="x", version=9, whole=True)),
        lambda world: _changed(world, "orders", 1, doubt=Loss(code="NOT_PROVED", reason="x", version=9)),
        lambda world: _uncounted(world, "0", 1, delivered={"orders": 3, "copy": 3}),
        lambda world: world.lanes.update({"0": replace(world.lanes["0"], offset={"a": "it's"})}),
        lambda world: world.settled.pop(1),
        lambda world: world.settled.append(world.settled[1]),
        lambda world: setattr(world, "account", {"there": False}),
        lambda world: setattr(world, "account", {"losses": [Loss(code="LOG_BROKEN", reason="x")]}),
        lambda world: world.held.append(HeldLetters(plan="0-p2", lane="0", number=2, rows=2, distinct=1)),
    ]
    for change in changes:
        made = World()
        for lane, number in itertools.product(("0", "1"), range(1, 4)):
            made.carry(lane, number)
        change(made)
        yield made


def test_what_a_finding_says_to_type_can_be_typed() -> None:
    """Each command parses with its options and values."""
    found = [finding for world in _worlds_of_every_kind() for finding in world.audit().problems]
    codes = {finding.code for finding in found}
    assert codes >= {"NOT_DELIVERED", "GAP", "TABLE_GONE", "NOT_PROVED", "ROWS_GONE", "DLQ_STRAY", "TWICE"}
    typed = [each for finding in found for each in commands_in(format_problem(finding, "orders.yaml"))]
    assert {each.split()[1] for each in typed} == {"repair", "backfill", "offsets"}
    for each in typed:
        parse(each)


def test_a_finding_has_a_code_that_is_explained() -> None:
    """None other can be made."""
    with pytest.raises(ValueError, match="got 'ODD'"):
        Finding(code="ODD", message="", repair="")
    assert "ODD" not in FOUND


def test_rows_that_are_gone_as_a_whole_can_be_put_back_and_others_cannot(world: World) -> None:
    """A part that is left would come twice; and what only merges or replaces cannot say where it would belong."""
    whole: Sequence[tuple[bool, bool, str]] = [(True, True, "put_back"), (False, True, ""), (True, False, "")]
    for lost, mends, remedy in whole:
        world.account = {"mends": mends}
        _changed(world, "orders", 1, loss=Loss(code="RESTORED", reason="x", version=9, whole=lost))
        (problem,) = world.audit().problems
        assert (problem.remedy, "Wherry can put them back" in problem.repair) == (remedy, remedy != "")
