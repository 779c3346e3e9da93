"""Prepared rows in an object store: what passes through this process, what is removed, and what is swept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructType, TimestampType

from origins.batch import Json
from origins.object_store import ObjectStore
from origins.store_access import StoreUrl
from runners.state import prepared_store
from runners.state.prepared_store import UrlStore, make_table
from tests.stores.fault_proxy import Effect, Fault
from tests.stores.s3 import S3

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = (
    StructType().add("id", LongType()).add("name", StringType()).add("nested", StructType().add("at", TimestampType()))
)
ROWS: Sequence[Mapping[str, Json]] = [
    {"id": 1, "name": "é", "nested": None},
    {"id": 2, "name": None, "nested": {"at": None}},
]
SPARK: Any = None
"""No session is needed to remove rows."""


@pytest.fixture
def url(s3: S3) -> StoreUrl:
    """Return the URL of a store with prepared batches."""
    url = StoreUrl(s3.make_url("state/prepared"), s3.spark_settings)
    for name in ("open-1", "left-1", "left-live-0"):
        ObjectStore(url).put_new(f"{name}/part.parquet", b"")
    return url


def list_names(url: StoreUrl) -> list[str]:
    return sorted(ObjectStore(url).list_folder()[0])


def test_the_rows_of_a_name_are_removed(url: StoreUrl) -> None:
    """Rows of names that begin with this name and a dash are removed too. A second call has no effect."""
    store = UrlStore(url)
    store.remove(SPARK, "left")
    store.remove(SPARK, "left")
    store.remove(SPARK, "ope")
    assert list_names(url) == ["open-1"]


def test_rows_of_an_open_batch_are_kept_and_other_rows_are_swept(url: StoreUrl) -> None:
    """They are known by the names under which they were prepared."""
    UrlStore(url).sweep(SPARK, lambda: ["open"])
    assert list_names(url) == ["open-1"]


def test_rows_of_a_process_that_took_over_are_not_swept(url: StoreUrl) -> None:
    """The store asks which rows to keep only after its listing."""

    def taken_over() -> list[str]:
        ObjectStore(url).put_new("theirs-1/part.parquet", b"")
        return []

    UrlStore(url).sweep(SPARK, taken_over)
    assert list_names(url) == ["theirs-1"]


def make_frame(table: pa.Table) -> DataFrame:
    """Return a frame with these rows."""
    return cast("DataFrame", SimpleNamespace(schema=SCHEMA, toArrow=lambda: table))


def test_few_rows_pass_through_this_process(url: StoreUrl) -> None:
    """This run and the next one read the rows without Spark."""
    store, table = UrlStore(url), make_table(ROWS, SCHEMA)
    assert store.write_few("batch-0", make_frame(table)).equals(table)
    assert store.put("put-0", ROWS, SCHEMA)
    for name in ("batch-0", "put-0"):
        for reader in (store, UrlStore(url)):
            found = reader.scan(name, lambda column: column != "name")
            assert found is not None
            assert found.read_all().to_pylist() == [{"id": row["id"], "nested": row["nested"]} for row in ROWS]
    store.remove(SPARK, "batch")
    assert UrlStore(url).scan("batch-0", lambda _: True) is None


@pytest.mark.parametrize("effect", ["refuse", "collide_late"])
def test_rows_whose_write_is_refused_are_prepared_once(s3: S3, url: StoreUrl, effect: Effect) -> None:
    """The store refuses the request without doing it, or after doing it."""
    for name in ("few-0", "put-0"):
        fault = s3.proxy.add(Fault(effect, "PUT", f"/{name}/"))
        if name == "put-0":
            assert UrlStore(url).put(name, ROWS, SCHEMA)
        else:
            assert UrlStore(url).write_few(name, make_frame(make_table(ROWS, SCHEMA))) is not None
        assert fault.hits == 1
        found = UrlStore(url).scan(name, lambda _: True)
        assert found is not None
        assert found.read_all()["id"].to_pylist() == [1, 2]


def test_rows_of_another_writer_are_not_overwritten(url: StoreUrl) -> None:
    """The rows that are read later must be the rows that this process decided."""
    assert UrlStore(url).put("batch-0", ROWS[:1], SCHEMA)
    with pytest.raises(FileExistsError, match="batch-0 has other rows"):
        UrlStore(url).put("batch-0", ROWS, SCHEMA)
    found = UrlStore(url).scan("batch-0", lambda _: True)
    assert found is not None
    assert found.read_all()["id"].to_pylist() == [1]


def test_large_objects_are_left_to_spark(url: StoreUrl, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sizes in the listing decide, before any object is read."""
    UrlStore(url).put("batch-0", ROWS, SCHEMA)
    monkeypatch.setattr(prepared_store, "_PACKED", 100)
    assert UrlStore(url).scan("batch-0", lambda _: True) is None


def test_files_of_an_unfinished_spark_task_are_not_read(url: StoreUrl) -> None:
    """A late task writes below `_temporary`, even after its job. Spark does not read these files either."""
    store = UrlStore(url)
    store.put("batch-0", ROWS, SCHEMA)
    store.put("batch-0/_temporary/0/task", ROWS, SCHEMA)
    found = UrlStore(url).scan("batch-0", lambda _: True)
    assert found is not None
    assert found.read_all().num_rows == len(ROWS)


def test_objects_that_spark_encrypts_are_left_to_spark(url: StoreUrl) -> None:
    """This process would write them without encryption, and cannot read them."""
    UrlStore(url).put("batch-0", ROWS, SCHEMA)
    store = UrlStore(StoreUrl(url, {**url.settings, "spark.hadoop.fs.s3a.encryption.algorithm": "SSE-KMS"}))
    assert store.scan("batch-0", lambda _: True) is None
    assert store.write_few("batch-1", make_frame(make_table(ROWS, SCHEMA))) is None
    assert not store.put("batch-2", ROWS, SCHEMA)
    assert not {"batch-1", "batch-2"} & {*list_names(url)}
