"""When Wherry appends few rows without Spark, and that the result equals an append by Spark."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import deltalake
import pytest
from pyarrow import parquet

from destinations.conformance import make_label, start_paused_write
from destinations.delta import Delta
from destinations.delta.delta import OpenDelta
from destinations.delta.direct_append import DirectTable, _list_types, write_checkpoint
from destinations.delta.direct_commit import FolderPlace, Overwritten
from destinations.delta.lock import get_commits, hold_table
from destinations.delta.log import LocalLog
from destinations.delta.writers import SparkAppend
from destinations.destination import Written
from origins.batch_rows import FrameRows, TableRows
from runners.spark.own_session import make_own_session
from tests.destinations.delta.writers_conformance import write as write_by

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark]
COLUMNS = "id bigint, name string"


def make_table(spark: SparkSession, folder: Path, columns: str = COLUMNS, more: str = "") -> OpenDelta:
    """Return an existing table."""
    spark.sql(f"CREATE TABLE delta.`{folder}` ({columns}) USING delta {more}")
    return Delta(path=str(folder)).open()


def append_few(spark: SparkSession, orders: OpenDelta, rows: DataFrame) -> str:
    """Append the rows as few rows, and return the engine of the commit."""
    orders.ensure_place(spark, rows.schema)
    written = orders.write(spark, FrameRows(rows, 0), [make_label()])
    assert written.rows == rows.count()
    assert written.bytes
    return name_engine(orders)


def read_newest(orders: OpenDelta, action: str) -> dict[str, Any]:
    """Return an action of the newest version, without its empty fields."""
    log = LocalLog(Path(orders.destination.place))
    actions = map(json.loads, log.path_of(log.find_latest()).read_text().splitlines())
    found = next(each[action] for each in actions if action in each)
    return {name: value for name, value in found.items() if value is not None}


def name_engine(orders: OpenDelta) -> str:
    """Return the engine of the newest version, and whether Spark wrote its file for Wherry."""
    name = str(read_newest(orders, "commitInfo")["engineInfo"]).partition(":")[0]
    if name != "wherry":
        return name
    file = Path(orders.destination.place, unquote(read_newest(orders, "add")["path"]))
    is_sparks = parquet.read_metadata(file).created_by.startswith("parquet-mr") and file.stat().st_nlink == 1
    return f"{name}, files by Spark" if is_sparks else name


@pytest.mark.connect
def test_few_rows_are_committed_without_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Afterwards Spark reads, appends to and optimizes the table."""
    orders = make_table(
        spark, tmp_path / "orders", more="TBLPROPERTIES ('delta.checkpointInterval' = '3', 'mine' = 'x')"
    )
    for number in range(4):
        assert append_few(spark, orders, spark.range(number, number + 1).selectExpr("id", "'x' as NAME")) == "wherry"
    assert orders.write(spark, FrameRows(spark.range(4, 5).selectExpr("id", "'y' as name")), [make_label()]).rows == 1
    spark.sql(f"OPTIMIZE {orders.destination.sql_name}").collect()
    assert append_few(spark, orders, spark.range(5, 6).selectExpr("'z' as name", "id")) == "wherry"
    found = spark.table(orders.destination.sql_name).orderBy("id").collect()
    assert [tuple(row) for row in found] == [(0, "x"), (1, "x"), (2, "x"), (3, "x"), (4, "y"), (5, "z")]
    log = os.listdir(Path(orders.destination.place, "_delta_log"))
    assert [name for name in log if name.endswith(".checkpoint.parquet")]
    assert [name for name in log if name.endswith(".tmp")] == []


@pytest.mark.parametrize("columns", ["id bigint, name varchar(9)", "id bigint, name string, more string"])
def test_a_table_with_other_columns_is_left_to_spark(spark: SparkSession, tmp_path: Path, columns: str) -> None:
    """A column has a length, or the rows lack it. `scenarios/test_table_features.py` has the tables' features."""
    orders = make_table(spark, tmp_path / "orders", columns)
    assert append_few(spark, orders, spark.range(1).selectExpr("id", "'x' as name")).startswith("Apache-Spark")


