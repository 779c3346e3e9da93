"""How observed numbers of rows become the counts of a batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from destinations.memory import Memory
from runners.pipeline import Pipeline
from runners.ways.row_outcomes import RowTally, SeenFigure, make_straight_counts, verify_figures
from runners.ways.stage_chain import StageChain
from stages.cast import Cast
from stages.conditions import Filter
from stages.sql import Sql
from stages.stage import Stage
from tests.scenarios.conftest import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def make_figure(step: int, seen: int | None, again: int = 0, *, twice: bool = False) -> SeenFigure:
    return SeenFigure(step=step, seen=seen, twice=twice, again=lambda: again)


def make_chain(*stages: Stage) -> StageChain:
    return StageChain.of(stages, {"orders": Memory()})


def test_observed_numbers_are_used_if_the_last_one_agrees() -> None:
    """A batch without refused rows is not counted again."""

    def never() -> int:
        raise AssertionError("counted again")

    figures = [SeenFigure(step=step, seen=seen, again=never) for step, seen in ((0, 10), (2, 7))]
    assert verify_figures(figures, 7) == {0: 10, 2: 7}
    assert verify_figures(figures, None) == {0: 10, 2: 7}


@pytest.mark.parametrize(
    ("figures", "delivered"),
    [
        ([make_figure(0, 10, 5), make_figure(2, 14, 7)], 7),
        ([make_figure(0, 10, 5, twice=True), make_figure(2, 7, 7)], 7),
        ([make_figure(0, 5, 5), make_figure(1, 20, 7, twice=True), make_figure(2, 7, 7)], None),
    ],
    ids=["the destination has fewer", "an early figure is doubled", "one between is doubled"],
)
def test_all_numbers_are_counted_again_if_one_is_doubtful(figures: list[SeenFigure], delivered: int | None) -> None:
    """If one number is wrong, the others may be wrong too."""
    assert verify_figures(figures, delivered) == {each.step: each.again() for each in figures}


def test_only_numbers_that_were_not_observed_are_counted() -> None:
    """Numbers that were observed are kept."""
    figures = [make_figure(0, None, 10), make_figure(1, 3, 99), make_figure(2, 3, 99)]
    assert verify_figures(figures, 3) == {0: 10, 1: 3, 2: 3}
    assert verify_figures([make_figure(0, 3, 99), make_figure(1, None, 4)], 4) == {0: 3, 1: 4}


@pytest.mark.promise("CD-16")
@pytest.mark.parametrize("known", ["read", "given"])
def test_a_batch_does_not_balance_if_spark_saw_fewer_rows_than_the_origin(known: str) -> None:
    """The origin knows the rows from footers, or has read them in this process."""

    class Fewer:
        def count(self) -> int:
            return 8

    given: dict[str, Any] = {known: 10}
    tally = RowTally(make_chain(), **given)
    tally._observed.append((0, cast("DataFrame", Fewer()), lambda: {"rows0": 8 if known == "given" else 10}))
    counts = tally.compute_counts(8)
    assert (counts.read, counts.is_balanced({"orders": 8})) == (10, False)


@pytest.mark.promise("CD-10", "CD-16")
def test_each_stage_has_separate_counts() -> None:
    """Rows that a filter removes are filtered. Rows that a stage adds or merges are changed."""
    way = make_chain(Filter("a"), Cast({"a": "int"}), Sql("select explode(a) from rows"), Filter("b"))
    counts = make_straight_counts(way, {0: 10, 1: 8, 3: 20, 4: 15})
    (branch,) = counts.branches.values()
    assert (counts.read, branch.filtered, branch.changed, branch.expected) == (10, 7, 12, 15)
    assert [(each.stage, each.entered, each.left, each.filtered) for each in counts.stages] == [
        ("filter", 10, 8, 2),
        ("cast", 8, 8, 0),
        ("sql", 8, 20, 0),
        ("filter#2", 20, 15, 5),
    ]
    assert counts.is_balanced({"orders": 15})
    assert not counts.is_balanced({"orders": 16})


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.promise("CD-16")
def test_a_retry_is_not_counted_twice(tmp_path: Path) -> None:
    """A failed task, or tasks that run again after a loss, do not change the counts.

    Two of four rows of each number are kept, and grouped into 30 rows.
    """
    program = [sys.executable, "-m", "tests.runners.engine.retried", str(tmp_path)]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(program, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    reports: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    for provoked in ("nothing", "failure", "loss"):
        report = reports[provoked]
        assert report["provoked"], provoked
        assert (report["read"], report["filtered"], report["delivered"]) == (120, 60, 30), provoked
        assert [(each["stage"], each["in"], each["out"]) for each in report["stages"]] == [
            ("filter", 120, 60),
            ("spoil", 60, 60),
            ("sql", 60, 30),
            ("spoil#2", 30, 30),
        ], provoked
    assert reports["loss"]["doubled"], "what is lost must be seen twice, or the test shows nothing"
    assert not reports["nothing"]["doubled"]


@pytest.mark.spark
@pytest.mark.connect
@pytest.mark.promise("CD-16")
@pytest.mark.parametrize(
    ("statement", "gives"),
    [
        ("select id from rows where 1 = 0", 0),
        ("select 1 as id where exists (select 1 from rows where id = 1)", 1),
        ("select a.id from rows a join (select id from rows where id < 0) b on a.id = b.id + 1", 0),
        ("select id from rows union all select id from rows", 80),
        ("select explode(array(id, id)) as id from rows", 80),
    ],
    ids=["nothing", "exists", "empty join", "union", "explode"],
)
def test_all_rows_that_were_read_count_even_if_a_statement_uses_few(
    spark: SparkSession, tmp_path: Path, statement: str, gives: int
) -> None:
    """Spark skips rows that it does not need, but the counts include them."""
    from destinations.delta import Delta
    from origins.files import Files

    place = Place(tmp_path, spark)
    for part in range(2):
        place.land(f"{part}.json", [{"id": part * 20 + number} for number in range(20)])
    pipeline = Pipeline(
        name="orders",
        origin=Files(path=str(tmp_path / "landing"), format="json", schema="id long"),
        stages=[Sql(statement)],
        destinations=[Delta(path=str(tmp_path / "orders"))],
        state=str(tmp_path / "state"),
    )
    report = pipeline.run()
    assert (report.read, report.filtered, report.balanced, report.delivered["orders"]) == (40, 0, True, gives)


def test_a_statement_with_an_inner_query_is_counted_by_a_separate_query() -> None:
    """The text of the statement shows whether it surely takes all rows. In doubt, the answer is no."""
    takes: Callable[[str], bool] = lambda statement: Sql(statement).takes_all  # noqa: E731
    assert takes("select *, 'select' as `from` from rows where a > 1 -- select")
    assert takes("select k, count(*) from rows group by k")
    assert not takes("with x as (select * from rows) select * from x")
    assert not takes("select 1 where exists (from rows |> where id = 1)")
    assert not takes("select 1 where exists (table rows)")
    assert not takes("select * from rows where exists (select 1 from rows)")
