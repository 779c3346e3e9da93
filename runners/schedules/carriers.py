"""Who carries the runs of a scheduler: a thread for each, so that one that crashes touches no other."""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from runners.definitions.definition import Definition
from runners.report import Report


@dataclass(frozen=True, kw_only=True)
class Carried:
    """How a run went."""

    name: str
    status: str
    """`succeeded`, `failed`, `stopped`, or `owned` where somebody else has the pipeline."""
    message: str
    report: Report | None = None
    spark_is_gone: bool = False
    """Whether nothing else can be carried here either."""


Stop = Callable[[str, bool], None]
"""Asks a run to stop: why, and whether what is in flight is left as it is. Twice is once."""
Carry = Callable[[Definition, Callable[[Stop], None]], Carried]
"""Carries a pipeline, and says how it is stopped as soon as it can be."""


class Carriers(ABC):
    """Who is given definitions to carry."""

    @abstractmethod
    def start(self, name: str, definition: Definition) -> None:
        """Begin a run. It is never begun while another of its name is under way."""

    @abstractmethod
    def wait(self, seconds: float) -> Sequence[Carried]:
        """The runs that have ended; waits for the first, for `wake`, or for the time to pass."""

    @abstractmethod
    def wake(self) -> None:
        """End the wait that is under way, or the next one. May be called from a signal handler."""

    @abstractmethod
    def stop(self, reason: str, *, force: bool) -> None:
        """Ask all runs to stop; what is in flight finishes, or with `force` is left as it is."""


class CarrierThreads(Carriers):
    """Runs as threads of this process."""

    def __init__(self, carry: Carry) -> None:
        self._carry = carry
        self._ended: queue.SimpleQueue[Carried | None] = queue.SimpleQueue()
        self._stops: dict[str, Stop] = {}

    def start(self, name: str, definition: Definition) -> None:
        thread = threading.Thread(target=self._work, args=(name, definition), name=f"wherry-run-{name}", daemon=True)
        thread.start()

    def wait(self, seconds: float) -> Sequence[Carried]:
        try:
            ended = [self._ended.get(timeout=seconds)]
        except queue.Empty:
            return []
        while not self._ended.empty():
            ended.append(self._ended.get())
        return [each for each in ended if each is not None]

    def wake(self) -> None:
        self._ended.put(None)

    def stop(self, reason: str, *, force: bool) -> None:
        for stop in list(self._stops.values()):
            stop(reason, force)

    def _work(self, name: str, definition: Definition) -> None:
        def stoppable(stop: Stop) -> None:
            self._stops[name] = stop

        try:
            carried = self._carry(definition, stoppable)
        except BaseException as error:  # the edge of the thread: whatever a run does, the others go on
            carried = Carried(name=name, status="failed", message=f"{type(error).__name__}: {error}")
        self._stops.pop(name, None)
        self._ended.put(carried)
