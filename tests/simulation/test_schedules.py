"""Every interleaving of crashes, late writes and restarts ends with each row in one place. Every rule is needed."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runners.model.events import BatchCancelled, BatchDecided, BatchPlanned, BatchRests, BatchSettled
from tests.simulation.world import ALL, Protections, World

SHAPES = st.fixed_dictionaries(
    {
        "destinations": st.integers(1, 3),
        "lanes": st.integers(1, 3),
        "fickle": st.booleans(),
        "delivery": st.sampled_from(["after_all", "after_any"]),
        "hears": st.booleans(),
        "predictable": st.booleans(),
        "shares": st.booleans(),
        "retries": st.booleans(),
        "follows": st.booleans(),
        "replaces": st.booleans(),
        "faults": st.integers(0, 8),
        "takeovers": st.integers(0, 2),
    }
)


@pytest.mark.promise(
    "CD-22",
    "CD-16",
    "CD-19",
    "CD-24",
    "CD-25",
    "HP-12",
    "HP-13",
    "SS-10",
    "SS-11",
    "HP-09",
    "HP-20",
    "HP-03",
    "HP-07",
    "CN-19",
)
@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), shape=SHAPES)
def test_after_any_faults_every_row_is_in_exactly_one_place(seed: int, shape: dict[str, object]) -> None:
    """No kills, late writes, false failures or changed definitions lose or double a row."""
    world = World(random.Random(seed), **shape)  # type: ignore[arg-type]
    world.run()
    assert world.faults_found() == set()


HEARD: dict[str, type] = {
    "plan": BatchPlanned,
    "prepared": BatchDecided,
    "rest": BatchRests,
    "settle": BatchSettled,
    "cancel": BatchCancelled,
}


def list_told_and_recorded(world: World) -> tuple[list[tuple[type, str]], list[tuple[type, str]]]:
    """Run the world. Return what listeners heard of batches, and what the ledger records of them."""
    world.run()
    told = [
        (type(event), event.batch.plan)
        for event in world.events
        if isinstance(event, BatchPlanned | BatchDecided | BatchRests | BatchSettled | BatchCancelled)
    ]
    return told, [(HEARD[entry.kind], entry.plan) for entry in world.ledger.read() if entry.kind in HEARD]


@pytest.mark.promise("CD-18")
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), shape=SHAPES)
def test_a_listener_is_notified_of_every_change_of_a_batch(seed: int, shape: dict[str, object]) -> None:
    """The order is that of the ledger. No process dies here."""
    world = World(random.Random(seed), **{**shape, "faults": 0, "takeovers": 0})  # type: ignore[arg-type]
    told, recorded = list_told_and_recorded(world)
    assert told == recorded


@pytest.mark.promise("CD-18")
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), shape=SHAPES)
def test_a_listener_is_notified_only_of_recorded_changes(seed: int, shape: dict[str, object]) -> None:
    """This is true despite deaths, retries and cancelled batches."""
    told, recorded = list_told_and_recorded(World(random.Random(seed), **shape))  # type: ignore[arg-type]
    assert Counter(told) <= Counter(recorded)


@pytest.mark.promise("CD-13")
@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32), lanes=st.integers(1, 3))
def test_the_origin_is_notified_of_every_batch_in_order(seed: int, lanes: int) -> None:
    """`committed` is called after the durable offset, in the lane's order, and at the end for the last row."""
    world = World(random.Random(seed), lanes=lanes)
    world.run()
    assert {lane: heard[-1] for lane, heard in world.heard.items()} == dict.fromkeys(world.lanes, world.rows)
    assert all(heard == sorted(heard) for heard in world.heard.values())


@pytest.mark.parametrize(
    ("without", "shape"),
    [
        ("fence", {"destinations": 1}),
        ("decide_once", {"destinations": 2, "fickle": True}),
        ("only_writes", {"destinations": 2}),
        ("ask", {"destinations": 2}),
        ("recover", {"destinations": 1}),
        ("conditional", {"destinations": 1, "takeovers": 2}),
        ("alone", {"destinations": 1, "lanes": 3, "replaces": True}),
        ("goes_on", {"destinations": 1, "replaces": True}),
        ("same_again", {"destinations": 1, "fickle": True}),
    ],
)
def test_without_one_rule_rows_are_lost_or_doubled(without: str, shape: dict[str, object]) -> None:
    """Without one rule of the protocol, some of a few thousand schedules go wrong."""
    protections = replace(ALL, **{without: False})
    assert any(_goes_wrong(seed, protections, shape) for seed in range(3_000))


def _goes_wrong(seed: int, protections: Protections, shape: dict[str, object]) -> bool:
    world = World(random.Random(seed), protections=protections, **shape)  # type: ignore[arg-type]
    try:
        world.run()
    except Exception:  # a ledger that contradicts itself is as wrong as a lost row
        return True
    return bool(world.faults_found())
