"""`dlq: {discard: {}}` with `delivery: after_any`: at most once."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from destinations.dlq import DLQ
from tests.simulation.world import Process, World


class Careless(World):
    """A world in which refused rows are discarded, and the first destination moves the offset."""

    def __init__(self, rng: random.Random, *, destinations: int, lanes: int, faults: int) -> None:
        super().__init__(rng, destinations=destinations, lanes=lanes, faults=faults, delivery="after_any", rows=12)

    def _process(self) -> Process:
        process = super()._process()
        process.dispatcher.rules = replace(process.dispatcher.rules, discards=True)
        return process


@pytest.mark.promise("CD-23")
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), destinations=st.integers(1, 3), lanes=st.integers(1, 2), faults=st.integers(0, 6))
def test_no_row_is_delivered_twice_and_no_refused_row_is_kept(
    seed: int, destinations: int, lanes: int, faults: int
) -> None:
    """After any deaths, each row is at every destination once or at none."""
    world = Careless(random.Random(seed), destinations=destinations, lanes=lanes, faults=faults)
    world.run()
    found = [Counter(world.tables[name].rows) for name in world.names]
    assert all(times == 1 for counter in found for times in counter.values())
    assert all(set(counter) == set(found[0]) for counter in found)
    assert world.tables[DLQ].rows == []
    assert found[0]
