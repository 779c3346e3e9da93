"""Prepared rows, and which of them are swept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runners.state.prepared_store import FolderStore, TableStore, VolumeStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK: Any = None
"""No session is needed for rows in folders."""


@pytest.fixture
def prepared(tmp_path: Path) -> FolderStore:
    """Return a store with two prepared batches."""
    for name in ("open-1-rows", "left-1-rows"):
        (tmp_path / name).mkdir()
    return FolderStore(tmp_path)


def test_rows_of_an_open_batch_are_kept_and_other_rows_are_swept(prepared: FolderStore) -> None:
    """They are known by the names under which they were prepared."""
    prepared.sweep(SPARK, lambda: ["open-1"])
    assert [folder.name for folder in prepared.root.iterdir()] == ["open-1-rows"]


def test_rows_of_a_process_that_took_over_are_not_swept(prepared: FolderStore) -> None:
    """Another process may have prepared rows between the listing and the sweep."""

    def taken_over() -> list[str]:
        (prepared.root / "theirs-1-rows").mkdir()
        return []

    prepared.sweep(SPARK, taken_over)
    assert [folder.name for folder in prepared.root.iterdir()] == ["theirs-1-rows"]


def test_nothing_is_swept_after_another_process_took_the_pipeline(prepared: FolderStore) -> None:
    """The question which rows to keep raises an error then."""

    def fenced() -> list[str]:
        raise PermissionError("not yours")

    with pytest.raises(PermissionError):
        prepared.sweep(SPARK, fenced)
    assert len(list(prepared.root.iterdir())) == 2


@pytest.mark.spark
@pytest.mark.promise("CD-22")
def test_rows_of_an_open_batch_are_kept_in_a_catalog_too(spark: SparkSession) -> None:
    """Their tables are found also where the catalog stores names in lower case. Removed rows are gone at once."""
    spark.sql("create schema if not exists wherry_store")
    store = TableStore("wherry_store", "Orders_prepared_")
    for name in ("a1-open-0", "a1-left-0"):
        store.write(name, spark.range(2))
    store.sweep(spark, lambda: ["a1-open"])
    assert store.read(spark, "a1-open-0").count() == 2
    assert [row["tableName"] for row in spark.sql("show tables in wherry_store").collect()] == [
        "orders_prepared_a1_open_0"
    ]
    store.remove(spark, "a1-open")
    assert spark.sql("show tables in wherry_store").count() == 0


@pytest.mark.spark
@pytest.mark.connect
def test_rows_of_tables_are_read_and_swept_after_a_volume_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """An open batch is delivered from where its rows were prepared."""
    spark.sql("create schema if not exists wherry_volume")
    tables = TableStore("wherry_volume", "orders_prepared_")
    tables.write("a1-open-0", spark.range(2))
    store = VolumeStore(tmp_path / "rows", tables=tables)
    store.write("a2-open-0", spark.range(3))
    assert [store.read(spark, name).count() for name in ("a1-open-0", "a2-open-0")] == [2, 3]
    store.sweep(spark, list)
    assert (spark.sql("show tables in wherry_volume").count(), list((tmp_path / "rows").iterdir())) == (0, [])
    spark.sql("drop schema wherry_volume")
