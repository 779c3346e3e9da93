"""Leave out the long tests. A printed number chooses the few that are run, so that the same can be run again.

Only a few of the tests marked `long` are run. Most of them kill a process that has a separate Spark. `--long all` runs
all of them. Every other test is run. With `--share 30`, only 30 % of these are run. If files are named on the command
line, all of their tests are run.

Tests that need a separate server, such as a store or a broker, get the mark `server`.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")
SERVERS = {
    *("connect_server", "s3_server", "azurite", "_broker", "brokers", "shared_cluster", "hdfs", "yarn", "screen"),
    "postgres_server",
}
"""The fixtures that start another program for the tests."""
SEED = 7
"""The default seed. Everyone runs the same sample, so that a failure comes from the latest change."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options for the size of the sample and its seed."""
    parser.addoption("--long", default="1", help="how many of the tests marked `long` are run: a number, or all")
    parser.addoption("--share", type=int, default=100, help="how many of a hundred others are run")
    parser.addoption("--seed", type=int, default=SEED, help="the number that chooses them; by default always the same")


def pytest_report_header(config: pytest.Config) -> str:
    """Print the options that give the same choice again."""
    said = config.option
    some = f"{said.long} of the long tests, {said.share} of a hundred others"
    return f"sample: {some}, chosen by --seed {said.seed}"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test that needs a server."""
    if SERVERS.intersection(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.server)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the other tests out and report them as `deselected`. Processes side by side begin with the slow files."""
    choose_sample(config, items)
    if hasattr(config, "workerinput"):
        weights: defaultdict[object, float] = defaultdict(float)
        for item in items:
            weights[item.path] += weigh_test(item)
        items.sort(key=lambda item: -weights[item.path])


def weigh_test(item: pytest.Item) -> float:
    """Return about how many seconds a test takes."""
    seconds = {"long": 60.0, "cluster": 20.0, "spark": 1.0}
    return next((each for mark, each in seconds.items() if item.get_closest_marker(mark)), 0.05)


def choose_sample(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--promises", None) or any(".py" in asked for asked in config.args):
        return
    long = [item for item in items if item.get_closest_marker("long")]
    others = [item for item in items if not item.get_closest_marker("long")]
    said = config.option
    sizes = [
        (long, len(long) if said.long == "all" else _parse_number(said.long)),
        (others, round(len(others) * said.share / 100)),
    ]
    left_out = {item for items, most in sizes for item in leave_out(items, most, said.seed)}
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Return the seed of the sample, for a test that draws random values."""
    return int(request.config.getoption("--seed"))


def leave_out(tests: Sequence[T], most: int, seed: int) -> list[T]:
    """Return all tests except a random choice of at most `most` tests. The same seed gives the same result."""
    chosen = set(random.Random(seed).sample(range(len(tests)), min(most, len(tests))))
    return [each for index, each in enumerate(tests) if index not in chosen]


def _parse_number(said: str) -> int:
    if not said.isdigit():
        raise pytest.UsageError(f"--long {said}: a number, or all")
    return int(said)
