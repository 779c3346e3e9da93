"""How a runner turns a task into an outcome, without Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from py4j.protocol import Py4JNetworkError

import destinations
import origins
from destinations.capabilities import ConfirmsBatches
from destinations.destination import DestinationError, Written
from destinations.dlq import DLQ
from destinations.labels import Deadline
from origins.batch import Batch, Span
from origins.batch_rows import TableRows
from origins.capabilities import ReactsToCommits
from origins.errors import WherryError
from origins.protection import Protection
from runners.model.errors import CarryFailed, StageError, Unbalanced
from runners.model.pipeline_state import REPLAY
from runners.model.planned_batch import BranchCounts, Counts, PlannedBatch
from runners.model.spec import PipelineSpec
from runners.model.tasks import (
    Counted,
    CountSpan,
    Declined,
    Failed,
    Prepare,
    Prepared,
    WriteGroup,
    WriteStraight,
)
from runners.ways.task_executor import TaskExecutor, with_batch_context
from tests.spark_errors import make_spark_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

MODULE = "runners.ways.task_executor"
NO_SPARK = cast("SparkSession", None)
FORGOTTEN = make_spark_error("INVALID_HANDLE.SESSION_NOT_FOUND", "Session not found.", "HY000")
COUNTS = Counts(read=1, branches={"orders": BranchCounts(expected=1)})
DECIDED = Prepared(path="p1", counts=COUNTS)


@dataclass
class Sessions:
    """Doubles of sessions that count how often a session was replaced."""

    replaced: int = 0
    closed: bool = False

    @contextlib.contextmanager
    def use_session(self) -> Iterator[SparkSession]:
        yield NO_SPARK

    def replace_session(self) -> None:
        self.replaced += 1

    def close(self) -> None:
        self.closed = True


@dataclass
class ScriptedWay:
    """A way with a given result. It notes the plans that it was given."""

    name: str
    result: Any
    carried: list[str] = field(default_factory=list)

    def carry(self, batches: Sequence[Any], work: object) -> Any:
        self.carried += [batch.plan.batch.plan for batch in batches]
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


@dataclass(frozen=True)
class Batches:
    """What a way needs of a batch: its plan and its rows."""

    plan: PlannedBatch
    rows: TableRows | None = None


@dataclass(frozen=True, kw_only=True)
class Telling(destinations.Memory, ConfirmsBatches):
    """A destination that may raise an error about earlier batches. It notes each call."""

    said: Exception | None = None
    asked: list[str] = field(default_factory=list, compare=False)

    def confirm(self) -> None:
        self.asked.append(self.name or "")
        if self.said is not None:
            raise self.said


@dataclass(frozen=True, kw_only=True)
class Listening(origins.Memory, ReactsToCommits):
    """An origin that notes which batches are durable."""

    heard: list[str] = field(default_factory=list, compare=False)

    def committed(self, spark: SparkSession, batch: Batch) -> None:
        self.heard.append(batch.lane)


def make_plan(number: int = 1, lane: str = "a/0") -> PlannedBatch:
    batch = Batch(
        pipeline="orders",
        run="r",
        origin="a",
        lane=lane,
        number=number,
        plan=f"p{number}",
        span=Span(start=None, end=1, label=f"row {number}"),
        schema='{"type": "struct", "fields": []}',
        time=datetime(2026, 1, 1, tzinfo=timezone.utc),
    )
    return PlannedBatch(batch=batch, destinations=("orders",), straight=True)


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskExecutor]:
    """Return an executor whose batches are not read."""
    monkeypatch.setattr(f"{MODULE}.SessionPool", lambda *_: Sessions())
    orders, dlq = destinations.Memory(), destinations.Memory()
    found = TaskExecutor(
        spark=NO_SPARK,
        group="g",
        pipeline=PipelineSpec(name="orders", destinations=[orders]),
        origins={},
        destinations={"orders": orders, DLQ: dlq},
        opened={"orders": orders.open(), DLQ: dlq.open()},
        store=cast("Any", None),
    )
    monkeypatch.setattr(found, "make_candidate", lambda _, plan, **__: Batches(plan))
    yield found
    found.close()


def script_way(monkeypatch: pytest.MonkeyPatch, name: str, result: object) -> ScriptedWay:
    """Give this result to the way with this name."""
    way = ScriptedWay(name.lower(), result)
    monkeypatch.setattr(f"{MODULE}.{name}", way)
    return way


def set_decision(monkeypatch: pytest.MonkeyPatch, result: Callable[[], Prepared]) -> None:
    """Set the result of deciding a batch."""
    work = type("Work", (), {"describe": lambda *_: None})
    monkeypatch.setattr("runners.ways.deciding.BatchDecision.of", lambda *_: (work(), None))
    monkeypatch.setattr(f"{MODULE}.choose", lambda _: ScriptedWay("apart", result()))


def fail_with(monkeypatch: pytest.MonkeyPatch, executor: TaskExecutor, error: Exception) -> WherryError:
    """Return the error of a task that raises this error."""
    script_way(monkeypatch, "STRAIGHT", error)
    outcome = executor.process(WriteStraight(plan=make_plan()))
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, WherryError)
    return outcome.error


def test_an_error_is_an_outcome_that_names_its_batch(executor: TaskExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its hint says that the next run begins with this batch."""
    error = fail_with(monkeypatch, executor, OSError("no route"))
    assert isinstance(error, CarryFailed)
    assert error.message.startswith("batch 1 of lane a/0 (row 1): ")
    assert (error.batch, type(error.__cause__)) == (make_plan().batch, OSError)
    assert "this batch first" in error.hint


