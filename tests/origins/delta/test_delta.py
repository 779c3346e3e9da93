"""The origin `delta`: which versions make a batch, and how it handles other changes of a table."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from origins.batch import JSON, Batch, Limits, Span
from origins.delta import Delta, DeltaBacklog
from origins.delta_actions import VersionLog
from origins.delta_table import read_offset
from origins.errors import OriginError
from origins.origin import PLACE, Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
NO_SPARK = cast("SparkSession", None)


def append_rows(folder: Path, *ids: int) -> None:
    """Add a version with these rows in one file."""
    write_deltalake(str(folder), pa.table({"id": list(ids), "note": [f"n{each}" for each in ids]}), mode="append")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table with three versions, of two rows, one row and three rows."""
    folder = tmp_path / "table"
    for ids in ((0, 1), (2,), (3, 4, 5)):
        append_rows(folder, *ids)
    return folder


def run_sql(spark: SparkSession, statement: str, folder: Path) -> None:
    """Run a statement about the table `{t}`."""
    spark.sql(statement.format(t=f"delta.`{folder}`")).collect()


def plan_batches(
    spark: SparkSession, delta: Delta, limits: Limits | None = None, offset: JSON = None
) -> list[tuple[Span, list[int]]]:
    """Return all batches after an offset, with the ids in each batch."""
    backlog = delta.survey(spark, Progress(offsets={"0": offset} if offset else {}))
    batches = []
    while span := backlog.take("0", offset, limits or Limits()):
        batches.append((span, read_ids(spark, delta, span, backlog.columns)))
        offset = span.end
    return batches


def read_ids(spark: SparkSession, delta: Delta, span: Span, columns: str) -> list[int]:
    """Return the sorted ids of a span's rows."""
    return sorted(row.id for row in delta.fetch(spark, [make_batch(span, columns)]).frame().collect())


def make_batch(span: Span, columns: str) -> Batch:
    """Return a batch of this span."""
    time = datetime(2026, 1, 1, tzinfo=timezone.utc)
    return Batch(pipeline="p", run="r", origin="o", lane="0", number=1, plan="x", span=span, schema=columns, time=time)


def map_labels(batches: Sequence[tuple[Span, list[int]]]) -> dict[str, list[int]]:
    """Return the ids of each batch by its label."""
    return {span.label: found for span, found in batches}


class TestVersions:
    """The versions of a batch."""

    def test_a_batch_is_full_when_one_more_version_would_be_too_much(self, spark: SparkSession, table: Path) -> None:
        """Rows, bytes and files limit a batch.

        A version is never split, and a version over the limit is a single batch.
        """
        apart, some = ["version 0", "version 1", "version 2"], ["versions 0 to 1", "version 2"]
        every = {Limits(): ["versions 0 to 2"], Limits(rows=3): some, Limits(rows=1): apart, Limits(files=2): some}
        for limits, batches in {**every, Limits(bytes=1): apart}.items():
            backlog, start, found = Delta(path=str(table)).survey(spark, Progress()), None, []
            while span := backlog.take("0", start, limits):
                found.append((span.label, span.full))
                start = span.end
            assert [label for label, _ in found] == batches, limits
            assert found[0][1] == (limits != Limits())

    @pytest.mark.connect
    @pytest.mark.promise("X7")
    def test_only_versions_that_add_rows_are_read(self, spark: SparkSession, table: Path) -> None:
        """OPTIMIZE rewrites existing rows, and a property is no row. The folder may have any name."""
        table = table.rename(table.parent / "a table ü%")
        delta = Delta(path=str(table))
        backlog = delta.survey(spark, Progress())
        first = backlog.take("0", None, Limits(rows=3))
        assert first is not None
        run_sql(spark, "OPTIMIZE {t}", table)
        run_sql(spark, "ALTER TABLE {t} SET TBLPROPERTIES ('a' = 'b')", table)
        append_rows(table, 6)
        assert map_labels(plan_batches(spark, delta, Limits(rows=3), first.end)) == {
            "version 2": [3, 4, 5],
            "version 5": [6],
        }
        assert read_ids(spark, delta, first, backlog.columns) == [0, 1, 2]
        found = plan_batches(spark, delta, offset=first.end)
        assert [(read_offset(span.end)[0], rows) for span, rows in found] == [(2, [3, 4, 5]), (5, [6])]
        assert plan_batches(spark, delta, offset=found[-1][0].end) == []


