"""Tasks: actions that take long. A caller gets a task at once, and asks for it, waits for it or cancels it."""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from runners.model.clock import Clock
from runners.schedules.scheduler import Stop
from runners.service.messages import Problem, Task
from runners.service.operation import Caller, NotFound
from runners.service.problems import describe_problem

_KEPT = 1_000
"""How many tasks are kept. The oldest that have ended are forgotten first."""


class Failed(Exception):
    """A task failed, or was stopped, and says so itself."""

    def __init__(self, state: str, problem: Problem, result: Any = None) -> None:
        super().__init__(problem.detail)
        self.state, self.problem, self.result = state, problem, result


class Doing:
    """A task as the work sees it."""

    def __init__(self, tasks: Tasks, task: str) -> None:
        self._tasks, self._task = tasks, task
        self.stop: Stop | None = None

    def say(self, doing: str) -> None:
        """Note what the task does now."""
        self._tasks.change(self._task, doing=doing)

    def note_run(self, run: str) -> None:
        """Note which run the task is."""
        self._tasks.change(self._task, run=run)

    def keep_stop(self, stop: Stop) -> None:
        """Note how the task is stopped."""
        self.stop = stop


class Tasks:
    """The tasks of a server."""

    def __init__(self, clock: Clock, at_once: int) -> None:
        self._clock = clock
        self._tasks: OrderedDict[str, Task] = OrderedDict()
        self._doing: dict[str, Doing] = {}
        self._changed = threading.Condition()
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="wherry-task")

    def start(self, operation: str, pipeline: str, caller: Caller, reason: str, work: Callable[[Doing], Any]) -> Task:
        """Do this work on another thread, as soon as one has time. Return the task."""
        task = Task(
            task=uuid.uuid4().hex,
            operation=operation,
            pipeline=pipeline,
            state="waiting",
            by=caller.name,
            reason=reason,
            began_at=self._read_clock(),
        )
        with self._changed:
            self._tasks[task.task] = task
            self._doing[task.task] = Doing(self, task.task)
            ended = [name for name, each in self._tasks.items() if each.ended_at is not None]
            for name in ended[: max(0, len(self._tasks) - _KEPT)]:
                del self._tasks[name], self._doing[name]
        self._threads.submit(self._work, task.task, work)
        return task

    def _work(self, name: str, work: Callable[[Doing], Any]) -> None:
        if self._tasks[name].state != "waiting":
            return
        self.change(name, state="working")
        try:
            result = work(self._doing[name])
            ended: dict[str, Any] = {"state": "succeeded", "result": result}
        except Failed as failure:
            ended = {"state": failure.state, "problem": failure.problem, "result": failure.result}
        except BaseException as error:  # noqa: BLE001 -- the edge of the thread: the caller gets the error
            ended = {"state": "failed", "problem": describe_problem(error)}
        self.change(name, **ended, ended_at=self._read_clock(), doing="")

    def change(self, name: str, **changes: Any) -> None:
        """Change facts of a task, and wake those who wait for it."""
        with self._changed:
            self._tasks[name] = msgspec.structs.replace(self._tasks[name], **changes)
            self._changed.notify_all()

    def get(self, name: str, wait: float = 0.0) -> Task:
        """Return a task, once it has ended or after this many seconds. Raise `NotFound` for an unknown name."""
        with self._changed:
            if name not in self._tasks:
                raise NotFound(
                    "There is no such task. A server forgets its tasks when it ends.",
                    hint="What a task did is in the history of runs and in the ledger.",
                )
            self._changed.wait_for(lambda: self._tasks[name].ended_at is not None, timeout=wait)
            return self._tasks[name]

    def list_all(self, pipeline: str = "") -> Sequence[Task]:
        """Return the tasks of a pipeline, or all, the newest first. Results are left out."""
        with self._changed:
            found = [each for each in reversed(self._tasks.values()) if pipeline in ("", each.pipeline)]
        return [msgspec.structs.replace(each, result=None) for each in found]

    def cancel(self, name: str, reason: str, *, force: bool = False) -> Task:
        """Stop a task. One that waits does not begin; a run finishes its batches in flight, or not with `force`."""
        task = self.get(name)
        with self._changed:
            if self._tasks[name].state == "waiting":
                self.change(name, state="stopped", ended_at=self._read_clock(), doing=f"cancelled: {reason}")
        stop = self._doing[name].stop
        if stop is not None and task.ended_at is None:
            stop(reason, force)
            self.change(name, doing=f"stopping: {reason}")
        return self.get(name)

    def end(self, reason: str, *, force: bool = False) -> bool:
        """Cancel everything. Return whether all tasks have ended."""
        active = [each.task for each in self.list_all() if each.ended_at is None]
        for name in active:
            self.cancel(name, reason, force=force)
        self._threads.shutdown(wait=False, cancel_futures=True)
        return not active

    def wait(self, seconds: float) -> None:
        """Wait until all tasks have ended, at most so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: all(each.ended_at for each in self._tasks.values()), timeout=seconds)

    def _read_clock(self) -> str:
        return self._clock.now().isoformat(timespec="milliseconds")
