"""The audit as a pure function. Whole batches balance, and each break is found, without a false finding."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from destinations.capabilities import BroughtBatch, DeliveryAccount, Loss
from destinations.labels import BatchLabel
from origins.batch import Span
from runners.model.entry import DestinationBody, OpenBody, Settled
from runners.model.pipeline_state import LaneState, PipelineState
from runners.model.planned_batch import BranchCounts, PlannedBatch, SettledCounts
from runners.operations.audit.audit import DlqContent, HeldLetters, make_audit
from runners.operations.audit.finding import Audit
from runners.operations.audit.ledger_claims import LedgerClaims
from runners.operations.printing_state import format_problem
from tests.runners.model.test_codes import find_commands, parse_command
from tests.runners.operations.audit.evidence import make_batch

NAMES = ("orders", "copy")


@dataclass
class World:
    """The claims of a ledger, and the content of two destinations and a DLQ."""

    settled: list[Settled] = field(default_factory=list)
    brought: dict[str, list[BroughtBatch]] = field(default_factory=lambda: {name: [] for name in NAMES})
    held: list[HeldLetters] = field(default_factory=list)
    lanes: dict[str, LaneState] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    account: Mapping[str, Any] = field(default_factory=dict)
    said: Mapping[str, Any] = field(default_factory=dict)

    def carry(self, lane: str, number: int, *, read: int = 3, nacked: int = 0, filtered: int = 0) -> None:
        """Add a batch of the lane that is whole at each destination."""
        plan, left = f"{lane}-p{number}", read - nacked - filtered
        branch = BranchCounts(expected=left, filtered=filtered)
        self.settled.append(
            Settled(
                lane=lane,
                number=number,
                plan=plan,
                run="r",
                at=f"2026-01-01T00:{number:02}",
                span=Span(start=(number - 1) or None, end=number),
                counts=SettledCounts(
                    read=read,
                    nacked=nacked,
                    branches=dict.fromkeys(NAMES, branch),
                    delivered=dict.fromkeys(NAMES, left),
                    owed=(),
                ),
            )
        )
        self.lanes[lane] = LaneState(offset=number, number=number, committed=number)
        for name in NAMES if left else ():
            self.bring(name, lane, number, left)
        if nacked:
            ids = frozenset(f"{plan}/{place}" for place in range(nacked))
            self.held.append(HeldLetters(plan=plan, lane=lane, number=number, rows=nacked, distinct=nacked, ids=ids))

    def bring(self, name: str, lane: str, number: int, rows: int | None, loss: Loss | None = None) -> None:
        """Add the batch's commit to a destination."""
        plan = f"{lane}-p{number}"
        label = BatchLabel(
            pipeline="orders", lane=lane, number=number, plan=plan, destination=name, key=f"{plan}/{name}"
        )
        version = len(self.brought[name]) + 1
        together = [label.key]
        self.brought[name].append(
            BroughtBatch(
                label=label, rows=rows, together=together, version=version, listed=rows, files=["f"], loss=loss
            )
        )

    def audit(self) -> Audit:
        """Make the audit of this world."""
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
        """Return each problem's code, destination, lane and number."""
        return [(each.code, each.destination, each.lane, each.number) for each in self.audit().problems]


sizes = st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 3))


@st.composite
def draw_worlds(draw: st.DrawFn) -> World:
    """Worlds of some lanes with some batches. Some batches have no rows, and some have refused or filtered rows."""
    world = World()
    for lane in ("0", "1", "dlq/origin")[: draw(st.integers(1, 3))]:
        for number in range(1, draw(st.integers(1, 6)) + 1):
            left, nacked, filtered = draw(sizes)
            world.carry(lane, number, read=left + nacked + filtered, nacked=nacked, filtered=filtered)
    return world


@settings(max_examples=60)
@given(draw_worlds())
def test_whole_batches_balance(world: World) -> None:
    """The equation holds for each destination's account, and is proved from each lane's first batch."""
    found = world.audit()
    assert found.balanced
    for each in found.destinations.values():
        assert found.read == each.read == each.delivered + each.filtered + found.nacked
        assert each.proved_from == dict.fromkeys(found.lanes, 1)


