"""Refused rows are replayed once each, despite deaths at any moment."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.simulation.replays import AgainWorld

SHAPES = st.fixed_dictionaries(
    {
        "destinations": st.integers(1, 3),
        "lanes": st.integers(1, 2),
        "fickle": st.booleans(),
        "delivery": st.sampled_from(["after_all", "after_any"]),
        "retries": st.booleans(),
        "replaces": st.booleans(),
    }
)


@pytest.mark.promise("CD-30")
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), shape=SHAPES, faults=st.integers(0, 6))
def test_each_refused_row_is_replayed_once(seed: int, shape: dict[str, object], faults: int) -> None:
    """After two replays with kills and late writes, each row is either delivered or waits."""
    world = AgainWorld(random.Random(seed), faults=2, **shape)  # type: ignore[arg-type]
    world.run()
    world.carry_again(faults=faults)
    assert world.faults_found() == set()


def test_a_replay_that_ignores_an_earlier_one_doubles_rows() -> None:
    """This shows that the model can find the fault. Without the ledger's record, two replays deliver a row twice."""
    world = AgainWorld(random.Random(3), rows=30, faults=0, remembers=False)
    world.run()
    world.carry_again(faults=0)
    assert world.faults_found() == {"doubled"}
