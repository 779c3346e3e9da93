"""What the stages of a pipeline expect, by where they stand."""

from __future__ import annotations

from runners.line import named
from runners.opening import line_of
from runners.pipeline import Pipeline
from runners.quality import Suites
from stages.expect import Expect


def suites_of(pipeline: Pipeline) -> Suites:
    """What the stages of a pipeline expect."""
    destinations = named(pipeline.every_destination)
    lines = {origin.name or "origin": line_of(pipeline, origin, destinations) for origin in pipeline.every_origin}
    return {
        origin: {step.name: step.stage.rules for step in line.steps if isinstance(step.stage, Expect)}
        for origin, line in lines.items()
    }
