"""Wherry reads the log of a local table without Spark, and finds the same as Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

from destinations.conformance import make_label
from destinations.delta import Delta
from destinations.delta.log import LocalLog, LogCommit, SparkLog, StoreLog, format_for_clause, make_tag, parse_metadata
from destinations.delta.table import TargetTable, find_seen_alike
from destinations.delta.versions import format_key
from destinations.destination import DestinationError, Written
from origins.batch_rows import FrameRows
from origins.object_store import open_store
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


def put_version(log: LocalLog, version: int, info: Mapping[str, Any] | None = None) -> None:
    """Put a version into the log, as Delta does."""
    actions = [{"commitInfo": info or {}}, {"add": {"path": '{"commitInfo": 1}', "size": 1}}]
    lines = "".join(json.dumps(action) + "\n" for action in actions)
    (log.folder / "_delta_log" / f"{version:020}.json").write_text(lines)


def list_versions(log: LocalLog, after: int) -> list[int]:
    """Return the versions that the log lists."""
    return [each.version for each in log.list_commits(NO_SPARK, after)]


def make_commit(text: str, operation: str = "WRITE", **parameters: str) -> LogCommit:
    """Return a commit with this tag."""
    return LogCommit(version=1, operation=operation, parameters=parameters, metrics={}, tag=text)


def test_versions_come_newest_first(log: LocalLog) -> None:
    """They are all versions after the given one, without it."""
    for version in range(12):
        put_version(log, version)
    assert list_versions(log, 8) == [11, 10, 9]


def test_a_version_that_cannot_be_looked_at_is_not_a_missing_one(log: LocalLog) -> None:
    """Otherwise a batch whose version landed would be written again."""
    put_version(log, 0)
    log.path_of(1).symlink_to(log.path_of(1))
    with pytest.raises(OSError, match="symbolic links"):
        list(log.list_commits(None, 0))


def test_versions_in_a_store_are_found_above_a_gap(s3: S3) -> None:
    """Another program may have cleaned the log up in any order."""
    from deltalake import write_deltalake

    url = StoreUrl(s3.make_url("orders"), s3.spark_settings)
    for _ in range(4):
        write_deltalake(str(url), pa.table({"id": [1]}), mode="append", storage_options=s3.storage_options)
    open_store(url).delete([format_key(1)])
    log = StoreLog(table="unused", url=url, metadata={})
    assert [commit.version for commit in log.list_commits(NO_SPARK, 0)] == [3, 2]


def test_the_newest_batch_in_a_store_is_found_without_spark(s3: S3) -> None:
    """It must be among the last few versions, and belong to the given pipeline."""
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
    assert (newest.key, newest.number) == (label.key, label.batch.number)
    assert table.newest("another") is None


def test_no_version_comes_after_the_newest(log: LocalLog) -> None:
    """This also holds for a version that does not exist yet."""
    put_version(log, 0)
    assert [list_versions(log, 0), list_versions(log, 5)] == [[], []]


def test_versions_end_where_the_log_was_cleaned_up(log: LocalLog) -> None:
    """No version older than a missing one is listed."""
    for version in (3, 4, 7, 8):
        put_version(log, version)
    assert list_versions(log, 0) == [8, 7]


def test_other_files_in_the_log_are_not_versions(log: LocalLog) -> None:
    """They are checkpoints, checksums, and compacted and staged commits."""
    put_version(log, 0)
    for name in ("00000000000000000009.checkpoint.parquet", "_last_checkpoint", "00000000000000000007.crc"):
        (log.folder / "_delta_log" / name).touch()
    (log.folder / "_delta_log" / "00000000000000000000.00000000000000000004.compacted.json").touch()
    assert log.find_latest(NO_SPARK) == 0


@pytest.mark.parametrize(("clause", "expected"), [(True, "clause"), (False, "metadata")])
def test_a_merge_has_the_label_of_its_clause_or_else_of_its_metadata(
    log: LocalLog, clause: bool, expected: str
) -> None:
    """Merges of older versions have it in the metadata. Now a program may have its own metadata there."""
    labels = {"clause": make_label(), "metadata": make_label()}
    carried = f"(NOT d#7 AND NOT (cast(d#7 as string) = {format_for_clause(make_tag([labels['clause']]))}))"
    clauses = [{"predicate": carried if clause else "NOT d#7", "actionType": "insert"}]
    said = {"operation": "MERGE", "operationParameters": {"notMatchedPredicates": json.dumps(clauses)}}
    put_version(log, 0, {**said, "userMetadata": make_tag([labels["metadata"]])})
    (found,) = log.list_commits(NO_SPARK, -1)
    assert [name for name, label in labels.items() if found.has_label(label.key)] == [expected]


MEASURED: list[tuple[str, dict[str, str] | None, Written]] = [
    ("WRITE", {"numOutputRows": "9007199254740993", "numOutputBytes": "12"}, Written(rows=9007199254740993, bytes=12)),
    ("WRITE", None, Written(rows=None)),
    ("WRITE", {"numOutputRows": "5", "numCopiedRows": "3", "numOutputBytes": "9"}, Written(rows=2, bytes=9)),
    ("WRITE", {"numOutputRows": "0", "numCopiedRows": "0", "numOutputBytes": "9"}, Written(rows=None, bytes=9)),
    ("WRITE", {"numOutputRows": "0", "numCopiedRows": "0", "numOutputBytes": "0"}, Written(rows=0, bytes=0)),
    ("MERGE", {"numSourceRows": "3", "numOutputRows": "900", "numTargetBytesAdded": "7"}, Written(rows=3, bytes=7)),
]


@pytest.mark.parametrize(("operation", "metrics", "expected"), MEASURED)
def test_a_commit_gives_its_rows_and_bytes(
    log: LocalLog, operation: str, metrics: dict[str, str] | None, expected: Written
) -> None:
    """Copied rows do not count, and a merge has the rows of its source. Without metrics the rows are unknown.

    So are the rows of files without statistics.
    """
    put_version(log, 0, {"operation": operation, "operationMetrics": metrics})
    (found,) = log.list_commits(NO_SPARK, -1)
    assert found.measure_written() == replace(expected, version=0)


def test_a_tag_lists_the_labels_of_a_write() -> None:
    """Wherry compares only the key. The other fields are for people."""
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
def test_a_label_counts_on_a_commit_that_brings_rows(operation: str) -> None:
    """A write or a merge with this label has delivered the batch."""
    mine = make_label()
    assert make_commit(make_tag([make_label(), mine]), operation).has_label(mine.key)


@pytest.mark.promise("CD-22")
@pytest.mark.parametrize("operation", ["SET TBLPROPERTIES", "OPTIMIZE", "UPDATE", "DELETE", "RESTORE", "CREATE TABLE"])
def test_a_label_counts_on_no_other_commit(operation: str) -> None:
    """If a session configures a tag, all its commits have the tag. Only a write proves that rows came."""
    mine = make_label()
    assert not make_commit(make_tag([mine]), operation).has_label(mine.key)


def test_a_label_with_quotes_in_its_name_is_found() -> None:
    """JSON writes some of them in another form."""
    mine = make_label(destination='orders."north"\\ä\n')
    assert make_commit(make_tag([mine])).has_label(mine.key)


def test_a_label_of_another_version_is_found_by_its_key() -> None:
    """It may lack a part that this version knows, or have one more. Otherwise the batch would be written again."""
    mine = make_label()
    tag = json.dumps({"wherry": [{"key": "other"}, {"key": mine.key, "number": "1", "new": True}]})
    assert make_commit(tag).has_label(mine.key)


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
def test_other_text_in_a_tag_is_no_label(text: str) -> None:
    """Text of any shape is read without an error, and proves nothing."""
    mine = make_label()
    assert not make_commit(text.replace("KEY", mine.key)).has_label(mine.key)


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
def test_a_commit_that_replaces_the_table_undoes_earlier_ones(operation: str, parameters: Mapping[str, str]) -> None:
    """Afterwards the log alone does not show whether earlier rows are in the table."""
    assert make_commit("", operation, **parameters).undoes


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
def test_a_commit_that_changes_some_rows_undoes_nothing(operation: str, parameters: Mapping[str, str]) -> None:
    """Rows that users correct or delete were still delivered."""
    assert not make_commit("", operation, **parameters).undoes


@pytest.mark.spark
def test_spark_and_the_folder_list_the_same_commits(spark: SparkSession, tmp_path: Path) -> None:
    """Versions, operations, tags and figures are equal for each starting version."""
    table = Delta(path=str(tmp_path / "orders")).open()
    rows = spark.range(3)
    table.ensure_place(spark, rows.schema)
    table.write(spark, FrameRows(rows), [make_label()])
    local, through_spark = LocalLog(tmp_path / "orders"), SparkLog(table.destination.sql_name, table.destination.place)
    first = tmp_path / "orders" / "_delta_log" / f"{1:020}.json"
    for version in range(2, 11):
        first.with_stem(f"{version:020}").write_text(first.read_text().splitlines()[0])
    assert through_spark.find_latest(spark) == local.find_latest(spark) == 10
    assert list_compared(through_spark, spark, 0) == list_compared(local, spark, 0)
    assert list_compared(through_spark, spark, 8) == list_compared(local, spark, 8)
    assert list_compared(through_spark, spark, 10) == []


def list_compared(log: LocalLog | SparkLog, spark: SparkSession, after: int) -> list[tuple[Any, ...]]:
    """Return the compared fields of each version."""
    return [
        (each.version, each.operation, each.tag, each.metrics.get("numOutputRows"), each.undoes)
        for each in log.list_commits(spark, after)
    ]


@pytest.mark.spark
@pytest.mark.parametrize(
    "columns",
    [
        "id long not null, `a b.c` struct<x: int, y: array<string>>, m map<string, date>, short varchar(3), "
        "fixed char(2), inside struct<v: varchar(5)>, twice long generated always as (id * 2), "
        "number long generated always as identity, name string default 'nobody', day date) "
        "using delta partitioned by (day",
        "id long, day date) using delta cluster by (day",
    ],
)
def test_a_table_read_from_its_log_equals_the_one_read_by_spark(
    spark: SparkSession, tmp_path: Path, columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The id, location, properties, version and demands of the columns are equal."""
    folder = tmp_path / "the table's 50%"
    name = f"delta.`{folder}`"

    features = "'delta.feature.allowColumnDefaults' = 'supported', 'delta.columnMapping.mode' = 'name', 'mine' = 'x'"
    spark.sql(f"create table {name} ({columns}) tblproperties ({features})")
    spark.sql(f"alter table {name} add constraint some check (id > 0)")
    by_spark = TargetTable.find(spark, name)
    monkeypatch.setattr(type(spark), "sql", refuse_spark)
    by_log = TargetTable.find(spark, name, folder)
    assert by_spark is not None
    assert by_log is not None
    assert read_facts(spark, by_log) == read_facts(spark, by_spark)


