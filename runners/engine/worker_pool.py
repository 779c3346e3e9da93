"""The runners: a fixed number of threads. Each does one task at a time, and waits without polling."""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeAlias

from runners.model.tasks import Failed, Outcome, Task

Finished = tuple[str, Outcome]
"""A lane, and the outcome of the task that was started under it."""

Process: TypeAlias = Callable[[Task], Outcome]
"""What a runner does with a task."""


class TaskWorkers(ABC):
    """Does the dispatcher's tasks. There is never more than one task for a lane."""

    size: int

    @abstractmethod
    def start(self, lane: str, task: Task) -> None:
        """Give the task to an idle runner. The dispatcher never starts more than `size` at a time."""

    @abstractmethod
    def wait(self, seconds: float | None) -> Sequence[Finished]:
        """Wait for the first outcome, for `wake`, or for the time to pass. Return what has finished."""

    @abstractmethod
    def wake(self) -> None:
        """End the current wait, or the next wait. A signal handler may call this."""

    @abstractmethod
    def close(self) -> None:
        """End the runners after their tasks."""


class WorkerPool(TaskWorkers):
    """Runners as threads of this process."""

    def __init__(self, size: int, process: Process) -> None:
        self.size = size
        self._process = process
        self._tasks: list[queue.SimpleQueue[tuple[str, Task] | None]] = [queue.SimpleQueue() for _ in range(size)]
        self._finished: queue.SimpleQueue[Finished | None] = queue.SimpleQueue()
        self._busy: dict[str, int] = {}
        self._threads = [
            threading.Thread(target=self._work, args=[number], name=f"wherry-runner-{number}", daemon=True)
            for number in range(size)
        ]
        for thread in self._threads:
            thread.start()

    def start(self, lane: str, task: Task) -> None:
        runner = next(number for number in range(self.size) if number not in self._busy.values())
        self._busy[lane] = runner
        self._tasks[runner].put((lane, task))

    def wait(self, seconds: float | None) -> Sequence[Finished]:
        try:
            first = self._finished.get(timeout=None if seconds is None else min(seconds, threading.TIMEOUT_MAX))
        except queue.Empty:
            return []
        finished = [first]
        while not self._finished.empty():
            finished.append(self._finished.get())
        ended = [item for item in finished if item is not None]
        for lane, _ in ended:
            del self._busy[lane]
        return ended

    def wake(self) -> None:
        self._finished.put(None)

    def close(self) -> None:
        for tasks in self._tasks:
            tasks.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self, number: int) -> None:
        while (item := self._tasks[number].get()) is not None:
            lane, task = item
            try:
                outcome: Outcome = self._process(task)
            except Exception as error:  # noqa: BLE001 -- the edge of the thread: the dispatcher stops the run with it
                outcome = Failed(error=error)
            self._finished.put((lane, outcome))
