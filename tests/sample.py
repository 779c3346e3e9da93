"""A sample of what takes long, chosen by a number that is printed, so that the same choice can be run again.

Of the tests marked `long`, most of which kill a process with a Spark of its own, a few are run. `--long all` runs them
all. Of the variants, each of which shows one more case of what others show, 10 of a hundred are run. `--variants 100`
runs them all. Variants are the tests marked `variant`, and all cases and classes but the first where a test with Spark
has several. The mark `every_case` keeps these. With `--share 30` only so many of a hundred are run of all others. Files
that are asked for by name are run whole.

Tests that need a server of their own, such as a store or a broker, get the mark `server`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")
SERVERS = {"s3_server", "azurite", "_broker", "brokers", "shared_cluster", "hdfs", "yarn", "screen"}
"""The fixtures that start a program beside the tests."""
SEED = 7
"""Everybody runs the same sample, so that a failure belongs to the change that was made."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """How many, and which."""
    parser.addoption("--long", default="2", help="how many of the tests marked `long` are run: a number, or all")
    parser.addoption("--variants", type=int, default=10, help="how many of a hundred variants are run")
    parser.addoption("--share", type=int, default=100, help="how many of a hundred others are run")
    parser.addoption("--seed", type=int, default=SEED, help="the number that chooses them; by default always the same")


def pytest_report_header(config: pytest.Config) -> str:
    """What to type for the same choice."""
    said = config.option
    some = f"{said.long} of the long tests, {said.variants} of a hundred variants, {said.share} of a hundred others"
    return f"sample: {some}, chosen by --seed {said.seed}"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what needs a server."""
    if SERVERS.intersection(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.server)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the others out, and say so as `deselected`."""
    if config.getoption("--promises", None) or any(".py" in asked for asked in config.args):
        return
    long = [item for item in items if item.get_closest_marker("long")]
    variants = list_variants([item for item in items if not item.get_closest_marker("long")])
    aside = {*long, *variants}
    others = [item for item in items if item not in aside]
    said = config.option
    sizes = [
        (long, len(long) if said.long == "all" else _number(said.long)),
        (variants, round(len(variants) * min(said.variants, said.share) / 100)),
        (others, round(len(others) * said.share / 100)),
    ]
    left_out = {item for items, most in sizes for item in not_chosen(items, most, said.seed)}
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The number that chooses, for a test that throws dice of its own."""
    return int(request.config.getoption("--seed"))


def list_variants(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Those that are marked, and with Spark all cases and classes of a function but the first."""
    shown: set[object] = set()
    variants = []
    for item in items:
        function = item.function if isinstance(item, pytest.Function) else item
        repeats = function in shown and item.get_closest_marker("spark") and not item.get_closest_marker("every_case")
        if item.get_closest_marker("variant") or repeats:
            variants.append(item)
        else:
            shown.add(function)
    return variants


def not_chosen(tests: Sequence[T], most: int, seed: int) -> list[T]:
    """All but so many of them; the same ones for the same number."""
    chosen = set(random.Random(seed).sample(range(len(tests)), min(most, len(tests))))
    return [each for index, each in enumerate(tests) if index not in chosen]


def _number(said: str) -> int:
    if not said.isdigit():
        raise pytest.UsageError(f"--long {said}: a number, or all")
    return int(said)
