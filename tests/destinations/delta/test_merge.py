"""Merges into Delta tables: which row wins, what happens to the others, and what a commit records."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

from destinations.conformance import RememberingConformance, Row, make_label
from destinations.delta import Delta
from destinations.delta.delta import OpenDelta
from destinations.delta.log import LocalLog, SparkLog
from destinations.delta.writers import TRIES, commit_persistently
from destinations.destination import Destination, Misfit, Written
from destinations.dlq import Dlq
from origins.batch_rows import FrameRows
from stages.conformance import begin
from stages.rows import enter_stage
from tests.spark_errors import make_spark_error

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from stages.rows import Rows

TAG = "spark.databricks.delta.commitInfo.userMetadata"


class Merge(RememberingConformance):
    def content(self, spark: SparkSession, destination: Delta) -> list[Row]:
        return read_rows(spark, destination.open())

    def holds(self, spark: SparkSession, destination: Destination, rows: Sequence[Row]) -> None:
        """Rows with the same key become one row."""
        once = [row for place, row in enumerate(rows) if row not in rows[:place]]
        super().holds(spark, destination, once)


class FewMerged(Merge):
    """Few rows, which are merged from memory."""

    def rows(self, frame: DataFrame) -> FrameRows:
        return FrameRows(frame, 0)


@pytest.mark.spark
@pytest.mark.connect
@pytest.mark.parametrize(
    ("suite", "check", "key"),
    [
        (Merge, "test_values_keep_their_type_and_value", "long"),
        (FewMerged, "test_values_keep_their_type_and_value", "long"),
        (Merge, "test_columns_may_have_any_name", "a.b"),
        (Merge, "test_a_write_that_fails_leaves_nothing", "id"),
        (Merge, "test_equal_rows_of_another_batch_are_written_too", "id"),
        (Merge, "test_threads_write_at_the_same_time", "id"),
        (Merge, "test_a_written_batch_is_found_with_its_count", "id"),
        (Merge, "test_each_of_several_labels_is_found", "id"),
        (Merge, "test_a_write_that_began_before_a_fence_does_not_land", "id"),
    ],
)
def test_a_merge_keeps_the_promises_of_an_append(
    spark: SparkSession, tmp_path: Path, suite: type[Merge], check: str, key: str
) -> None:
    """Only rows with the same key become one."""
    getattr(suite(), check)(spark, Delta(path=str(tmp_path / "orders"), mode="merge", keys=[key]))


@pytest.fixture
def latest(tmp_path: Path) -> OpenDelta:
    """A table that does not exist yet, with one row for each id: that of the highest `at`."""
    return Delta(
        path=str(tmp_path / "latest"),
        mode="merge",
        keys=["id"],
        sequence_by="at",
        apply_as_deletes="op = 'D'",
        except_column_list=["op"],
    ).open()


CHANGE = "id bigint, at bigint, op string, note string"


@pytest.mark.spark
class TestWhoWins:
    def test_the_highest_in_sequence_wins(self, spark: SparkSession, latest: OpenDelta) -> None:
        """An older row changes nothing, even as a delete. A row as old as the table's row replaces it."""
        merge_rows(spark, latest, [(1, 5, "U", "a"), (2, 5, "U", "a"), (3, 5, "U", "a"), (4, 5, "U", "a")])
        late = [(1, 4, "U", "late"), (2, 4, "D", ""), (3, 5, "U", "same"), (4, 5, "D", ""), (5, 1, "D", "")]
        assert merge_rows(spark, latest, late).rows == 5
        assert read_notes(spark, latest) == {1: "a", 2: "a", 3: "same"}

    def test_a_delete_is_not_remembered(self, spark: SparkSession, latest: OpenDelta) -> None:
        """The row's place in the sequence is removed with it, so an older row that comes later is inserted."""
        merge_rows(spark, latest, [(1, 5, "U", "a")])
        merge_rows(spark, latest, [(1, 7, "D", "")])
        merge_rows(spark, latest, [(1, 6, "U", "older than its delete")])
        assert read_notes(spark, latest) == {1: "older than its delete"}

    def test_a_row_without_a_sequence_is_replaced(self, spark: SparkSession, latest: OpenDelta) -> None:
        """NULL in the table is older than everything. A row with NULL in the sequence or a key is refused."""
        spark.sql(f"CREATE TABLE {latest.destination.sql_name} (id bigint, at bigint, note string) USING delta")
        spark.sql(f"INSERT INTO {latest.destination.sql_name} VALUES (1, NULL, 'theirs')")
        rows = [(1, 0, "U", "ours"), (1, None, "U", "a"), (None, 1, "U", "b"), (None, None, "D", "c")]
        assert merge_rows(spark, latest, rows).rows == 1
        assert read_notes(spark, latest) == {1: "ours"}
        messages = [nack["message"] for nack in list_refusals(spark, latest, rows)]
        assert messages == [
            "at is NULL, and a merge compares rows by it (sequence_by)",
            "key id is NULL, and a merge matches rows by it",
            "key id is NULL, and a merge matches rows by it; at is NULL, and a merge compares rows by it (sequence_by)",
        ]

    def test_a_row_that_deletes_need_not_satisfy_the_tables_demands(
        self, spark: SparkSession, latest: OpenDelta
    ) -> None:
        """It is never written, so the table's constraints do not apply to it."""
        spark.sql(
            f"CREATE TABLE {latest.destination.sql_name} (id bigint, at bigint, note string NOT NULL) USING delta"
        )
        spark.sql(f"ALTER TABLE {latest.destination.sql_name} ADD CONSTRAINT full CHECK (length(note) > 0)")
        rows = [(1, 1, "D", None), (2, 1, None, ""), (3, 1, "U", None), (4, 1, None, "good")]
        assert [nack["code"] for nack in list_refusals(spark, latest, rows)] == ["CHECK", "NOT_NULL"]
        assert merge_rows(spark, latest, rows).rows == 2
        assert read_notes(spark, latest) == {4: "good"}

    def test_columns_that_the_rows_lack_keep_their_values(self, spark: SparkSession, tmp_path: Path) -> None:
        """A new row gets the default. The table checks a constraint on such a column."""
        table = Delta(path=str(tmp_path / "t"), mode="merge", keys=["ID"]).open()
        spark.sql(
            f"CREATE TABLE {table.destination.sql_name} (id bigint, a int, b int DEFAULT 7, "
            "g bigint GENERATED ALWAYS AS (cast(a AS bigint)), k bigint GENERATED ALWAYS AS IDENTITY) USING delta "
            "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
        )
        spark.sql(f"INSERT INTO {table.destination.sql_name} (id, a, b) VALUES (1, 1, 1)")
        spark.sql(f"ALTER TABLE {table.destination.sql_name} ADD CONSTRAINT one CHECK (b = 1 OR a > 1)")
        assert merge_rows(spark, table, [(1, 0), (2, 2)], "id bigint, A int").rows == 2
        assert sorted(map(tuple, spark.table(table.destination.sql_name).select("id", "a", "b", "g").collect())) == [
            (1, 0, 1, 0),
            (2, 2, 7, 2),
        ]

    def test_an_identity_column_is_not_merged(self, spark: SparkSession, tmp_path: Path) -> None:
        """It may be the key, or be left out. A struct is merged as a whole or not at all."""
        columns = "id bigint, k bigint GENERATED BY DEFAULT AS IDENTITY, s struct<a: int, b: array<struct<c: int>>>"
        spark.sql(f"CREATE TABLE delta.`{tmp_path / 't'}` ({columns}) USING delta")
        rows = spark.createDataFrame([], "id bigint, k bigint, s struct<b: array<struct<c: int>>>").schema
        with pytest.raises(Misfit) as told:
            Delta(path=str(tmp_path / "t"), mode="merge", keys=["id"]).open().ensure_place(spark, rows)
        assert told.value.message.splitlines()[1:] == [
            "  k: the table generates it (IDENTITY), and a merge cannot change it; except_column_list: [k]",
            "  s: a merge needs the whole struct; the rows have no a in it",
        ]
        by_k = Delta(path=str(tmp_path / "t"), mode="merge", keys=["k"]).open()
        merge_rows(spark, by_k, [(1, 5)], "id bigint, k bigint")
        merge_rows(spark, by_k, [(2, 5)], "id bigint, k bigint")
        assert read_rows(spark, by_k) == [{"id": 2, "k": 5, "s": None}]


