"""When a crash is injected, and how."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

import pytest

from origins.batch import Batch, Span
from runners.model.events import BatchRests, RunStopping
from tests.crash_injector import CrashInjector, CrashRaised

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def pass_by(crash: CrashInjector, *points: str) -> None:
    """Pass these points in order. The point of a write may have its destination."""
    for point in points:
        name, _, of = point.partition(" ")
        crash(name, of, None)


def make_raising(point: str, **how: int) -> CrashInjector:
    return CrashInjector(point, end=None, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("point", "plan", "before"),
    [
        ("before-write", 1, ["after-plan"]),
        ("before-write", 2, ["after-plan", "before-write", "after-write", "after-plan"]),
        ("before-plan", 2, ["before-plan", "after-plan"]),
        ("after-ask", 0, ["after-fence"]),
        ("between-writes", 1, ["after-plan", "before-write a", "after-write a"]),
        ("in-write", 1, ["after-plan", "before-write"]),
    ],
)
def test_a_crash_happens_at_the_given_batch(point: str, plan: int, before: Sequence[str]) -> None:
    """It does not happen at the same point of earlier batches."""
    crash = make_raising(point, plan=plan)
    pass_by(crash, *before)
    assert not crash.happened
    with pytest.raises(CrashRaised):
        pass_by(crash, "before-write b" if point == "between-writes" else point)
    assert crash.happened


def test_a_crash_ends_the_process_in_the_given_way() -> None:
    """Here it exits."""

    def leave() -> None:
        raise SystemExit(9)

    crash = CrashInjector("after-plan", end=leave)  # type: ignore[arg-type]
    with pytest.raises(SystemExit):
        pass_by(crash, "after-plan")


def test_a_crash_while_resting_begins_with_a_connection_error() -> None:
    """The batch then waits for its next attempt, and the crash happens during that."""
    crash = make_raising("resting")
    pass_by(crash, "after-plan")
    with pytest.raises(ConnectionError) as away:
        pass_by(crash, "before-write")
    span = Span(start=None, end=1)
    batch = Batch(
        pipeline="orders", run="", origin="origin", lane="0", number=1, plan="", span=span, schema="{}", time=NOW
    )
    with pytest.raises(CrashRaised):
        crash.note_event(BatchRests(batch=batch, error=away.value, tried=1, seconds=1.0))


def test_a_stop_after_a_failure_causes_no_crash() -> None:
    """A run that fails also stops."""
    crash = make_raising("draining")
    crash.note_event(RunStopping(reason="failed"))
    assert not crash.happened


def test_a_lost_lease_is_taken_once_and_the_run_continues() -> None:
    """The ledger decides how the run ends."""
    taken: list[str] = []
    crash = CrashInjector("lost-lease", end=None, steal=lambda: taken.append("taken"))
    pass_by(crash, "after-plan", "before-write", "before-write")
    assert taken == ["taken"]
