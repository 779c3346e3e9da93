"""The rows that `when` selects, and what `on_error` does with refused rows. Both ways agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from stages.cast import Cast
from stages.columns import Drop, WithColumns
from stages.conditions import Filter, Require
from stages.conformance import begin, begin_straight, collect_decided, does_raise_mark
from stages.deduplicate import Deduplicate
from stages.rows import enter_stage, take_clean
from stages.sql import Sql
from stages.stage import Stage, apply_stage, is_repeatable, list_problems

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stages.rows import Rows

RULE = {"positive": "a > 0"}


@pytest.mark.promise("SS-22")
@pytest.mark.parametrize(
    ("stage", "says"),
    [
        (Filter("a > 0", on_error="drop"), [("on_error", "expected nack, discard, keep or stop, got 'drop'")]),  # type: ignore[arg-type]
        (Filter("a > 0", when=""), [("when", "expected an expression, got ''; quote it if it is one")]),
        (Filter("a > 0", when="count(*) over () > 1"),
         [("when", "a window needs more than one row; write it in the stage sql")]),
        (Sql("select * from rows", on_error="keep"),
         [("on_error", "keep: this stage makes other rows of those it gets, so no row can go on unchanged")]),
        (Sql("select * from rows", when="a > 0"),
         [("when", "this stage makes other rows of those it gets, so no row can skip it; put the condition inside the "
                   "stage")]),
        (Require(RULE, when="a is not null", on_error="keep"), []),
        (Sql("select * from rows", on_error="discard"), []),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_a_stage_are_reported(stage: Stage, says: list[tuple[str, str]]) -> None:
    """The problems are listed by option, before anything is read."""
    assert list(list_problems(stage)) == says


def test_a_random_condition_makes_a_stage_unrepeatable() -> None:
    """Such a batch is stored before it is delivered."""
    assert is_repeatable(Filter("a > 0", when="a > 1"))
    assert not is_repeatable(Filter("a > 0", when="rand() > 0.5"))


def make_straight(spark: SparkSession, rows: list[tuple[Any, ...]], schema: str) -> Rows:

    frame = spark.createDataFrame(rows, schema)
    return enter_stage(begin_straight(frame), "it", 2)


CASES: list[tuple[Stage, list[Any], list[Any]]] = [
    # the stage, what leaves of (a, b) = (2, 'x'), (0, 'y'), (None, 'z'), and the positions of the refused rows
    (WithColumns({"b": "upper(b)", "c": "1 / a"}, when="a > 0"),
     [(2, "X", 0.5), (0, "y", None), (None, "z", None)], []),
    (Filter("b = 'y'", when="a is not null"), [(0, "y"), (None, "z")], []),
    (Require(RULE, when="b = 'y'"), [(2, "x"), (None, "z")], [1]),
    (Require(RULE, on_error="discard"), [(2, "x")], []),
    (Cast({"b": "int"}, on_error="keep"), [(2, None), (0, None), (None, None)], []),
    (Deduplicate(keys=["c"], sequence_by="a", when="b <> 'y'"), [(0, "y", 1), (2, "x", 1)], []),
]  # fmt: skip


@pytest.mark.spark
@pytest.mark.connect
@pytest.mark.promise("SS-22")
@pytest.mark.parametrize(("stage", "leaves", "refused"), CASES, ids=[str(number) for number in range(len(CASES))])
def test_both_ways_select_the_same_rows(
    spark: SparkSession, stage: Stage, leaves: list[Any], refused: list[int]
) -> None:
    """A row that skips the stage is not evaluated. A straight batch raises only if a row is refused."""
    rows: list[tuple[Any, ...]] = [(2, "x"), (0, "y"), (None, "z")]
    schema = "a int, b string"
    if isinstance(stage, Deduplicate):
        rows, schema = [(*row, 1) for row in rows], f"{schema}, c int"
    marked = apply_stage(stage, enter_stage(begin(spark.createDataFrame(rows, schema)), "it", 2))
    kept, nacked, _ = collect_decided(marked)
    assert sorted(map(tuple, kept), key=str) == sorted(leaves, key=str)
    assert nacked == refused
    left: Any = apply_stage(stage, make_straight(spark, rows, schema))
    assert take_clean(left).columns == list(marked.names)
    assert does_raise_mark(take_clean(left)) is bool(refused)
    if not refused:
        assert sorted(map(tuple, take_clean(left).collect()), key=str) == sorted(leaves, key=str)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("stage", "says"),
    [
        (Cast({"a": "string"}, when="a > 0"),
         "when: the stage makes column a string, but in rows that skip the stage it is int; "
         "give the new column another name"),
        (Drop(["a"], when="a > 0"), "when: the stage removes column a, but rows that skip the stage have it"),
    ],
)  # fmt: skip
def test_a_column_must_be_the_same_in_all_rows(spark: SparkSession, stage: Stage, says: str) -> None:
    """The error is raised when the definition is opened."""
    with pytest.raises(ValueError) as error:  # noqa: PT011 -- the message is compared below
        apply_stage(stage, make_straight(spark, [(1, "x")], "a int, b string"))
    assert str(error.value) == says


@pytest.mark.spark
def test_a_rule_may_be_a_text_that_says_true_or_false(spark: SparkSession) -> None:
    """Both ways refuse the same rows."""
    frame = spark.createDataFrame([(1, "true"), (2, "false"), (3, None)], "a int, ok string")
    rule = Require({"ok": "ok"})
    kept, refused, _ = collect_decided(apply_stage(rule, enter_stage(begin(frame), "it", 1)))
    assert ([row.a for row in kept], len(refused)) == ([1], 2)
    straight = [apply_stage(rule, enter_stage(begin_straight(frame.where(f"a = {a}")), "it", 1)) for a in (1, 2, 3)]
    assert [does_raise_mark(take_clean(each)) for each in straight] == [False, True, True]
