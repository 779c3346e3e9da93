"""A commit to a Delta table in an object store, without Spark: which version it gets, and when it fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from destinations.conformance import make_label
from destinations.delta import log as table_log
from destinations.delta import store_commit
from destinations.delta.direct_append import DirectTable, DirectWrite, are_stores_plain
from destinations.delta.direct_commit import MetadataChanged, Overwritten
from destinations.delta.log import OwnCommits, SparkLog, StoreLog, make_tag
from destinations.delta.store_commit import StorePlace, StoreVersions
from destinations.delta.table import TargetTable
from destinations.delta.versions import format_key
from origins.object_store import ObjectStore
from origins.store_access import StoreError, StoreUrl
from tests.stores.azure import Azure
from tests.stores.fault_proxy import Effect, Fault
from tests.stores.s3 import S3, make_client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("id", pa.int64())])
SECOND = r"orders/_delta_log/0+1\.json"


@pytest.fixture
def url(s3: S3) -> StoreUrl:
    """A table without rows."""
    made = StoreUrl(s3.make_url("orders"), s3.spark_settings)
    DeltaTable.create(str(made), Schema.from_arrow(SCHEMA), storage_options=s3.storage_options)
    return made


def open_direct(s3: S3, url: StoreUrl) -> DirectTable:
    return DirectTable(StorePlace(url), str(DeltaTable(str(url), storage_options=s3.storage_options).metadata().id))


def begin_write(direct: DirectTable) -> DirectWrite:
    write = direct.begin()
    assert write is not None
    return write


def make_rows(number: int) -> pa.Table:
    return pa.table({"id": [number]}, SCHEMA)


def read_ids(s3: S3, url: StoreUrl) -> list[int]:
    return sorted(open_behind(s3, url).to_pyarrow_table()["id"].to_pylist())


def open_behind(s3: S3, url: StoreUrl) -> DeltaTable:
    """Open the table without the proxy, which needs the interpreter that `deltalake` holds while it reads."""
    return DeltaTable(str(url), storage_options={**s3.storage_options, "aws_endpoint": s3.behind})


def list_data(s3: S3) -> list[str]:
    found = make_client(s3.behind).list_objects_v2(Bucket=s3.bucket, Prefix="orders/part-").get("Contents", [])
    return [each["Key"] for each in found]


def test_other_writers_read_the_appended_rows_and_append_more(s3: S3, url: StoreUrl) -> None:
    """Each append is one file with rows and one version, and costs these two requests."""
    direct = open_direct(s3, url)
    begin_write(direct).commit(make_rows(1), "tag 1")
    s3.proxy.reset_counts()
    begin_write(direct).commit(make_rows(2), "tag 2")
    assert s3.proxy.count() == {"PUT": 2}
    write_deltalake(str(url), make_rows(3), mode="append", storage_options=s3.storage_options)
    begin_write(direct).commit(make_rows(4), "tag 4")
    newest = open_behind(s3, url).history()[0]
    assert (read_ids(s3, url), newest["userMetadata"], newest["operation"]) == ([1, 2, 3, 4], "tag 4", "WRITE")


def test_on_azure_a_listing_identifies_a_version_as_its_commit_did(
    azure: Azure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the log is listed, and the table is not read again."""
    monkeypatch.setattr(StoreVersions, "sure", -1.0)
    url = StoreUrl(azure.make_url("orders"), azure.spark_settings)
    made = DeltaTable.create(str(url), Schema.from_arrow(SCHEMA), storage_options=azure.storage_options)
    direct = DirectTable(StorePlace(url), str(made.metadata().id))
    begin_write(direct).commit(make_rows(1), "tag 1")
    azure.proxy.reset_counts()
    begin_write(direct).commit(make_rows(2), "tag 2")
    assert azure.proxy.count() == {"LIST": 2, "PUT": 2}


