"""Tasks: actions that take long. A caller gets a task at once, and asks for it, waits for it or cancels it."""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from origins.errors import WherryError
from runners.model.clock import Clock
from runners.model.errors import Refusal
from runners.schedules.run_marks import REQUESTS, RunGroups
from runners.schedules.scheduler import Stop
from runners.service.messages import Problem, Task
from runners.service.operation import Caller, NotFound, TooMuch
from runners.service.problems import describe_problem, make_problem

_KEPT, MOST_WAITING = 1_000, 100
"""How many tasks are kept, and how many of one group may wait. The oldest that have ended are forgotten first."""
_LOOK = 1.0
"""After how many seconds a task that waits for its group looks for room that others have left."""

log = logging.getLogger("wherry")


def repeat(look: Callable[[], None], every: float, ended: threading.Event) -> None:
    """Look again and again, with these seconds in between, until `ended` is set. A look that fails is logged once."""
    known = ""
    while not ended.wait(every):
        new = ""
        try:
            look()
        except Exception as error:
            new = type(error).__name__
            if new != known:
                log.exception("The server tries again what failed in the background.")
        known = new


class TaskFailed(Exception):
    """A task failed, or was stopped, and says so itself."""

    def __init__(self, state: str, problem: Problem, result: Any = None) -> None:
        super().__init__(problem.detail)
        self.state, self.problem, self.result = state, problem, result


class Doing:
    """A task as the work sees it."""

    def __init__(self, tasks: Tasks, task: str) -> None:
        self._tasks, self._task = tasks, task
        self._stop: Stop | None = None
        self._asked: tuple[str, bool] | None = None

    def say(self, doing: str) -> None:
        """Note what the task does now."""
        self._tasks.change(self._task, doing=doing)

    def note_run(self, run: str) -> None:
        """Note which run the task is. A stop that was asked for before the run began reaches it now."""
        self._tasks.change(self._task, run=run)
        if self._stop is not None and self._asked is not None:
            self._stop(*self._asked)

    def keep_stop(self, stop: Stop) -> None:
        """Note how the task is stopped. Raise `TaskFailed` if it was asked to stop before."""
        if self._asked is not None:
            raise TaskFailed("stopped", make_problem("STOPPED", f"It was stopped before it began: {self._asked[0]}"))
        self._stop = stop

    def ask_to_stop(self, reason: str, force: bool) -> None:
        """Ask the task to stop, as soon as it can be stopped. Any thread may call this, more than once."""
        self._asked = (reason, force)
        if self._stop is not None:
            self._stop(reason, force)


@dataclass(frozen=True)
class _Waiting:
    """A task that has not begun."""

    task: str
    work: Callable[[Doing], Any]
    group: str | None
    since: datetime


