"""Every row ends in one place, although runs that share lanes come, leave, die and sleep."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.simulation.companies import SharingHosts
from tests.simulation.world import ALL, Protections

SHAPES = st.fixed_dictionaries(
    {
        "destinations": st.integers(1, 2),
        "lanes": st.integers(1, 6),
        "fickle": st.booleans(),
        "delivery": st.sampled_from(["after_all", "after_any"]),
        "hears": st.booleans(),
        "predictable": st.booleans(),
        "shares": st.booleans(),
        "faults": st.integers(0, 12),
    }
)


@pytest.mark.promise("CN-20", "CN-21", "CN-26", "CN-27")
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), shape=SHAPES)
def test_runs_that_share_lanes_lose_and_double_no_row(seed: int, shape: dict[str, Any]) -> None:
    """This is true of any schedule of kills, freezes, sleeps, stops and new runs.

    No run records entries of another run's lane, and no run waits without an end.
    """
    world = SharingHosts(random.Random(seed), **shape)
    world.run()
    assert world.faults_found() == set()


def test_lanes_change_hands_in_these_schedules() -> None:
    """In 60 schedules lanes change owners often, and ousted owners are fenced when they continue."""
    worlds = [SharingHosts(random.Random(seed), lanes=4, rows=12, faults=10) for seed in range(60)]
    for world in worlds:
        world.run()
    assert sum(world.ledger.moves for world in worlds) > 600
    assert sum(world.fenced for world in worlds) > 10
    assert sum(world.stopped for world in worlds) > 10


@pytest.mark.parametrize("lanes", [60, pytest.param(1_000, marks=pytest.mark.long)])
@pytest.mark.promise("CN-20", "CN-26")
def test_twenty_runs_share_many_lanes(lanes: int) -> None:
    """Some runs die and return, freeze and sleep.

    Each lane has one owner at a time, each batch is settled once, and all rows are processed.
    """
    world = SharingHosts(random.Random(lanes), lanes=lanes, most=20, rows=2, largest=2, faults=40, hears=False)
    world.runners, world.max_in_flight = 4, 8
    world.run()
    assert world.faults_found() == set()
    assert set(world.ledger.settled.values()) == {1}
    assert world.ledger.most_owners >= 20
    assert world.fenced > 0
    assert len(world.clocks) > 20 + world.fenced


@pytest.mark.parametrize("without", ["deadline", "judged_last", "fence", "conditional", "lease"])
def test_without_one_rule_rows_of_shared_lanes_are_lost_or_doubled(without: str) -> None:
    """Without one rule, some of a few thousand schedules go wrong."""
    protections = replace(ALL, **{without: False})
    assert any(_goes_wrong(seed, protections) for seed in range(3_000))


def _goes_wrong(seed: int, protections: Protections) -> bool:
    faults = 12 if protections.lease else 30  # owners that do not wait for others need more faults before they conflict
    world = SharingHosts(random.Random(seed), protections=protections, lanes=3, faults=faults)
    try:
        world.run()
    except Exception:  # a ledger that contradicts itself is as wrong as a lost row
        return True
    return bool(world.faults_found())
