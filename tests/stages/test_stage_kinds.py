"""Every stage in the suite for stages, and what each of them promises in addition."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from stages.cast import Cast
from stages.columns import Drop, Rename, Select, WithColumns
from stages.conditions import Filter, Require
from stages.conformance import StageConformance, begin, begin_straight, collect_decided
from stages.expressions import is_repeatable_sql, put_in
from stages.sql import Sql
from stages.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.connect, pytest.mark.variant]


class TestWithColumns(StageConformance):
    schema = "a int, b int"
    rows: ClassVar[list[tuple[Any, ...]]] = [(6, 2), (None, 3), (1, None)]

    def stage(self) -> Stage:
        return WithColumns({"A": "a / b", "c": "a + 1"})


@pytest.mark.variant
class TestWithColumnsThatWouldRaise(StageConformance):
    schema = "a int"
    rows: ClassVar[list[tuple[Any, ...]]] = [(1,), (2,)]

    def stage(self) -> Stage:
        return WithColumns({"b": "1 / a"})


@pytest.mark.variant
class TestSelect(StageConformance):
    schema = "a int, b string"
    rows: ClassVar[list[tuple[Any, ...]]] = [(1, "X"), (None, None)]

    def stage(self) -> Stage:
        return Select(["lower(b) as b", "a"])


@pytest.mark.variant
class TestRename(StageConformance):
    schema = "`a.b` int, c string"
    rows: ClassVar[list[tuple[Any, ...]]] = [(1, "X"), (None, None)]

    def stage(self) -> Stage:
        return Rename({"a.b": "größe"})


@pytest.mark.variant
class TestDrop(StageConformance):
    schema = "a int, b string"
    rows: ClassVar[list[tuple[Any, ...]]] = [(1, "X"), (None, None)]

    def stage(self) -> Stage:
        return Drop(["B"])


class TestCast(StageConformance):
    schema = "a string, b string"
    rows: ClassVar[list[tuple[Any, ...]]] = [("1", "2.5"), ("x", "1"), (None, None), ("", "1"), ("1", "1e99")]

    def stage(self) -> Stage:
        return Cast({"a": "int", "b": "decimal(10,2)"})


@pytest.mark.variant
class TestCastOfNestedValues(StageConformance):
    schema = "a array<string>, m map<string,string>, s struct<p:string>"
    rows: ClassVar[list[tuple[Any, ...]]] = [
        (["1", None], {"k": "1"}, ("1",)),
        (["1", "x"], {"k": "1"}, ("1",)),
        (["1"], {"k": "x"}, ("1",)),
        (["1"], {"k": None}, ("x",)),
        (None, None, None),
        ([], {}, (None,)),
    ]

    def stage(self) -> Stage:
        return Cast({"a": "array<int>", "m": "map<string,int>", "s": "struct<p:int>"})


@pytest.mark.variant
class TestCastOfWhatSparkWouldChange(StageConformance):
    schema = "a string, b double, c binary, d array<string>"
    rows: ClassVar[list[tuple[Any, ...]]] = [
        ("1e400", 1.0, b"a", []),
        ("Infinity", float("inf"), b"a", ["-inf"]),
        ("1", 1e39, b"a", []),
        ("1\0", 1.0, b"a", []),
        ("1", 1.0, b"\xc0\xaf", []),
        ("1", 1.0, b"a", ["1e400"]),
    ]

    def stage(self) -> Stage:
        return Cast({"a": "double", "b": "float", "c": "string", "d": "array<double>"})


def test_a_cast_refuses_values_that_spark_would_change(spark: SparkSession) -> None:
    """A value written as Infinity is accepted, and so are blanks around a value."""
    rows: list[tuple[Any, ...]] = [*TestCastOfWhatSparkWouldChange.rows, (" 1\n", None, None, None)]
    frame = spark.createDataFrame(rows, TestCastOfWhatSparkWouldChange.schema)
    stage = TestCastOfWhatSparkWouldChange().stage()
    good, refused, _ = collect_decided(stage.apply(begin(frame).enter("cast", 1)))
    assert [row.a for row in good] == [float("inf"), 1.0]
    assert len(refused) == 5


class TestRequire(StageConformance):
    schema = "a int"
    rows: ClassVar[list[tuple[Any, ...]]] = [(1,), (0,), (-1,), (None,)]

    def stage(self) -> Stage:
        return Require({"positive": "a > 0", "small": "a < 10"})


class TestFilter(StageConformance):
    schema = "a int"
    rows: ClassVar[list[tuple[Any, ...]]] = [(1,), (0,), (None,)]

    def stage(self) -> Stage:
        return Filter("a > 0")


class TestSql(StageConformance):
    schema = "a int, b string"
    rows: ClassVar[list[tuple[Any, ...]]] = [(1, "x"), (2, "x"), (3, "y")]

    def stage(self) -> Stage:
        return Sql("select b, sum(a) as a, '{b}' as c from rows group by b -- the end")


def test_a_null_condition_refuses_in_require_and_filters_in_filter(spark: SparkSession) -> None:
    """Each of them does exactly one of the two."""
    frame = spark.createDataFrame([(None,), (1,)], "a int")
    required = collect_decided(Require("a > 0").apply(begin(frame).enter("it", 1)))
    filtered = collect_decided(Filter("a > 0").apply(begin(frame).enter("it", 1)))
    assert (len(required[0]), len(required[1]), required[2]) == (1, 1, 0)
    assert (len(filtered[0]), len(filtered[1]), filtered[2]) == (1, 0, 1)


def test_a_cast_names_every_column_that_it_refuses(spark: SparkSession) -> None:
    """The message has the value and the type."""
    frame = spark.createDataFrame([("x", "y")], "a string, b string")
    rows = Cast({"a": "int", "b": "date"}).apply(begin(frame).enter("cast", 1))
    (row,) = rows.frame.select("_wherry_nack.message").collect()
    assert row["message"] == "column a: 'x' is not an int; column b: 'y' is not a date"


def test_a_cast_gives_the_new_type(spark: SparkSession) -> None:
    """The values have the type of the cast."""
    frame = spark.createDataFrame([("1.50", "2026-01-02")], "a string, b string")
    (row,) = Cast({"a": "decimal(10,2)", "b": "date"}).apply(begin_straight(frame)).take_clean().collect()
    assert (row["a"], row["b"]) == (Decimal("1.50"), dt.date(2026, 1, 2))


def test_a_filter_is_not_moved_before_a_rule(spark: SparkSession, tmp_path: Any) -> None:
    """A row that a rule refuses is refused, even if a later filter of a parquet file would remove it."""
    path = str(tmp_path / "rows")
    spark.createDataFrame([(-1, None), (1, "x")], "a int, b string").write.parquet(path)
    rows = begin_straight(spark.read.parquet(path))
    rows = Filter("b is not null").apply(Require("a > 0").apply(rows.enter("rule", 1)).enter("filter", 2))
    with pytest.raises(Exception, match="WHERRY_REFUSED"):
        rows.take_clean().collect()


def test_thirty_stages_are_planned_quickly(spark: SparkSession) -> None:
    """A decided batch's plan grows linearly with its stages."""
    rows: Any = begin(spark.createDataFrame([(1,)], "a bigint"))
    for step in range(30):
        rows = rows.enter(f"s{step}", step + 1)
        rows = Require(f"a > -{step}").apply(WithColumns({"a": "a + 1"}).apply(rows))
    (row,) = rows.frame.collect()
    assert row["a"] == 31


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (":lane", "'0'"),
        ("x = ':lane'", "x = ':lane'"),
        ("a::string", "a::string"),
        ("`:lane` + :number", "`:lane` + 7L"),
        ("payload:lane", "payload:lane"),
        ("1 -- :lane", "1 -- :lane"),
    ],
)
def test_labels_are_replaced_in_place_of_values(sql: str, expected: str) -> None:
    """Strings, quoted names, comments, casts and parts of a value remain."""
    assert put_in(sql, {"lane": "0", "number": 7}) == expected


@pytest.mark.parametrize(("sql", "same"), [("lower(a)", True), ("rand() > 0.5", False), ("'rand()'", True)])
def test_an_expression_with_a_changing_function_is_not_repeatable(sql: str, same: bool) -> None:
    """A batch with such an expression is prepared before it is delivered."""
    assert is_repeatable_sql(sql) is same