BREAKS: Mapping[str, Callable[[World, str, int], object]] = {
    "NOT_DELIVERED": lambda world, name, at: world.brought[name].pop(at),
    "TWICE": lambda world, name, at: world.brought[name].append(world.brought[name][at]),
    "MISCOUNT": lambda world, name, at: _change_brought(world, name, at, rows=99, listed=99),
    "ROWS_GONE": lambda world, name, at: _change_brought(
        world, name, at, loss=Loss(code="ROWS_GONE", reason="x", version=9)
    ),
    "RESTORED": lambda world, name, at: _change_brought(
        world, name, at, loss=Loss(code="RESTORED", reason="x", whole=True)
    ),
    "FILE_GONE": lambda world, name, at: _change_brought(world, name, at, loss=Loss(code="FILE_GONE", reason="x")),
    "NOT_COMMITTED": lambda world, name, at: _add_forgotten(world, name, at),
}


def _change_brought(world: World, name: str, at: int, **what: Any) -> None:
    world.brought[name][at] = replace(world.brought[name][at], **what)


def _add_forgotten(world: World, name: str, at: int) -> None:
    """Add a commit of a batch that has no plan, beside a known batch."""
    label = replace(world.brought[name][at].label, plan="stranger", key=f"stranger/{name}")
    world.brought[name].append(replace(world.brought[name][at], label=label, together=[f"stranger/{name}"]))


@pytest.mark.parametrize("code", sorted(BREAKS))
@settings(max_examples=20)
@given(world=draw_worlds(), data=st.data())
def test_a_break_is_the_only_finding_at_its_batch_and_destination(code: str, world: World, data: st.DataObject) -> None:
    """Only one batch of one destination is broken."""
    name = data.draw(st.sampled_from(NAMES))
    if not world.brought[name]:
        return
    at = data.draw(st.integers(0, len(world.brought[name]) - 1))
    label = world.brought[name][at].label
    BREAKS[code](world, name, at)
    assert world.summarise_notes() == [(code, name, label.lane, label.number)]


@settings(max_examples=30)
@given(world=draw_worlds(), data=st.data())
def test_missing_duplicate_and_stray_dlq_rows_are_found(world: World, data: st.DataObject) -> None:
    """The refused rows of one batch are missing, are in the DLQ twice, or have an unknown plan."""
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


def test_adjacent_batches_with_the_same_loss_are_one_finding(world: World) -> None:
    """The finding has the first and the last batch, and its repair command names both."""
    del world.brought["orders"][1:]
    (problem,) = world.audit().problems
    assert (problem.number, problem.last, len(problem.plans)) == (2, 4, 3)
    assert "--from 2 --to 4 --only orders --again" in problem.repair
    assert problem.message.endswith("(2 more like it, up to batch 4)")


def test_lost_batches_with_a_whole_batch_between_them_are_two_findings(world: World) -> None:
    """No finding includes the whole batch."""
    del world.brought["orders"][3], world.brought["orders"][1]
    assert [(each.number, each.last) for each in world.audit().problems] == [(2, 2), (4, 4)]


def test_batches_older_than_the_history_cause_no_finding(world: World) -> None:
    """The history begins at the third batch. A batch that is missing after that is a finding."""
    del world.brought["orders"][:2]
    world.account = {"since": 7}
    found = world.audit()
    assert (found.balanced, found.destinations["orders"].proved_from) == (True, {"0": 3})
    assert found.destinations["orders"].delivered == 12
    del world.brought["orders"][1]
    assert world.summarise_notes() == [("NOT_DELIVERED", "orders", "0", 4)]


