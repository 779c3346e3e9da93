"""Rows in the stages, on both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from py4j.java_gateway import GatewayClient

from origins.nack import make_reason
from origins.spark_versions import is_connect
from stages.cast import Cast
from stages.columns import WithColumns
from stages.conditions import Filter, Require
from stages.conformance import LABELS, begin, begin_straight, does_raise_mark
from stages.rows import Rows, complete_verdicts, enter_stage, make_rows, place_rows, take_clean, take_live

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from stages.query import Schemas
    from stages.stage import Stage

pytestmark = pytest.mark.spark


def pass_stages(rows: Rows, *stages: Stage) -> Rows:
    """Return the rows after these stages."""
    for step, stage in enumerate(stages, 1):
        rows = stage.apply(enter_stage(rows, f"stage {step}", step))
    return rows


@pytest.fixture
def orders(spark: SparkSession, tmp_path: Path) -> DataFrame:
    """A parquet file with one bad row, into which Spark would push filters."""
    rows = [(1, "1.5"), (2, "sieben"), (3, None)]
    spark.createDataFrame(rows, "id int, amount string").coalesce(1).write.parquet(f"{tmp_path}/orders")
    return spark.read.parquet(f"{tmp_path}/orders")


@pytest.mark.promise("CD-16")
@pytest.mark.parametrize("condition", ["id > 100", "amount is null", "false", "rand() > 2"])
def test_no_later_filter_hides_a_bad_row(orders: DataFrame, condition: str) -> None:
    """The filter is not moved before the cast or merged with it, and does not empty the plan."""
    rows = pass_stages(begin_straight(orders), Cast({"amount": "decimal(10,2)"}), Filter(condition))
    assert does_raise_mark(take_clean(rows))


def test_a_row_that_an_earlier_filter_removed_is_not_refused(orders: DataFrame) -> None:
    """Stages see rows in the order of the stages."""
    rows = pass_stages(begin_straight(orders), Filter("amount <> 'sieben'"), Cast({"amount": "decimal(10,2)"}))
    assert [str(row.amount) for row in take_clean(rows).collect()] == ["1.50"]


def test_a_row_that_an_earlier_filter_removed_is_not_evaluated(spark: SparkSession) -> None:
    """A division by zero raises under ANSI, unless a filter removed the zero before."""
    rows = begin_straight(spark.range(-2, 3).selectExpr("int(id) as x"))
    passed = pass_stages(rows, Filter("x <> 0"), WithColumns({"y": "12 div x"}), Require("y between -12 and 12"))
    assert sorted(row.y for row in take_clean(passed).collect()) == [-12, -6, 6, 12]


@pytest.mark.parametrize("sql", ["explode(array(1, 2))", "sum(id)", "count(*)", "max(amount)"])
def test_an_expression_must_make_one_value_of_one_row(spark: SparkSession, orders: DataFrame, sql: str) -> None:
    """Other expressions cannot be analyzed, since the rows would be counted wrongly."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    for rows in (begin_straight(orders), begin(orders)):
        with pytest.raises(AnalysisException):
            rows.select({"x": F.expr(sql)}).schema  # noqa: B018 -- on Spark Connect it is the schema that analyses
        with pytest.raises(AnalysisException):
            rows.filter(F.expr(sql) > 0).schema  # noqa: B018


def test_an_attempted_expression_is_computed_once(spark: SparkSession) -> None:
    """The value that was checked is the value that leaves, even if the expression changes each time."""
    from pyspark.sql import functions as F

    for rows in (begin_straight(spark.range(500)), begin(spark.range(500))):
        why = F.when(F.col("_wherry_x") < 0.0, make_reason("NEGATIVE", F.lit("negative")))
        tried: Rows = rows.attempt({"_wherry_x": F.rand()}, why, {"id": "_wherry_x"})
        twice = tried.with_columns({"same": F.col("id") - F.col("id")})
        assert {row.same for row in take_live(twice).collect()} == {0.0}


