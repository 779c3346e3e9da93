"""The runners as threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from runners.engine.worker_pool import WorkerPool
from runners.model.tasks import Declined, Failed, Outcome

Crewed = Callable[..., WorkerPool]


@pytest.fixture
def crewed() -> Iterator[Crewed]:
    """Makes crews, and lets them go."""
    made: list[WorkerPool] = []

    def make(size: int, process: Callable[[Any], Outcome]) -> WorkerPool:
        made.append(WorkerPool(size, process))
        return made[-1]

    yield make
    for crew in made:
        crew.close()


@pytest.mark.promise("SS-15", "SS-17")
def test_as_many_tasks_are_done_at_once_as_there_are_runners(crewed: Crewed) -> None:
    """Each by one runner, from beginning to end."""
    meet = threading.Barrier(3, timeout=30)

    def process(task: Any) -> Outcome:
        meet.wait()
        return Declined(reason="a row is refused", way="straight")

    crew = crewed(3, process)
    for lane in ("0", "1", "2"):
        crew.start(lane, task=lane)  # type: ignore[arg-type]
    finished: list[str] = []
    while len(finished) < 3:
        finished += [lane for lane, _ in crew.wait(30)]
    assert sorted(finished) == ["0", "1", "2"]


@pytest.mark.promise("SS-18")
def test_idle_runners_ask_nobody_whether_there_is_work(crewed: Crewed) -> None:
    """They sleep until they are given some: no task is looked for, and no time of the processor is spent."""
    asked: list[Any] = []

    def process(task: Any) -> Outcome:
        asked.append(task)
        return Declined(reason="a row is refused", way="straight")

    crew = crewed(8, process)
    before = time.process_time()
    assert list(crew.wait(0.3)) == []
    assert asked == []
    assert time.process_time() - before < 0.1


def test_what_a_task_raises_is_its_outcome(crewed: Crewed) -> None:
    """The runner lives on and takes the next."""

    def process(task: Any) -> Outcome:
        raise MemoryError("too much")

    crew = crewed(1, process)
    for _ in range(2):
        crew.start("0", task=None)  # type: ignore[arg-type]
        ((lane, outcome),) = crew.wait(30)
        assert lane == "0"
        assert isinstance(outcome, Failed)
        assert str(outcome.error) == "too much"


def test_a_wait_is_ended_by_a_wake_that_came_before_it(crewed: Crewed) -> None:
    """A signal between two waits is not lost."""
    crew = crewed(1, lambda task: Declined(reason="a row is refused", way="straight"))
    crew.wake()
    assert list(crew.wait(30)) == []


def test_a_wait_may_be_longer_than_any_clock_can_count(crewed: Crewed) -> None:
    """A thousand years, as a definition may have them, are as good as for ever."""
    crew = crewed(1, lambda _: Declined(reason="a row is refused", way="straight"))
    crew.wake()
    assert crew.wait(365_000 * 86_400.0) == []
