"""How observed numbers of rows become the counts of a batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest

from destinations.memory import Memory
from origins.errors import WherryError
from runners.pipeline import Pipeline
from runners.ways.row_outcomes import SectionStates, StateTally, make_straight_counts, verify_states
from runners.ways.stage_chain import StageChain
from stages.cast import Cast
from stages.conditions import Filter
from stages.sql import Sql
from stages.stage import Stage
from tests.scenarios.conftest import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from stages.rows import Rows


def make_section(
    seen: Mapping[int, int] | None, again: Mapping[int, int] | None = None, *, twice: bool = False
) -> SectionStates:
    """Return a section of one batch with these rows by state, as they were observed and as a query counts them."""

    def count() -> Sequence[Counter[int]]:
        assert again is not None, "counted again"
        return [Counter(again)]

    return SectionStates(seen=None if seen is None else [Counter(seen)], twice=twice, again=count)


def make_chain(*stages: Stage) -> StageChain:
    return StageChain.of(stages, {"orders": Memory()})


@pytest.mark.parametrize("delivered", [7, None])
@pytest.mark.parametrize("read", [10, None])
def test_observed_numbers_are_used_if_they_agree(delivered: int | None, read: int | None) -> None:
    """A batch without refused rows is not counted again."""
    began = make_section(None if read is None else {0: read}, {0: 10})
    assert verify_states(began, [make_section({0: 7, 2: 3})], delivered) == [[{0: 10}], [{0: 7, 2: 3}]]


TRUE = {0: 7, 2: 3}


@pytest.mark.parametrize(
    ("sections", "delivered", "read"),
    [
        ([make_section({0: 14, 2: 6}, TRUE)], 7, None),
        ([make_section({0: 7, 2: 3}, TRUE)], None, 11),
        ([make_section({0: 7, 2: 3}, TRUE, twice=True), make_section({0: 7}, {0: 7})], 7, 10),
        (
            [make_section({0: 5}, {0: 5}), make_section({0: 20}, TRUE, twice=True), make_section({0: 7}, {0: 7})],
            None,
            5,
        ),
    ],
    ids=["the destination has fewer", "the origin has more", "an early section is doubled", "one between is doubled"],
)
def test_all_rows_are_counted_again_if_one_number_is_doubtful(
    sections: list[SectionStates], delivered: int | None, read: int | None
) -> None:
    """If one number is wrong, the others may be wrong too."""
    began = make_section(None if read is None else {0: read}, {0: 10})
    assert verify_states(began, sections, delivered) == [section.again() for section in [began, *sections]]


def test_only_sections_that_were_not_observed_are_counted() -> None:
    """Numbers that were observed are kept."""
    sections = [make_section(None, {0: 10}), make_section({0: 3, 1: 1}), make_section({0: 3})]
    began = make_section({0: 10})
    assert verify_states(began, sections, 3) == [[{0: 10}], [{0: 10}], [{0: 3, 1: 1}], [{0: 3}]]
    sections = [make_section({0: 10}), make_section(None, {0: 4})]
    assert verify_states(began, sections, 4) == [[{0: 10}], [{0: 10}], [{0: 4}]]


@pytest.mark.promise("CD-16")
@pytest.mark.parametrize("known", ["read", "given"])
def test_a_batch_does_not_balance_if_spark_saw_fewer_rows_than_the_origin(known: str) -> None:
    """The origin knows the rows from footers, or has read them in this process."""
    given: dict[str, Any] = {known: 10}
    tally = StateTally(make_chain(), **given, _sections=[lambda: make_section({0: 8}, {0: 8})])
    tally.count_read(cast("DataFrame", object()))
    (counts,) = tally.count(8)
    assert (counts.read, counts.is_balanced({"orders": 8})) == (10, False)


@dataclass(frozen=True, kw_only=True)
class Doubles(Stage):
    """Breaks its promise: it gives each row twice and does not say so."""

    def apply(self, rows: Rows) -> Rows:
        return rows.with_frame(rows.frame.union(rows.frame))


@dataclass(frozen=True, kw_only=True)
class Forgets(Stage):
    """Breaks its promise: it says that it gives other rows, and gives the same."""

    changes_rows: ClassVar[bool] = True

    def apply(self, rows: Rows) -> Rows:
        return rows


@pytest.mark.spark
@pytest.mark.connect
@pytest.mark.promise("CD-16")
@pytest.mark.parametrize(
    ("stage", "error"),
    [(Doubles(), "do not add up: read 10, refused 0, filtered 0, delivered"), (Forgets(), "one call of `Rows.change`")],
    ids=["doubles", "forgets"],
)
def test_a_stage_that_breaks_its_promise_stops_the_run(
    spark: SparkSession, tmp_path: Path, stage: Stage, error: str
) -> None:
    """The rows are counted as they are read, and not only at the end of the stages."""
    from destinations.delta import Delta
    from origins.files import Files

    (tmp_path / "landing").mkdir()
    (tmp_path / "landing/1.json").write_text("".join(f'{{"id": {number}}}\n' for number in range(10)))
    with pytest.raises(WherryError) as raised:
        Pipeline(
            name="orders",
            origin=Files(path=str(tmp_path / "landing"), format="json", schema="id long"),
            stages=[stage],
            destinations=[Delta(path=str(tmp_path / "orders"))],
            state=str(tmp_path / "state"),
        ).run()
    assert error in f"{raised.value.code}: {raised.value}"


@pytest.mark.promise("CD-10", "CD-16")
def test_each_stage_has_separate_counts() -> None:
    """Rows that a filter removes are filtered. Rows that a stage adds or merges are changed."""
    way = make_chain(Filter("a"), Cast({"a": "int"}), Sql("select explode(a) from rows"), Filter("b"))
    counts = make_straight_counts(way, [Counter({0: 8, 1: 2}), Counter({0: 15, 4: 5})])
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
        ("select id from rows union all select id from rows", 80),
    ],
    ids=["nothing", "exists", "union"],
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