def test_a_destination_without_a_record_counts_as_the_ledger_says(world: World) -> None:
    """The audit's result states that the kind of the destination proves nothing."""
    state = PipelineState(pipeline="orders", lanes=world.lanes)
    names = {name: name for name in NAMES}
    found = make_audit(LedgerClaims(state, world.settled), dict.fromkeys(NAMES), names, DlqContent(held=[]))
    assert (found.balanced, found.destinations["copy"].delivered) == (True, 12)
    assert found.destinations["copy"].proved_from is None
    assert "its kind proves no batches" in found.destinations["copy"].proof


def test_a_merge_may_leave_no_commit(world: World) -> None:
    """A merge that changes nothing makes no commit, so a missing commit is no finding. A commit with wrong counts is a
    finding.
    """
    world.account = {"silent": True}
    del world.brought["orders"][1]
    assert world.summarise_notes() == []
    _change_brought(world, "orders", 0, rows=5, listed=None)
    assert world.summarise_notes() == [("MISCOUNT", "orders", "0", 1)]


def test_a_backfill_to_one_destination_is_expected_only_there(world: World) -> None:
    """This also holds for old ledgers, whose history has no `owed`."""
    world.carry("backfill-1/0", 1)
    settled = world.settled[-1]
    world.settled[-1] = replace(settled, counts=replace(settled.counts, delivered={"copy": 3}))
    world.brought["orders"].pop()
    assert world.summarise_notes() == []
    world.settled[-1] = replace(world.settled[-1], counts=replace(world.settled[-1].counts, owed=None))
    assert world.summarise_notes() == []


def test_a_waived_destination_is_not_expected_to_have_the_batch(world: World) -> None:
    """The batch has rows for the destination, but was settled without it."""
    settled = world.settled[3]
    world.settled[3] = replace(settled, counts=replace(settled.counts, delivered={"orders": 3}))
    world.brought["copy"].pop()
    assert world.summarise_notes() == []


def test_part_of_a_batch_beside_the_whole_batch_is_twice(world: World) -> None:
    """Part of a lost batch was left in the table, and then the batch was written again."""
    world.bring("orders", "0", 2, 3, loss=Loss(code="ROWS_GONE", reason="x", version=9))
    assert world.summarise_notes() == [("TWICE", "orders", "0", 2)]
    _change_brought(world, "orders", 4, loss=Loss(code="ROWS_GONE", reason="x", version=9, whole=True))
    assert world.summarise_notes() == []


def test_a_commit_of_several_batches_has_the_rows_of_all(world: World) -> None:
    """The sum of the batches is compared with the commit. A wrong sum is a finding of each batch."""
    world.carry("1", 1)
    first, second = world.brought["orders"][0], world.brought["orders"].pop()
    together = [first.key, second.key]
    world.brought["orders"][0] = replace(first, rows=6, listed=6, together=together)
    world.brought["orders"].append(replace(second, rows=6, listed=6, together=together))
    assert (world.summarise_notes(), world.audit().destinations["orders"].delivered) == ([], 15)
    for at in (0, 4):
        _change_brought(world, "orders", at, rows=5, listed=5)
    assert world.summarise_notes() == [("MISCOUNT", "orders", "0", 1), ("MISCOUNT", "orders", "1", 1)]


def _settle_uncounted(world: World, lane: str, number: int, **counts: Any) -> None:
    """Change a batch as the next run settles it if a commit of several batches has it, so that its rows are unknown."""
    at = next(at for at, each in enumerate(world.settled) if (each.lane, each.number) == (lane, number))
    settled = world.settled[at]
    branches = {name: BranchCounts(expected=settled.counts.read) for name in settled.counts.branches}
    unknown: Any = {"delivered": {"orders": None, "copy": 3}, "branches": branches, "balanced": "unknown", **counts}
    world.settled[at] = replace(settled, counts=replace(settled.counts, **unknown))


def _share_commit(world: World, rows: int) -> None:
    """Put the first batches of lanes 0 and 1 into one commit with `rows` rows."""
    world.carry("1", 1)
    first, second = world.brought["orders"][0], world.brought["orders"].pop()
    together = [first.key, second.key]
    world.brought["orders"][0] = replace(first, rows=rows, listed=rows, together=together)
    world.brought["orders"].append(replace(second, rows=rows, listed=rows, together=together))


