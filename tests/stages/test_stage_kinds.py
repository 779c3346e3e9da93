"""Every stage in the suite for stages, and what each of them promises in addition."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from stages.cast import Cast
from stages.columns import Drop, Rename, Select, WithColumns
from stages.conditions import Filter, Require
from stages.conformance import StageConformance, begin, begin_straight, collect_decided
from stages.rows import enter_stage, take_clean
from stages.sql import Sql
from stages.stage import Stage
from tests.stages.checks import CHECKS, KEEPS, NOTHING_ELSE, REFUSALS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.connect]


class WithColumnsOnAnyName(StageConformance):
    """A division that raises for zero, unusual names, and a label."""

    schema = "x int, `unit price` string"
    rows: ClassVar[list[tuple[Any, ...]]] = [(2, "a"), (None, None)]
    raising: ClassVar[list[tuple[Any, ...]]] = [(0, "b")]

    def stage(self) -> Stage:
        return WithColumns({"X": "10 / x", "new.one": "upper(`unit price`)", "lane": ":lane"})


class SelectOfParts(StageConformance):
    """Columns that are kept, computed, or taken from structs."""

    schema = "x int, s struct<`a b`: int, c: array<string>>, gone string"
    rows: ClassVar[list[tuple[Any, ...]]] = [(2, (1, ["x", None]), "z"), (None, None, None)]
    raising: ClassVar[list[tuple[Any, ...]]] = [(0, (1, None), None)]

    def stage(self) -> Stage:
        return Select(["X", "s.`a b`", "s", "1 / x as `a.b`", ":batch_time as t", "null"])


class RequireThatCouldRaise(StageConformance):
    """Two rules, one of which raises for zero."""

    schema = "x int, y string"
    rows: ClassVar[list[tuple[Any, ...]]] = [(4, "a"), (-4, "a"), (4, "b"), (None, "a"), (4, None), (None, None)]
    raising: ClassVar[list[tuple[Any, ...]]] = [(0, "a")]

    def stage(self) -> Stage:
        return Require({"positive": "1 / x > 0", "is a": "y = 'a'"})


class FilterThatCouldRaise(StageConformance):
    """A condition that is NULL is not true."""

    schema = "x int"
    rows: ClassVar[list[tuple[Any, ...]]] = [(1,), (-1,), (None,)]
    raising: ClassVar[list[tuple[Any, ...]]] = [(0,)]

    def stage(self) -> Stage:
        return Filter("1 / x > 0")


class SqlThatCouldRaise(StageConformance):
    """A statement with a named subquery, an explode, a label, and a comment at its end."""

    schema = "id int, tags string"
    rows: ClassVar[list[tuple[Any, ...]]] = [(1, "a b"), (2, "c"), (3, None)]
    raising: ClassVar[list[tuple[Any, ...]]] = [(0, "x")]

    def stage(self) -> Stage:
        return Sql(
            "with t as (select 6 / id as part, explode(split(tags, ' ')) as tag from rows)\n"
            "select tag, sum(part) as part, max(:number) as n, '{rows}' as `{source}` from t group by tag -- {x}\n;"
        )


class RenameOfAnyName(StageConformance):
    schema = "`a.b` int, c string"
    rows: ClassVar[list[tuple[Any, ...]]] = [(1, "X"), (None, None)]

    def stage(self) -> Stage:
        return Rename({"a.b": "größe"})


class DropOfAColumn(StageConformance):
    schema = "a int, b string"
    rows: ClassVar[list[tuple[Any, ...]]] = [(1, "X"), (None, None)]

    def stage(self) -> Stage:
        return Drop(["B"])


class CastOfTexts(StageConformance):
    schema = "a string, b string"
    rows: ClassVar[list[tuple[Any, ...]]] = [("1", "2.5"), ("x", "1"), (None, None), ("", "1"), ("1", "1e99")]

    def stage(self) -> Stage:
        return Cast({"a": "int", "b": "decimal(10,2)"})


class CastOfNestedValues(StageConformance):
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


class CastOfWhatSparkWouldChange(StageConformance):
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
    rows: list[tuple[Any, ...]] = [*CastOfWhatSparkWouldChange.rows, (" 1\n", None, None, None)]
    frame = spark.createDataFrame(rows, CastOfWhatSparkWouldChange.schema)
    stage = CastOfWhatSparkWouldChange().stage()
    good, refused, _ = collect_decided(stage.apply(enter_stage(begin(frame), "cast", 1)))
    assert [row.a for row in good] == [float("inf"), 1.0]
    assert len(refused) == 5


SUITES: dict[type[StageConformance], tuple[Sequence[str], Sequence[pytest.MarkDecorator]]] = {
    WithColumnsOnAnyName: ([*KEEPS, *NOTHING_ELSE], []),
    SelectOfParts: ([*KEEPS, *NOTHING_ELSE], []),
    RequireThatCouldRaise: (CHECKS, [pytest.mark.promise("DQ-11", "DQ-02", "CD-16")]),
    FilterThatCouldRaise: ([*KEEPS, *NOTHING_ELSE], [pytest.mark.promise("CD-10")]),
    SqlThatCouldRaise: ([*KEEPS, *NOTHING_ELSE], []),
    RenameOfAnyName: (KEEPS, []),
    DropOfAColumn: (KEEPS, []),
    CastOfTexts: ([*KEEPS, *REFUSALS], []),
    CastOfNestedValues: ([*KEEPS, *REFUSALS], []),
    CastOfWhatSparkWouldChange: ([*KEEPS, *REFUSALS], []),
}
"""The checks of each stage. The others hold where a stage refuses no row, or evaluates nothing that could raise."""


@pytest.mark.parametrize(
    ("suite", "check"),
    [pytest.param(suite, check, marks=marks) for suite, (checks, marks) in SUITES.items() for check in checks],
)
def test_a_stage_keeps_its_promises(spark: SparkSession, suite: type[StageConformance], check: str) -> None:
    """The suite is the same for all stages."""
    getattr(suite(), check)(spark)


def test_a_null_condition_refuses_in_require_and_filters_in_filter(spark: SparkSession) -> None:
    """Each of them does exactly one of the two."""
    frame = spark.createDataFrame([(None,), (1,)], "a int")
    required = collect_decided(Require("a > 0").apply(enter_stage(begin(frame), "it", 1)))
    filtered = collect_decided(Filter("a > 0").apply(enter_stage(begin(frame), "it", 1)))
    assert (len(required[0]), len(required[1]), required[2]) == (1, 1, 0)
    assert (len(filtered[0]), len(filtered[1]), filtered[2]) == (1, 0, 1)


def test_a_cast_names_every_column_that_it_refuses(spark: SparkSession) -> None:
    """The message has the value and the type."""
    frame = spark.createDataFrame([("x", "y")], "a string, b string")
    rows = Cast({"a": "int", "b": "date"}).apply(enter_stage(begin(frame), "cast", 1))
    (row,) = rows.frame.select("_wherry_nack.message").collect()
    assert row["message"] == "column a: 'x' is not an int; column b: 'y' is not a date"


def test_a_cast_gives_the_new_type(spark: SparkSession) -> None:
    """The values have the type of the cast."""
    frame = spark.createDataFrame([("1.50", "2026-01-02")], "a string, b string")
    (row,) = take_clean(Cast({"a": "decimal(10,2)", "b": "date"}).apply(begin_straight(frame))).collect()
    assert (row["a"], row["b"]) == (Decimal("1.50"), dt.date(2026, 1, 2))


def test_a_filter_is_not_moved_before_a_rule(spark: SparkSession, tmp_path: Any) -> None:
    """A row that a rule refuses is refused, even if a later filter of a parquet file would remove it."""
    path = str(tmp_path / "rows")
    spark.createDataFrame([(-1, None), (1, "x")], "a int, b string").write.parquet(path)
    rows = begin_straight(spark.read.parquet(path))
    rows = Filter("b is not null").apply(enter_stage(Require("a > 0").apply(enter_stage(rows, "rule", 1)), "filter", 2))
    with pytest.raises(Exception, match="WHERRY_REFUSED"):
        take_clean(rows).collect()