class Tasks:
    """The tasks of a server. A task whose group is full holds up no other."""

    def __init__(self, clock: Clock, at_once: int, groups: RunGroups | None = None) -> None:
        self.groups = groups or RunGroups()
        self._clock = clock
        self._tasks: OrderedDict[str, Task] = OrderedDict()
        self._doing: dict[str, Doing] = {}
        self._changed = threading.Condition()
        self._ended = False
        self._waiting: list[_Waiting] = []
        self._idle = at_once
        for number in range(at_once):
            threading.Thread(target=self._work, name=f"wherry-task-{number}", daemon=True).start()

    def start(
        self,
        operation: str,
        pipeline: str,
        caller: Caller,
        reason: str,
        work: Callable[[Doing], Any],
        group: str | None = None,
    ) -> Task:
        """Do this work on another thread, as soon as one has time and the group has room. Return the task.

        Raise `TooMuch` if too many tasks wait, and `Refusal` if the server ends.
        """
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
            if self._ended:
                raise Refusal("The server ends, so it begins nothing.", hint="Ask again when it is back.")
            self._forget_cancelled()
            before = sum(each.group == group for each in self._waiting)
            if before >= MOST_WAITING or len(self._waiting) >= _KEPT:
                raise TooMuch(f"{before} tasks wait already.", hint="Wait for their end, or cancel some.")
            self._tasks[task.task] = task
            self._doing[task.task] = Doing(self, task.task)
            ended = [name for name, each in self._tasks.items() if each.ended_at is not None]
            for name in ended[: max(0, len(self._tasks) - _KEPT)]:
                del self._tasks[name]
            self._waiting.append(_Waiting(task.task, work, group, self._clock.now()))
            self._changed.notify_all()
        return task

    def _work(self) -> None:
        while True:
            self._carry(self._take())

    def _take(self) -> _Waiting:
        """Wait for a task that may begin. Return it when it works."""
        with self._changed:
            while (found := self._find_next()) is None:
                self._changed.wait(_LOOK if self._waiting else None)
            self._idle -= 1
            if not self._idle:
                self.groups.choose(REQUESTS, ())
            self.change(found.task, state="working", doing="")
            return found

    def _find_next(self) -> _Waiting | None:
        """Return the oldest task that may begin, if there is one. It waits no longer, and has entered its group."""
        self._forget_cancelled()
        at = self.groups.choose(REQUESTS, [(each.group, each.since) for each in self._waiting])
        for each in self._waiting[:at]:
            doing = f"waiting for its group {each.group}"
            if self._tasks[each.task].doing != doing:
                self.change(each.task, doing=doing)
        return None if at is None else self._waiting.pop(at)

    def _forget_cancelled(self) -> None:
        found = ((each, self._tasks.get(each.task)) for each in self._waiting)
        self._waiting = [each for each, task in found if task is not None and task.state == "waiting"]

    def _carry(self, begun: _Waiting) -> None:
        name = begun.task
        try:
            result = begun.work(self._doing[name])
            ended: dict[str, Any] = {"state": "succeeded", "result": result}
        except TaskFailed as failure:
            ended = {"state": failure.state, "problem": failure.problem, "result": failure.result}
        except BaseException as error:  # noqa: BLE001 -- the edge of the thread: the caller gets the error
            ended = {"state": "failed", "problem": describe_problem(error)}
        self.groups.leave(begun.group)
        with self._changed:
            self._idle += 1
            self.change(name, **ended, ended_at=self._read_clock(), doing="")
            self._doing.pop(name)

    def change(self, name: str, **changes: Any) -> None:
        """Change facts of a task, and wake all threads that wait for it."""
        with self._changed:
            self._tasks[name] = msgspec.structs.replace(self._tasks[name], **changes)
            self._changed.notify_all()

    def get(self, name: str, caller: Caller | None = None, *, wait: float = 0.0) -> Task:
        """Return a task, once it has ended or after this many seconds.

        Raise `NotFound` for an unknown name, and for a task that the caller may not see.
        """
        with self._changed:
            task = self._tasks.get(name)
            if task is None or not (caller is None or caller.may_see(task.pipeline)):
                raise NotFound(
                    "There is no such task. A server forgets its tasks when it ends.",
                    hint="What a task did is in the history of runs and in the ledger.",
                )
            self._changed.wait_for(lambda: self._tasks.get(name, task).ended_at is not None, timeout=wait)
            return self._tasks.get(name, task)

    def list_all(self, pipeline: str = "") -> Sequence[Task]:
        """Return the tasks of a pipeline, or all, the newest first. Results are left out."""
        with self._changed:
            found = [each for each in reversed(self._tasks.values()) if pipeline in ("", each.pipeline)]
        return [msgspec.structs.replace(each, result=None) for each in found]

    def cancel(self, name: str, reason: str, *, force: bool = False) -> Task:
        """Stop a task. A waiting task does not begin; a run finishes its batches in flight, or not with `force`."""
        with self._changed:
            task, doing = self.get(name), self._doing.get(name)
            if task.state == "waiting":
                self._doing.pop(name)
                self.change(name, state="stopped", ended_at=self._read_clock(), doing=f"cancelled: {reason}")
            elif task.ended_at is None:
                self.change(name, doing=f"stopping: {reason}")
        if task.state == "working" and doing is not None:
            doing.ask_to_stop(reason, force)
        return self.get(name)

    def end(self, reason: str, *, force: bool = False) -> None:
        """Cancel everything, and begin nothing more."""
        with self._changed:
            self._ended = True
        for task in self.list_all():
            if task.ended_at is None:
                with contextlib.suppress(WherryError):  # a task whose stop fails is left behind
                    self.cancel(task.task, reason, force=force)

    def wait(self, seconds: float) -> None:
        """Wait until all tasks have ended, at most so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: all(each.ended_at for each in self._tasks.values()), timeout=seconds)

    def _read_clock(self) -> str:
        return self._clock.now().isoformat(timespec="milliseconds")
