"""Decided rows that pass through this process.

The files, and the rows that are read back, are the same as with Spark.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.sql import functions as F

from runners.state.prepared_store import FolderStore, fetch_table
from tests.spark_errors import make_spark_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

EVERYTHING = """
    SELECT id, id > 1 as yes, cast(id as byte) as b, cast(id as short) as s, cast(id as float) / 3 as f,
        CASE id WHEN 0 THEN double('NaN') WHEN 1 THEN double('-Infinity') ELSE -0.0 END as d,
        CASE id WHEN 0 THEN '' WHEN 1 THEN 'Straße \\u0000 \\uD83D\\uDE00' END as text, unhex('00FF') as bytes,
        CASE id WHEN 0 THEN 99999999999999999999999999999999999.999 ELSE -0.001 END as amount,
        CASE id WHEN 0 THEN date'0001-01-01' WHEN 1 THEN date'1582-10-10' ELSE date'9999-12-31' END as day,
        CASE id WHEN 0 THEN timestamp'0001-01-01 00:00:00' WHEN 1 THEN timestamp'1900-01-01 00:00:00.000001'
            ELSE timestamp'9999-12-31 23:59:59.999999' END as at,
        CASE id WHEN 0 THEN timestamp_ntz'1582-10-04 00:00:00' ELSE timestamp_ntz'2026-03-29 02:30:00' END as n,
        struct(id as a, struct(array(struct('x' as y, CAST(NULL AS date) as z)) as deep) as inside) as nested,
        CASE id WHEN 0 THEN array() WHEN 1 THEN array(1, NULL) END as some, map('k', array(id)) as pairs,
        id as `a.b`, id as `with space`, CAST(NULL AS string) as nothing
    FROM range(3)
"""


def list_texts(frame: DataFrame) -> list[str]:
    """Return the rows as texts, because NaN is not equal to itself and Python has no year 10000."""
    return sorted(row[0] for row in frame.selectExpr("to_json(struct(*))").collect())


def format_table(table: Any) -> str:
    """Return the table as text, because NaN is not equal to itself."""
    return str(table.to_string(preview_cols=99))


def test_rows_that_pass_through_this_process_equal_those_that_spark_writes(spark: SparkSession, tmp_path: Path) -> None:
    """Every type is compared at its limits, in the process that wrote the rows and in the next one."""
    frame = spark.sql(EVERYTHING)
    store, other = FolderStore(tmp_path / "few"), FolderStore(tmp_path / "spark")
    assert store.write_few("batch-0", frame).num_rows == 3
    other.write("batch-0", frame)
    expected = other.read(spark, "batch-0")
    for reader in (store, FolderStore(tmp_path / "few")):
        found = reader.read(spark, "batch-0")
        assert found.schema == expected.schema
        assert list_texts(found) == list_texts(expected)


def test_the_metadata_of_a_column_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    """An example is the maximum length of a text, which parquet does not have."""
    frame = spark.range(1).select(F.lit("x").alias("name", metadata={"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}))
    FolderStore(tmp_path).write_few("batch-0", frame)
    found = FolderStore(tmp_path).read(spark, "batch-0").schema
    assert found["name"].metadata == {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}


def test_types_that_arrow_represents_differently_are_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Then nothing is written and nothing is computed."""
    store = FolderStore(tmp_path)
    for kind in ("interval '1' day", "parse_json('1')", "NULL"):
        assert store.write_few("batch-0", spark.sql(f"SELECT {kind} as x")) is None
    assert not (tmp_path / "batch-0").exists()


def test_a_result_that_is_too_large_is_left_to_spark() -> None:
    """Spark limits the size of a result."""

    def too_large() -> None:
        said = "Total size of serialized results of 2 tasks (9 MiB) is bigger than spark.driver.maxResultSize"
        raise make_spark_error(said=f"Job aborted due to stage failure: {said}")

    schema = SimpleNamespace(json=lambda: '{"type": "struct", "fields": []}')
    assert fetch_table(cast("DataFrame", SimpleNamespace(schema=schema, toArrow=too_large))) is None


def test_stored_rows_are_read_here_as_spark_reads_them(spark: SparkSession, tmp_path: Path) -> None:
    """Every type is compared at its limits, as a column and inside a column."""
    frame = spark.sql(EVERYTHING)
    inside = frame.select("id", F.struct("*").alias("live"))
    store = FolderStore(tmp_path)
    store.write("flat-0", frame)
    store.write("inside-0", inside)
    for name, expected in {"flat-0": frame.toArrow(), "inside-0": inside.toArrow()}.items():
        found = store.scan(name, lambda _: True)
        assert found is not None
        table = found.read_all().sort_by("id").cast(expected.schema)
        assert format_table(table) == format_table(expected.sort_by("id"))


def test_only_the_wanted_columns_are_read(spark: SparkSession, tmp_path: Path) -> None:
    """They keep their order, and come from all files."""
    store = FolderStore(tmp_path)
    store.write("spark-0", spark.range(0, 40_000, 1, 3).selectExpr("id", "'x' as other", "id + 1 as next"))
    found = store.scan("spark-0", lambda name: name != "other")
    assert found is not None
    rows = found.read_all().sort_by("id")
    assert rows.column_names == ["id", "next"]
    assert rows["next"].to_pylist() == [*range(1, 40_001)]


def test_rows_that_are_large_or_elsewhere_are_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    """If this machine has no files, Spark has written them elsewhere. The unpacked size counts."""
    store = FolderStore(tmp_path, read_bytes=500_000)
    assert store.scan("batch-0", lambda _: True) is None
    store.write("batch-0", spark.range(1_000).selectExpr("id", "concat(id, repeat('x', 1000)) as long"))
    assert sum(file.stat().st_size for file in (tmp_path / "batch-0").glob("*.parquet")) < 500_000
    assert store.scan("batch-0", lambda _: True) is None


def test_long_rows_are_read_few_at_a_time(spark: SparkSession, tmp_path: Path) -> None:
    """Each piece takes about the same memory."""
    store = FolderStore(tmp_path, piece_bytes=100_000)
    store.write("batch-0", spark.range(0, 1_000, 1, 1).selectExpr("concat(id, repeat('x', 1000)) as long"))
    found = store.scan("batch-0", lambda _: True)
    assert found is not None
    assert 5 < len(list(found)) < 20


def test_days_of_another_calendar_are_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Spark records the calendar in such files, and uses that when it reads them."""
    store, name = FolderStore(tmp_path), "spark.sql.parquet.datetimeRebaseModeInWrite"
    before = spark.conf.get(name)
    spark.conf.set(name, "LEGACY")
    try:
        store.write("batch-0", spark.sql("SELECT date'1500-01-01' as day"))
    finally:
        spark.conf.set(name, str(before))
    assert store.scan("batch-0", lambda _: True) is None