@pytest.mark.connect
def test_rows_in_memory_are_written_under_their_label(spark: SparkSession, tmp_path: Path) -> None:
    """They get the stamp, and their columns may have any order. A write without rows makes no commit."""
    spark.sql(f"CREATE TABLE delta.`{tmp_path / 'orders'}` ({COLUMNS}, batch string) USING delta")
    orders = Delta(path=str(tmp_path / "orders"), stamp="batch").open()
    rows = spark.range(2).selectExpr("'x' as NAME", "id")
    identity = orders.ensure_place(spark, rows.schema)
    seventh, eighth = make_label(number=7), make_label(number=8)
    written = orders.write(spark, TableRows(spark, rows.toArrow()), [seventh])
    assert (written.rows, name_engine(orders)) == (2, "wherry")
    assert orders.find(spark, seventh, identity) == written
    assert [tuple(row) for row in spark.table(orders.destination.sql_name).orderBy("id").collect()] == [
        (0, "x", "0/7"),
        (1, "x", "0/7"),
    ]
    assert orders.write(spark, TableRows(spark, rows.where("false").toArrow()), [eighth]) == Written(rows=0)
    assert orders.find(spark, eighth, identity) is None


@pytest.mark.connect
def test_a_plain_table_is_fenced_without_spark(spark: SparkSession, tmp_path: Path) -> None:
    """A write that began before the fence fails. Only the fence changes in the table's metadata."""
    orders = make_table(
        spark, tmp_path / "orders", "id bigint, text string", "COMMENT 'ours' TBLPROPERTIES (team = 'sales')"
    )
    orders.ensure_place(spark, spark.range(1).selectExpr("id", "'x' as text").schema)
    before = read_newest(orders, "metaData")
    orders.fence(spark, "first")
    assert name_engine(orders) == "delta-rs"
    after = read_newest(orders, "metaData")
    assert after == {**before, "configuration": {**before["configuration"], "wherry.fence": "first"}}
    with start_paused_write(spark, orders, make_label()) as (write, let_go):
        assert DirectTable(FolderPlace(tmp_path / "orders"), after["id"]).mark({"wherry.fence": "second"})
        let_go()
        with pytest.raises(Exception, match="metadata changed"):
            write.result()


@pytest.mark.parametrize(
    ("value", "by"),
    [
        ("timestamp'-0044-03-15 00:00:00'", "wherry, files by Spark"),
        ("map('a', 1)", "Apache-Spark"),
        ("if(id = 0, NULL, named_struct('a', id))", "wherry, files by Spark"),
    ],
)
def test_a_value_that_readers_might_skip_is_written_by_spark(
    spark: SparkSession, tmp_path: Path, value: str, by: str
) -> None:
    """It is a time that readers write differently, a type of another kind, or a NULL that PySpark does not fetch."""
    rows = spark.range(1).selectExpr(f"{value} AS value")
    orders = make_table(spark, tmp_path / "orders", f"value {rows.schema['value'].dataType.simpleString()}")
    assert append_few(spark, orders, rows).startswith(by)
    there, given = (
        each.selectExpr("cast(value AS string)") for each in (spark.table(orders.destination.sql_name), rows)
    )
    assert there.collect() == given.collect()


def test_a_rule_added_during_a_run_is_enforced(spark: SparkSession, tmp_path: Path) -> None:
    """From then on Spark writes the rows, and refuses those that break the rule."""
    orders = make_table(spark, tmp_path / "orders")
    assert append_few(spark, orders, spark.range(1).selectExpr("id", "'x' as name")) == "wherry"
    spark.sql(f"ALTER TABLE {orders.destination.sql_name} ADD CONSTRAINT early CHECK (id < 5)")
    with pytest.raises(Exception, match="early"):
        orders.write(spark, FrameRows(spark.range(9, 10).selectExpr("id", "'x' as name"), 0), [make_label()])
    assert spark.table(orders.destination.sql_name).count() == 1