@pytest.mark.spark
class TestCommits:
    def test_a_merge_that_changes_nothing_still_counts_its_rows(self, spark: SparkSession, latest: OpenDelta) -> None:
        """It makes no commit, so the batch is not found. Running it again has no effect either."""
        identity = latest.ensure_place(spark, make_schema(spark))
        mine = make_label()
        rows = spark.createDataFrame([(1, 1, "D", ""), (2, 1, "D", "")], CHANGE)
        assert latest.write(spark, FrameRows(rows), [mine]) == Written(rows=2)
        assert latest.find(spark, mine, identity) is None

    def test_no_setting_of_the_session_carries_the_label(self, spark: SparkSession, latest: OpenDelta) -> None:
        """A program keeps its own metadata for its commits. No view remains, even if the merge fails."""
        identity, mine = latest.ensure_place(spark, make_schema(spark)), make_label()
        before = {table.name for table in spark.catalog.listTables()}
        spark.conf.set(TAG, "theirs")
        latest.write(spark, FrameRows(spark.createDataFrame([(1, 1, "U", "")], CHANGE)), [mine])
        assert spark.conf.get(TAG) == "theirs"
        spark.conf.unset(TAG)
        newest = spark.sql(f"DESCRIBE HISTORY {latest.destination.sql_name} LIMIT 1").collect()[0]
        assert newest["userMetadata"] == "theirs"
        assert latest.find(spark, mine, identity) is not None
        with pytest.raises(Exception, match="torn"):
            latest.write(spark, FrameRows(make_torn(spark)), [make_label()])
        assert {table.name for table in spark.catalog.listTables()} == before

    @pytest.mark.connect
    def test_the_statement_carries_the_whole_label(self, spark: SparkSession, latest: OpenDelta) -> None:
        """Names of any characters and of any length are found, in the table's files and by Spark."""
        name = "it's \"so\" a\\'b\n#7 ${x} = %41+" + "für 表" * 40
        latest.ensure_place(spark, make_schema(spark))
        mine = make_label(destination=name)
        latest.write(spark, FrameRows(spark.createDataFrame([(1, 1, "U", "")], CHANGE)), [mine])
        seen = []
        for log in (LocalLog(Path(latest.destination.place)), SparkLog(latest.destination.sql_name, "")):
            newest = next(iter(log.list_commits(spark, 0)))
            assert (newest.has_label(mine.key), newest.has_label(make_label(destination=name).key)) == (True, False)
            seen.append(newest.labels)
        assert [label.destination for label in seen[0]] == [name]
        assert seen[0] == seen[1]

    def test_a_merge_with_a_concurrent_commit_is_run_again(self, spark: SparkSession, latest: OpenDelta) -> None:
        """The other writer's row is merged as if the table had it from the beginning."""
        latest.ensure_place(spark, make_schema(spark))
        reached, go = (Path(latest.destination.place) / name for name in ("reached", "go"))
        for pipe in (reached, go):
            os.mkfifo(pipe)

        def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for pipe in (reached, go):
                    pipe.open().close()
                yield batch

        given = spark.createDataFrame([(0, 5, "U", "")], CHANGE)
        rows = given.mapInArrow(wait, CHANGE)
        with ThreadPoolExecutor(1) as pool:
            write = pool.submit(latest.write, spark, FrameRows(rows), [make_label()])
            write.add_done_callback(lambda _: [os.open(pipe, os.O_RDONLY | os.O_NONBLOCK) for pipe in (reached, go)])
            meet(reached)
            spark.sql(f"INSERT INTO {latest.destination.sql_name} VALUES (0, 9, 'theirs')")
            for pipe in (go, reached, go):
                meet(pipe)
            assert write.result().rows == 1
        assert read_notes(spark, latest) == {0: "theirs"}

    def test_rows_of_one_key_make_one_row_in_any_order(self, spark: SparkSession, latest: OpenDelta) -> None:
        """The row with the highest sequence is written, and the others count as filtered."""
        rows = [(1, 2, "U", "b"), (1, 3, "U", "c"), (1, 1, "U", "a"), (1, 3, "U", "bb")]
        results = set()
        for order in (rows, rows[::-1]):
            assert merge_rows(spark, latest, order).rows == 1
            results.add(str(read_notes(spark, latest)))
        assert len(results) == 1

    def test_a_row_that_stays_wins_over_a_delete_with_the_same_sequence(
        self, spark: SparkSession, latest: OpenDelta
    ) -> None:
        """A version of a table may remove a row and add it again. The other columns do not matter."""
        latest = replace(latest.destination, apply_as_deletes="op IN ('D', 'X')").open()
        merge_rows(spark, latest, [(1, 1, "U", "old"), (2, 1, "U", "old"), (3, 1, "U", "old")])
        merge_rows(
            spark, latest, [(1, 3, "D", ""), (1, 3, "U", "a"), (2, 3, "X", ""), (2, 3, "U", "b"), (3, 3, "X", "")]
        )
        assert read_notes(spark, latest) == {1: "a", 2: "b"}


