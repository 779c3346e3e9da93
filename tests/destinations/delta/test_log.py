"""The log of a table on this machine is read without Spark, and says what Spark says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

from destinations.conformance import make_label
from destinations.delta import Delta
from destinations.delta.log import LocalLog, LogCommit, SparkLog, make_tag, parse_metadata
from destinations.delta.table import TargetTable, find_seen_alike
from destinations.destination import Written
from origins.batch_rows import FrameRows
from origins.store_access import StoreUrl
from tests.stores.s3 import S3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_SPARK = cast("SparkSession", None)


@pytest.fixture
def log(tmp_path: Path) -> LocalLog:
    """A log without versions."""
    (tmp_path / "_delta_log").mkdir()
    return LocalLog(tmp_path)


def commit(log: LocalLog, version: int, info: Mapping[str, Any] | None = None) -> None:
    """Put a version into the log, as Delta does."""
    actions = [{"commitInfo": info or {}}, {"add": {"path": '{"commitInfo": 1}', "size": 1}}]
    lines = "".join(json.dumps(action) + "\n" for action in actions)
    (log.folder / "_delta_log" / f"{version:020}.json").write_text(lines)


def versions(log: LocalLog, after: int) -> list[int]:
    """The versions that the log gives."""
    return [each.version for each in log.list_commits(NO_SPARK, after)]


def written(text: str, operation: str = "WRITE", **parameters: str) -> LogCommit:
    """A commit with this tag."""
    return LogCommit(version=1, operation=operation, parameters=parameters, metrics={}, tag=text)


def test_versions_come_newest_first(log: LocalLog) -> None:
    """All versions after the one that is named, and not that one."""
    for version in range(12):
        commit(log, version)
    assert versions(log, 8) == [11, 10, 9]


def test_the_newest_batch_in_a_store_is_told_without_spark(s3: S3) -> None:
    """As long as it is among the last few versions, and is of the pipeline that is asked for."""
    from deltalake import CommitProperties, write_deltalake

    url, label = StoreUrl(s3.make_url("orders"), s3.spark_settings), make_label()
    for tag in (make_tag([label]), "", ""):
        write_deltalake(
            str(url),
            pa.table({"id": [1]}),
            mode="append",
            storage_options=s3.storage_options,
            commit_properties=CommitProperties(custom_metadata={"userMetadata": tag}),
        )
    table = Delta(path=url).open()
    table.ensure_place(NO_SPARK, None)
    newest = table.newest(label.batch.pipeline)
    assert newest is not None
    assert (newest["key"], newest["number"]) == (label.key, label.batch.number)
    assert table.newest("another") is None


def test_nothing_comes_after_the_newest(log: LocalLog) -> None:
    """A version that is the newest, or that is not there yet, has none after it."""
    commit(log, 0)
    assert [versions(log, 0), versions(log, 5)] == [[], []]


def test_versions_end_where_the_log_was_cleaned(log: LocalLog) -> None:
    """What Delta has cleaned up is missing, and nothing older is given."""
    for version in (3, 4, 7, 8):
        commit(log, version)
    assert versions(log, 0) == [8, 7]


def test_other_files_in_the_log_are_no_versions(log: LocalLog) -> None:
    """Checkpoints, checksums, compacted and staged commits are passed over."""
    commit(log, 0)
    for name in ("00000000000000000009.checkpoint.parquet", "_last_checkpoint", "00000000000000000007.crc"):
        (log.folder / "_delta_log" / name).touch()
    (log.folder / "_delta_log" / "00000000000000000000.00000000000000000004.compacted.json").touch()
    assert log.find_latest(NO_SPARK) == 0


def test_a_commit_says_what_it_left(log: LocalLog) -> None:
    """Rows and bytes are those of the commit's own metrics."""
    metrics = {"numOutputRows": "9007199254740993", "numOutputBytes": "12"}
    commit(log, 0, {"operation": "WRITE", "operationMetrics": metrics})
    (found,) = log.list_commits(NO_SPARK, -1)
    assert found.measure_written() == Written(rows=9007199254740993, bytes=12, version=0)


def test_a_commit_without_figures_says_none(log: LocalLog) -> None:
    """Where metrics are switched off nothing is guessed."""
    commit(log, 0, {"operation": "WRITE", "operationMetrics": None})
    (found,) = log.list_commits(NO_SPARK, -1)
    assert found.measure_written() == Written(rows=None, version=0)


@pytest.mark.parametrize(
    ("metrics", "rows"),
    [
        ({"numOutputRows": "5", "numCopiedRows": "3", "numOutputBytes": "9"}, 2),
        ({"numOutputRows": "0", "numCopiedRows": "0", "numOutputBytes": "9"}, None),
        ({"numOutputRows": "0", "numCopiedRows": "0", "numOutputBytes": "0"}, 0),
    ],
)
def test_rows_that_are_copied_are_not_delivered(log: LocalLog, metrics: Mapping[str, str], rows: int | None) -> None:
    """Where rows make room, those beside them are written again. Files without statistics say nothing of their rows."""
    commit(log, 0, {"operation": "WRITE", "operationMetrics": metrics})
    (found,) = log.list_commits(NO_SPARK, -1)
    assert found.measure_written().rows == rows


