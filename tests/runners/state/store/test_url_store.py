"""Prepared rows in an object store: what is removed, and what is swept."""

from __future__ import annotations

from typing import Any

import pytest

from origins.object_store import ObjectStore, StoreUrl
from runners.state.prepared_store import UrlStore
from tests.stores.s3 import S3

SPARK: Any = None
"""Nobody asks it to remove rows."""


@pytest.fixture
def url(s3: S3) -> StoreUrl:
    """Where two batches were prepared."""
    url = StoreUrl(s3.make_url("state/prepared"), s3.spark_settings)
    for name in ("open-1", "left-1", "left-live-0"):
        assert ObjectStore(url).put_new(f"{name}/part.parquet", b"")
    return url


def list_names(url: StoreUrl) -> list[str]:
    return sorted(ObjectStore(url).list_folders())


def test_the_rows_of_a_name_are_removed(url: StoreUrl) -> None:
    """And of names that begin with it and a dash; twice is once."""
    store = UrlStore(url)
    store.remove(SPARK, "left")
    store.remove(SPARK, "left")
    store.remove(SPARK, "ope")
    assert list_names(url) == ["open-1"]


def test_what_an_open_batch_needs_is_kept_and_the_rest_is_swept(url: StoreUrl) -> None:
    """By the names under which they were prepared."""
    UrlStore(url).sweep(SPARK, lambda: ["open"])
    assert list_names(url) == ["open-1"]


def test_what_is_prepared_by_whoever_took_over_meanwhile_is_not_swept(url: StoreUrl) -> None:
    """It is asked behind the look what to keep."""

    def taken_over() -> list[str]:
        assert ObjectStore(url).put_new("theirs-1/part.parquet", b"")
        return []

    UrlStore(url).sweep(SPARK, taken_over)
    assert list_names(url) == ["theirs-1"]
