"""How a planner limits batches, and how many batches wait, counted in a short time."""

from __future__ import annotations

from dataclasses import replace

from origins.batch import JSON, Backlog, Limits, Span
from origins.codec import decode, encode
from runners.engine.batch_planner import BLINK, BatchPlanner, OriginFeed
from runners.model.pipeline_state import LaneState
from runners.model.planned_batch import PlannedBatch
from tests.manual_clock import ManualClock


class Numbers(Backlog):
    """So many rows in each lane, two in a batch. Each look at a lane takes some time."""

    def __init__(self, clock: ManualClock, slow: float = 0.0, **lanes: int) -> None:
        self.clock = clock
        self.slow = slow
        self.lanes = {name[1:]: rows for name, rows in lanes.items()}

    def take(self, lane: str, start: JSON, limits: Limits) -> Span | None:
        self.clock.move(self.slow)
        rows = self.lanes[lane]
        return None if (start or 0) >= rows else Span(start=start, end=min(rows, (start or 0) + 2))


def make_source(backlog: Numbers) -> BatchPlanner:
    feed = OriginFeed(origin="o", lanes={lane: lane for lane in backlog.lanes}, schema="", backlog=backlog)
    return BatchPlanner(pipeline="orders", run="r", definition="", destinations=("a",), feeds=[feed])


class Counted(Backlog):
    """Ten rows in every lane."""

    def take(self, lane: str, start: JSON, limits: Limits) -> Span | None:
        begin = start or 0
        return None if begin == 10 else Span(start=start, end=min(10, begin + (limits.rows or 10)))


def test_a_plan_keeps_the_ids_of_its_job_in_the_ledger() -> None:
    """Without a job, the ledger has what older versions wrote."""
    clock = ManualClock()
    source = make_source(Numbers(clock, _0=2))
    for planner, kept in ((replace(source, job={"id": "41", "run": "42"}), {"id": "41", "run": "42"}), (source, None)):
        plan = planner.plan("0", LaneState(), Span(start=None, end=2), clock.now(), first=True)
        assert encode(plan).get("job") == kept
        assert decode(PlannedBatch, encode(plan)).batch.job == (kept or {})


def test_a_plan_keeps_what_its_origin_reads_in_the_ledger() -> None:
    """So a batch that is finished after a crash has the same label."""
    source = make_source(Numbers(ManualClock(), _0=2))
    planner = replace(source, feeds=[replace(feed, reads="7f") for feed in source.feeds])
    plan = planner.plan("0", LaneState(), Span(start=None, end=2), ManualClock().now(), first=True)
    assert decode(PlannedBatch, encode(plan)).name_pipeline(plan.batch.pipeline) == plan
    assert plan.batch.reads == "7f"


def test_a_whole_batch_has_no_limits() -> None:
    """The limits of the run do not apply to it."""
    feed = OriginFeed(origin="o", lanes={"0": "0"}, schema="", backlog=Counted())
    limited = BatchPlanner(
        pipeline="orders", run="r", definition="", destinations=(), feeds=[feed], limits=Limits(rows=3)
    )
    whole = replace(limited, feeds=[replace(feed, whole=True)])
    ends = [span.end for source in (limited, whole) if (span := source.take("0", None))]
    assert ends == [3, 10]
    assert whole.take("0", 10) is None


def test_batches_behind_the_offsets_are_counted() -> None:
    """Each lane has a count."""
    clock = ManualClock()
    found = make_source(Numbers(clock, _0=5, _1=4, _2=0)).count_waiting({"1": 2}, clock)
    assert found == {"0": 3, "1": 1, "2": 0}


def test_a_lane_that_takes_too_long_is_not_counted() -> None:
    """An endless lane does not delay the run. The lanes before it have counts."""
    clock = ManualClock()
    found = make_source(Numbers(clock, slow=BLINK / 10, _0=4, _1=10**9, _2=1)).count_waiting({}, clock)
    assert found == {"0": 2}
    assert clock.seconds < 2 * BLINK
