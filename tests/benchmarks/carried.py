"""What Wherry's side of a benchmark is: a definition that is run as it stands, and the time of each batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from runners.model.events import BatchSettled, Event, Listener
from runners.pipeline import Pipeline

Heard = Callable[[BatchSettled], None]


def define(place: Path, text: str) -> Path:
    """A definition in this folder."""
    file = place / "orders.yaml"
    file.write_text(f"name: orders\n{text}", encoding="utf-8")
    return file


def carried(file: Path, batches: int, heard: Heard | None = None, *, told: Sequence[Listener] = ()) -> Iterator[float]:
    """A run of the pipeline: what each batch took, the first with all that came before it (the lock, the ledger, the
    listing, the analysis), the last with all that came after it; `told` are those who hear of it too."""
    times = [time.perf_counter()]

    def listen(event: Event) -> None:
        if isinstance(event, BatchSettled):
            times.append(time.perf_counter())
            if heard is not None:
                heard(event)

    report = Pipeline.load(file).run(listeners=[listen, *told])
    times[-1] = time.perf_counter()
    if report.batches != batches or not report.balanced:
        raise RuntimeError(f"expected {batches} batches that balance, the run says {report}")
    yield from (after - before for before, after in pairwise(times))