class TestBeginning:
    """The start of a pipeline."""

    def test_a_rewritten_table_starts_with_a_snapshot(self, spark: SparkSession, table: Path) -> None:
        """The first batch has all rows as of the last version that removed a file. Later versions follow."""
        run_sql(spark, "DELETE FROM {t} WHERE id = 1", table)
        append_rows(table, 6)
        append_rows(table, 7)
        assert map_labels(plan_batches(spark, Delta(path=str(table)), Limits(rows=1))) == {
            "the table as of version 3": [0, 2, 3, 4, 5],
            "version 4": [6],
            "version 5": [7],
        }

    def test_latest_is_recorded_by_a_batch_without_rows(self, spark: SparkSession, table: Path) -> None:
        """Rows that are added between two runs are read."""
        delta = Delta(path=str(table), starting_version="latest")
        [(span, rows)] = plan_batches(spark, delta)
        assert rows == []
        append_rows(table, 6)
        assert map_labels(plan_batches(spark, delta, offset=span.end)) == {"version 3": [6]}

    def test_a_starting_version_is_the_first_version_that_is_read(self, spark: SparkSession, table: Path) -> None:
        """It works like `startingVersion` in Structured Streaming. A change before it does not matter."""
        run_sql(spark, "UPDATE {t} SET note = 'x'", table)
        append_rows(table, 6)
        append_rows(table, 7)
        assert map_labels(plan_batches(spark, Delta(path=str(table), starting_version=4))) == {
            "versions 4 to 5": [6, 7]
        }
        with pytest.raises(OriginError, match="has no version 98; its newest is 5"):
            Delta(path=str(table), starting_version=99).survey(spark, Progress())

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({}, "path: expected one of path, table, paths and tables, got none of them"),
            ({"path": "a", "table": "b"}, "path: expected one of path, table, paths and tables, got path and table"),
            ({"table": "a b"}, "table: expected a name such as catalog.schema.table, got 'a b'"),
            ({"path": "a", "lanes": 2}, "lanes: expected 1, since versions follow each other, got 2"),
            ({"path": "a", "starting_version": "now"}, "starting_version: expected beginning, latest or a version"),
            ({"path": "a", "starting_version": -1}, "starting_version: expected beginning, latest or a version"),
        ],
    )
    def test_invalid_options_are_refused(self, options: dict[str, Any], says: str) -> None:
        """The error names the expected values."""
        with pytest.raises(ValueError, match=says):
            Delta(**options)


