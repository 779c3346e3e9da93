"""A Delta table in an object store is found and read without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn, cast

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from destinations.delta.log import StoreLog, format_tag
from destinations.delta.table import TargetTable
from destinations.destination import DestinationError
from destinations.labels import BatchLabel
from origins.store_access import StoreUrl
from tests.stores.fault_proxy import Fault
from tests.stores.s3 import S3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "delta.`table`"


class Asked(Exception):
    """Spark was asked."""


class NoSpark:
    """A Spark that must not be asked. Its settings do not show that it sees what this process sees."""

    conf: Mapping[str, str] = {}

    def sql(self, query: str) -> NoReturn:
        raise Asked(query)


SPARK: Any = NoSpark()


def make_label(number: int) -> BatchLabel:
    plan = f"p{number}"
    return BatchLabel(pipeline="orders", lane="0", number=number, plan=plan, destination="orders", key=f"{plan}/orders")


@pytest.fixture
def url(s3: S3) -> StoreUrl:
    """A table of three versions, each with as many rows as its number."""
    for number in (1, 2, 3):
        write_deltalake(
            s3.make_url("tables/orders"),
            pa.table({"id": pa.array(range(number), pa.int64())}),
            mode="append",
            storage_options=s3.storage_options,
            commit_properties=CommitProperties(custom_metadata={"userMetadata": format_tag([make_label(number)])}),
        )
    return StoreUrl(s3.make_url("tables/orders"), s3.spark_settings)


def find_table(url: StoreUrl) -> TargetTable:
    table = TargetTable.find(SPARK, NAME, url)
    assert table is not None
    return table


def test_a_table_is_found_with_its_columns_and_newest_version(url: StoreUrl) -> None:
    """Spark is not asked."""
    table = find_table(url)
    assert (table.version, table.schema.simpleString(), table.location) == (2, "struct<id:bigint>", url)


def test_the_first_write_does_not_open_the_table_again(s3: S3, url: StoreUrl) -> None:
    """It only tests whether the store keeps two writers apart."""
    table = find_table(url)
    s3.proxy.reset_counts()
    direct = table.get_direct_table(cast("SparkSession", SimpleNamespace(conf=SimpleNamespace(getAll={}))))
    assert direct is not None
    assert direct.begin() is not None
    assert s3.proxy.count() == {"PUT": 2}


def test_the_versions_name_their_batches(s3: S3, url: StoreUrl) -> None:
    """Only versions after the given one are fetched, newest first."""
    table = find_table(url)
    s3.proxy.reset_counts()
    commits = list(table.log.list_commits(SPARK, 0))
    assert [(commit.version, commit.measure_written().rows) for commit in commits] == [(2, 3), (1, 2)]
    assert [commit.has_label("p3/orders") for commit in commits] == [True, False]
    assert s3.proxy.count() == {"LIST": 1, "GET": 2}


def test_spark_reads_what_this_process_may_not_read(s3: S3, url: StoreUrl) -> None:
    """Spark may have rights that this process does not have."""
    log = find_table(url).log
    assert isinstance(log, StoreLog)
    s3.proxy.add(Fault("forbid", times=None))
    with pytest.raises(Asked, match="DESCRIBE DETAIL"):
        TargetTable.find(SPARK, NAME, url)
    with pytest.raises(Asked, match="DESCRIBE HISTORY"):
        list(log.list_commits(SPARK, 0))


def test_an_error_of_the_store_is_reported_in_plain_words(s3: S3, url: StoreUrl) -> None:
    """It has a hint for the user."""

    class Refused(NoSpark):
        def sql(self, query: str) -> NoReturn:
            raise OSError("Status Code: 400")

    spark: Any = Refused()
    s3.proxy.add(Fault("send_away", times=None))
    with pytest.raises(DestinationError, match=r"the bucket test-.* is in eu-west-1, not in us-east-1") as raised:
        TargetTable.find(spark, NAME, url)
    assert "AWS_REGION=eu-west-1" in raised.value.hint


def test_spark_is_asked_for_a_table_that_is_missing_here(s3: S3) -> None:
    """This process may be connected to another store."""
    with pytest.raises(Asked, match="DESCRIBE DETAIL"):
        TargetTable.find(SPARK, NAME, StoreUrl(s3.make_url("tables/none"), s3.spark_settings))
