"""Measure a small append to tables with features of Delta."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.carried import carry_batches
from tests.benchmarks.case import Case, Taken, Way, measure_in_turns, open_session
from tests.benchmarks.landing import land
from tests.benchmarks.small import define_orders
from tests.destinations.delta.features import FEATURES, Feature, make_table

BATCHES = 12


def measure_features(place: Path, turns: int) -> Taken:
    """Measure batches of 1,000 JSON rows without a stage, one for each file, into a table with each feature."""
    spark = open_session()

    def carry(where: Path, turn: int, feature: Feature) -> Iterator[float]:
        first, number = turn == 0, BATCHES if "warm" not in where.parts else 2
        if first:
            make_table(spark, where / "tables/orders", feature)
        land(where / "landing", number, first=turn * BATCHES)
        yield from list(carry_batches(define_orders(where), number))[1:]

    def make_way(feature: Feature) -> Way:
        return lambda where, turn: carry(where, turn, feature)

    return measure_in_turns({name: make_way(feature) for name, feature in FEATURES.items()}, place, turns)


CASES = (
    Case(
        name="features",
        says="1,000-row JSON files, one a batch, into a Delta table with a feature",
        measure=measure_features,
        bars=(),
    ),
)