class TestChanged:
    """A table with changes other than appends."""

    def test_a_table_that_was_made_again_is_an_error(self, spark: SparkSession, table: Path) -> None:
        """Its versions start at zero again, and the offset knows the id of its table."""
        delta = Delta(path=str(table))
        ((span, _),) = plan_batches(spark, delta)
        columns = delta.survey(spark, Progress()).columns
        shutil.rmtree(table)
        for each in range(5):
            append_rows(table, each)
        with pytest.raises(OriginError, match="is not the table that was read before"):
            delta.survey(spark, Progress(offsets={"0": span.end}))
        with pytest.raises(OriginError, match="is gone before Wherry read its rows"):
            delta.fetch(spark, [make_batch(span, columns)]).frame()

    def test_a_replaced_table_is_an_error(self, spark: SparkSession, table: Path) -> None:
        """Its versions continue, but it is another table."""
        delta = Delta(path=str(table))
        offset = plan_batches(spark, delta)[-1][0].end
        run_sql(spark, "CREATE OR REPLACE TABLE {t} USING delta AS SELECT 9L AS id, 'n9' AS note", table)
        with pytest.raises(OriginError, match="is not the table that was read before"):
            delta.survey(spark, Progress(offsets={"0": offset}))

    def test_an_invalid_offset_is_an_error(self, spark: SparkSession, table: Path) -> None:
        """It was set by hand, or is beyond the newest version."""
        delta = Delta(path=str(table))
        known = {"table": delta.survey(spark, Progress()).table.id}
        wrong: list[tuple[dict[str, JSON], str]] = [
            ({"version": 7}, "has no version 7; its newest is 2"),
            ({"version": 7, "table": "other"}, "is not the table that was read before"),
            ({"version": "x"}, "expected a version and the table's id"),
        ]
        for offset, says in wrong:
            with pytest.raises(OriginError, match=says):
                delta.survey(spark, Progress(offsets={"0": {**known, **offset}}))

    @pytest.mark.parametrize("offset", [7, {}, {"version": "7", "table": "x"}, {"version": -2, "table": "x"}])
    def test_an_offset_set_by_hand_is_checked(self, offset: JSON) -> None:
        """It needs a version and the id of its table."""
        delta = Delta(path="t")
        delta.check_offset("0", {"version": 7, "table": "x"})
        with pytest.raises(ValueError, match="expected a version of the table"):
            delta.check_offset("0", offset)

    def test_a_vacuumed_file_is_an_error(self, spark: SparkSession, table: Path) -> None:
        """Its rows are elsewhere in the table, but no longer by version."""
        delta = Delta(path=str(table))
        backlog = delta.survey(spark, Progress())
        span = backlog.take("0", None, Limits())
        assert span is not None
        next(table.glob("*.parquet")).unlink()
        with pytest.raises(OriginError, match=r"\.parquet is gone before Wherry read its rows"):
            delta.fetch(spark, [make_batch(span, backlog.columns)]).frame()

    def test_a_missing_table_is_an_error(self, spark: SparkSession, tmp_path: Path) -> None:
        """The error names the place."""
        with pytest.raises(OriginError, match="No Delta table was found at"):
            Delta(path=str(tmp_path / "none")).survey(spark, Progress())
        with pytest.raises(OriginError, match="No Delta table was found at no_such_table"):
            Delta(table="no_such_table").survey(spark, Progress())


