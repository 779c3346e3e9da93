"""What a version of a Delta table changed, read from its log entry without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from origins.batch import JSON, Json, Span
from origins.delta import Delta
from origins.delta_actions import VersionLog
from origins.dlq import DlqEntries
from origins.errors import OriginError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_SPARK = cast("SparkSession", None)


def put_version(folder: Path, number: int, *actions: JSON) -> None:
    """Write an entry into the table's log."""
    log = folder / "_delta_log"
    log.mkdir(exist_ok=True)
    (log / f"{number:020}.json").write_text("\n".join(map(json.dumps, actions)))


@pytest.mark.parametrize(
    ("operation", "metrics", "says", "only_deletes"),
    [
        ("DELETE", {"numDeletedRows": "2"}, "7 (DELETE, 2 rows)", True),
        ("DELETE", {"num_deleted_rows": 2}, "7 (DELETE, 2 rows)", True),
        ("UPDATE", {"numUpdatedRows": "1", "numCopiedRows": "9"}, "7 (UPDATE, 1 row)", False),
        (
            "MERGE",
            {"numTargetRowsInserted": "1", "numTargetRowsUpdated": "2", "numTargetRowsDeleted": "3"},
            "7 (MERGE, 6 rows)",
            False,
        ),
        (
            "MERGE",
            {"numTargetRowsInserted": "0", "numTargetRowsUpdated": "0", "numTargetRowsDeleted": "3"},
            "7 (MERGE, 3 rows)",
            True,
        ),
        ("WRITE", {}, "7 (WRITE, 9 rows)", False),
        ("RESTORE", {}, "7 (RESTORE, 9 rows)", False),
        ("MERGE", {}, "7 (MERGE, 9 rows)", False),
    ],
)
def test_the_rows_of_a_version_are_those_that_its_writer_counted(
    tmp_path: Path, operation: str, metrics: dict[str, JSON], says: str, only_deletes: bool
) -> None:
    """The metrics come from Spark or delta-rs. The rows of rewritten files count only without metrics."""
    file = {"path": "a", "size": 1, "stats": '{"numRecords": 4}'}
    actions = [
        {"commitInfo": {"operation": operation, "operationMetrics": metrics}},
        {"add": {**file, "stats": '{"numRecords": 5}', "dataChange": True}},
        {"remove": {**file, "dataChange": True}},
    ]
    put_version(tmp_path, 7, *actions)
    (version,) = VersionLog(str(tmp_path)).list_after(NO_SPARK, 6)
    assert (str(version), version.only_deletes, version.rewrites) == (says, only_deletes, True)


@pytest.mark.parametrize("operation", ["OPTIMIZE", "REORG", "REPLACE COLUMNS", "SET TBLPROPERTIES", "VACUUM END"])
def test_a_version_that_changes_no_row_is_no_rewrite(tmp_path: Path, operation: str) -> None:
    """Reorganized rows and changed metadata stop no reader."""
    file = {"path": "a", "size": 1, "dataChange": False}
    actions = [{"commitInfo": {"operation": operation}}, {"add": file}, {"remove": {**file, "path": "b"}}]
    put_version(tmp_path, 7, *actions)
    (version,) = VersionLog(str(tmp_path)).list_after(NO_SPARK, 6)
    assert (version.rewrites, version.has_news, version.added) == (False, False, ())


def make_offset(version: int) -> Json:
    """Return the offset after this version."""
    return {"version": version, "table": "t"}


def test_the_versions_that_an_offset_skips_are_listed(tmp_path: Path) -> None:
    """Versions with rows are listed by number, operation and rows, at most five of them.

    Missing versions are listed too.
    """
    delta = Delta(path=str(tmp_path))
    for number in range(3, 10):
        add = {"path": "a", "size": 1, "stats": '{"numRecords": 1000}', "dataChange": number != 4}
        put_version(tmp_path, number, {"commitInfo": {"operation": "WRITE"}}, {"add": add})
    assert delta.describe_skipped(make_offset(2), make_offset(5)) == (
        "2 versions with rows: 3 (WRITE, 1,000 rows), 5 (WRITE, 1,000 rows)"
    )
    assert delta.describe_skipped(make_offset(3), make_offset(4)) == "no version with new rows"
    assert delta.describe_skipped(None, make_offset(3)) == (
        "1 version with rows: 3 (WRITE, 1,000 rows), and versions 0 to 2, which are no longer in the log"
    )
    assert delta.describe_skipped(make_offset(2), make_offset(9)).endswith("8 (WRITE, 1,000 rows) and 1 more")
    for before, after in ((make_offset(5), make_offset(5)), (make_offset(5), make_offset(3)), (make_offset(5), None)):
        assert delta.describe_skipped(before, after) == ""


BROKEN_LINES = {
    "metadata without a schema": ('{"metaData": {"id": "a"}}', "it has no schemaString"),
    "half a schema": ('{"metaData": {"schemaString": "{"}}', "JSONDecodeError"),
    "a schema that is a number": ('{"metaData": {"schemaString": 5}}', "TypeError"),
    "a schema that is null": ('{"metaData": {"schemaString": null}}', "TypeError"),
    "a schema without fields": ('{"metaData": {"schemaString": "{}"}}', "it has no fields"),
    "a file without a path": ('{"add": {"size": 1}}', "it has no path"),
    "half a line": ('{"add": {"pa', "JSONDecodeError"),
    "a list": ('["add"]', "TypeError"),
    "statistics that are no JSON": ('{"add": {"path": "a", "stats": "{"}}', "JSONDecodeError"),
    "a figure that is no number": (
        '{"commitInfo": {"operation": "DELETE", "operationMetrics": {"numDeletedRows": "many"}}}',
        "ValueError",
    ),
}


@pytest.mark.parametrize("name", BROKEN_LINES)
def test_a_version_that_cannot_be_parsed_is_named(name: str, tmp_path: Path) -> None:
    """The error has the table, the version and what is wrong."""
    line, why = BROKEN_LINES[name]
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / f"{1:020}.json").write_text(line)
    with pytest.raises(OriginError, match=f"Version 1 in the log of the Delta table {tmp_path} .*({why})"):
        VersionLog(location=str(tmp_path)).list_local_after(0)


def test_bytes_that_are_no_text_are_named_as_well(tmp_path: Path) -> None:
    """The file of a version is UTF-8."""
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / f"{1:020}.json").write_bytes(b"\xff\xfe")
    with pytest.raises(OriginError, match="UnicodeDecodeError"):
        VersionLog(location=str(tmp_path)).list_local_after(0)


@pytest.mark.parametrize("origin", [Delta(path="in"), DlqEntries(path="dlq")])
def test_the_versions_of_a_span_are_the_source_of_its_rows(origin: Delta | DlqEntries) -> None:
    """A person does not know the table's data files by their names."""
    span = Span(start=None, end={"version": 5, "table": "t"}, parts=(["part-0.parquet", 9],), label="versions 3 to 5")
    assert origin.name_source(span) == "versions 3 to 5"
