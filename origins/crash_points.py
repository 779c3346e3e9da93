"""The points at which a process may die, by name, so that a test can see to it that it does.

Whoever reaches one says so; that costs one look at a variable, unless somebody watches. Two points are heard as events:
`draining` is a `RunStopping`, `resting` a `BatchRests`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

POINTS: Mapping[str, str] = {
    "before-plan": "before a batch's plan is recorded",
    "after-plan": "after it",
    "after-prepare": "what becomes of each row is written under the state, and nobody has judged it",
    "before-prepared": "it is judged, and the decision is not recorded",
    "after-prepared": "the decision is recorded, and nothing is delivered",
    "before-write": "before a destination's write",
    "in-write": "inside it",
    "after-write": "after it",
    "between-writes": "after one destination's write, and before another's",
    "after-writes": "after the last",
    "before-dlq": "before the write of the dead letter queue",
    "after-dlq": "after it",
    "before-settle": "before the offset is committed",
    "after-settle": "after it, and before the origin is told",
    "after-committed": "after the origin was told",
    "draining": "a stop was asked for, and a batch is in flight",
    "resting": "a batch waits to be tried again",
    "lost-lease": "somebody else has taken the pipeline, and a write is about to begin",
    "after-fence": "a later run has fenced what may be under way",
    "after-ask": "a destination has answered it whether it has the batch",
    "after-claim": "a folder has been claimed by asking",
}
RECORDED = ("plan", "prepared", "settle")
"""The kinds of entries before and after which a point lies."""

T = TypeVar("T")
Watcher: TypeAlias = Callable[[str, str, Any], Any]
"""Is called with the point, with whom it is about, and with the rows that are written there; gives these back."""

_watcher: Watcher | None = None


def reached(point: str, of: str = "") -> None:
    """This point is reached; `of` is the destination where it is about one."""
    if _watcher is not None:
        _watcher(point, of, None)


def within(point: str, rows: T, of: str = "") -> T:
    """This point lies inside of what is done with these rows; gives the rows to go on with."""
    if _watcher is None:
        return rows
    given: T = _watcher(point, of, rows)
    return given


def recording(when: str, kinds: Iterable[str]) -> None:
    """`before` or `after` entries of these kinds are recorded."""
    if _watcher is not None:
        for kind in kinds:
            if kind in RECORDED:
                _watcher(f"{when}-{kind}", "", None)


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """In here the watcher is called at each point, by all threads of this process."""
    global _watcher
    before, _watcher = _watcher, watcher
    try:
        yield
    finally:
        _watcher = before