class TestRewrites:
    """The effect of `on_rewrite` on changed and deleted rows."""

    @pytest.mark.promise("SS-23")
    def test_the_error_names_the_rewrite_and_every_way_to_continue(self, spark: SparkSession, table: Path) -> None:
        """It lists the versions that each way skips, with operations and rows. Rows added before the rewrite count."""
        delta = Delta(path=str(table))
        offset = plan_batches(spark, delta)[-1][0].end
        append_rows(table, 6, 7)
        run_sql(spark, "DELETE FROM {t} WHERE id = 0", table)
        with pytest.raises(OriginError, match=r"Version 4 \(DELETE, 1 row\) of .* changed or deleted") as error:
            delta.survey(spark, Progress(offsets={"0": offset}))
        hint = error.value.hint
        for way in ("changes: true", "on_rewrite: snapshot", "on_rewrite: ignore_deletes", "--from-beginning"):
            assert way in hint
        assert "This skips 2 versions with rows: 3 (WRITE, 2 rows), 4 (DELETE, 1 row)." in hint
        assert f'--lane 0 --reason … --offset \'{{"version": 4, "table": "{read_offset(offset)[1]}"}}\'' in hint

    def test_a_snapshot_is_delivered_again_with_later_versions(self, spark: SparkSession, table: Path) -> None:
        """It is as of the last rewrite, in one batch that a notice describes. Later versions follow."""
        delta = Delta(path=str(table), on_rewrite="snapshot")
        offset = plan_batches(spark, delta)[-1][0].end
        append_rows(table, 6)
        run_sql(spark, "UPDATE {t} SET note = 'x' WHERE id = 0", table)
        append_rows(table, 7)
        found = plan_batches(spark, delta, Limits(rows=1), offset)
        assert map_labels(found) == {"the table as of version 4": [0, 1, 2, 3, 4, 5, 6], "version 5": [7]}
        assert found[0][0].start == offset
        (notice,) = delta.survey(spark, Progress(offsets={"0": offset})).notices
        assert "1 version with rows: 4 (UPDATE, 1 row)" in notice
        assert "as of version 4, 7 rows" in notice
        assert plan_batches(spark, delta, offset=found[-1][0].end) == []

    def test_only_deletes_are_ignored(self, spark: SparkSession, table: Path) -> None:
        """A notice counts them, and progress is recorded even without new rows. An update stops the run."""
        delta = Delta(path=str(table), on_rewrite="ignore_deletes")
        offset = plan_batches(spark, delta)[-1][0].end
        append_rows(table, 6)
        run_sql(spark, "DELETE FROM {t} WHERE id IN (3, 6)", table)
        found = plan_batches(spark, delta, offset=offset)
        assert map_labels(found) == {"version 3": [6], "nothing up to version 4": []}
        (notice,) = delta.survey(spark, Progress(offsets={"0": offset})).notices
        assert "ignores deletes in" in notice
        assert "1 version with rows: 4 (DELETE, 2 rows)" in notice
        offset = found[-1][0].end
        assert plan_batches(spark, delta, offset=offset) == []
        run_sql(spark, "UPDATE {t} SET note = 'x' WHERE id = 0", table)
        with pytest.raises(OriginError, match=r"Version 5 \(UPDATE, 1 row\)") as error:
            delta.survey(spark, Progress(offsets={"0": offset}))
        assert "ignore_deletes" not in error.value.hint

    def test_a_gap_in_the_log_shows_how_many_versions_are_skipped(self, spark: SparkSession, table: Path) -> None:
        """The error has the command to continue, with the lane if there are several tables."""
        delta = Delta(paths=[str(table)]).each("raw/")[0]
        there = delta.survey(spark, Progress()).table
        with pytest.raises(OriginError, match="has no version 9; its newest is 2") as error:
            there.list_versions_after(spark, 9)
        assert "This skips all 3 versions of the table." in error.value.hint
        for version in range(2):
            (table / "_delta_log" / f"{version:020}.json").unlink()
        with pytest.raises(OriginError, match="no longer has version 1") as error:
            there.list_versions_after(spark, 0)
        assert "--lane raw/table " in error.value.hint
        assert "This skips 1 version, 1 to 1, which are no longer in the log" in error.value.hint


class TestWhole:
    """The option `read: whole`."""

    @pytest.mark.connect
    def test_the_table_is_one_batch_at_one_version(self, spark: SparkSession, table: Path) -> None:
        """Limits and the number of versions do not matter. Later versions belong to the next run."""
        run_sql(spark, "UPDATE {t} SET note = 'x' WHERE id = 1", table)
        delta = Delta(path=str(table), read="whole")
        backlog = delta.survey(spark, Progress())
        span = backlog.take("0", None, Limits(rows=1, files=1, bytes=1))
        assert span is not None
        assert (span.label, read_offset(span.end)[0]) == ("the table as of version 3", 3)
        append_rows(table, 6)
        assert backlog.again(NO_SPARK, {"0": span.end}).take("0", span.end, Limits()) is None
        assert read_ids(spark, delta, span, backlog.columns) == [0, 1, 2, 3, 4, 5]
        assert read_ids(spark, Delta(path=str(table), read="whole"), span, backlog.columns) == [0, 1, 2, 3, 4, 5]
        assert map_labels(plan_batches(spark, delta)) == {"the table as of version 4": [0, 1, 2, 3, 4, 5, 6]}
        assert map_labels(
            plan_batches(spark, delta, offset={"version": read_offset(span.end)[0], "table": "another"})
        ) == map_labels(plan_batches(spark, delta))
        optimized = plan_batches(spark, delta)[0][0].end
        run_sql(spark, "OPTIMIZE {t}", table)
        assert delta.stands(spark, {"0": optimized})
        assert plan_batches(spark, delta, offset=optimized) == []

    def test_each_of_several_tables_is_a_batch(self, spark: SparkSession, table: Path) -> None:
        """Every lane has a separate version."""
        other = table.parent / "other"
        append_rows(other, 9)
        for delta in Delta(paths=[str(table), str(other)], read="whole").each():
            assert isinstance(delta, Delta)
            (lane,) = delta.lane_names()
            backlog = delta.survey(spark, Progress())
            span = backlog.take(lane, None, Limits(rows=1))
            assert span is not None
            assert read_ids(spark, delta, span, backlog.columns) == {"table": [0, 1, 2, 3, 4, 5], "other": [9]}[lane]
            assert backlog.take(lane, span.end, Limits()) is None


