"""Every row ends in one place, although owners freeze, sleep, continue and lose their pipelines."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.simulation.owners import Owners
from tests.simulation.world import ALL, Protections

SHAPES = st.fixed_dictionaries(
    {
        "destinations": st.integers(1, 2),
        "lanes": st.integers(1, 3),
        "fickle": st.booleans(),
        "delivery": st.sampled_from(["after_all", "after_any"]),
        "hears": st.booleans(),
        "predictable": st.booleans(),
        "shares": st.booleans(),
        "replaces": st.booleans(),
        "faults": st.integers(0, 12),
    }
)


@pytest.mark.promise("CN-20", "CN-21", "CN-23", "CN-24", "HP-06")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), shape=SHAPES)
def test_owners_that_freeze_and_continue_lose_and_double_no_row(seed: int, shape: dict[str, object]) -> None:
    """This is true of any schedule of freezes, sleeps, kills and takeovers.

    Clocks differ by up to forty minutes. Each owner that was replaced ends as fenced.
    """
    world = Owners(random.Random(seed), **shape)
    world.run()
    assert world.faults_found() == set()


def test_refusals_and_takeovers_happen_in_these_schedules() -> None:
    """In 40 schedules owners are refused, and replaced owners are fenced when they continue."""
    worlds = [Owners(random.Random(seed), lanes=2, faults=10) for seed in range(40)]
    for world in worlds:
        world.run()
    assert sum(world.refused for world in worlds) > 10
    assert sum(world.fenced for world in worlds) > 10


@pytest.mark.parametrize("without", ["lease", "deadline", "judged_last", "fence", "conditional"])
def test_without_one_rule_of_ownership_rows_are_lost_or_doubled(without: str) -> None:
    """Without one rule, some of a few thousand schedules go wrong."""
    protections = replace(ALL, **{without: False})
    assert any(_goes_wrong(seed, protections) for seed in range(3_000))


def _goes_wrong(seed: int, protections: Protections) -> bool:
    world = Owners(random.Random(seed), protections=protections, faults=12)
    try:
        world.run()
    except Exception:  # a ledger that contradicts itself is as wrong as a lost row
        return True
    return bool(world.faults_found())