WITHOUT_METADATA = (
    "[]",
    '"a"',
    '{"id": "a"}',
    '{"id": "a", "schemaString": "{}"}',
    '{"id": "a", "schemaString": null}',
)


@pytest.mark.parametrize(
    "torn",
    [
        *(b"", b'{"metadata": {"id"', b"\x00" * 40, b"1", b"null", b"\xff", b"{}"),
        *(f'{{"metadata": {each}}}'.encode() for each in WITHOUT_METADATA),
    ],
)
def test_a_checksum_without_whole_metadata_is_not_used(tmp_path: Path, torn: bytes) -> None:
    """Delta needs no checksum, and the log has the same data."""
    (tmp_path / "_delta_log").mkdir()
    log = LocalLog(tmp_path)
    log.path_of(0, "crc").write_bytes(torn)
    assert parse_metadata(log.read_checksum(0)) == {}


def test_a_log_that_spark_does_not_see_is_not_used(tmp_path: Path) -> None:
    """A cluster may have another disk below the same path, or none, or may not be allowed to read it."""
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / f"{0:020}.json").touch()
    (log / f"{0:020}.crc").write_text('{"metadata": {"id": "mine", "schemaString": "{\\"fields\\": []}"}}')
    for content in ('{"metadata": {"id": "other"}}', None):
        assert find_seen_alike(make_distant_spark(content), "t", tmp_path) is None


def make_distant_spark(content: str | None) -> SparkSession:
    """Return a Spark that finds this content in every file, or raises for None."""

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


def refuse_spark(*_: object, **__: object) -> None:
    raise AssertionError("Spark was asked")


def read_facts(spark: SparkSession, table: TargetTable) -> dict[str, Any]:
    """Return all compared facts of a table."""
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


@pytest.mark.parametrize(
    "line", [b'{"commitInfo": {"oper', b'["commitInfo"]', b'{"commitInfo": 1}', b'\xff"commitInfo"']
)
def test_a_version_that_cannot_be_parsed_is_named(log: LocalLog, line: bytes) -> None:
    """The error has the table and the version."""
    (log.folder / "_delta_log" / f"{1:020}.json").write_bytes(line)
    with pytest.raises(DestinationError, match=f"Version 1 in the log of the Delta table {log.folder} "):
        list_versions(log, 0)