class TestInsisting:
    def test_only_a_conflict_is_tried_again(self) -> None:
        """A change of metadata may be a fence, and the ledger decides about a fence."""
        tries = [make_conflict("DELTA_CONCURRENT_APPEND"), make_conflict("DELTA_CONCURRENT_DELETE_READ"), None]
        commit_persistently(script_commit(tries), lambda: False)
        assert tries == []
        fenced = [make_conflict("DELTA_METADATA_CHANGED"), None]
        with pytest.raises(SparkConnectGrpcException, match="METADATA"):
            commit_persistently(script_commit(fenced), lambda: False)
        assert fenced == [None]

    def test_a_try_that_raised_and_succeeded_is_not_repeated(self) -> None:
        """Wherry looks for the tag in the log before every further try."""
        tries = [make_conflict("DELTA_CONCURRENT_WRITE"), None]
        commit_persistently(script_commit(tries), lambda: True)
        assert tries == [None]

    def test_the_last_conflict_is_raised_after_all_tries(self) -> None:
        """The number of tries is limited."""
        tries: list[Exception | None] = [make_conflict(f"DELTA_CONCURRENT_APPEND {number}") for number in range(TRIES)]
        with pytest.raises(SparkConnectGrpcException, match=f"APPEND {TRIES - 1}"):
            commit_persistently(script_commit(tries), lambda: False)