def test_a_commit_that_succeeded_and_then_raised_counts_as_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure after the commit does not make Wherry write the rows again."""
    orders = make_table(spark, tmp_path / "orders")
    rows = spark.range(3).selectExpr("id", "'x' as name")
    orders.ensure_place(spark, rows.schema)

    append = FolderPlace.append

    def lands_and_raises(*told: Any) -> None:
        append(*told)
        raise OSError("input/output error")

    monkeypatch.setattr("destinations.delta.direct_commit.FolderPlace.append", lands_and_raises)
    assert orders.write(spark, FrameRows(rows, 0), [make_label()]).rows == 3
    assert spark.table(orders.destination.sql_name).count() == 3


def test_a_checkpoint_that_cannot_be_written_is_logged(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The rows are written, and so are later ones."""
    orders = make_table(spark, tmp_path / "orders", more="TBLPROPERTIES ('delta.checkpointInterval' = '1')")

    def full(*_: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(deltalake.DeltaTable, "create_checkpoint", full)
    for number in range(2):
        assert append_few(spark, orders, spark.range(number, number + 1).selectExpr("id", "'x' as name")) == "wherry"
    assert spark.table(orders.destination.sql_name).count() == 2
    assert f"no checkpoint could be written for {tmp_path / 'orders'}: no space left on device" in caplog.text


def test_the_log_of_few_rows_equals_that_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """This holds for the history. The writers' suite compares the statistics."""
    rows = spark.range(0, 4, 1, 1).selectExpr("id", "'x' as name")
    ours, theirs = make_table(spark, tmp_path / "ours"), make_table(spark, tmp_path / "theirs")
    assert append_few(spark, ours, rows) == "wherry"
    theirs.ensure_place(spark, rows.schema)
    write_by(SparkAppend(), theirs, FrameRows(rows))

    ours_said, theirs_said = (read_newest(each, "commitInfo") for each in (ours, theirs))
    for name in ("operation", "operationParameters", "isBlindAppend", "isolationLevel", "readVersion"):
        assert ours_said[name] == theirs_said[name], name
    assert ours_said["operationMetrics"].keys() == theirs_said["operationMetrics"].keys()
    (history,) = spark.sql(f"DESCRIBE HISTORY {ours.destination.sql_name} LIMIT 1").collect()
    assert (history.operation, history.operationMetrics["numOutputRows"]) == ("WRITE", "4")
    assert history.operationMetrics["numOutputBytes"] == str(read_newest(ours, "add")["size"])


def test_during_a_write_by_spark_rows_are_written_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Two writers that commit in different ways could take the same version."""
    orders = make_table(spark, tmp_path / "orders")
    with hold_table(tmp_path / "orders"):
        assert append_few(spark, orders, spark.range(1).selectExpr("id", "'x' as name")).startswith("Apache-Spark")
    assert append_few(spark, orders, spark.range(1).selectExpr("id", "'x' as name")) == "wherry"


@contextlib.contextmanager
def start_stranger(spark: SparkSession, folder: Path, done: threading.Event) -> Iterator[Future[None]]:
    """Run another writer in this JVM, which has found the next version free.

    It takes that version by a rename once another thread waits for its lock, or once the event is set.
    """
    looked = threading.Event()
    jvm: Any = spark._jvm

    def commit() -> None:
        lock = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, str(folder)).snapshotLock()
        lock.lock()
        log = LocalLog(folder)
        name, other = log.path_of(log.find_latest() + 1), log.path_of(0).with_name(".other.tmp")
        other.write_text(json.dumps({"commitInfo": {"operation": "OTHER", "engineInfo": "other"}}), encoding="utf-8")
        looked.set()
        while not lock.hasQueuedThreads() and not done.is_set():
            pass
        other.rename(name)
        lock.unlock()

    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(commit)
        looked.wait()
        yield ended


def test_a_batch_takes_no_version_that_spark_is_committing(spark: SparkSession, tmp_path: Path) -> None:
    """Each commit of this JVM holds the lock of the table's log, and the batch is committed after it."""
    orders, done = make_table(spark, tmp_path / "orders"), threading.Event()
    rows, seventh = spark.range(1).selectExpr("id", "'x' as name"), make_label(number=7)
    identity = orders.ensure_place(spark, rows.schema)
    with start_stranger(spark, tmp_path / "orders", done) as ended:
        try:
            written = orders.write(spark, FrameRows(rows, 0), [seventh])
        finally:
            done.set()
        ended.result()
    assert orders.find(spark, seventh, identity) == written
    assert (name_engine(orders), written.version) == ("wherry", 2)
    orders.confirm()


def test_spark_waits_while_wherry_takes_a_version(spark: SparkSession, tmp_path: Path) -> None:
    """Before that, this JVM had not loaded the table, so it had no lock."""
    make_table(spark, tmp_path / "orders")
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    done = threading.Event()
    with contextlib.ExitStack() as stack:
        with get_commits(spark).hold(tmp_path / "orders"):
            ended = stack.enter_context(start_stranger(spark, tmp_path / "orders", done))
        waited = LocalLog(tmp_path / "orders").find_latest()
        done.set()
        ended.result()
    assert waited == 1


@pytest.mark.parametrize("few", [True, False])
def test_a_batch_that_another_process_replaced_stops_the_next_batch(
    spark: SparkSession, tmp_path: Path, few: bool
) -> None:
    """This holds for both ways of writing. Without a next batch, `confirm` raises at the end."""
    orders = make_table(spark, tmp_path / "orders")
    rows = spark.range(1).selectExpr("id", "'x' as name")
    given = FrameRows(rows, 0 if few else None)
    orders.ensure_place(spark, rows.schema)
    for number in (7, 8):
        written = orders.write(spark, given, [make_label(number=number)])
        file = LocalLog(tmp_path / "orders").path_of(written.version or 0)
        other = file.with_name("other")
        other.write_text(json.dumps({"commitInfo": {"operation": "WRITE"}}), encoding="utf-8")
        other.rename(file)
        with pytest.raises(Overwritten, match=rf"version {written.version} .* batch {number} of lane 0"):
            orders.write(
                spark, FrameRows(rows, 0 if few else None), [make_label(number=9)]
            ) if number == 7 else orders.confirm()
    assert LocalLog(tmp_path / "orders").find_latest() == written.version


def test_writers_in_one_jvm_lose_no_row(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's appends and Wherry's batches of few rows make as many versions as commits."""
    orders = make_table(spark, tmp_path / "orders", "id bigint")
    orders.ensure_place(spark, spark.range(1).schema)
    sessions = [make_own_session(spark) for _ in range(2)]

    def theirs(number: int) -> None:
        for each in range(3):
            rows = sessions[number].range(100 * number + each, 100 * number + each + 1)
            rows.write.format("delta").mode("append").save(str(tmp_path / "orders"))

    def ours() -> None:
        for each in range(10):
            found = orders.write(
                spark, FrameRows(spark.range(1_000 + each, 1_001 + each), 0), [make_label(number=each)]
            )
            assert found.rows == 1

    with ThreadPoolExecutor(3) as pool:
        for future in [pool.submit(ours), *(pool.submit(theirs, number) for number in range(2))]:
            future.result()
    expected = {*range(3), *range(100, 103), *range(1_000, 1_010)}
    assert sorted(row["id"] for row in spark.table(orders.destination.sql_name).collect()) == sorted(expected)
    assert LocalLog(tmp_path / "orders").find_latest() == len(expected)
    orders.confirm()


@pytest.mark.parametrize(
    ("key", "value"),
    [("spark.sql.parquet.compression.codec", "zstd"), ("spark.databricks.delta.commitLock.enabled", "false")],
)
def test_a_session_that_sets_how_to_write_is_left_to_spark(
    spark: SparkSession, tmp_path: Path, key: str, value: str
) -> None:
    """It sets the files, or commits without the lock that keeps Wherry's commits apart."""
    orders = make_table(spark, tmp_path / "orders")
    rows = spark.range(1).selectExpr("id", "'x' as name")
    orders.ensure_place(spark, rows.schema)
    spark.conf.set(key, value)
    orders.write(spark, TableRows(spark, rows.toArrow()), [make_label()])
    assert name_engine(orders).startswith("Apache-Spark")


def test_files_have_the_permissions_of_sparks_files(spark: SparkSession, tmp_path: Path) -> None:
    """Rows, versions and checkpoints have the mode and group of Spark's files, independent of this process's umask."""
    before = os.umask(0o077)
    try:
        orders = Delta(path=str(tmp_path / "orders"), properties={"delta.checkpointInterval": "100"}).open()
        rows = spark.range(1).selectExpr("id", "'x' as name")
        orders.ensure_place(spark, rows.schema)
        assert name_engine(orders) != "wherry"
        assert append_few(spark, orders, rows) == "wherry"
        orders.fence(spark, "token")
        write_checkpoint(FolderPlace(tmp_path / "orders"))
        (tmp_path / "kept").mkdir()
        Delta(path=str(tmp_path / "kept")).open().ensure_place(spark, rows.schema)
    finally:
        os.umask(before)
    found = {path.relative_to(tmp_path): path for path in [tmp_path / "orders", *(tmp_path / "orders").rglob("*")]}
    assert len(found) > 6
    assert oct((tmp_path / "kept").stat().st_mode & 0o777) == oct(0o700)
    modes = {name: oct(path.stat().st_mode & 0o777) for name, path in found.items()}
    assert modes == {name: oct(0o755 if path.is_dir() else 0o644) for name, path in found.items()}


@pytest.mark.parametrize("schema", [f"{COLUMNS}, name2 interval day", "id bigint, ID bigint"])
def test_rows_of_other_types_are_left_to_spark(
    spark: SparkSession, schema: str, empty: Callable[[str], DataFrame]
) -> None:
    """So are names that differ only in upper and lower case."""
    assert _list_types(json.loads(empty(schema).schema.json()), spelled=False) is None


@pytest.fixture
def empty(spark: SparkSession) -> Callable[[str], DataFrame]:
    """A function that returns a frame without rows for a schema."""
    return lambda schema: spark.createDataFrame([], schema)
