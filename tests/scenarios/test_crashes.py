"""Run a small sample of the long suite. `python -m tests.scenarios.crashes --into FOLDER` runs the whole suite."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from origins.crash_points import POINTS
from tests.scenarios.crash_cell import BUCKET
from tests.scenarios.crashes import FACTORS, is_possible, list_numbers, make_cells, run_cell
from tests.scenarios.shared_jvm import Server
from tests.stores.jars import join_store_jars
from tests.stores.s3 import make_bucket, make_spark_settings


def test_every_possible_point_way_and_destination_has_a_cell() -> None:
    """Combinations that no batch can reach have no cell."""
    met = {(cell.point, cell.how.split()[0], cell.destinations) for cell in make_cells()}
    alone = [each for each in FACTORS["destinations"] if each != "three"]
    for point, how, name in itertools.product(POINTS, FACTORS["how"], alone):
        expected = is_possible({"point": point, "how": how, "destinations": name, "refused": "some"})
        assert ((point, how, name) in met) is expected, (point, how, name)


def test_every_two_possible_values_have_a_cell() -> None:
    """This covers all columns except the point, the way and the destinations, which the test above covers."""
    others = [name for name in FACTORS if name not in ("point", "destinations", "how")]
    for one, other in itertools.combinations(others, 2):
        met = {(getattr(cell, one), getattr(cell, other)) for cell in make_cells()}
        every = itertools.product(FACTORS[one], FACTORS[other])
        assert met == {(a, b) for a, b in every if is_possible({one: a, other: b})}


def test_every_possible_point_and_order_has_a_cell() -> None:
    """Without a JVM, no batch is prepared, no row is refused, and no folder of files is claimed."""
    met = {(cell.point, cell.order) for cell in make_cells()}
    prepared = {"after-prepare", "before-prepared", "after-prepared", "between-writes", "before-dlq", "after-dlq"}
    assert set(itertools.product(POINTS, FACTORS["order"])) - met == {
        (point, "never") for point in {*prepared, "after-claim"}
    }


def test_the_cells_are_the_same_each_time() -> None:
    """A number always names the same cell."""
    assert make_cells() == make_cells()


def test_a_matrix_on_s3_has_every_point() -> None:
    """It has no cell whose ledger is in a catalog."""
    every = make_cells()
    chosen = [every[number] for number in list_numbers(every, "s3")]
    assert {cell.point for cell in chosen} == {*POINTS}
    assert {cell.ledger for cell in chosen} == {"deltalake"}
    assert list_numbers(every, "disk") == [*range(len(every))]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Provide a Spark that keeps running when a Python process dies."""
    server = Server(tmp_path / "jvm")
    yield server
    server.close()


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.promise("CD-22", "CD-27")
def test_a_crash_loses_no_row_and_doubles_none(server: Server, tmp_path: Path, seed: int) -> None:
    """The test runs one cell for each order, chosen by `--seed`."""
    every, dice = list(enumerate(make_cells())), random.Random(seed)
    chosen = [dice.choice([each for each in every if each[1].order == order]) for order in FACTORS["order"]]
    ended = [run_cell(number, cell, tmp_path / str(number), server) for number, cell in chosen]
    assert [each.wrong for each in ended] == [[]] * len(chosen)


@pytest.mark.long
@pytest.mark.spark
def test_a_crash_on_s3_loses_no_row_and_doubles_none(s3_server: str, tmp_path: Path, seed: int) -> None:
    """The state and the tables are in S3."""
    every = make_cells()
    numbers = list_numbers(every, "s3")
    make_bucket(s3_server, BUCKET)
    settings = {**make_spark_settings(s3_server), "spark.jars": join_store_jars()}
    with contextlib.closing(Server(tmp_path / "jvm", settings)) as server:
        for number in random.Random(seed).sample(numbers, 2):
            assert run_cell(number, every[number], tmp_path / str(number), server, s3=s3_server).wrong == []