def test_a_delayed_commit_takes_the_version_after_a_faster_one(s3: S3, url: StoreUrl) -> None:
    """Neither version replaces the other."""
    write = begin_write(open_direct(s3, url))
    held = s3.proxy.add(Fault("hold", "PUT", SECOND))
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(write.commit, make_rows(1), "late")
        assert held.reached.wait(60)
        behind = {**s3.storage_options, "aws_endpoint": s3.behind}
        write_deltalake(str(url), make_rows(2), mode="append", storage_options=behind)
        held.let_go()
        late.result()
    assert read_ids(s3, url) == [1, 2]
    assert open_behind(s3, url).version() == 2


@pytest.mark.parametrize("effect", ["lose_answer", "refuse"])
def test_a_commit_whose_answer_was_lost_counts_once(s3: S3, url: StoreUrl, effect: Effect) -> None:
    """This also holds if the store refused the request without making the version."""
    write = begin_write(open_direct(s3, url))
    fault = s3.proxy.add(Fault(effect, "PUT", SECOND))
    written = write.commit(make_rows(1), "tag")
    assert (fault.hits, written.rows, written.version, read_ids(s3, url)) == (1, 1, 1, [1])
    assert open_behind(s3, url).version() == 1


def fence_table(s3: S3, url: StoreUrl) -> None:
    assert open_direct(s3, url).mark({"wherry.fence": "other"})


def recreate_table(s3: S3, url: StoreUrl) -> None:
    client = make_client(s3.behind)
    for found in client.list_objects_v2(Bucket=s3.bucket, Prefix="orders/")["Contents"]:
        client.delete_object(Bucket=s3.bucket, Key=found["Key"])
    DeltaTable.create(str(url), Schema.from_arrow(SCHEMA), storage_options=s3.storage_options)
    begin_write(open_direct(s3, url)).commit(make_rows(9), "other")


def test_a_fence_takes_the_version_after_a_concurrent_commit(s3: S3, url: StoreUrl) -> None:
    """Other runs continue while a run is taken over, and the fence does not fail because of them."""
    direct = open_direct(s3, url)
    held = s3.proxy.add(Fault("hold", "PUT", SECOND))
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(direct.mark, {"wherry.fence": "other"})
        assert held.reached.wait(60)
        behind = {**s3.storage_options, "aws_endpoint": s3.behind}
        write_deltalake(str(url), make_rows(2), mode="append", storage_options=behind)
        held.let_go()
        assert late.result()
    after = open_behind(s3, url)
    assert (after.version(), after.metadata().configuration["wherry.fence"], read_ids(s3, url)) == (2, "other", [2])


@pytest.mark.parametrize(
    ("settings", "loses"),
    [({}, True), ({"spark.delta.logStore.s3a.impl": "io.delta.storage.S3DynamoDBLogStore"}, False)],
)
def test_a_configured_log_store_keeps_sparks_commits(settings: dict[str, str], *, loses: bool) -> None:
    """Without one, Spark commits nothing in S3 for a run that shares lanes."""
    log = SparkLog("orders", "s3a://bucket/orders")
    table = TargetTable("orders", "id", "s3a://bucket/orders", {}, "{}", log, 0)
    assert table.may_lose_commits(cast("SparkSession", SimpleNamespace(conf=settings))) is loses


@pytest.mark.parametrize(("change", "left"), [(fence_table, []), (recreate_table, [9])])
def test_a_write_that_began_before_a_fence_fails(
    s3: S3, url: StoreUrl, change: Callable[[S3, StoreUrl], None], left: list[int]
) -> None:
    """This also holds if another table has replaced the table."""
    write = begin_write(open_direct(s3, url))
    change(s3, url)
    with pytest.raises(MetadataChanged):
        write.commit(make_rows(1), "tag")
    assert read_ids(s3, url) == left


