"""Tasks: actions that take long, and how they are waited for, cancelled and forgotten."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from runners.model.errors import Refusal
from runners.schedules.run_marks import SCHEDULE, RunGroups
from runners.service.operation import Caller, NotFound, Right, TooMuch
from runners.service.problems import make_problem
from runners.service.tasks import MOST_WAITING, Doing, TaskFailed, Tasks
from tests.manual_clock import ManualClock

ANNA = Caller(name="anna", right=Right.OPERATE)
SOME = Caller(name="sam", right=Right.OPERATE, pipelines=frozenset({"items"}))


class Gate:
    """Work that begins, and then waits until it may go on."""

    def __init__(self) -> None:
        self.began, self.open = threading.Event(), threading.Event()
        self.stops: list[tuple[str, bool]] = []

    def __call__(self, doing: Doing) -> str:
        self.began.set()
        assert self.open.wait(20)
        return "result"

    def stop(self, reason: str, force: bool) -> None:
        self.stops.append((reason, force))
        self.open.set()


@pytest.fixture
def tasks() -> Iterator[Tasks]:
    """Tasks of which one works at a time."""
    made = Tasks(ManualClock(), 1)
    yield made
    made.end("the test is over", force=True)


def start(tasks: Tasks, work: Any, pipeline: str = "orders", group: str | None = None) -> str:
    """Start a task, and return its name."""
    return tasks.start("run_audit", pipeline, ANNA, "a test", work, group).task


@pytest.fixture
def grouped() -> Iterator[Tasks]:
    """Tasks of which two work at a time. Their groups have one run at a time."""
    made = Tasks(ManualClock(), 2, RunGroups())
    yield made
    made.end("the test is over", force=True)


def test_a_task_waits_works_and_succeeds(tasks: Tasks) -> None:
    """Its facts have its caller and its reason. The result comes with the end, and no list has it."""
    gate = Gate()
    name = start(tasks, gate)
    assert gate.began.wait(10)
    working = tasks.get(name)
    assert (working.state, working.by, working.reason, working.ended_at) == ("working", "anna", "a test", None)
    gate.open.set()
    ended = tasks.get(name, wait=10)
    assert (ended.state, ended.result) == ("succeeded", "result")
    assert [(each.task, each.result) for each in tasks.list_all()] == [(name, None)]


def test_waiting_ends_with_the_time(tasks: Tasks) -> None:
    """The answer then is the task as it is."""
    gate = Gate()
    assert tasks.get(start(tasks, gate), wait=0.05).ended_at is None
    gate.open.set()


def test_a_failure_is_a_problem(tasks: Tasks, caplog: pytest.LogCaptureFixture) -> None:
    """An error for people is shown. An unexpected one shows only its number, and the log has it."""

    def refuse(doing: Doing) -> None:
        raise Refusal("not possible", hint="do this")

    def break_down(doing: Doing) -> None:
        raise RuntimeError("password=hunter2")

    def stop(doing: Doing) -> None:
        raise TaskFailed("stopped", make_problem("STOPPED", "It was stopped."), {"rows": 1})

    refused, broken, stopped = (tasks.get(start(tasks, each), wait=10) for each in (refuse, break_down, stop))
    assert refused.problem is not None
    assert broken.problem is not None
    assert (refused.state, refused.problem.detail, refused.problem.hint) == ("failed", "not possible", "do this")
    assert (broken.state, broken.problem.code) == ("failed", "UNEXPECTED")
    assert "hunter2" not in broken.problem.detail
    assert "hunter2" in caplog.text
    assert (stopped.state, stopped.result) == ("stopped", {"rows": 1})


def test_a_cancelled_task_that_waits_never_begins(tasks: Tasks) -> None:
    """Those after it do."""
    first, second, third = Gate(), Gate(), Gate()
    start(tasks, first)
    waiting, last = start(tasks, second), start(tasks, third)
    assert first.began.wait(10)
    assert tasks.cancel(waiting, "not needed").state == "stopped"
    first.open.set()
    third.open.set()
    assert tasks.get(last, wait=10).state == "succeeded"
    assert not second.began.is_set()


def test_a_stop_reaches_a_task_that_works(tasks: Tasks) -> None:
    """It may be asked for again, with force."""
    gate = Gate()
    ready = threading.Event()

    def work(doing: Doing) -> str:
        doing.keep_stop(lambda reason, force: gate.stops.append((reason, force)))
        ready.set()
        return gate(doing)

    name = start(tasks, work)
    assert ready.wait(10)
    assert tasks.cancel(name, "enough").doing == "stopping: enough"
    tasks.cancel(name, "now", force=True)
    gate.open.set()
    assert gate.stops == [("enough", False), ("now", True)]


def test_a_stop_before_the_work_can_be_stopped_is_not_lost(tasks: Tasks) -> None:
    """Spark may start for half a minute. The run then does not begin."""
    gate = Gate()

    def work(doing: Doing) -> None:
        gate(doing)
        doing.keep_stop(gate.stop)
        raise AssertionError("it began")

    name = start(tasks, work)
    assert gate.began.wait(10)
    tasks.cancel(name, "enough")
    gate.open.set()
    ended = tasks.get(name, wait=10)
    assert ended.problem is not None
    assert (ended.state, ended.problem.code) == ("stopped", "STOPPED")


def test_a_stop_while_a_run_opens_reaches_it_once_it_has_begun(tasks: Tasks) -> None:
    """A run that opens its state cannot be stopped yet, and says nothing of it."""
    gate = Gate()
    asked = threading.Event()

    def work(doing: Doing) -> None:
        doing.keep_stop(lambda reason, force: gate.stops.append((reason, force)))
        gate.began.set()
        assert asked.wait(10)
        doing.note_run("r1")

    name = start(tasks, work)
    assert gate.began.wait(10)
    tasks.cancel(name, "enough")
    asked.set()
    assert tasks.get(name, wait=10).run == "r1"
    assert gate.stops == [("enough", False)] * 2


def test_a_task_of_another_pipeline_is_not_known(tasks: Tasks) -> None:
    """The answer is the same as for a task that never was."""
    name = start(tasks, lambda _: None)
    tasks.get(name, wait=10)
    texts = set()
    for asked in (name, "no such task"):
        with pytest.raises(NotFound) as missing:
            tasks.get(asked, SOME)
        texts.add(str(missing.value))
    assert len(texts) == 1


def test_only_so_many_tasks_wait(tasks: Tasks) -> None:
    """Cancelling one makes room."""
    gate = Gate()
    start(tasks, gate)
    assert gate.began.wait(10)
    names = [start(tasks, gate) for _ in range(MOST_WAITING)]
    with pytest.raises(TooMuch):
        start(tasks, gate)
    tasks.cancel(names[0], "room")
    start(tasks, gate)
    gate.open.set()


def test_old_tasks_are_forgotten_and_active_ones_are_not(tasks: Tasks) -> None:
    """A thousand are kept."""
    gate = Gate()
    ended = [tasks.get(start(tasks, lambda _: None), wait=10).task for _ in range(1_000)]
    active = start(tasks, gate)
    assert gate.began.wait(10)
    for _ in range(3):
        tasks.cancel(start(tasks, gate), "enough")
    assert len(tasks.list_all()) == 1_000
    assert tasks.get(active).state == "working"
    with pytest.raises(NotFound):
        tasks.get(ended[0])
    gate.open.set()


def test_an_end_cancels_what_waits_and_stops_what_works(tasks: Tasks) -> None:
    """Nothing begins after it. A stop that fails keeps nothing else from being stopped."""
    gate, ready = Gate(), threading.Event()

    def fail(reason: str, force: bool) -> None:
        gate.open.set()
        raise Refusal("the ledger is away")

    def work(doing: Doing) -> str:
        doing.keep_stop(fail)
        ready.set()
        return gate(doing)

    working = start(tasks, work)
    assert ready.wait(10)
    waiting = start(tasks, Gate())
    tasks.end("signal SIGTERM")
    tasks.wait(10)
    assert [tasks.get(name).state for name in (working, waiting)] == ["succeeded", "stopped"]
    with pytest.raises(Refusal, match="The server ends"):
        start(tasks, gate)


def test_a_task_that_does_not_end_does_not_keep_the_process() -> None:
    """Its thread ends with the process."""
    tasks, gate = Tasks(ManualClock(), 1), Gate()
    start(tasks, gate)
    assert gate.began.wait(10)
    tasks.end("signal SIGTERM")
    tasks.wait(0.05)
    assert [each.daemon for each in threading.enumerate() if each.name.startswith("wherry-task")].count(False) == 0
    gate.open.set()


def test_a_task_whose_group_is_full_waits_and_holds_up_no_other(grouped: Tasks) -> None:
    """It says so, and begins when there is room."""
    first, second = Gate(), Gate()
    names = [start(grouped, each, group="shop") for each in (first, second)]
    assert first.began.wait(10)
    assert grouped.get(start(grouped, lambda _: None, group="warehouse"), wait=10).state == "succeeded"
    assert grouped.get(start(grouped, lambda _: None), wait=10).state == "succeeded"
    waiting = grouped.get(names[1])
    assert (waiting.state, waiting.doing) == ("waiting", "waiting for its group shop")
    first.open.set()
    assert second.began.wait(10)
    assert grouped.get(names[1]).doing == ""
    second.open.set()
    assert [grouped.get(name, wait=10).state for name in names] == ["succeeded"] * 2


def test_a_task_waits_for_a_run_of_the_schedule_in_its_group(grouped: Tasks) -> None:
    """A run of the schedule that waits longer comes first."""
    gate, since = Gate(), ManualClock().now()
    runs = [("shop", since), ("shop", since - timedelta(seconds=1))]
    assert grouped.groups.choose(SCHEDULE, runs[:1]) == 0
    assert grouped.groups.choose(SCHEDULE, runs[1:]) is None
    name = start(grouped, gate, group="shop")
    grouped.groups.leave("shop")
    assert grouped.get(name, wait=1.5).state == "waiting"
    assert grouped.groups.choose(SCHEDULE, runs[1:]) == 0
    assert grouped.groups.choose(SCHEDULE, []) is None
    grouped.groups.leave("shop")
    assert gate.began.wait(10)
    gate.open.set()


def test_a_task_that_failed_makes_room_in_its_group(grouped: Tasks) -> None:
    """A waiting task that is cancelled takes no room."""

    def fail(doing: Doing) -> None:
        raise Refusal("not possible")

    gate = Gate()
    start(grouped, gate, group="shop")
    assert gate.began.wait(10)
    cancelled, failed = (start(grouped, fail, group="shop") for _ in range(2))
    assert grouped.cancel(cancelled, "not needed").state == "stopped"
    gate.open.set()
    assert grouped.get(failed, wait=10).state == "failed"
    assert grouped.get(start(grouped, lambda _: None, group="shop"), wait=10).state == "succeeded"


def test_a_task_that_cannot_begin_for_want_of_a_worker_holds_up_no_run_of_the_schedule(grouped: Tasks) -> None:
    """The room of its group would stay empty."""
    gates = [Gate() for _ in range(2)]
    now = ManualClock().now()
    assert grouped.groups.choose(SCHEDULE, [("shop", now)]) == 0
    start(grouped, lambda _: None, group="shop")
    for gate in gates:
        start(grouped, gate)
        assert gate.began.wait(10)
    grouped.groups.leave("shop")
    assert grouped.groups.choose(SCHEDULE, [("shop", now + timedelta(seconds=1))]) == 0
    for gate in gates:
        gate.open.set()


def test_a_long_queue_of_one_group_refuses_no_task_of_another(grouped: Tasks) -> None:
    """Its own next task is refused."""
    gate = Gate()
    start(grouped, gate, group="shop")
    assert gate.began.wait(10)
    for _ in range(MOST_WAITING):
        start(grouped, gate, group="shop")
    with pytest.raises(TooMuch):
        start(grouped, gate, group="shop")
    assert grouped.get(start(grouped, lambda _: None), wait=10).state == "succeeded"
    gate.open.set()
