"""Every way of a batch has the same result, and each can be left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from destinations.delta import Delta
from destinations.memory import Memory
from origins.files import Files
from runners.model.spec import WAYS
from runners.ways.choose import EVERY, choose, list_reasons
from runners.ways.stage_chain import StageChain
from runners.ways.way import Candidate, Thresholds
from stages.conditions import Filter
from stages.deduplicate import Deduplicate
from stages.python import Handler
from stages.sql import Sql
from stages.stage import Stage
from tests.runners.ways.conformance import (
    CASES,
    LARGE,
    GroupedConformance,
    StraightConformance,
    WayBench,
    WayConformance,
    expect_decided,
    find_filtered,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from destinations.destination import Destination

ONE_FOR_ALL = frozenset(CASES) - {"branches", "raising"}


@pytest.mark.spark
class TestWritten(WayConformance):
    way = "written"
    carries = frozenset(CASES)
    limits = Thresholds()


@pytest.mark.spark
class TestApart(WayConformance):
    way = "apart"
    carries = ONE_FOR_ALL


@pytest.mark.spark
class TestStraight(StraightConformance):
    pass


@pytest.mark.spark
class TestGrouped(GroupedConformance):
    pass


@pytest.mark.spark
@pytest.mark.parametrize("name", ["branches", "expected"])
def test_filtered_rows_are_all_kept_if_wanted(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Both ways that keep them store each row as often as it was filtered. The rest of the decision is unchanged."""
    found = []
    for limits in (Thresholds(), LARGE):
        bench = WayBench(spark, tmp_path / str(limits.small_bytes), CASES[name], [], limits, keeps_filtered=True)
        found.append(find_filtered(bench, bench.plan(straight=False)))
        bench.close()
    (small, kept, decided), (large, again, _) = found
    assert (small, large in ("apart", "written")) == ("written", True)
    assert (kept, decided) == (again, expect_decided(spark, name))


@pytest.mark.spark
def test_a_way_is_chosen_without_a_spark_job(spark: SparkSession, tmp_path: Path) -> None:
    """The reasons against each way are found without a job."""
    bench = WayBench(spark, tmp_path, CASES["expected"], [], LARGE)
    given = bench.runner.make_candidate(spark, bench.plan(straight=True), places=True)
    spark.sparkContext.setJobGroup("asked", "which way")
    assert list(list_reasons(given)) == list(WAYS)
    assert list(spark.sparkContext.statusTracker().getJobIdsForGroup("asked")) == []
    bench.close()


def make_candidate(
    *stages: Stage, destinations: Sequence[Destination] = (Delta(path="orders"),), **more: Any
) -> Candidate:
    """Return a definition with these stages, without a batch."""
    named = {f"d{number}": each for number, each in enumerate(destinations)}
    origin = Files(path="landing/*.parquet", format="parquet", name="files")
    chain = StageChain.of(stages, named)
    return Candidate(origin=origin, chain=chain, destinations=list(destinations), **{"lanes": 2, **more})


def test_a_definition_without_obstacles_can_take_every_way() -> None:
    """The way of a batch then depends only on the batch."""
    assert list_reasons(make_candidate(Filter("id > 1"))) == dict.fromkeys(WAYS, "")


@pytest.mark.parametrize(
    ("given", "not_by"),
    [
        (make_candidate(lanes=1), {"grouped"}),
        (make_candidate(destinations=[Delta(path="a", stamp="_batch")]), {"grouped"}),
        (make_candidate(Deduplicate(keys=["id"], name="once")), {"grouped", "straight", "apart"}),
        (make_candidate(Sql("select * from rows", name="own")), {"grouped", "apart"}),
        (make_candidate(destinations=[Memory(name="a"), Memory(name="b")]), {"grouped", "straight"}),
        (make_candidate(Handler("somewhere:rows")), {"grouped", "straight", "apart"}),
        (make_candidate(Filter("id > 1"), keeps_filtered=True), {"grouped", "straight"}),
        (make_candidate(keeps_filtered=True), set()),
    ],
    ids=[
        "one lane",
        "a stamp",
        "keys",
        "a statement",
        "a call",
        "two destinations",
        "filtered",
        "nothing to filter",
    ],
)
def test_each_way_gives_a_reason_why_it_cannot_process_a_definition(given: Candidate, not_by: set[str]) -> None:
    """A way that can has no reason."""
    assert {way for way, why in list_reasons(given).items() if why} == not_by


def test_a_batch_takes_the_first_possible_way() -> None:
    """The last way is always possible."""
    assert choose(make_candidate()).name == "apart"
    assert choose(make_candidate(Sql("select * from rows", name="own"))).name == "written"
    assert [way.name for way in EVERY][-1] == "written"