@dataclass(frozen=True)
class Standing:
    """A table that only this process knows."""

    id: str

    def hold_commits(self) -> AbstractContextManager[None]:
        return nullcontext()


@pytest.mark.parametrize("mode", [{"mode": "merge", "keys": ["id"]}, {"mode": "replace"}])
def test_merges_into_one_table_take_turns(mode: dict[str, Any]) -> None:
    """A second merge or replacement waits until the first has left. Another table does not wait."""
    table: Any = Standing("table")
    other: Any = Standing("another")
    one, two = Delta(path="a", **mode).open(), Delta(path="a", name="two", **mode).open()
    seen, waits = [], threading.Event()

    def second() -> None:
        waits.set()
        with two._take_turn(table):
            seen.append("second")

    thread = threading.Thread(target=second)
    with one._take_turn(table):
        thread.start()
        waits.wait()
        thread.join(0.1)
        with one._take_turn(other):
            seen.append("first")
    thread.join()
    assert seen == ["first", "second"]


class TestOptions:
    def test_a_merge_without_a_sequence_is_ordered(self) -> None:
        """Such a merge needs a single lane, or lanes by its keys."""
        assert Delta(path="a", mode="merge", keys=["id"]).ordered
        assert not Delta(path="a", mode="merge", keys=["id"], sequence_by="at").ordered
        assert not Delta(path="a").ordered

    @pytest.mark.parametrize("mode", [{"mode": "merge", "keys": ["id"]}, {"mode": "replace"}])
    def test_the_destination_of_a_dlq_must_only_add_rows(self, mode: dict[str, Any]) -> None:
        """A run that replaced the DLQ would lose the rows refused before."""
        with pytest.raises(ValueError, match="destination: expected a destination that only adds rows"):
            Dlq(destination=Delta(path="a", **mode))

    @pytest.mark.spark
    def test_missing_columns_are_reported_before_a_table_is_made(self, spark: SparkSession, tmp_path: Path) -> None:
        """The error names each column under its option."""
        table = Delta(
            path=str(tmp_path / "t"),
            mode="merge",
            keys=["key"],
            sequence_by="time",
            except_column_list=["nothing", "op"],
            apply_as_deletes="op = what",
            partition_by=["op"],
            stamp="NOTE",
        )
        with pytest.raises(Misfit) as told:
            table.open().ensure_place(spark, make_schema(spark))
        problems = told.value.message.splitlines()[1:]
        assert problems[:-1] == [
            "  keys: the rows have no column 'key'",
            "  sequence_by: the rows have no column 'time'",
            "  except_column_list: the rows have no column 'nothing'",
            "  partition_by: the table has no column 'op'",
            "  stamp: the rows have a column 'NOTE' already; rename the stamp",
            "  note: another column differs only in upper and lower case; rename one of them",
            "  NOTE: another column differs only in upper and lower case; rename one of them",
        ]
        assert problems[-1].startswith("  apply_as_deletes: [UNRESOLVED_COLUMN")
        assert not Path(table.place).exists()


