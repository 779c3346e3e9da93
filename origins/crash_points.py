"""The named points at which a test can make a process die.

A process reports each point that it reaches. Without a watcher a report costs one look at a variable. Two points are
events: `draining` is a `RunStopping`, and `resting` is a `BatchRests`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

POINTS: Mapping[str, str] = {
    "before-plan": "before a batch's plan is recorded",
    "after-plan": "after a batch's plan is recorded",
    "after-prepare": "the outcome of each row is written under the state, and the batch is not decided",
    "before-prepared": "the batch is decided, and the decision is not recorded",
    "after-prepared": "the decision is recorded, and nothing is delivered",
    "before-write": "before a destination's write",
    "in-write": "during a destination's write",
    "after-write": "after a destination's write",
    "between-writes": "after one destination's write, and before another's",
    "after-writes": "after the write of the last destination",
    "before-dlq": "before the write of the DLQ",
    "after-dlq": "after the write of the DLQ",
    "before-settle": "before the offset is committed",
    "after-settle": "after the offset is committed, and before the origin is notified",
    "after-committed": "after the origin was notified",
    "draining": "a stop was requested, and a batch is in flight",
    "resting": "a batch waits for its next attempt",
    "lost-lease": "another process has taken over the pipeline, and a write is about to begin",
    "after-fence": "a later run has fenced the writes of an earlier one",
    "after-ask": "a destination has answered whether it has the batch",
    "after-claim": "the question has claimed a folder",
}
RECORDED = ("plan", "prepared", "settle")
"""The kinds of ledger entries that have a point before and after them."""

T = TypeVar("T")
Watcher: TypeAlias = Callable[[str, str, Any], Any]
"""A callback that gets a point, its subject and the rows that are written there. It returns the rows."""

_watcher: Watcher | None = None


def reach(point: str, of: str = "") -> None:
    """Report that this point is reached. `of` is the destination that the point is about, if any."""
    if _watcher is not None:
        _watcher(point, of, None)


def reach_within(point: str, rows: T, of: str = "") -> T:
    """Put this point inside the work on these rows, and return the rows to continue with."""
    if _watcher is None:
        return rows
    given: T = _watcher(point, of, rows)
    return given


def reach_recording(when: str, kinds: Iterable[str]) -> None:
    """Report the points `before` or `after` the recording of entries of these kinds."""
    if _watcher is not None:
        for kind in kinds:
            if kind in RECORDED:
                _watcher(f"{when}-{kind}", "", None)


@contextmanager
def watch_points(watcher: Watcher) -> Iterator[None]:
    """Call the watcher at each point that any thread of this process reaches within the context."""
    global _watcher
    before, _watcher = _watcher, watcher
    try:
        yield
    finally:
        _watcher = before
