"""The canary without Spark: which batches it tries, when it tries them, and that it never delays a run."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from destinations.delta.delta import Delta
from destinations.destination import Written
from origins.batch import Batch, Span
from origins.files.files import Files
from runners.definitions.definition import Definition, definition_of
from runners.model.comparison import ComparedBatch, ShadowTable
from runners.model.errors import Refusal
from runners.model.planned_batch import BranchCounts, Counts, DecidedBatch, PlannedBatch
from runners.model.tasks import (
    Answers,
    AskDestinations,
    Deliver,
    Failed,
    GroupWritten,
    Landed,
    Outcome,
    Prepare,
    Prepared,
    Task,
    WriteGroup,
    WriteStraight,
)
from runners.operations.canary import Canary, is_chosen, parse_share
from runners.pipeline import Pipeline
from runners.running.run import CarriedRun

LANDED = Landed(written={"orders": Written(rows=3)}, counts=Counts(read=3))


class Once(Files):
    """Files whose rows can be read only once."""

    repeatable: ClassVar[bool] = False


def make_definition(folder: Path, *, origin: type[Files] = Files, **given: Any) -> Definition:
    """Define the pipeline orders, which reads from this folder."""
    read = origin(path=f"{folder}/*.json", format="json", schema="id long")
    to = [Delta(path=f"{folder}/orders")]
    return definition_of(Pipeline(name="orders", origin=read, destinations=to, state=f"{folder}/state", **given))


def make_plan(number: int, lane: str = "0") -> PlannedBatch:
    """Return a batch whose plan is named after its lane and number."""
    batch = Batch(
        pipeline="orders", run="run", origin="origin", lane=lane, number=number, plan=f"{lane}-{number}",
        span=Span(start=number - 1, end=number, label=f"{number}.json"), schema="{}",
        time=datetime(2026, 1, 1, tzinfo=timezone.utc),
    )  # fmt: skip
    return PlannedBatch(batch=batch, destinations=("orders",), straight=True)


@dataclass
class FakeCanary(Canary):
    """A canary that records the tried batches instead of processing them."""

    tried: list[str] = field(default_factory=list)
    error: Exception | None = None
    hold: threading.Event | None = None

    def _carry(
        self, run: CarriedRun, plan: PlannedBatch, group: str
    ) -> tuple[ComparedBatch, Mapping[str, int], Mapping[str, ShadowTable]]:
        batch = plan.batch
        self.tried.append(batch.plan)
        if self.hold is not None:
            self.hold.wait()
        if self.error is not None:
            raise self.error
        label = batch.span.label
        compared = ComparedBatch(origin="origin", lane="0", number=1, label=label, by_row=True, destinations=[])
        return compared, {"cast (CAST)": 1}, {"orders": ShadowTable(place="p", rows=2)}


@pytest.fixture
def canary(tmp_path: Path) -> FakeCanary:
    """A canary with a share so small that it tries only the first batch."""
    definition = make_definition(tmp_path)
    return FakeCanary(definition, definition, 1e-9)


def process_task(canary: Canary, task: Task, outcome: Outcome, *, stopping: bool = False) -> Outcome:
    """Return the outcome of a runner with this canary, whose task has this outcome."""
    run = CarriedRun(
        id="run", spark=cast(Any, None), journal=cast(Any, None), deadline=None, is_stopping=lambda: stopping
    )
    return canary.wrap_process(lambda _: outcome, run)(task)


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), ("0.05", 0.05), (0.05, 0.05), ("100 %", 1), (1, 1)])
def test_a_share_is_a_percentage_or_a_fraction(text: str | float, share: float) -> None:
    """The share is of all batches of a run."""
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "0", "0%", "101%", "1.01", "-5%", "five", "nan"])
def test_an_invalid_share_is_refused(text: str) -> None:
    """The message shows two valid shares."""
    with pytest.raises(Refusal, match=r"expected a share such as 5% or 0\.05"):
        parse_share(text)


def test_the_plan_decides_whether_a_batch_is_chosen() -> None:
    """The choice is always the same. A larger share includes the batches of a smaller one."""
    plans = [f"plan {number}" for number in range(10_000)]
    chosen = [plan for plan in plans if is_chosen(plan, 0.05)]
    assert 400 < len(chosen) < 600
    assert [plan for plan in plans if is_chosen(plan, 0.05)] == chosen
    assert all(is_chosen(plan, 0.1) for plan in chosen)
    assert all(is_chosen(plan, 1) for plan in plans)


def test_the_first_batch_is_tried_with_any_share(canary: FakeCanary) -> None:
    """The outcome is the runner's outcome, with the time that the canary took."""
    for number in (1, 2, 3):
        found = process_task(canary, WriteStraight(plan=make_plan(number)), LANDED)
        assert isinstance(found, Landed)
        assert replace(found, beside=0.0) == LANDED
    assert canary.tried == ["0-1"]
    report = canary.report
    assert (report.batches, report.rows, report.refused, report.failed) == (1, 3, {"cast (CAST)": 1}, 0)
    assert report.tables == {"orders": ShadowTable(place="p", rows=2)}