def test_a_commit_with_all_read_rows_proves_its_uncounted_batches(world: World) -> None:
    """The audit counts the read rows of each batch as delivered, and the equation holds."""
    _share_commit(world, rows=6)
    _settle_uncounted(world, "0", 1)
    _settle_uncounted(world, "1", 1)
    found = world.audit()
    assert (found.problems, found.read, found.destinations["orders"].delivered) == ([], 15, 15)


@pytest.mark.parametrize("rows", [5, 7])
def test_uncounted_batches_are_named_if_their_commit_has_other_rows(world: World, rows: int) -> None:
    """Rows may have been filtered, added or lost. So only the batch that the ledger has counts of is proved."""
    _share_commit(world, rows=rows)
    _settle_uncounted(world, "1", 1)
    assert world.summarise_notes() == [("NOT_PROVED", "orders", "1", 1)]
    assert world.audit().destinations["orders"].delivered == 12


def test_a_batch_whose_read_rows_were_never_counted_is_not_proved(world: World) -> None:
    """The batch's file was gone, so the ledger has delivered rows in place of the read rows."""
    _settle_uncounted(world, "0", 2, delivered={"orders": 3, "copy": 3})
    assert world.summarise_notes() == [("NOT_PROVED", "copy", "0", 2), ("NOT_PROVED", "orders", "0", 2)]


def test_a_batch_counted_in_neither_ledger_nor_history_is_not_proved(world: World) -> None:
    """The history begins after the batch."""
    _settle_uncounted(world, "0", 1)
    del world.brought["orders"][0]
    world.account = {"since": 7}
    assert world.summarise_notes() == [("NOT_PROVED", "orders", "0", 1)]


def test_rows_that_a_backfill_delivered_again_count_once(world: World) -> None:
    """One destination lost a batch, and a backfill delivered it. The equation holds for each destination's batches."""
    world.carry("backfill-1/0", 2)
    settled = replace(world.settled[-1], at="2026-01-02")
    world.settled[-1] = replace(settled, counts=replace(settled.counts, delivered={"copy": 3}))
    world.brought["orders"].pop()
    del world.brought["copy"][1]
    found = world.audit()
    assert found.problems == []
    assert {name: (each.read, each.delivered) for name, each in found.destinations.items()} == {
        "orders": (12, 12),
        "copy": (12, 12),
    }


@settings(max_examples=60)
@given(world=draw_worlds(), data=st.data())
def test_an_audit_balances_only_if_the_equation_holds(world: World, data: st.DataObject) -> None:
    """One batch of the ledger has missing or wrong counts."""
    at = data.draw(st.integers(0, len(world.settled) - 1))
    settled = world.settled[at]
    wrong: Any = data.draw(
        st.sampled_from(
            [
                {"read": settled.counts.read + 1},
                {"nacked": settled.counts.nacked + 1},
                {"delivered": {"orders": None, "copy": 0}, "balanced": "unknown"},
                {"delivered": dict.fromkeys(NAMES, None), "balanced": "unknown"},
                {"branches": {name: BranchCounts(expected=0, filtered=1) for name in NAMES}},
            ]
        )
    )
    world.settled[at] = replace(settled, counts=replace(settled.counts, **wrong))
    found = world.audit()
    holds = all(
        each.read + each.changed == each.delivered + each.filtered + each.nacked for each in found.destinations.values()
    )
    assert holds or not found.balanced


def test_an_earlier_batch_does_not_replace_a_backfill(world: World) -> None:
    """The backfill's rows are missing, and an earlier batch with the same rows is no substitute."""
    world.carry("backfill-1/0", 1)
    world.settled[-1] = replace(world.settled[-1], at="2026-01-02")
    world.brought["orders"].pop()
    assert world.summarise_notes() == [("NOT_DELIVERED", "orders", "backfill-1/0", 1)]
    world.bring("orders", "backfill-1/0", 1, 3)
    del world.brought["orders"][0]
    assert world.summarise_notes() == []


