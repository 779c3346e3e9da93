"""Run a pipeline and kill this process, as `kill -9` would: `python -m tests.scenarios.killed FILE MOMENT NUMBER
[replay]`.

With `replay`, the process replays the refused rows. With the name of a file instead, it replays the edited rows of that
file.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

from destinations.delta.delta import OpenDelta
from destinations.dlq import DLQ
from runners.model.events import Event
from runners.model.planned_batch import PlannedBatch
from runners.pipeline import Pipeline
from runners.running.replay import Replay
from runners.ways.bisect_rows import RowErrorIsolator
from runners.ways.stage_chain import PlacedStage
from runners.ways.task_executor import TaskExecutor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def main(file: str, at: str, number: int, what: str = "") -> None:
    """Die at the event `at` of batch `number`. With `Written`, die directly after the batch's write into a table; the
    DLQ may or may not be written by then. With `Sifted`, die during the search for rows at which stages raise."""
    pipeline = Pipeline.load(file)

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def listen(event: Event) -> None:
        if type(event).__name__ == at and getattr(event, "batch").number == number:  # noqa: B009
            die()

    def dying(write: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a write so that the process dies after a write of this batch."""

        @wraps(write)
        def write_and_die(*args: Any) -> Any:
            written = write(*args)
            label = args[3][0]
            if at == "Written" and label.batch.number == number and label.destination != DLQ:
                die()
            return written

        return write_and_die

    tries = itertools.count(1)

    def bisecting(bisect: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the search for rows that raise. In this batch, the process dies at the third try of the search."""

        @wraps(bisect)
        def bisect_or_die(runner: TaskExecutor, spark: SparkSession, plan: PlannedBatch) -> Any:
            attempt = RowErrorIsolator._try

            def try_or_die(
                isolator: RowErrorIsolator, frame: DataFrame, steps: Sequence[PlacedStage], *, few: bool
            ) -> None:
                if at == "Sifted" and plan.batch.number == number and next(tries) == 3:
                    die()
                attempt(isolator, frame, steps, few=few)

            RowErrorIsolator._try = try_or_die  # type: ignore[assignment,method-assign]
            return bisect(runner, spark, plan)

        return bisect_or_die

    TaskExecutor._bisect = bisecting(TaskExecutor._bisect)  # type: ignore[method-assign]
    OpenDelta.write = dying(OpenDelta.write)  # type: ignore[method-assign]
    if what == "replay":
        pipeline.replay(Replay(reason="a test"), listeners=[listen])
    elif what:
        pipeline.replay(pipeline.refused.correct(what).make_replay(reason="a test"), listeners=[listen])
    else:
        pipeline.run(listeners=[listen])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
