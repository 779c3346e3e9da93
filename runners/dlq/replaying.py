"""Carrying rows of the DLQ again, as they were read, through the definition of today: once each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from destinations.destination import Destination
from origins.batch import JSON
from runners.dlq.letters import decided
from runners.dlq.replay import Choice, Queue, Sorted, sort
from runners.errors import Refusal
from runners.journal import Journal
from runners.line import Line, named
from runners.opening import line_of
from runners.pipeline import Pipeline
from runners.place import Place, check_pipeline
from runners.report import Report
from runners.session import obtain
from runners.source import Feed, Source
from runners.state import REPLAY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Which rows of the DLQ are carried again, and why.

    Each is carried once, however often the same is asked for and wherever the process dies. One that is refused again
    is a new row of the DLQ that names this one.
    """

    choice: Choice = Choice()  # noqa: RUF009  (it is frozen)
    reason: str

    def __post_init__(self) -> None:
        if not self.reason.strip():
            raise Refusal("A replay needs a reason; it is kept in the ledger.", hint='--reason "…"')

    def json(self) -> Mapping[str, JSON]:
        """As the ledger keeps it."""
        return {**vars(self.choice), "ids": list(self.choice.ids), "reason": self.reason}

    def source(
        self,
        source: Source,
        lines: Mapping[str, Line],
        destinations: Mapping[str, Destination],
        dlq: Destination,
        journal: Journal,
        spark: SparkSession,
    ) -> Source:
        """What a run of it plans from, where one of the pipeline would plan from `source`."""
        found = sort(self.choice.of(dlq, lambda: spark, decided(journal)), lines, source.limits.rows)
        found.check(destinations)

        def letters(feed: Feed, notices: tuple[str, ...]) -> Feed:
            lane = f"{REPLAY}{feed.origin}"
            return replace(
                feed,
                lanes={lane: lane},
                backlog=Queue(found.spans.get(feed.origin, ()), notices),
                straight=False,
                foresees=False,
                shares=False,
                whole=False,
                destinations=lambda span: found.wanted[span.end],
            )

        first, *others = source.feeds
        feeds = [letters(first, tuple(found.notices)), *(letters(feed, ()) for feed in others)]
        return replace(source, feeds=feeds, first_alone=False)


def planned(pipeline: Pipeline, choice: Choice) -> Sorted:
    """What a replay would carry, and what it would leave.

    Spark is asked only for a `where`, or for a DLQ that lies in a catalog. Raises `Refusal` where a destination must
    not get old rows.
    """
    place = Place.of(pipeline)

    def spark() -> SparkSession:
        return obtain(pipeline.spark.conf, pipeline.spark.packages)

    journal = Journal(place.ledger(spark() if place.needs_spark else None))
    check_pipeline(pipeline, place, journal.state)
    destinations = named(pipeline.every_destination)
    lines = {each.name or "origin": line_of(pipeline, each, destinations) for each in pipeline.every_origin}
    dlq = pipeline.dlq.destination or place.dlq()
    found = sort(choice.of(dlq, spark, decided(journal)), lines)
    found.check(destinations)
    return found


def nothing_again(pipeline: Pipeline) -> Report:
    """The report of a replay that has nothing to carry, for which no run begins."""
    return Report(pipeline=pipeline.name, run="", status="succeeded", reason="nothing waits in the dead letter queue")