def test_a_batch_is_tried_when_it_is_delivered(canary: FakeCanary) -> None:
    """A failed batch is tried once it is found delivered. No later task tries it again."""
    plan = make_plan(1)
    ask = AskDestinations(plan=plan, names=["orders"], identities={})
    for task, outcome in (
        (WriteStraight(plan=plan), Failed(error=ValueError("no"))),
        (ask, Answers(found={})),
    ):
        assert process_task(canary, task, outcome) is outcome
    assert canary.tried == []
    process_task(canary, ask, Answers(found={"orders": Written(rows=3)}))
    process_task(canary, WriteStraight(plan=plan), LANDED)
    assert canary.tried == ["0-1"]


@pytest.mark.parametrize(("expected", "nacks", "tried"), [(0, (), ["0-1"]), (0, (1,), []), (2, (), [])])
def test_a_decided_batch_is_tried_at_once_only_without_rows(
    canary: FakeCanary, expected: int, nacks: tuple[int, ...], tried: list[str]
) -> None:
    """If no row is delivered or refused, only the settlement follows. Other batches are tried after their delivery."""
    counts = Counts(read=2, nacked=len(nacks), branches={"orders": BranchCounts(expected=expected)})
    plan = make_plan(1)
    process_task(canary, Prepare(plan=plan), Prepared(path="p", counts=counts, nacks=nacks))
    assert canary.tried == tried
    decision = DecidedBatch(path="p", counts=counts, window=cast(Any, None))
    process_task(
        canary, Deliver(plan=plan, decision=decision, names=["orders"]), Landed(written={"orders": Written(rows=2)})
    )
    assert (canary.tried, canary.report.rows) == (["0-1"], 2)


def test_a_canary_tries_each_batch_of_a_group_but_no_replayed_batch(tmp_path: Path) -> None:
    """An open batch of a replay or a backfill is not part of the run's share."""
    definition = make_definition(tmp_path)
    canary = FakeCanary(definition, definition, 1.0)
    group = WriteGroup(writes=[WriteStraight(plan=make_plan(1, lane)) for lane in ("a", "b", "dlq/origin")])
    process_task(canary, group, GroupWritten(outcomes=dict.fromkeys(("a", "b", "dlq/origin"), LANDED)))
    assert (canary.tried, canary.report.rows) == (["a-1", "b-1"], 6)


def test_an_error_of_the_new_definition_does_not_stop_the_batch(tmp_path: Path) -> None:
    """The report names the batch and the reason, without secrets and protected values."""
    old = make_definition(tmp_path, secrets={"hunter2": "${secret:KEY}"})
    canary = FakeCanary(old, make_definition(tmp_path), 1.0, error=RuntimeError("hunter2 is wrong"))
    outcome = process_task(canary, WriteStraight(plan=make_plan(7)), LANDED)
    assert isinstance(outcome, Landed)
    (notice,) = canary.report.notices
    assert notice == ("batch 7 of lane 0 (7.json) was not tried with the new definition: ${secret:KEY} is wrong")
    hidden = FakeCanary(old, make_definition(tmp_path, protect=["id"]), 1.0, error=RuntimeError("id 12345"))
    process_task(hidden, WriteStraight(plan=make_plan(7)), LANDED)
    assert (hidden.report.failed, "12345" in hidden.report.notices[0]) == (1, False)


def test_a_stopping_run_does_not_wait_for_the_canary(canary: FakeCanary) -> None:
    """The outcome is returned, and the report states that the batch was not tried."""
    canary.hold = threading.Event()
    assert isinstance(process_task(canary, WriteStraight(plan=make_plan(1)), LANDED, stopping=True), Landed)
    assert "the run is stopping" in canary.report.notices[0]


def test_a_canary_that_takes_too_long_tries_no_more_batches(tmp_path: Path) -> None:
    """The run waits no longer than the canary's patience. Then it continues without the canary."""
    definition = make_definition(tmp_path)
    canary = FakeCanary(definition, definition, 1.0, patience=0.0, hold=threading.Event())
    for number in (1, 2):
        assert isinstance(process_task(canary, WriteStraight(plan=make_plan(number)), LANDED), Landed)
    assert (canary.tried, canary.report.failed) == (["0-1"], 2)
    assert "it took longer than 0 s" in canary.report.notices[0]
    assert "the run goes on without the canary" in canary.report.notices[1]


def test_a_canary_that_cannot_read_the_rows_is_refused(tmp_path: Path) -> None:
    """It must read the same rows as the run, be able to read them again, and have all lanes."""
    here, once = make_definition(tmp_path), make_definition(tmp_path, origin=Once)
    with pytest.raises(Refusal, match="Both definitions must read the same rows"):
        Canary(here, make_definition(tmp_path / "other"), 1.0)
    with pytest.raises(Refusal, match="gives its rows only once"):
        Canary(once, once, 1.0)
    with pytest.raises(Refusal, match="shares its lanes between runs"):
        Canary(make_definition(tmp_path, run={"assignment": "round_robin"}), here, 1.0)
