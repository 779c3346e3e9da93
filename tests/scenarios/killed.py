"""Runs a pipeline and kills itself, as `kill -9` would: `python -m tests.scenarios.killed FILE MOMENT NUMBER [replay]`.

With `replay` it is the refused rows that are carried again."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

from destinations.delta import Delta
from destinations.destination import Label
from runners.dlq.replaying import Replay
from runners.events import Event
from runners.line import Step
from runners.pipeline import Pipeline
from runners.plan import Plan
from runners.runner import Runner
from runners.sifting import Sieve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def main(file: str, at: str, number: int, what: str = "") -> None:
    """Die at the event called `at` of batch `number`; or right behind its write, with `Written`; or, with `Sifted`, in
    the middle of the search for its rows at which stages raise."""
    pipeline = Pipeline.load(file)

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def listen(event: Event) -> None:
        if type(event).__name__ == at and getattr(event, "batch").number == number:  # noqa: B009
            die()

    def dying(write: Callable[..., Any]) -> Callable[..., Any]:
        """The write, and then death, if it was of this batch."""

        @wraps(write)
        def write_and_die(*args: Any) -> Any:
            written = write(*args)
            first = args[3] if isinstance(args[3], Label) else args[3][0]
            if at == "Written" and written is not None and first.batch.number == number:
                die()
            return written

        return write_and_die

    tries = itertools.count(1)

    def sifting(sifted: Callable[..., Any]) -> Callable[..., Any]:
        """What decides a batch with such rows; of this one the third try to find them is the last."""

        @wraps(sifted)
        def sift(runner: Runner, spark: SparkSession, plan: Plan) -> Any:
            attempt = Sieve._try

            def try_or_die(sieve: Sieve, frame: DataFrame, steps: Sequence[Step], *, few: bool) -> None:
                if at == "Sifted" and plan.batch.number == number and next(tries) == 3:
                    die()
                attempt(sieve, frame, steps, few=few)

            Sieve._try = try_or_die  # type: ignore[assignment,method-assign]
            return sifted(runner, spark, plan)

        return sift

    Runner._sifted = sifting(Runner._sifted)  # type: ignore[method-assign]
    Delta.write = dying(Delta.write)  # type: ignore[method-assign]
    Delta.write_here = dying(Delta.write_here)  # type: ignore[method-assign]
    Delta.write_files = dying(Delta.write_files)  # type: ignore[method-assign]
    if what == "replay":
        pipeline.replay(Replay(reason="a test"), listeners=[listen])
    else:
        pipeline.run(listeners=[listen])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