def test_a_merge_counts_the_rows_of_its_source(log: LocalLog) -> None:
    """What a merge delivered is what came, not what it rewrote."""
    metrics = {"numSourceRows": "3", "numOutputRows": "900", "numTargetBytesAdded": "7"}
    commit(log, 0, {"operation": "MERGE", "operationMetrics": metrics})
    (found,) = log.list_commits(NO_SPARK, -1)
    assert found.measure_written() == Written(rows=3, bytes=7, version=0)


def test_a_tag_is_a_list_of_labels() -> None:
    """Beside the key, which is compared, stands what a person wants to know."""
    first, second = make_label(number=3, lane="a"), make_label(number=4, lane="b")
    labels = json.loads(make_tag([first, second]))["wherry"]
    assert [one["key"] for one in labels] == [first.key, second.key]
    assert labels[0] == {
        "pipeline": "conformance",
        "lane": "a",
        "number": 3,
        "plan": first.batch.plan,
        "destination": "orders",
        "key": f"{first.batch.plan}/orders",
    }


@pytest.mark.parametrize("operation", ["WRITE", "MERGE"])
def test_a_label_counts_on_what_delivers_rows(operation: str) -> None:
    """A write or a merge under this label has delivered the batch."""
    mine = make_label()
    assert written(make_tag([make_label(), mine]), operation).carries(mine.key)


@pytest.mark.promise("CD-22")
@pytest.mark.parametrize("operation", ["SET TBLPROPERTIES", "OPTIMIZE", "UPDATE", "DELETE", "RESTORE", "CREATE TABLE"])
def test_a_label_counts_on_nothing_else(operation: str) -> None:
    """Every commit of a session whose tag is configured carries it; only a write proves that rows came."""
    mine = make_label()
    assert not written(make_tag([mine]), operation).carries(mine.key)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "KEY",
        "{KEY",
        "null KEY",
        '"KEY"',
        '["KEY"]',
        '{"wherry": "KEY"}',
        '{"wherry": ["KEY"]}',
        '{"wherry": {"key": "KEY"}}',
        '{"wherry": [{"key": ["KEY"]}]}',
        '{"wherry": [{"plan": "KEY"}]}',
        '{"other": [{"key": "KEY"}]}',
    ],
)
def test_what_others_write_into_a_tag_is_no_label(text: str) -> None:
    """Somebody else's text, of any shape, is read without complaint and proves nothing."""
    mine = make_label()
    assert not written(text.replace("KEY", mine.key)).carries(mine.key)


@pytest.mark.parametrize(
    ("operation", "parameters"),
    [
        ("RESTORE", {"version": "1"}),
        ("TRUNCATE", {}),
        ("REPLACE TABLE", {}),
        ("CREATE OR REPLACE TABLE AS SELECT", {}),
        ("CLONE", {}),
        ("WRITE", {"mode": "Overwrite"}),
        ("DELETE", {"predicate": '["true"]'}),
        ("DELETE", {"predicate": "[]"}),
    ],
)
def test_what_replaces_a_table_undoes(operation: str, parameters: Mapping[str, str]) -> None:
    """After it, nobody can tell from the log alone whether earlier rows are there."""
    assert written("", operation, **parameters).undoes


@pytest.mark.parametrize(
    ("operation", "parameters"),
    [
        ("WRITE", {"mode": "Append"}),
        ("WRITE", {"mode": "Overwrite", "predicate": "day = 1"}),
        ("DELETE", {"predicate": '["(id = 1)"]'}),
        ("UPDATE", {"predicate": "[]"}),
        ("OPTIMIZE", {}),
        ("MERGE", {}),
    ],
)
def test_what_changes_some_rows_undoes_nothing(operation: str, parameters: Mapping[str, str]) -> None:
    """People correct and delete rows that were delivered; delivered they were."""
    assert not written("", operation, **parameters).undoes


@pytest.mark.spark
def test_spark_and_the_folder_say_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """Versions, operations, tags and figures are the same in both ways, as far back as either is asked."""
    table = Delta(path=str(tmp_path / "orders")).open()
    rows = spark.range(3)
    table.ensure_place(spark, rows.schema)
    table.write(spark, FrameRows(rows), [make_label()])
    local, through_spark = LocalLog(tmp_path / "orders"), SparkLog(table.destination.sql_name, table.destination.place)
    first = tmp_path / "orders" / "_delta_log" / f"{1:020}.json"
    for version in range(2, 11):
        first.with_stem(f"{version:020}").write_text(first.read_text().splitlines()[0])
    assert through_spark.find_latest(spark) == local.find_latest(spark) == 10
    assert compared(through_spark, spark, 0) == compared(local, spark, 0)
    assert compared(through_spark, spark, 8) == compared(local, spark, 8)
    assert compared(through_spark, spark, 10) == []


