"""A table adopts files that Spark wrote, and then equals a table to which Spark appended their rows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from destinations.conformance import make_label
from destinations.delta import Delta
from origins.batch_rows import BatchRows, FrameRows
from tests.destinations.delta.direct.test_append import (
    make_table,
    name_engine,
    read_newest,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark]


def write_files(spark: SparkSession, folder: Path, rows: DataFrame) -> Sequence[Path]:
    """Write the rows to files, as the store of a decided batch holds them."""
    rows.write.parquet(str(folder))
    return sorted(folder.glob("*.parquet"))


@dataclass(frozen=True)
class InFiles(BatchRows):
    """Rows that are stored in these files."""

    spark: SparkSession
    paths: Sequence[Path]

    def frame(self) -> DataFrame:
        return self.spark.read.parquet(*map(str, self.paths))

    def files(self) -> Mapping[str, Path]:
        return {path.name: path for path in self.paths}


def make_some(spark: SparkSession) -> DataFrame:
    return spark.range(5).selectExpr("id", "'x' as name")


def list_files(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.glob("*.parquet"))


@pytest.mark.parametrize("links", [True, False])
def test_a_table_adopts_files_and_leaves_the_originals_unchanged(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """Files without rows are left out. Without links the files are copied. A second label brings the rows again."""

    def unknown(self: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    if not links:
        monkeypatch.setattr(Path, "hardlink_to", unknown)
    orders = make_table(spark, tmp_path / "orders")
    identity = orders.ensure_place(spark, make_some(spark).schema)
    files = write_files(spark, tmp_path / "rows", make_some(spark).repartition(4).where("id < 2"))
    before = {file: file.read_bytes() for file in files}
    seventh, eighth = make_label(number=7), make_label(number=8)
    written = orders.write(spark, InFiles(spark, files), [seventh])
    assert written == orders.find(spark, seventh, identity)
    assert written is not None
    assert (written.rows, read_newest(orders, "commitInfo")["engineInfo"]) == (2, "wherry")
    assert written.bytes == sum((tmp_path / "orders" / name).stat().st_size for name in list_files(tmp_path / "orders"))
    assert orders.write(spark, InFiles(spark, files), [eighth]) is not None
    assert sorted(row["id"] for row in spark.table(orders.destination.sql_name).collect()) == [0, 0, 1, 1]
    assert {file: file.read_bytes() for file in files} == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder another group")
def test_adopted_files_have_the_permissions_of_the_tables_other_files(spark: SparkSession, tmp_path: Path) -> None:
    """They get the group of the table's folder and the mode of Spark's files. The originals keep theirs."""
    orders = make_table(spark, tmp_path / "orders")
    (tmp_path / "orders").chmod(0o2775)
    os.chown(tmp_path / "orders", -1, 4321)
    orders.ensure_place(spark, make_some(spark).schema)
    files = write_files(spark, tmp_path / "rows", make_some(spark).coalesce(1))
    files[0].chmod(0o600)
    assert orders.write(spark, InFiles(spark, files), [make_label()]) is not None
    assert orders.write(spark, FrameRows(make_some(spark)), [make_label(number=8)]).rows == 5
    there = [(tmp_path / "orders" / name).stat() for name in list_files(tmp_path / "orders")]
    assert {(each.st_uid, each.st_gid, oct(each.st_mode)) for each in there} == {(0, 4321, oct(0o100644))}
    private = files[0].stat()
    assert (private.st_gid, oct(private.st_mode), private.st_nlink) == (os.getegid(), oct(0o100600), 1)


@pytest.mark.parametrize(
    ("columns", "options", "by"),
    [
        ("id bigint, name string", {"mode": "merge", "keys": ["id"]}, "Apache-Spark"),
        ("id bigint, name string, batch string", {"stamp": "batch"}, "wherry, files by Spark"),
        ("ID bigint, name string", {}, "wherry, files by Spark"),
        ("id bigint, name string, more string", {}, "Apache-Spark"),
    ],
)
def test_files_that_do_not_fit_the_table_are_read_by_spark(
    spark: SparkSession, tmp_path: Path, columns: str, options: dict[str, Any], by: str
) -> None:
    """The mode is not `append`, or the table's columns differ from the files' columns."""
    spark.sql(f"CREATE TABLE delta.`{tmp_path / 'orders'}` ({columns}) USING delta")
    orders = Delta(path=str(tmp_path / "orders"), **options).open()
    orders.ensure_place(spark, None)
    files = write_files(spark, tmp_path / "rows", make_some(spark))
    orders.write(spark, InFiles(spark, files), [make_label()])
    assert name_engine(orders).startswith(by)
    assert spark.table(orders.destination.sql_name).count() == 5


def test_files_that_spark_did_not_write_are_not_adopted(spark: SparkSession, tmp_path: Path) -> None:
    """Such files do not record the types of their columns."""
    import pyarrow as pa
    from pyarrow import parquet

    orders = make_table(spark, tmp_path / "orders")
    orders.ensure_place(spark, make_some(spark).schema)
    parquet.write_table(pa.table({"id": [1], "name": ["x"]}), tmp_path / "own.parquet")
    orders.write(spark, InFiles(spark, [tmp_path / "own.parquet"]), [make_label()])
    assert name_engine(orders) == "wherry, files by Spark"
