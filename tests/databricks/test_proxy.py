"""The proxy refuses what Databricks refuses, and passes everything else on."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.scenarios.shared_jvm import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.databricks.proxy import DatabricksProxy

pytestmark = pytest.mark.spark


@pytest.fixture
def remote(serverless: DatabricksProxy) -> Iterator[SparkSession]:
    """Provide a session behind the proxy."""
    from pyspark.sql.connect.session import SparkSession as Remote

    session = Remote(serverless.address)
    yield session  # type: ignore[misc,unused-ignore]
    gc.collect()  # before 4.2 a forgotten session closes itself in any thread, and there waits for this one
    gc.disable()
    session.client.close()
    gc.enable()


def test_rows_pass(remote: SparkSession, tmp_path: Path) -> None:
    """Queries, writes and views are passed on."""
    remote.range(5).write.format("delta").save(str(tmp_path / "table"))
    remote.read.format("delta").load(str(tmp_path / "table")).createOrReplaceTempView("rows")
    assert remote.sql("select sum(id) from rows").collect() == [(10,)]


def test_local_rows_pass(remote: SparkSession) -> None:
    """Rows of the client that are too many for one message are passed on."""
    rows = [(number, "x" * 100) for number in range(100_000)]
    assert remote.createDataFrame(rows, "id long, text string").count() == 100_000


def test_an_error_of_the_server_keeps_its_condition(remote: SparkSession) -> None:
    """The client shows the same condition as without the proxy."""
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException) as raised:
        remote.sql("select * from no_such_table").collect()
    assert raised.value.getCondition() == "TABLE_OR_VIEW_NOT_FOUND"


def test_six_settings_may_be_touched(remote: SparkSession) -> None:
    """A setting of serverless is read and set."""
    remote.conf.set("spark.sql.session.timeZone", "UTC")
    remote.sql("SET TIME ZONE 'UTC'")
    assert remote.conf.get("spark.sql.session.timeZone") == "UTC"


def test_a_refused_setting_has_the_code_of_databricks(remote: SparkSession) -> None:
    """A program sees `CONFIG_NOT_AVAILABLE`."""
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match=r"spark\.sql\.caseSensitive is not available") as raised:
        remote.conf.get("spark.sql.caseSensitive")
    assert (raised.value.getCondition(), raised.value.getSqlState()) == ("CONFIG_NOT_AVAILABLE", "42K0I")


SETTING, KEPT, PATH = "CONFIG_NOT_AVAILABLE", "NOT_SUPPORTED_WITH_SERVERLESS", "INVALID_PATH"
FORBIDDEN: dict[str, tuple[str, Callable[[SparkSession, Path], object]]] = {
    "get": (SETTING, lambda spark, _: spark.conf.get("spark.sql.caseSensitive")),
    "set": (SETTING, lambda spark, _: spark.conf.set("wherry.anything", "1")),
    "all settings": (SETTING, lambda spark, _: spark.conf.getAll),
    "SET": (SETTING, lambda spark, _: spark.sql("SET spark.sql.caseSensitive = true").collect()),
    "persist": (KEPT, lambda spark, _: spark.range(1).persist().count()),
    "CACHE TABLE": (KEPT, lambda spark, _: spark.sql("CACHE TABLE some_table")),
    "checkpoint": (KEPT, lambda spark, _: spark.range(1).localCheckpoint()),
    "global view in SQL": (KEPT, lambda spark, _: spark.sql("create global temporary view e as select 1")),
    "JAR": (KEPT, lambda spark, folder: spark.addArtifacts(str(_make_jar(folder)))),
    "relative path written": (PATH, lambda spark, _: spark.range(1).write.format("csv").save("landing")),
    "large local relation": (
        "LOCAL_RELATION_SIZE_LIMIT_EXCEEDED",
        lambda spark, _: spark.createDataFrame([("x" * (1 << 20),)] * 129, "text string").count(),
    ),
}


def _make_jar(folder: Path) -> Path:
    jar = folder / "some.jar"
    jar.write_bytes(b"PK")
    return jar


@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_serverless_does_not_allow_is_refused(
    name: str, remote: SparkSession, serverless: DatabricksProxy, tmp_path: Path
) -> None:
    """The client raises an error, and the proxy has noted the refusal."""
    from pyspark.errors import PySparkException

    condition, action = FORBIDDEN[name]
    with pytest.raises(PySparkException, match=condition):
        action(remote, tmp_path)
    assert [each.partition("]")[0] for each in serverless.refusals] == [f"[{condition}"]


def test_a_managed_table_is_reached_by_its_name_only(remote: SparkSession, connect_server: Server) -> None:
    """Its owner reads, describes and writes it by its name, and is refused with its path."""
    from pyspark.errors import AnalysisException

    remote.sql("create or replace table managed_here using delta as select 1 as id")
    remote.range(1).writeTo("managed_here").append()
    assert remote.table("managed_here").count() == 2
    path = f"{connect_server.folder}/warehouse/managed_here"
    assert remote.sql("describe detail managed_here").collect()[0]["location"].endswith(path)
    by_path: list[Callable[[], object]] = [
        lambda: remote.read.format("delta").load(path).collect(),
        lambda: remote.read.format("json").load(f"file:{path}/_delta_log").collect(),
        lambda: remote.sql(f"select * from delta.`{path}`").collect(),
        lambda: remote.range(1).write.format("delta").mode("append").save(path),
        lambda: remote.sql(f"create table other using delta location '{path}'"),
    ]
    for action in by_path:
        with pytest.raises(AnalysisException, match="LOCATION_OVERLAP"):
            action()
    remote.sql("drop table managed_here")


def test_each_call_takes_at_least_as_long_as_asked(connect_server: Server) -> None:
    """A test with a slow proxy shows how a run behaves on slow compute. Both a setting and a query wait."""
    from pyspark.sql.connect.session import SparkSession as Remote

    from tests.databricks.proxy import DatabricksProxy

    with DatabricksProxy(connect_server.get().connect, seconds=0.3) as proxy:
        session = Remote(proxy.address)
        calls: list[Callable[[], object]] = [
            lambda: session.conf.get("spark.sql.session.timeZone"),
            lambda: session.range(1).schema,
            lambda: session.range(1).collect(),
        ]
        seconds = []
        for call in calls:
            began = time.monotonic()
            call()
            seconds.append(time.monotonic() - began)
        session.client.close()
    assert [each >= 0.3 for each in seconds] == [True] * len(calls), seconds


def test_statements_are_counted(remote: SparkSession, serverless: DatabricksProxy) -> None:
    """Each plan that is analysed or run is a statement. Settings are none."""
    remote.conf.get("spark.sql.session.timeZone")
    serverless.forget()
    frame = remote.sql("select 1  as one")
    assert frame.schema.names == ["one"]
    assert frame.collect() == [(1,)]
    assert serverless.statements == ["sql select 1 as one", "analyze schema", "query sql"]
