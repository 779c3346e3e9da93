"""What waits in the lanes of a pipeline, as far as its origins know it."""

from __future__ import annotations

from collections.abc import Mapping

import destinations
import origins
from origins.batch import Json
from origins.capabilities import Lag, MeasuresLag
from runners.model.pipeline_state import LaneState, PipelineState
from runners.operations.status import measure_lags
from runners.pipeline import Pipeline


class Counted(origins.Memory, MeasuresLag):
    """An origin that also answers for a lane of which it was not asked."""

    def measure_lag(self, offsets: Mapping[str, Json]) -> Mapping[str, Lag]:
        return {lane: Lag(rows=3) for lane in [*offsets, "9"]}


def test_the_lag_of_a_lane_that_was_not_asked_for_is_left_out() -> None:
    """Before the first batch no lane is asked for."""
    pipeline = Pipeline(name="orders", origin=Counted(schema="id long"), destinations=[destinations.Memory()])
    assert measure_lags(pipeline, PipelineState()) == {}
    assert measure_lags(pipeline, PipelineState(lanes={"0": LaneState()})) == {"0": Lag(rows=3)}
