"""The options of each stage, and how stages report missing columns."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from runners.model.errors import StageError
from stages.cast import Cast
from stages.columns import Drop, Rename, Select, WithColumns
from stages.conditions import Filter, Require
from stages.conformance import begin_straight
from stages.rows import take_clean
from stages.sql import Sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stages.stage import Stage


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: WithColumns({"a": None}), "columns.a: expected an expression, got nothing"),  # type: ignore[dict-item]
        (lambda: WithColumns({"a": "sum(x) over ()"}), "columns.a: a window needs more than one row"),
        (lambda: Select("id"), "columns: expected a list of columns, got 'id'"),
        (lambda: Select([]), "columns: expected a list of columns, got []"),
        (lambda: Select([1]), "columns[0]: expected an expression, got 1"),  # type: ignore[list-item]
        (lambda: Select(["id", "lower(x)"]), "columns: 'lower(x)' needs a name; write \"lower(x) as name\""),
        (lambda: Select(["id", "x as ID"]), "columns: 'ID' is there twice"),
        (lambda: Select({"a": "1", "A": "2"}), "columns: 'A' is there twice"),
        (lambda: Rename({}), "columns: expected a mapping from names to new names, got {}"),
        (lambda: Rename({"a": ""}), "columns: expected the name of a column, got ''"),
        (lambda: Rename({"a": "x", "b": "X"}), "columns: 'X' is there twice"),
        (lambda: Drop("id"), "columns: expected a list of names, got 'id'"),
        (lambda: Drop(["a", "A"]), "columns: 'A' is there twice"),
        (lambda: Cast({"a": 5}), "columns.a: expected an expression, got 5"),  # type: ignore[dict-item]
        (lambda: Require(None), "conditions: expected an expression, got nothing"),  # type: ignore[arg-type]
        (lambda: Require({"a": True}), "conditions.a: expected an expression, got True"),  # type: ignore[dict-item]
        (lambda: Filter(""), "condition: expected an expression, got ''"),
        (lambda: Filter("exists (select 1)"), "condition: a query needs more than one row"),
        (lambda: Sql(None), "statement: expected an expression, got nothing"),  # type: ignore[arg-type]
    ],
)
def test_an_invalid_option_of_a_stage_is_refused(make: Callable[[], Stage], says: str) -> None:
    """The message begins with the option."""
    with pytest.raises(ValueError) as error:  # noqa: PT011 -- the message is compared below
        make()
    assert str(error.value).startswith(says)


def test_a_long_column_is_read_once() -> None:
    """One of 50,000 spaces without a name is refused in less than two seconds."""
    before = time.process_time()
    with pytest.raises(ValueError, match="needs a name"):
        Select(["lower(a" + " " * 50_000 + ")"])
    assert time.process_time() - before < 2


@pytest.mark.parametrize(
    ("stage", "same"),
    [
        (WithColumns({"a": "upper(x)"}), True),
        (WithColumns({"a": "upper(x)", "b": "uuid()"}), False),
        (Select(["x", "now() as t"]), False),
        (Filter("x > rand()"), False),
        (Require({"fresh": "at > current_date"}), False),
        (Sql("select * from rows"), True),
        (Sql("select * from rows join other using (id)"), False),
        (Sql("select * from rows limit 1"), False),
    ],
)
def test_a_stage_reports_whether_it_is_repeatable(stage: Stage, same: bool) -> None:
    """Other tables, the clock and random values make a stage unrepeatable."""
    assert stage.repeatable is same


@pytest.mark.spark
@pytest.mark.parametrize(
    ("stage", "says"),
    [
        (Select(["Id", "emial"]), "there is no column 'emial'; did you mean 'email'?"),
        (Select({"x": "emial"}), "there is no column 'emial'; did you mean 'email'?"),
        (Select(["*", "upper(email) as Email"]), "columns: 'Email' is there twice"),
        (Rename({"emial": "x"}), "there is no column 'emial'; did you mean 'email'?"),
        (Rename({"email": "ID"}), "there would be two columns called ID"),
        (Drop(["emial"]), "there is no column 'emial'; did you mean 'email'?"),
        (Drop(["id", "email", "a.b"]), "no column would be left"),
        (Cast({"emial": "int"}), "there is no column 'emial'; did you mean 'email'?"),
        (Cast({"zzzzz": "int"}), "there is no column 'zzzzz'; there are: id, email, a.b"),
    ],
)
def test_a_missing_column_is_an_error(spark: SparkSession, stage: Stage, says: str) -> None:
    """The message names the nearest column."""
    frame = spark.sql("select 1 as id, 'x' as email, 2 as `a.b`")
    with pytest.raises(ValueError) as error:  # noqa: PT011 -- the message is compared below
        stage.apply(begin_straight(frame))
    assert str(error.value).startswith(says)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("stage", "row"),
    [
        (Select(["`A.B`", "email"]), {"a.b": 2, "email": "x"}),
        (Select(["ID", "s.`x y`", "upper(email) as `o k`"]), {"id": 1, "x y": 7, "o k": "X"}),
        (Select({"ID": "id", "twice": "id * 2", "nothing": "null", "on": ":lane"}),
         {"ID": 1, "twice": 2, "nothing": None, "on": "0"}),
        (Select(["*", "1 as one"]), {"id": 1, "email": "x", "a.b": 2, "s": (7,), "one": 1}),
        (WithColumns({"EMAIL": "id", "id": "email"}), {"id": "x", "email": 1, "a.b": 2, "s": (7,)}),
        (Rename({"ID": "email", "Email": "id"}), {"email": 1, "id": "x", "a.b": 2, "s": (7,)}),
        (Drop(["A.b", "S"]), {"id": 1, "email": "x"}),
    ],
)  # fmt: skip
def test_columns_are_chosen_by_name(spark: SparkSession, stage: Stage, row: dict[str, object]) -> None:
    """The case of letters does not matter, and names may have any characters."""
    frame = spark.sql("select 1 as id, 'x' as email, 2 as `a.b`, named_struct('x y', 7) as s")
    begun = begin_straight(frame)
    [found] = take_clean(stage.apply(begun)).collect()
    assert found.asDict() == row


@pytest.mark.parametrize("kind", ["decimal(10,2", "int) or (true", "array<'"])
def test_a_type_with_unbalanced_marks_is_refused(kind: str) -> None:
    """The message names the column."""
    with pytest.raises(ValueError, match=r"columns\.amount: expected a type such as decimal\(10,2\), got"):
        Cast({"amount": kind})


@pytest.mark.spark
@pytest.mark.parametrize(
    ("stage", "says"),
    [
        (Filter("email is not nul"), "Syntax error at or near 'nul'"),
        (Filter("id > 1) or (true"), r"Syntax error at or near '\)'"),
        (Require("id >"), "Syntax error at or near end of input"),
        (WithColumns({"x": "id +"}), "Syntax error at or near end of input"),
    ],
)
def test_an_error_in_an_expression_quotes_only_the_users_text(spark: SparkSession, stage: Stage, says: str) -> None:
    """It does not show the SQL that Wherry adds around the expression."""
    from runners.ways.stage_chain import PlacedStage, apply_chain

    frame = spark.sql("select 1 as id, 'x' as email")
    rows = begin_straight(frame)
    with pytest.raises(StageError, match=says):
        apply_chain(rows, [PlacedStage(number=1, name="it", stage=stage)], {}, checked=True)
