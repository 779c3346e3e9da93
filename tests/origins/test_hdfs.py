"""HDFS answers like an object store, tested with a real name node and data node."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from origins.hdfs import HdfsClient
from origins.object_store import ObjectStore, open_bucket, open_delta_table, open_store
from origins.store_access import StoreError, StoreUrl, canonicalise, find_problem, get_options, is_store_url
from tests.stores.hdfs import Hdfs


@pytest.fixture
def store(hdfs: Hdfs) -> ObjectStore:
    """An empty folder as a store."""
    return open_store(hdfs.make_url().rstrip("/"))


def test_a_file_is_written_read_listed_and_deleted(store: ObjectStore) -> None:
    """Keys are relative to the URL."""
    store.put_new("a/b/one.json", b"one")
    store.put_new("a/two.json", b"")
    assert (store.read("a/b/one.json"), store.read_range("a/b/one.json", 1, 3)) == (b"one", b"ne")
    assert [*store.list_pages()] == [["a/b/one.json", "a/two.json"]]
    assert store.list_folder()[0] == ["a"]
    folders, objects = store.list_folder("a")
    assert (folders, [(each.key, each.size) for each in objects]) == (["a/b"], [("a/two.json", 0)])
    store.delete(["a/b/one.json", "a/missing"])
    assert (store.find("a/b/one.json"), store.exists("a/two.json")) == (None, True)


def test_a_file_is_not_replaced_by_another_write(store: ObjectStore) -> None:
    """So two writers of a table's log cannot replace each other's commits."""
    store.put_new("log/1", b"first")
    assert store.take("log/1", b"second") is None
    assert store.read("log/1") == b"first"
    store.check_put_if_new()


def test_only_one_of_several_concurrent_writers_creates_the_file(store: ObjectStore) -> None:
    """Its content is complete, and the folder has no other file."""
    contents = [bytes([number]) * 100_000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda content: store.take("log/1", content) is not None, contents))
    assert taken.count(True) == 1
    assert store.read("log/1") == contents[taken.index(True)]
    assert [*store.list_pages("log")] == [["log/1"]]


def test_a_failed_write_leaves_no_file(store: ObjectStore, tmp_path: Path) -> None:
    """The hidden temporary file is removed."""
    with pytest.raises(StoreError):
        store.put_file("out/rows.parquet", tmp_path / "missing")
    assert [*store.list_pages()] == []


def test_a_tag_distinguishes_a_file_from_another_one_with_its_name(store: ObjectStore) -> None:
    """A listing has the tag that the writer got."""
    first = store.take("log/1", b"first")
    assert store.list_tags("log", "log/0") == {"log/1": first}
    store.delete(["log/1"])
    assert store.take("log/1", b"other one") != first


def test_a_listing_continues_after_a_key_and_has_pages(hdfs: Hdfs) -> None:
    """The listing of a bucket does the same."""
    client = HdfsClient(hdfs.make_url(), {})
    for number in range(5):
        client.put(f"in/{number}", b"x")
    pages = client.list("in", offset="in/1", chunk_size=2, return_arrow=True)
    assert [page["path"].to_pylist() for page in pages] == [["in/2", "in/3"], ["in/4"]]


def test_a_copy_replaces_no_file(store: ObjectStore) -> None:
    """A missing source raises `FileNotFoundError`."""
    store.put_new("a", b"first" * 1_000_000)
    assert store.copy_new("a", "moved/b")
    assert not store.copy_new("a", "moved/b")
    assert store.read("moved/b") == b"first" * 1_000_000
    with pytest.raises(FileNotFoundError):
        store.copy_new("missing", "c")


def test_a_folder_is_deleted_with_its_content(store: ObjectStore) -> None:
    """HDFS would keep an empty folder, unlike a bucket. A second deletion has no further effect."""
    store.put_new("prepared/1/part", b"x")
    store.delete_folder("prepared/1")
    store.delete_folder("prepared/1")
    assert store.list_folder("prepared") == ([], [])


def test_the_time_of_a_file_has_milliseconds(store: ObjectStore) -> None:
    """It comes from the clock of the name node."""
    store.put_new("a", b"x")
    found = store.find("a")
    assert found is not None
    assert abs(found.modified / 1000 - time.time()) < 60
    assert abs(store.read_clock() - time.time()) < 60


def test_a_name_node_that_does_not_answer_is_named() -> None:
    """The error is temporary, so a run tries again."""
    with pytest.raises(StoreError, match=r"127\.0\.0\.1:9 does not answer") as raised:
        open_store("hdfs://127.0.0.1:9/a").read("b")
    assert raised.value.is_away


def test_a_missing_table_is_not_found(hdfs: Hdfs) -> None:
    """`deltalake` reaches HDFS directly."""
    assert open_delta_table(StoreUrl(hdfs.make_url("none"))) is None


def test_a_name_node_is_one_store(hdfs: Hdfs) -> None:
    """Its keys are paths from the root."""
    open_store(hdfs.make_url("in")).put_new("a", b"x")
    assert open_bucket(hdfs.make_url("in/a")).read(f"{hdfs.folder}/in/a") == b"x"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("hdfs://node:9820/wherry/orders", None),
        ("hdfs://shop/wherry/orders", None),
        ("hdfs://node:9820", "expected a folder below the name node, got hdfs://node:9820; add /FOLDER"),
        ("hdfs://ann@node/a", "expected a URL without a user or a secret"),
        ("hdfs://node/a b", "expected a URL without ' '"),
    ],
)
def test_a_place_in_hdfs_has_a_host(url: str, problem: str | None) -> None:
    """The host is a name node or a name service."""
    assert is_store_url(url)
    assert (find_problem(url) or "").startswith(problem or "")
    assert (find_problem(url) is None) == (problem is None)


@pytest.mark.parametrize("url", ["hdfs:///wherry/orders", "hdfs:/wherry", "/hdfs://node/a"])
def test_a_place_without_a_host_is_left_to_spark(url: str) -> None:
    """Hadoop's configuration files name the default host."""
    assert not is_store_url(url)
    assert canonicalise(url) == url


def test_hadoop_settings_apply_to_hdfs() -> None:
    """Settings of other stores are left out."""
    settings = {
        "spark.hadoop.dfs.nameservices": "shop",
        "dfs.ha.namenodes.shop": "a,b",
        "spark.hadoop.hadoop.security.authentication": "kerberos",
        "spark.hadoop.fs.s3a.access.key": "key",
        "spark.sql.shuffle.partitions": "2",
    }
    options = get_options(StoreUrl("hdfs://shop/a", settings)) or {}
    assert {name: text for name, text in options.items() if "failover" not in name} == {
        "dfs.nameservices": "shop",
        "dfs.ha.namenodes.shop": "a,b",
        "hadoop.security.authentication": "kerberos",
    }


def test_a_definition_can_set_the_attempts_for_a_name_node() -> None:
    """Otherwise Wherry's default applies."""
    name = "dfs.client.failover.max.attempts"
    assert (get_options(StoreUrl("hdfs://shop/a", {name: "9"})) or {})[name] == "9"
    assert (get_options("hdfs://shop/a") or {})[name] == "4"
