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
    """Return a function that makes worker pools, which the fixture closes."""
    made: list[WorkerPool] = []

    def make(size: int, process: Callable[[Any], Outcome]) -> WorkerPool:
        made.append(WorkerPool(size, process))
        return made[-1]

    yield make
    for worker_pool in made:
        worker_pool.close()


@pytest.mark.promise("SS-15", "SS-17")
def test_each_runner_does_one_task_at_a_time(crewed: Crewed) -> None:
    """Three runners do three tasks at once."""
    meet = threading.Barrier(3, timeout=30)

    def process(task: Any) -> Outcome:
        meet.wait()
        return Declined(reason="a row is refused", way="straight")

    worker_pool = crewed(3, process)
    for lane in ("0", "1", "2"):
        worker_pool.start(lane, task=lane)  # type: ignore[arg-type]
    finished: list[str] = []
    while len(finished) < 3:
        finished += [lane for lane, _ in worker_pool.wait(30)]
    assert sorted(finished) == ["0", "1", "2"]


@pytest.mark.promise("SS-18")
def test_idle_runners_do_not_poll_for_work(crewed: Crewed) -> None:
    """They sleep until they get a task, and use no processor time."""
    asked: list[Any] = []

    def process(task: Any) -> Outcome:
        asked.append(task)
        return Declined(reason="a row is refused", way="straight")

    worker_pool = crewed(8, process)
    before = time.process_time()
    assert list(worker_pool.wait(0.3)) == []
    assert asked == []
    assert time.process_time() - before < 0.1


def test_an_exception_of_a_task_is_its_outcome(crewed: Crewed) -> None:
    """The runner stays alive and takes the next task."""

    def process(task: Any) -> Outcome:
        raise MemoryError("too much")

    worker_pool = crewed(1, process)
    for _ in range(2):
        worker_pool.start("0", task=None)  # type: ignore[arg-type]
        ((lane, outcome),) = worker_pool.wait(30)
        assert lane == "0"
        assert isinstance(outcome, Failed)
        assert str(outcome.error) == "too much"


def test_a_wake_before_a_wait_ends_the_wait(crewed: Crewed) -> None:
    """A signal between two waits is not lost."""
    worker_pool = crewed(1, lambda task: Declined(reason="a row is refused", way="straight"))
    worker_pool.wake()
    assert list(worker_pool.wait(30)) == []