@pytest.mark.parametrize("by", ["this process", "its Spark"])
def test_a_write_after_a_change_by_the_same_run_succeeds_at_once(s3: S3, url: StoreUrl, by: str) -> None:
    """This process or its Spark may have fenced the table."""
    direct = open_direct(s3, url)
    table = TargetTable("orders", direct.id, str(url), {}, "{}", StoreLog("orders", url, {}), 0, direct)
    begin_write(direct).commit(make_rows(1), "tag 1")
    changes: dict[str, Callable[[], object]] = {
        "this process": lambda: direct.mark({"wherry.fence": "mine"}),
        "its Spark": lambda: fence_table(s3, url),
    }
    with table.hold_commits() if by == "its Spark" else nullcontext():
        changes[by]()
    begin_write(direct).commit(make_rows(2), "tag 2")
    assert read_ids(s3, url) == [1, 2]


def test_a_delayed_commit_fails_after_a_fence(s3: S3, url: StoreUrl) -> None:
    """The former run brings no rows, however late its request arrives."""
    write = begin_write(open_direct(s3, url))
    held = s3.proxy.add(Fault("hold", "PUT", SECOND))
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(write.commit, make_rows(1), "late")
        assert held.reached.wait(60)
        fence_table(s3, url)
        held.let_go()
        with pytest.raises(MetadataChanged):
            late.result()
    assert read_ids(s3, url) == []


def test_a_check_that_raises_leaves_nothing(s3: S3, url: StoreUrl) -> None:
    """It leaves neither a version nor a file with rows."""

    def late() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        begin_write(open_direct(s3, url)).commit(make_rows(1), "tag", late)
    assert (read_ids(s3, url), list_data(s3)) == ([], [])


def test_a_store_without_conditional_writes_is_left_to_spark(s3: S3, url: StoreUrl) -> None:
    """Wherry cannot keep two writers apart there."""
    s3.proxy.add(Fault("disregard", "PUT", times=None))
    with pytest.raises(StoreError):
        StorePlace(url).is_kept_apart()
    assert open_direct(s3, url).begin() is None


def test_a_table_that_demands_more_than_files_is_left_to_spark(s3: S3) -> None:
    """It has deletion vectors, for example."""
    url = StoreUrl(s3.make_url("vectors"), s3.spark_settings)
    DeltaTable.create(
        str(url),
        Schema.from_arrow(SCHEMA),
        storage_options=s3.storage_options,
        configuration={"delta.enableDeletionVectors": "true"},
    )
    assert open_direct(s3, url).begin() is None