FED = "CREATE TABLE {t} (id int, note string) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"


@pytest.fixture
def fed(spark: SparkSession, tmp_path: Path) -> Path:
    """A table with a change data feed and two rows, as of version 1."""
    folder = tmp_path / "a fed table ü"
    run_sql(spark, FED, folder)
    run_sql(spark, "INSERT INTO {t} VALUES (1, 'a'), (2, 'b')", folder)
    return folder


def read_changes(spark: SparkSession, delta: Delta, span: Span, columns: str) -> list[tuple[Any, ...]]:
    """Return the changes of a span: the row, the kind of change, and the version."""
    rows = delta.fetch(spark, [make_batch(span, columns)]).frame().collect()
    return sorted((row.id, row.note, row._change_type, row._commit_version) for row in rows)


def check_refused(spark: SparkSession, delta: Delta, offset: JSON, says: str) -> str:
    """Check that a survey raises an error with this text, and return its hint."""
    with pytest.raises(OriginError, match=says) as error:
        delta.survey(spark, Progress(offsets={"0": offset} if offset else {}))
    return error.value.hint


class TestChanges:
    """The option `changes: true`."""

    @pytest.mark.connect
    def test_changes_follow_a_snapshot_of_the_table(self, spark: SparkSession, fed: Path) -> None:
        """Every row comes first as an insert.

        Then come updates and deletes, also from a RESTORE and an overwrite.
        """
        delta = Delta(path=str(fed), changes=True)
        backlog = delta.survey(spark, Progress())
        span = backlog.take("0", None, Limits(rows=1))
        assert span is not None
        run_sql(spark, "UPDATE {t} SET note = 'x' WHERE id = 1", fed)
        assert read_changes(spark, delta, span, backlog.columns) == [(1, "a", "insert", 1), (2, "b", "insert", 1)]
        run_sql(spark, "DELETE FROM {t} WHERE id = 2", fed)
        run_sql(spark, "OPTIMIZE {t}", fed)
        run_sql(spark, "RESTORE TABLE {t} TO VERSION AS OF 1", fed)
        run_sql(spark, "INSERT OVERWRITE {t} VALUES (1, 'o')", fed)
        versions = range(2, len(list((fed / "_delta_log").glob("*.json"))))
        restored, overwritten = versions[-2:]
        backlog = delta.survey(spark, Progress(offsets={"0": span.end}))
        one = backlog.take("0", span.end, Limits())
        assert one is not None
        assert (one.label, read_offset(one.end)[0]) == (f"changes of versions 2 to {overwritten}", overwritten)
        assert read_changes(spark, delta, one, backlog.columns) == [
            (1, "a", "delete", overwritten),
            (1, "a", "insert", restored),
            (1, "o", "insert", overwritten),
            (1, "x", "delete", restored),
            (1, "x", "update_postimage", 2),
            (2, "b", "delete", 3),
            (2, "b", "delete", overwritten),
            (2, "b", "insert", restored),
        ]
        rows = sorted(
            delta.fetch(spark, [make_batch(one, backlog.columns)], places=True).frame().collect(),
            key=lambda row: row[PLACE],
        )
        assert [row._commit_version for row in rows] == sorted(row._commit_version for row in rows)
        assert [row._change_type for row in rows if row._commit_version == overwritten] == [
            "delete",
            "delete",
            "insert",
        ]
        assert backlog.take("0", one.end, Limits()) is None

    def test_limits_count_the_rows_of_the_feed(self, spark: SparkSession, fed: Path) -> None:
        """An update is one row, or two with `preimages`. Versions without rows make no batch."""
        offset = Delta(path=str(fed), changes=True).survey(spark, Progress()).table.make_offset(1)
        run_sql(spark, "OPTIMIZE {t}", fed)
        assert plan_batches(spark, Delta(path=str(fed), changes=True), offset=offset) == []
        run_sql(spark, "UPDATE {t} SET note = 'x' WHERE id = 1", fed)
        run_sql(spark, "DELETE FROM {t} WHERE id = 2", fed)
        for preimages, spans in ((False, [(True, 2)]), (True, [(False, 2), (False, 1)])):
            delta = Delta(path=str(fed), changes=True, preimages=preimages)
            found = plan_batches(spark, delta, Limits(rows=2), offset)
            assert [(span.label.startswith("changes of versions"), len(rows)) for span, rows in found] == spans

    def test_a_feed_that_is_or_was_off_is_an_error(self, spark: SparkSession, table: Path) -> None:
        """It is raised before any row is read, and counts the skipped rows.

        Versions with a feed can be read afterwards.
        """
        delta = Delta(path=str(table), changes=True)
        hint = check_refused(spark, delta, None, "has no change data feed")
        assert "SET TBLPROPERTIES (delta.enableChangeDataFeed = true)" in hint
        offset = Delta(path=str(table)).survey(spark, Progress()).table.make_offset(2)
        run_sql(spark, "UPDATE {t} SET note = 'x' WHERE id = 1", table)
        run_sql(spark, "ALTER TABLE {t} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)", table)
        hint = check_refused(
            spark, delta, offset, "cannot deliver versions 3 to 4: the feed was off in one of these versions"
        )
        assert "This skips 1 version with rows: 3 (UPDATE, 1 row)." in hint
        assert "--from-beginning" in hint
        append_rows(table, 6)
        offset = {"table": read_offset(offset)[1], "version": 4}
        assert map_labels(plan_batches(spark, delta, offset=offset)) == {"changes of version 5": [6]}

    def test_added_columns_are_null_in_earlier_rows_and_other_changes_of_columns_are_errors(
        self, spark: SparkSession, fed: Path
    ) -> None:
        """This also holds with mapped names: the feed cannot be read across a rename."""
        delta = Delta(path=str(fed), changes=True)
        run_sql(spark, "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')", fed)
        offset = delta.survey(spark, Progress()).table.make_offset(2)
        run_sql(spark, "DELETE FROM {t} WHERE id = 1", fed)
        run_sql(spark, "ALTER TABLE {t} ADD COLUMN (later int)", fed)
        run_sql(spark, "INSERT INTO {t} VALUES (3, 'c', 7)", fed)
        backlog = delta.survey(spark, Progress(offsets={"0": offset}))
        span = backlog.take("0", offset, Limits())
        assert span is not None
        rows = delta.fetch(spark, [make_batch(span, backlog.columns)]).frame().collect()
        assert sorted((row.id, row.later, row._change_type) for row in rows) == [(1, None, "delete"), (3, 7, "insert")]
        run_sql(spark, "ALTER TABLE {t} RENAME COLUMN note TO text", fed)
        hint = check_refused(spark, delta, offset, "a column was renamed or dropped, or has another type")
        assert "This skips 2 versions with rows: 3 (DELETE, 1 row), 5 (WRITE, 1 row)." in hint
        assert plan_batches(spark, delta, offset=span.end) == []

    def test_missing_files_of_the_feed_are_an_error(self, spark: SparkSession, fed: Path) -> None:
        """VACUUM deletes such files, and a cleanup of the log deletes versions."""
        delta = Delta(path=str(fed), changes=True)
        offset = delta.survey(spark, Progress()).table.make_offset(1)
        run_sql(spark, "UPDATE {t} SET note = 'x' WHERE id = 1", fed)
        backlog = delta.survey(spark, Progress(offsets={"0": offset}))
        span = backlog.take("0", offset, Limits())
        assert span is not None
        next((fed / "_change_data").glob("*.parquet")).unlink()
        with pytest.raises(
            OriginError, match=r"_change_data/.*\.parquet is missing, and the change data feed"
        ) as error:
            delta.fetch(spark, [make_batch(span, backlog.columns)]).frame()
        assert "Rows deleted meanwhile stay in the destinations." in error.value.hint
        for version in range(3):
            (fed / "_delta_log" / f"{version:020}.json").unlink()
        assert backlog.table.log.find_missing_file(2, 2) == str(fed / "_delta_log" / f"{2:020}.json")

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"changes": True, "read": "whole"}, "changes: expected with read: new only"),
            ({"changes": True, "on_rewrite": "snapshot"}, "on_rewrite: expected without changes: true only"),
            ({"preimages": True}, "preimages: expected with changes: true only"),
            ({"on_rewrite": "skip"}, "on_rewrite: expected stop, snapshot or ignore_deletes, got 'skip'"),
            ({"read": "whole", "starting_version": 3}, "starting_version: expected with read: new only"),
            ({"read": "whole", "on_rewrite": "snapshot"}, "on_rewrite: expected with read: new only"),
        ],
    )
    def test_contradicting_options_are_refused(self, options: dict[str, Any], says: str) -> None:
        """The error names the expected options."""
        with pytest.raises(ValueError, match=says):
            Delta(path="t", **options)


