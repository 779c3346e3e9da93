"""Runs a pipeline and kills itself, as `kill -9` would: `python -m tests.scenarios.killed FILE MOMENT NUMBER`."""

from __future__ import annotations

import os
import signal
import sys

from destinations.delta import Delta
from runners.events import Event
from runners.pipeline import Pipeline


def main(file: str, at: str, number: int) -> None:
    """Die at the event called `at` of batch `number`; or right behind its write, with `Written`."""
    pipeline = Pipeline.load(file)

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def listen(event: Event) -> None:
        if type(event).__name__ == at and getattr(event, "batch").number == number:  # noqa: B009
            die()

    write = Delta.write

    def write_and_die(self: Delta, *args: object) -> object:
        labels = args[2]
        written = write(self, *args)  # type: ignore[arg-type]
        if at == "Written" and labels[0].batch.number == number:  # type: ignore[index]
            die()
        return written

    Delta.write = write_and_die  # type: ignore[method-assign,assignment]
    pipeline.run(listeners=[listen])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