def test_a_run_checks_its_versions_at_intervals(s3: S3, url: StoreUrl, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check is one listing, since the commit itself has identified the file of its version."""
    now, label, log, own = 100.0, make_label(), StoreLog("orders", url, {}), OwnCommits()
    monkeypatch.setattr(table_log, "read_clock", lambda: now)
    own.check(log, 50)
    written = begin_write(open_direct(s3, url)).commit(make_rows(1), make_tag([label]))
    own.note(log, written.version, [label], written.mark)
    s3.proxy.reset_counts()
    own.check(log, 50)
    assert s3.proxy.count() == {}
    now += store_commit.SURE
    own.check(log, 50)
    assert s3.proxy.count() == {"LIST": 1}
    make_client(s3.behind).put_object(Bucket=s3.bucket, Key=f"orders/{format_key(1)}", Body=b'{"commitInfo": {}}\n')
    with pytest.raises(Overwritten, match="version 1"):
        own.check(log)


def test_concurrent_writers_lose_no_commit(s3: S3, url: StoreUrl) -> None:
    """The rows of each commit are in the table once."""
    ready = threading.Barrier(3)

    def write(first: int) -> None:
        direct = open_direct(s3, url)
        ready.wait(60)
        for number in range(first, first + 5):
            begin_write(direct).commit(make_rows(number), f"tag {number}")

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, (0, 5, 10)))
    assert read_ids(s3, url) == [*range(15)]


def test_a_run_leaves_a_checkpoint_after_ten_versions(s3: S3, url: StoreUrl) -> None:
    """It counts the versions since the last checkpoint. A run without rows does not check."""
    direct = open_direct(s3, url)
    for number in range(10):
        begin_write(direct).commit(make_rows(number), f"tag {number}")
    direct.close()
    s3.proxy.reset_counts()
    assert StoreVersions(url).open_head()[1].version == 10
    assert sum(s3.proxy.count().values()) <= 15
    begin_write(direct).commit(make_rows(10), "tag 10")
    s3.proxy.reset_counts()
    direct.close()
    assert s3.proxy.count() == {"GET": 1}
    s3.proxy.reset_counts()
    idle = open_direct(s3, url)
    begin_write(idle)
    s3.proxy.reset_counts()
    idle.close()
    assert (s3.proxy.count(), read_ids(s3, url)) == ({}, [*range(11)])


@pytest.mark.parametrize("last", [b'{"version', b"[]", b'{"version": 0, "size": null}'])
def test_a_broken_note_of_the_last_checkpoint_counts_as_none(s3: S3, url: StoreUrl, last: bytes) -> None:
    """The log can be read without it."""
    make_client(s3.behind).put_object(Bucket=s3.bucket, Key="orders/_delta_log/_last_checkpoint", Body=last)
    assert [StorePlace(url).is_long(version) for version in (0, 29)] == [False, True]


def test_a_late_append_to_a_deleted_table_fails(s3: S3, url: StoreUrl, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next version would be free, and would be in a log without a beginning."""
    monkeypatch.setattr(StoreVersions, "sure", -1.0)
    write = begin_write(open_direct(s3, url))
    client = make_client(s3.behind)
    for found in client.list_objects_v2(Bucket=s3.bucket, Prefix="orders/")["Contents"]:
        client.delete_object(Bucket=s3.bucket, Key=found["Key"])
    with pytest.raises(MetadataChanged):
        write.commit(make_rows(1), "tag")
    assert client.list_objects_v2(Bucket=s3.bucket, Prefix="orders/_delta_log/")["KeyCount"] == 0


def test_a_refused_request_that_succeeded_later_makes_one_version(
    s3: S3, url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file shows that the version belongs to this run, even below another writer's version."""
    behind, tries, take = {**s3.storage_options, "aws_endpoint": s3.behind}, list[str](), ObjectStore.take

    def refuse_first(store: ObjectStore, key: str, content: bytes) -> str | None:
        tries.append(key)
        take(store, key, content)
        write_deltalake(str(url), make_rows(2), mode="append", storage_options=behind)
        return None

    monkeypatch.setattr(ObjectStore, "take", refuse_first)
    written = begin_write(open_direct(s3, url)).commit(make_rows(1), "tag")
    assert (len(tries), written.version, open_behind(s3, url).version(), read_ids(s3, url)) == (1, 1, 2, [1, 2])


def test_the_folder_for_sparks_files_is_made_with_the_definitions_access(s3: S3, url: StoreUrl) -> None:
    """In this test only the definition's settings give access."""
    StorePlace(url).make_staging("spark-1", Schema.from_arrow(SCHEMA).to_json(), {})
    assert DeltaTable(f"{url}/spark-1", storage_options=s3.storage_options).version() == 0


@pytest.mark.parametrize(
    "key", ["fs.s3a.encryption.algorithm", "fs.s3a.bucket.own.server-side-encryption.key", "fs.s3a.acl.default"]
)
def test_a_hadoop_setting_for_writing_objects_leaves_the_write_to_spark(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """Spark would encrypt its files or set their rights, and this process would not."""
    spark = cast("SparkSession", SimpleNamespace(conf=SimpleNamespace(getAll={})))
    assert are_stores_plain(spark.conf.getAll)
    monkeypatch.setattr("destinations.delta.direct_append.list_context_settings", lambda: {key: "x"})
    assert not are_stores_plain(spark.conf.getAll)