class TestFollowing:
    """A continuous run."""

    def test_a_further_look_on_this_machine_asks_no_spark(self, spark: SparkSession, table: Path) -> None:
        """Without news the backlog is the same object. New versions follow the waiting ones."""
        delta = Delta(path=str(table))
        backlog = delta.survey(spark, Progress())
        first = backlog.take("0", None, Limits(rows=1))
        assert first is not None
        assert backlog.again(NO_SPARK, {"0": first.end}) is backlog
        append_rows(table, 6)
        again = backlog.again(NO_SPARK, {"0": first.end})
        span = again.take("0", first.end, Limits())
        assert span is not None
        assert span.label == "versions 1 to 3"
        assert again.take("0", span.end, Limits()) is None
        assert again.again(NO_SPARK, {"0": span.end}) is again

    def test_changed_columns_end_the_run(self, spark: SparkSession, table: Path) -> None:
        """No column is dropped without a message, and the next run has the new columns."""
        backlog = Delta(path=str(table)).survey(spark, Progress())
        run_sql(spark, "ALTER TABLE {t} SET TBLPROPERTIES ('a' = 'b')", table)
        backlog = cast("DeltaBacklog", backlog.again(NO_SPARK, {}))
        run_sql(spark, "ALTER TABLE {t} ADD COLUMN (later int)", table)
        with pytest.raises(OriginError, match=r"columns of .* changed in version 4"):
            backlog.again(NO_SPARK, {})


class TestElsewhere:
    """A table that only Spark can see."""

    def test_the_log_read_through_spark_has_the_same_entries(self, spark: SparkSession, table: Path) -> None:
        """They are equal for each version."""
        run_sql(spark, "OPTIMIZE {t}", table)
        log = VersionLog(str(table))
        told = log._read_by_spark(spark, 0)
        assert sorted(told) == [1, 2, 3]
        assert {at: sorted(lines) for at, lines in told.items()} == {
            at: sorted((table / "_delta_log" / f"{at:020}.json").read_text().strip().split("\n")) for at in told
        }