def merge_rows(spark: SparkSession, table: OpenDelta, rows: list[tuple[Any, ...]], columns: str = CHANGE) -> Written:
    """Apply the table's demands to the rows, and write the rest, as a runner does."""
    from stages.rows import STATE

    marked = apply_demands(spark, table, spark.createDataFrame(rows, columns))
    live = marked.where(f"{STATE} = 0").select(*spark.createDataFrame([], columns).columns)
    return table.write(spark, FrameRows(live), [make_label()])


def list_refusals(spark: SparkSession, table: OpenDelta, rows: list[tuple[Any, ...]]) -> list[Any]:
    """Return the nacks of the refused rows, in the order of the rows."""
    from origins.origin import PLACE
    from stages.rows import VERDICT

    marked = apply_demands(spark, table, spark.createDataFrame(rows, CHANGE))
    found = marked.orderBy(f"{PLACE}.row").select(VERDICT).collect()
    return [row[VERDICT] for row in found if row[VERDICT] is not None]


def apply_demands(spark: SparkSession, table: OpenDelta, frame: DataFrame) -> DataFrame:
    """Return the rows with the verdicts of the table's demands."""
    table.ensure_place(spark, frame.schema)
    rows: Rows = begin(frame)
    for step, stage in enumerate(table.demands(spark, frame.schema), 1):
        rows = stage.apply(enter_stage(rows, "table", step))
    return rows.frame


def make_schema(spark: SparkSession) -> Any:
    """Return the type of the changes."""
    return spark.createDataFrame([], CHANGE).schema


def make_torn(spark: SparkSession) -> DataFrame:
    """Return changes whose computation raises."""
    return spark.range(1).selectExpr("id", "1L AS at", "'U' AS op", "cast(raise_error('torn') AS string) AS note")


def read_notes(spark: SparkSession, table: OpenDelta) -> dict[int, str]:
    """Return the notes by id."""
    rows = spark.table(table.destination.sql_name).collect()
    found = {row["id"]: row["note"] for row in rows}
    assert len(found) == len(rows)
    return found


def read_rows(spark: SparkSession, table: OpenDelta) -> list[Row]:
    """Return all rows of the table."""
    return [row.asDict(recursive=True) for row in spark.table(table.destination.sql_name).collect()]


def meet(pipe: Path) -> None:
    """Wait until another thread reads the pipe, and release it."""
    os.close(os.open(pipe, os.O_WRONLY))


def make_conflict(name: str) -> Exception:
    """Return the error that Delta raises under this name."""
    return make_spark_error(name, "somebody else was here")


def script_commit(tries: list[Exception | None]) -> Any:
    """Return a commit that raises the next error of the list, or succeeds for None."""

    def commit() -> None:
        error = tries.pop(0)
        if error is not None:
            raise error

    return commit