@pytest.mark.promise("DQ-02", "X5")
def test_a_nack_has_the_row_before_the_stage_and_the_original_row(orders: DataFrame) -> None:
    """Earlier stages have changed the former, and not the latter."""
    import json

    rows = pass_stages(begin(orders), WithColumns({"id": "id * 10", "extra": "'x'"}), Cast({"amount": "int"}))
    [nack] = [
        row["_wherry_nack"]
        for row in complete_verdicts(rows).frame.collect()
        if row["_wherry_nack"] and row["id"] == 20
    ]
    assert (nack.stage, nack.code) == ("stage 2", "CAST")
    assert json.loads(nack.row) == {"id": 20, "amount": "sieben", "extra": "x"}
    assert json.loads(nack.original) == {"id": 2, "amount": "sieben"}


@pytest.mark.promise("X9", "CD-12")
def test_a_row_is_refused_once_by_the_first_stage(spark: SparkSession) -> None:
    """A later stage does not change the verdict."""
    stages = [Require({"first": "id > 1"}), Require({"second": "id > 2"}), Filter("id > 3")]
    rows: Any = pass_stages(begin(spark.range(1, 5)), *stages)
    fates = {row["id"]: (row["_wherry_state"], row["_wherry_nack"]) for row in rows.frame.collect()}
    assert {id_: (state, nack and nack.code) for id_, (state, nack) in fates.items()} == {
        1: (-1, "first"),
        2: (-2, "second"),
        3: (3, None),
        4: (0, None),
    }


def test_a_row_that_the_origin_refused_is_never_live(spark: SparkSession) -> None:
    """It has the raw data instead of a row, and no stage sees it."""
    frame = spark.sql(
        "select * from values (0, named_struct('code', 'PARSE', 'message', 'no row', 'raw', 'x\"')), (1, null) "
        "as t(id, _wherry_refused)"
    )
    assert does_raise_mark(take_clean(begin_straight(frame)))
    rows: Any = begin(frame)
    rows = pass_stages(rows, WithColumns({"y": "1 div id"}), Require("y > 5"))
    fates = {row["id"]: (row["_wherry_state"], row["_wherry_nack"]) for row in rows.frame.collect()}
    assert fates[0][0] == -1000
    assert (fates[0][1].stage, fates[0][1].code, fates[0][1].row) == ("origin", "PARSE", '{"raw":"x\\""}')
    assert (fates[1][0], fates[1][1].code) == (-2, "REQUIRE")


def test_thirty_stages_of_every_kind_are_planned_quickly(spark: SparkSession) -> None:
    """The size of the plan is linear in the stages, even with a filter for the live rows."""
    stages = [
        stage
        for step in range(8)
        for stage in (WithColumns({"x": f"x + {step}"}), Cast({"x": "int"}), Require("x >= 0"), Filter("x < 99"))
    ]
    rows = pass_stages(begin(spark.sql("select '1' as x")), Cast({"x": "int"}), *stages)
    assert [row.x for row in rows.frame.where("_wherry_state = 0").collect()] == [29]


def test_names_do_not_depend_on_case(spark: SparkSession) -> None:
    """A column keeps its spelling."""
    from pyspark.sql import functions as F

    for rows in (begin_straight(spark.sql("select 1 as Id")), begin(spark.sql("select 1 as Id"))):
        assert rows.with_columns({"ID": F.lit(2), "New": F.lit(3)}).names == ("Id", "New")
        assert rows.spell_name("iD") == "Id"


@pytest.mark.parametrize("explains", [False, True])
def test_all_steps_of_a_batch_take_few_calls_to_the_jvm(
    spark: SparkSession, orders: DataFrame, monkeypatch: pytest.MonkeyPatch, explains: bool
) -> None:
    """Every call counts in a small batch. The columns after each stage are known from the batch before."""
    if is_connect(spark):
        pytest.skip("Spark Connect gets a plan as a whole")
    schemas: Schemas = {}
    frame = place_rows(orders) if explains else orders

    def describe() -> DataFrame:
        names = tuple(orders.columns)
        rows = make_rows(frame, names, LABELS, explains=explains, schemas=schemas)
        stages = Cast({"amount": "decimal(10,2)"}), Require({"positive": "amount >= 0"}), Filter("id % 5 > 0")
        return take_clean(pass_stages(rows, *stages))

    describe()
    calls: list[str] = []
    send = GatewayClient.send_command

    def count(self: GatewayClient, command: str, *more: object) -> object:
        calls.extend([command] if not command.startswith("m") else [])
        return send(self, command, *more)

    monkeypatch.setattr(GatewayClient, "send_command", count)
    assert describe().columns == ["id", "amount"]
    assert 0 < len(calls) <= 20
