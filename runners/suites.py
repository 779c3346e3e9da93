"""What the stages of a pipeline expect, by where they stand."""

from __future__ import annotations

from runners.line import Line, named
from runners.pipeline import Pipeline
from runners.quality import Suites
from stages.expect import Expect


def suites_of(pipeline: Pipeline) -> Suites:
    """What the stages of a pipeline expect."""
    destinations = named(pipeline.destinations)
    lines = {
        origin.name or "origin": Line.of([*origin.stages, *pipeline.stages], destinations)
        for origin in pipeline.every_origin
    }
    return {
        origin: {step.name: step.stage.rules for step in line.steps if isinstance(step.stage, Expect)}
        for origin, line in lines.items()
    }