@pytest.mark.parametrize(("here", "shown"), [(False, True), (True, False)])
def test_a_cluster_that_lacks_something_is_a_hint_to_wherry_doctor(
    executor: TaskExecutor, monkeypatch: pytest.MonkeyPatch, *, here: bool, shown: bool
) -> None:
    """Without a cluster the hint is omitted."""
    monkeypatch.setattr(f"{MODULE}.is_here", lambda _: here)
    lost = "Lost task 0.0 in stage 3.0 (TID 3) (192.0.2.2 executor 1): java.lang.ClassNotFoundException: a.B"
    error = fail_with(monkeypatch, executor, make_spark_error(said=f"Job aborted due to stage failure: {lost}"))
    assert ("wherry doctor --cluster FILE" in error.hint) == shown
    assert "this batch first" in error.hint


def test_an_error_of_wherry_is_not_wrapped(executor: TaskExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the batch is added to it."""
    given = StageError("no column 'total'", hint="there are: id")
    error = fail_with(monkeypatch, executor, given)
    assert (error, error.message, error.batch) == (given, "no column 'total'", make_plan().batch)


def test_an_error_of_many_batches_names_three_of_them() -> None:
    """It counts the others, and its `batch` is None."""
    error = with_batch_context([make_plan(number).batch for number in range(1, 6)], OSError("no"), Protection())
    assert error.message.startswith(
        "batch 1 of lane a/0 (row 1), batch 2 of lane a/0 (row 2), batch 3 of lane a/0 (row 3) and 2 more: "
    )
    assert error.batch is None


@pytest.mark.parametrize("protection", [Protection(), Protection(columns=("email",))])
def test_an_error_of_a_lost_spark_says_that_spark_has_ended(protection: Protection) -> None:
    """py4j raises it, also as a refused connection. Such an error of a user's program is no loss of Spark."""
    bridge: dict[str, Any] = {"__name__": "py4j.clientserver"}
    exec("def connect():\n    raise ConnectionRefusedError(111, 'Connection refused')", bridge)  # noqa: S102
    with pytest.raises(ConnectionRefusedError) as raised:
        bridge["connect"]()
    batch, ended = make_plan().batch, "batch 1 of lane a/0 (row 1): Spark has ended, and this process cannot"
    for lost in (raised.value, Py4JNetworkError("Answer from Java side is empty")):
        assert with_batch_context([batch], lost, protection).message.startswith(ended)
    theirs = ConnectionRefusedError(111, "Connection refused")
    assert "Spark has ended" not in with_batch_context([batch], theirs, protection).message


def test_messages_of_other_programs_are_hidden_if_a_column_is_protected() -> None:
    """They may contain a value, even inside an error of Wherry that quotes them."""
    secret = ValueError("bob@example.org is no number")
    ours = StageError("the function failed: bob@example.org is no number")
    ours.__cause__ = secret
    errors = [with_batch_context([make_plan().batch], each, Protection(columns=("email",))) for each in (secret, ours)]
    assert ["bob@example.org" in each.message for each in errors] == [False, False]


def test_a_lost_session_is_replaced(executor: TaskExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's clock is measured again, because the server may be another one."""
    executor.deadline = Deadline(left=lambda: 1.0)
    monkeypatch.setattr(f"{MODULE}.reconnect", lambda _: None)
    monkeypatch.setattr(f"{MODULE}.measure_clock_offset", lambda _: 42.0)
    error = fail_with(monkeypatch, executor, FORGOTTEN)
    assert (cast("Sessions", executor.sessions).replaced, executor.deadline.ahead) == (1, 42.0)
    assert error.__cause__ is FORGOTTEN


def test_a_group_that_declined_permanently_is_not_tried_again(
    executor: TaskExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of its write is reported only the first time."""
    error = OSError("no route")
    grouped = script_way(monkeypatch, "GROUPED", Declined(reason="parted", remember=True, error=error))
    task = WriteGroup(writes=[WriteStraight(plan=make_plan(1)), WriteStraight(plan=make_plan(2))])
    assert [executor.process(task), executor.process(task)] == [
        Declined(reason="parted", way="grouped", remember=True, error=error),
        Declined(reason="an earlier batch of a lane declined it", way="grouped"),
    ]
    assert grouped.carried == ["p1", "p2"]


def test_a_batch_of_which_spark_saw_fewer_rows_fails(executor: TaskExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decision is not used, so nothing is delivered."""
    set_decision(monkeypatch, lambda: DECIDED)
    rows = TableRows(NO_SPARK, pa.table({"id": [1, 2]}))
    monkeypatch.setattr(executor, "make_candidate", lambda _, plan, **__: Batches(plan, rows))
    outcome = executor.process(Prepare(plan=make_plan()))
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, Unbalanced)
    assert "Spark saw 1 of the 2 rows of batch 1 of lane a/0 (row 1)" in str(outcome.error)


def test_the_rows_of_a_missing_origin_are_not_counted(executor: TaskExecutor) -> None:
    """A destination has the batch, so the run goes on."""
    assert executor.process(CountSpan(plan=make_plan(), written=Written(rows=1))) == Counted(read=None)


def test_each_destination_confirms_once_despite_errors_of_others(executor: TaskExecutor) -> None:
    """A destination with two names also confirms once. The errors are returned."""
    lost = DestinationError("batch 3 is gone")
    asked: list[str] = []
    first, second = Telling(name="first", asked=asked, said=lost), Telling(name="second", asked=asked)
    executor.opened = {"first": first, "was": first, "second": second}
    assert list(executor.confirm()) == [lost]
    assert asked == ["first", "second"]


def test_origins_that_listen_are_notified_of_their_lanes(executor: TaskExecutor) -> None:
    """They get their names of the lanes. They are not notified of replayed rows."""
    listening = Listening(schema="id long")
    executor.origins = {"a": listening, "b": origins.Memory(schema="id long")}
    hear = executor.list_listening(NO_SPARK)
    for lane in ("a/0", f"{REPLAY}orders"):
        hear["a"](make_plan(lane=lane).batch)
    assert (list(hear), listening.heard) == (["a"], ["0"])


def test_a_sample_of_unreadable_rows_is_empty(executor: TaskExecutor) -> None:
    """It must not hide why the run failed."""
    assert executor.sample(NO_SPARK, make_plan().batch, 3) == []