def compared(log: LocalLog | SparkLog, spark: SparkSession, after: int) -> list[tuple[Any, ...]]:
    """What is read of each version."""
    return [
        (each.version, each.operation, each.tag, each.metrics.get("numOutputRows"), each.undoes)
        for each in log.list_commits(spark, after)
    ]


@pytest.mark.spark
@pytest.mark.parametrize(
    "columns",
    [
        "id long, name string",
        "id long not null, `a b.c` struct<x: int, y: array<string>>, m map<string, date>",
        "short varchar(3), fixed char(2), inside struct<v: varchar(5)>",
        "id long, twice long generated always as (id * 2), number long generated always as identity",
        "id long, name string default 'nobody'",
        "id long, day date) using delta partitioned by (day",
        "id long, day date) using delta cluster by (day",
    ],
)
def test_a_table_is_the_same_by_its_log_and_by_what_spark_says(
    spark: SparkSession, tmp_path: Path, columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which it is, where it lies, its properties, its version, and all that its columns demand."""
    folder = tmp_path / "the table's 50%"
    name = f"delta.`{folder}`"
    using = "" if "using" in columns else "using delta"
    features = "'delta.feature.allowColumnDefaults' = 'supported', 'delta.columnMapping.mode' = 'name', 'mine' = 'x'"
    spark.sql(f"create table {name} ({columns}) {using} tblproperties ({features})")
    if columns.startswith("id"):
        spark.sql(f"alter table {name} add constraint some check (id > 0)")
    by_spark = TargetTable.find(spark, name)
    monkeypatch.setattr(type(spark), "sql", never)
    by_log = TargetTable.find(spark, name, folder)
    assert by_spark is not None
    assert by_log is not None
    assert facts(spark, by_log) == facts(spark, by_spark)


@pytest.mark.spark
def test_a_spark_on_this_machine_is_not_asked_what_it_sees(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the fence of an open batch does not wait for the first query of a Spark that has just started."""
    orders = Delta(path=str(tmp_path / "orders")).open()
    identity = orders.ensure_place(spark, spark.range(1).schema)
    monkeypatch.setattr(type(spark), "sql", never)
    monkeypatch.setattr(type(spark), "read", property(never))
    behind = Delta(path=str(tmp_path / "orders")).open()
    behind.fence(spark, "token")
    assert behind.find(spark, make_label(), identity) is None
    assert LocalLog(tmp_path / "orders").read_metadata(spark)["configuration"]["wherry.fence"] == "token"


@pytest.mark.parametrize("torn", [b"", b'{"metadata": {"id"', b"\x00" * 40, b"1", b"null", b"\xff", b"{}"])
def test_a_torn_checksum_says_nothing(tmp_path: Path, torn: bytes) -> None:
    """Delta needs none, and the log itself has the same."""
    (tmp_path / "_delta_log").mkdir()
    log = LocalLog(tmp_path)
    log.path_of(0, "crc").write_bytes(torn)
    assert parse_metadata(log.read_checksum(0)) == {}


def test_a_log_that_is_not_the_one_that_spark_sees_is_not_believed(tmp_path: Path) -> None:
    """As on a cluster that has another disk below the same path, or none, or may not read it."""
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / f"{0:020}.json").touch()
    (log / f"{0:020}.crc").write_text('{"metadata": {"id": "mine", "schemaString": "{}"}}')
    for content in ('{"metadata": {"id": "other"}}', None):
        assert find_seen_alike(elsewhere(content), "t", tmp_path) is None


def elsewhere(content: str | None) -> SparkSession:
    """A Spark that finds this in every file, or fails to."""

    class Frame:
        def collect(self) -> list[tuple[str]]:
            if content is None:
                raise PermissionError("not here")
            return [(content,)]

    class Reader:
        def text(self, *_: str, **__: bool) -> Frame:
            return Frame()

    class Elsewhere:
        read = Reader()
        conf: Mapping[str, str] = {}

    return cast("SparkSession", Elsewhere())


def never(*_: object, **__: object) -> None:
    raise AssertionError("Spark was asked")


def facts(spark: SparkSession, table: TargetTable) -> dict[str, Any]:
    """All that is asked of a table."""
    declared = table.read_declared(spark)
    told = ("__CHAR_VARCHAR_TYPE_STRING", "CURRENT_DEFAULT")
    return {
        **{name: getattr(table, name) for name in ("name", "id", "location", "properties", "log", "version")},
        "columns": [
            (field.name, field.dataType.simpleString(), field.nullable, [field.metadata.get(key) for key in told])
            for field in table.schema
        ],
        "declared": (declared.checks, declared.generated, declared.identities),
    }
