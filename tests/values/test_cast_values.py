"""A text becomes a decimal, or its row is refused. The cast ends at each number."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import parquet

from origins.files import Files
from origins.nack import REFUSED
from stages.cast import Cast
from stages.conformance import begin, collect_decided
from stages.rows import enter_stage
from tests.origins.test_on_change import plan_batch
from tests.values.json_cases import NUMBERS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_cast_ends_at_every_number(spark: SparkSession) -> None:
    """A number with a huge exponent is refused. Any other one becomes the nearest decimal."""
    frame = spark.createDataFrame([(number, number) for number in NUMBERS], "price string, written string")
    stage = Cast({"price": "decimal(10,2)"})
    good, refused, _ = collect_decided(stage.apply(enter_stage(begin(frame), "cast", 1)))
    assert len(good) + len(refused) == len(NUMBERS)
    wrong = [row for row in good if abs(Decimal(row.written) - row.price) > Decimal("0.005")]
    assert wrong == []
    assert {"1.10", "1e5", "1e-39"} <= {row.written for row in good}
    assert {"1e-999999999", "1e10000000"}.isdisjoint(row.written for row in good)


def test_a_text_of_parquet_is_an_exact_decimal_or_refused(spark: SparkSession, tmp_path: Path) -> None:
    """The schema of the origin has a decimal, and the file has text."""
    table = pa.table({"price": NUMBERS, "written": NUMBERS})
    parquet.write_table(table, tmp_path / "a.parquet")
    changes = {"other": "nack", "wider": "nack"}
    files = Files(path=str(tmp_path), format="parquet", schema="price decimal(10,2), written string", on_change=changes)
    for places in (False, True):
        frame = files.fetch(spark, [plan_batch(spark, files)], places=places).frame()
        rows = frame.where(f"{REFUSED} is null").collect()
        assert [row for row in rows if row.price != Decimal(row.written)] == []
        assert len(rows) > 10


def test_a_text_with_a_collation_is_refused_beside_other_columns(spark: SparkSession) -> None:
    """The message names both columns with their values."""
    text = "'x' collate UTF8_LCASE as one, 'y' as other"
    frame = spark.sql(f"select {text} union all select '1' collate UTF8_LCASE, '2'")
    rows = Cast({"one": "int", "other": "int"}).apply(enter_stage(begin(frame), "cast", 1))
    good, refused, _ = collect_decided(rows)
    assert ([tuple(row) for row in good], len(refused)) == ([(1, 2)], 1)
    (nack,) = [row.found for row in rows.frame.selectExpr("_wherry_nack as found").collect() if row.found]
    assert nack.message == "column one: 'x' is not an int; column other: 'y' is not an int"