def test_an_owed_batch_is_expected_once_it_is_settled(world: World) -> None:
    """The ledger recorded the batch as owed when its offset was published."""
    settled = world.settled[3]
    world.settled[3] = replace(settled, counts=replace(settled.counts, delivered={"orders": 3}, owed=["copy"]))
    assert world.summarise_notes() == []
    world.brought["copy"].pop()
    assert world.summarise_notes() == [("NOT_DELIVERED", "copy", "0", 4)]


def test_an_owed_batch_that_is_open_is_one_finding(world: World) -> None:
    """The finding is OWED. There is none while a run is active."""
    settled = world.settled[3]
    world.settled[3] = replace(settled, counts=replace(settled.counts, delivered={"orders": 3}, owed=["copy"]))
    world.brought["copy"].pop()
    plan = PlannedBatch(
        batch=replace(make_batch(4), plan=settled.plan), destinations=NAMES, straight=False, published=True
    )
    world.lanes["0"] = replace(world.lanes["0"], open=plan)
    assert world.summarise_notes() == [("OWED", "copy", "0", 4)]
    world.said = {"running": True}
    assert world.summarise_notes() == []


def test_a_batch_that_is_planned_during_the_audit_is_no_finding(world: World) -> None:
    """The table has the batch, and the ledger has its plan a moment later."""
    world.bring("orders", "0", 9, 3)
    assert world.summarise_notes() == [("NOT_COMMITTED", "orders", "0", 9)]
    world.said = {"later": frozenset({"0-p9"})}
    assert world.summarise_notes() == []


def test_a_replaced_table_is_one_finding(world: World) -> None:
    """The batches that the new table lacks are no further findings."""
    world.brought["orders"].clear()
    known = {"orders": DestinationBody(place="orders", id="first")}
    world.state = {"opened": OpenBody(destinations=known)}
    world.account = {"id": "second"}
    assert world.summarise_notes() == [("REPLACED", "orders", None, None)]


def test_a_missing_place_is_one_finding(world: World) -> None:
    """Each destination that is gone is one finding."""
    world.account = {"there": False}
    assert world.summarise_notes() == [("TABLE_GONE", "copy", None, None), ("TABLE_GONE", "orders", None, None)]


def test_a_batch_that_the_ledger_could_not_balance_stays_a_finding(world: World) -> None:
    """The finding lasts until a user accepts it."""
    settled = world.settled[0]
    world.settled[0] = replace(settled, counts=replace(settled.counts, balanced=False))
    (problem,) = world.audit().problems
    assert problem.code == "UNBALANCED"
    world.state = {"accepted": frozenset({problem.id})}
    assert (world.summarise_notes(), [each.code for each in world.audit().accepted]) == ([], ["UNBALANCED"])


def test_an_accepted_loss_stays_accepted_when_more_is_lost(world: World) -> None:
    """Each batch is accepted separately, so a loss of the next batch is a new finding."""
    _change_brought(world, "orders", 1, loss=Loss(code="ROWS_GONE", reason="x", version=9))
    (problem,) = world.audit().problems
    world.state = {"accepted": frozenset(problem.members)}
    _change_brought(world, "orders", 2, loss=Loss(code="ROWS_GONE", reason="x", version=9))
    assert world.summarise_notes() == [("ROWS_GONE", "orders", "0", 3)]


def test_a_part_in_two_batches_is_an_overlap(world: World) -> None:
    """This applies to origins that name their parts, for example files. It does not apply if the offset was rewound in
    between.
    """
    for at in (0, 2):
        world.settled[at] = replace(world.settled[at], span=replace(world.settled[at].span, parts=(["a.json", 1, 2],)))
    assert world.summarise_notes() == []
    world.said = {"whole": frozenset({"0"})}
    assert world.summarise_notes() == [("OVERLAP", None, "0", 3)]
    world.state = {"forgotten": (("0", 1, 1),), "jumps": (("0", 0),)}
    assert world.summarise_notes() == []


