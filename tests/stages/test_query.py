"""Steps over a frame are one text for Spark, and their columns are known without a call."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

import pytest

from origins.spark_versions import is_connect
from stages.query import MOST_SCHEMAS, Query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from stages.query import Schemas


def test_columns_of_known_steps_need_no_call_to_spark() -> None:
    """The second batch with the same steps finds the columns of the first one. Other columns give other ones."""
    unasked, schemas = cast("DataFrame", object()), cast("Schemas", {})
    first, other = (
        Query(unasked, (), schemas, source).select("a + 1 AS b").where("b > 2") for source in (b"these", b"others")
    )
    assert first.key is not None
    schemas[first.key] = columns = cast("StructType", "columns")
    again = Query(unasked, (), schemas, b"these").select("a + 1 AS b").where("b > 2")
    assert again.schema is columns
    assert other.key not in schemas
    assert again.where("b > 2").key not in schemas
    assert Query(unasked, (), schemas, b"these").select("a + 1 AS b").select("b > 2").key not in schemas


@pytest.mark.spark
@pytest.mark.connect
def test_steps_give_the_rows_and_columns_of_the_same_calls(spark: SparkSession) -> None:
    """Texts may have braces, comments and quoted names."""
    frame = spark.range(5).selectExpr("id", "cast(id AS string) AS `a.b`")
    columns = ("id + 1 AS id", "'{x}' AS braces", "(`a.b` -- a comment\n) AS `a.b`")
    query = Query.of(frame, {}).select(*columns).where("id > 2").select("*", "id * 2 AS twice")
    by_calls = frame.selectExpr(*columns).where("id > 2").selectExpr("*", "id * 2 AS twice")
    assert query.schema == by_calls.schema
    assert sorted(query.frame.collect()) == sorted(by_calls.collect())


@pytest.mark.spark
@pytest.mark.connect
def test_a_step_may_be_a_column_of_spark(spark: SparkSession) -> None:
    """Steps before and after it are text."""
    from pyspark.sql import functions as F

    query = Query.of(spark.range(5), {}).select("id + 1 AS a").select("*", (F.col("a") * 2).alias("b"))
    query = query.where("b > 4").select("b - a AS c")
    assert sorted(row.c for row in query.frame.collect()) == [3, 4, 5]
    assert query.schema.names == ["c"]


@pytest.mark.spark
@pytest.mark.connect
def test_no_view_stays(spark: SparkSession) -> None:
    """A session may belong to other people too."""
    assert Query.of(spark.range(5)).select("id + 1 AS a").frame.count() == 5
    assert [table.name for table in spark.catalog.listTables() if table.name.startswith("_wherry_")] == []


@pytest.mark.spark
def test_what_others_cached_stays_cached(spark: SparkSession) -> None:
    """Spark forgets the cached rows of a view that is dropped, and of every frame with the same plan."""
    if is_connect(spark):
        pytest.skip("Spark Connect needs no view")
    cached = spark.range(7).selectExpr("id * 3 AS id").cache()
    try:
        assert Query.of(spark.range(7).selectExpr("id * 3 AS id")).select("id + 1 AS a").frame.count() == 7
        assert cached.storageLevel.useMemory
    finally:
        cached.unpersist()


@pytest.mark.spark
@pytest.mark.connect
def test_rows_are_observed_below_later_steps(spark: SparkSession) -> None:
    """Spark finds no observation below the text of a query, and then waits for it forever."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    observation, seen = Observation(), []
    query = Query.of(spark.range(5), {}).select("id + 1 AS a").observe(observation, F.count(F.lit(1)).alias("rows"))
    assert query.where("a > 3").select("a * 2 AS b").frame.count() == 2
    waiting = threading.Thread(target=lambda: seen.append(observation.get), daemon=True)
    waiting.start()
    waiting.join(60)
    assert seen == [{"rows": 5}]


@pytest.mark.spark
def test_few_columns_are_kept_in_memory(spark: SparkSession) -> None:
    """Expressions with the number of a batch are other steps in each batch."""
    schemas: Schemas = {}
    frame = spark.range(1)
    for number in range(3):
        schemas.update({bytes([key]): frame.schema for key in range(MOST_SCHEMAS)})
        assert Query.of(frame, schemas).select(f"{number} AS number").schema.names == ["number"]
    assert len(schemas) < MOST_SCHEMAS
