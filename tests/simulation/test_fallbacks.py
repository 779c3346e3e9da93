"""After outages of the DLQ, deaths and a merge, every refused row is in the DLQ once."""

from __future__ import annotations

import random
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runners.state.journal import Journal
from tests.simulation.fallbacks import FallbackWorld, Kind
from tests.simulation.test_schedules import SHAPES


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), shape=SHAPES, kind=st.sampled_from(get_args(Kind)))
def test_after_a_merge_every_row_is_in_one_place(seed: int, shape: dict[str, object], kind: Kind) -> None:
    """No row is lost or doubled, and no row waits in a fallback of any kind."""
    world = FallbackWorld(random.Random(seed), kind=kind, **shape)  # type: ignore[arg-type]
    world.run()
    assert (world.faults_found(), world.short) == (set(), [])
    assert Journal(world.ledger).state.fallen == {}


def test_the_fallback_is_used() -> None:
    """Most of these worlds use it, so the other tests prove something."""
    settled = [world for world in map(FallbackWorld, map(random.Random, range(40))) if _uses_fallback(world)]
    assert len(settled) > 10


def _uses_fallback(world: FallbackWorld) -> bool:
    world.run()
    return any(entry.body["counts"].get("fallback") for entry in world.ledger.read() if entry.kind == "settle")


@pytest.mark.parametrize(("without", "shape"), [("fences", {"destinations": 2}), ("asks", {"destinations": 2})])
def test_each_rule_of_a_merge_is_needed(without: str, shape: dict[str, int]) -> None:
    """Without one rule, some schedule doubles a row."""
    found: set[str] = set()
    for seed in range(300):
        world = FallbackWorld(random.Random(seed), **{without: False}, **shape)  # type: ignore[arg-type]
        world.run()
        found |= world.faults_found()
        if found:
            break
    assert "doubled" in found
