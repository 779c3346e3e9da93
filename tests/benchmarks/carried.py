"""Run Wherry's side of a benchmark: write a definition, run it and time each batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from runners.model.events import BatchSettled, Event, Listener
from runners.pipeline import Pipeline

Heard = Callable[[BatchSettled], None]


def define(place: Path, text: str) -> Path:
    """Write a definition into this folder."""
    file = place / "orders.yaml"
    file.write_text(f"name: orders\n{text}", encoding="utf-8")
    return file


def time_last_batch(file: Path, batches: int) -> float:
    """Run the pipeline. Return the seconds of its last batch, without what the run does before and after it."""
    spent = [0.0]
    list(carry_batches(file, batches, lambda event: spent.append(sum(event.seconds.values()))))
    return spent[-1]


def carry_batches(
    file: Path, batches: int, heard: Heard | None = None, *, listeners: Sequence[Listener] = ()
) -> Iterator[float]:
    """Run the pipeline and yield the seconds of each batch. The first batch includes everything before it: the lock,
    the ledger, the listing and the analysis. The last batch includes everything after it. The
    `listeners` are called too."""
    times = [time.perf_counter()]

    def listen(event: Event) -> None:
        if isinstance(event, BatchSettled):
            times.append(time.perf_counter())
            if heard is not None:
                heard(event)

    report = Pipeline.load(file).run(listeners=[listen, *listeners])
    times[-1] = time.perf_counter()
    if report.batches != batches or not report.balanced:
        raise RuntimeError(f"expected {batches} batches that balance, the run says {report}")
    yield from (after - before for before, after in pairwise(times))