def test_a_file_that_changed_after_it_was_processed_is_found(world: World) -> None:
    """The finding names the batch that processed the file. A rewound batch has no such finding."""
    world.settled[2] = replace(world.settled[2], span=replace(world.settled[2].span, parts=(["a.json", 1, 2],)))
    world.said = {"whole": frozenset({"0"}), "changed": {"0": {"a.json": "it had 1 bytes and now has 2"}}}
    (problem,) = world.audit().problems
    assert (problem.code, problem.number) == ("ORIGIN_CHANGED", 3)
    assert problem.message == "a.json changed after it was processed: it had 1 bytes and now has 2"
    assert "wherry offsets FILE --back 2 " in problem.repair
    assert "wherry redo FILE --file a.json\n" in problem.repair
    world.said = {**world.said, "doubles": ("orders", "copy")}
    (problem,) = world.audit().problems
    assert "--back" not in problem.repair
    assert "orders and copy would have its rows, and rows of later batches, twice" in problem.repair
    world.state = {"forgotten": (("0", 3, 4),), "jumps": (("0", 4),)}
    assert world.summarise_notes() == []


def test_an_offset_away_from_the_end_of_the_last_batch_is_a_gap(world: World) -> None:
    """The ledger was edited. An offset that a command set is no finding."""
    world.lanes["0"] = replace(world.lanes["0"], offset=99)
    assert world.summarise_notes() == [("GAP", None, "0", 4)]
    (problem,) = world.audit().problems
    assert "wherry offsets FILE --lane 0 --offset 4 " in problem.repair
    world.said = {"whole": frozenset({"0"})}
    (problem,) = world.audit().problems
    assert "offsets FILE --lane" not in problem.repair
    world.state = {"jumps": (("0", 4),)}
    assert world.summarise_notes() == []


def _break_world(change: Callable[[World, str, int], object], world: World) -> None:
    """Break the second batch of a destination in this way."""
    change(world, "orders", 1)


def _make_worlds_of_every_kind() -> Iterator[World]:
    """Yield one world for each kind of problem."""
    changes: list[Callable[[World], object]] = [
        *(functools.partial(_break_world, change) for change in BREAKS.values()),
        lambda world: _change_brought(
            world, "orders", 1, loss=Loss(code="RESTORED", reason="x", version=9, whole=True)
        ),
        lambda world: _change_brought(world, "orders", 1, doubt=Loss(code="NOT_PROVED", reason="x", version=9)),
        lambda world: _settle_uncounted(world, "0", 1, delivered={"orders": 3, "copy": 3}),
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


def test_the_commands_in_a_finding_can_be_typed() -> None:
    """Each command parses with its options and values."""
    found = [finding for world in _make_worlds_of_every_kind() for finding in world.audit().problems]
    codes = {finding.code for finding in found}
    assert codes >= {"NOT_DELIVERED", "GAP", "TABLE_GONE", "NOT_PROVED", "ROWS_GONE", "DLQ_STRAY", "TWICE"}
    typed = [each for finding in found for each in find_commands(format_problem(finding, "orders.yaml"))]
    assert {each.split()[1] for each in typed} == {"repair", "backfill", "offsets"}
    for each in typed:
        parse_command(each)


def test_only_rows_that_are_wholly_gone_can_be_put_back(world: World) -> None:
    """If part of the batch is left, that part would be written twice. A destination that merges or replaces rows cannot
    put them back.
    """
    whole: Sequence[tuple[bool, bool, str]] = [(True, True, "put_back"), (False, True, ""), (True, False, "")]
    for lost, mends, remedy in whole:
        world.account = {"mends": mends}
        _change_brought(world, "orders", 1, loss=Loss(code="RESTORED", reason="x", version=9, whole=lost))
        (problem,) = world.audit().problems
        assert (problem.remedy, "Wherry can put them back" in problem.repair) == (remedy, remedy != "")
