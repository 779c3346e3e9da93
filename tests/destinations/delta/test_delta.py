"""How Delta tables are made, which rows they refuse, and what their history proves."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from destinations.conformance import RememberingConformance, Row, make_label, start_paused_write
from destinations.delta import Delta, delta
from destinations.delta import lock as table_lock
from destinations.delta import table as delta_table
from destinations.delta.delta import OpenDelta
from destinations.delta.log import make_tag
from destinations.destination import DestinationError, Identity, Misfit, Unsure, Written
from origins.batch_rows import FrameRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


TAG = "spark.databricks.delta.commitInfo.userMetadata"


@pytest.mark.spark
@pytest.mark.connect
class TestByPath(RememberingConformance):
    @pytest.fixture
    def destination(self, tmp_path: Path) -> Delta:
        return Delta(path=str(tmp_path / "orders"))

    def content(self, spark: SparkSession, destination: Delta) -> list[Row]:
        return read_rows(spark, destination.open())


@pytest.mark.spark
@pytest.mark.parametrize(
    "check",
    [
        TestByPath.test_a_write_that_fails_leaves_nothing,
        TestByPath.test_a_written_batch_is_found_with_its_count,
        TestByPath.test_each_of_several_labels_is_found,
        TestByPath.test_a_write_that_began_before_a_fence_does_not_land,
    ],
)
def test_a_table_whose_log_only_spark_can_read_keeps_the_promises(
    spark: SparkSession, database: str, monkeypatch: pytest.MonkeyPatch, check: Callable[..., None]
) -> None:
    """It is a catalog's table, as on Databricks."""
    monkeypatch.setattr(delta_table, "_find_local_log", lambda location, table_id: None)
    check(TestByPath(), spark, Delta(table=f"{database}.orders"))


@pytest.fixture
def database(spark: SparkSession, tmp_path: Path) -> str:
    """A new database for the test."""
    name = f"db_{abs(hash(str(tmp_path))):x}"
    spark.sql(f"CREATE DATABASE {name} LOCATION '{tmp_path / name}'")
    return name


@pytest.fixture
def orders(tmp_path: Path) -> OpenDelta:
    """A table that does not exist yet."""
    return Delta(path=str(tmp_path / "orders")).open()


@pytest.fixture
def opened(spark: SparkSession, orders: OpenDelta) -> tuple[OpenDelta, Identity]:
    """A table with one column, `id bigint`, and its identity at the start of a run."""
    return orders, orders.ensure_place(spark, make_schema("id bigint", spark))


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({}, "path: expected either path or table, got neither"),
            ({"path": "a", "table": "b"}, "path: expected either path or table, got both"),
            ({"path": ""}, "path: expected either path or table, got neither"),
            ({"path": "a", "mode": "upsert"}, "mode: expected append, merge or replace, got 'upsert'"),
            ({"path": "a", "mode": "merge"}, "keys: expected the columns by which a merge matches rows, got none"),
            ({"path": "a", "mode": "merge", "keys": "id"}, "keys: expected a list of columns, got 'id'"),
            ({"path": "a", "keys": ["id"]}, "keys: expected with mode: merge only, got mode: append"),
            ({"path": "a", "where": "a > 1"}, "where: expected with mode: replace only"),
            (
                {"path": "a", "mode": "replace", "where": "a = rand()"},
                "where: expected a condition with the same result each time",
            ),
            ({"path": "a", "mode": "replace", "where": "a = :lane"}, "where: expected a condition on columns"),
            (
                {"path": "a", "mode": "merge", "keys": ["ID"], "except_column_list": ["id"]},
                "keys: 'ID' must be in the table, but except_column_list leaves it out",
            ),
            (
                {"path": "a", "mode": "merge", "keys": ["id"], "sequence_by": "at", "except_column_list": ["at"]},
                "sequence_by: 'at' must be in the table",
            ),
            ({"path": "a", "partition_by": ["a"], "cluster_by": ["b"]}, "cluster_by: expected either"),
            ({"path": "a", "stamp": "_wherry_batch"}, "stamp: '_wherry_batch' cannot be a column"),
            ({"path": "a", "optimize": 0}, "optimize: expected at least 1 commit, got 0"),
            ({"table": "a b"}, "table: expected a name such as catalog.schema.table, got 'a b'"),
            ({"table": "t; drop table x"}, "table: expected a name such as"),
            ({"table": "a..b"}, "table: expected a name such as"),
        ],
    )
    def test_an_invalid_option_is_named(self, options: dict[str, Any], message: str) -> None:
        """The error names the option, the expected values and the given value."""
        with pytest.raises(ValueError, match=message):
            Delta(**options)

    @pytest.mark.parametrize("name", ["t", "main.shop.orders", "`odd name`.`a``b`", "größen"])
    def test_a_tables_name_is_an_sql_name(self, name: str) -> None:
        """Its parts are separated by dots, and may be quoted."""
        assert Delta(table=name).place == name

    def test_a_path_does_not_depend_on_the_current_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The ledger records the place, so a path is made absolute. A URL remains unchanged."""
        monkeypatch.chdir(tmp_path)
        assert Delta(path="tables/orders").place == str(tmp_path / "tables" / "orders")
        assert Delta(path="abfss://lake@shop/orders").place == "abfss://lake@shop/orders"


@pytest.mark.spark
class TestMaking:
    def test_a_table_gets_the_properties_of_the_definition(self, spark: SparkSession, tmp_path: Path) -> None:
        """A property in the definition overrides Wherry's default."""
        table = Delta(path=str(tmp_path / "t"), properties={"delta.checkpointInterval": "7", "own.it's": "a\\b"}).open()
        table.ensure_place(spark, make_schema("id bigint", spark))
        assert read_properties(spark, table) == {"delta.checkpointInterval": "7", "own.it's": "a\\b"}

    @pytest.mark.parametrize(
        ("columns", "mapped"),
        [("`a.b` int, `grün` int, `x``y` int", False), ("s struct<`a;b`: int>", True)],
    )
    def test_names_are_mapped_only_where_a_name_needs_it(
        self, spark: SparkSession, orders: OpenDelta, columns: str, mapped: bool
    ) -> None:
        """Old readers cannot read a table with mapped names."""
        orders.ensure_place(spark, make_schema(columns, spark))
        assert ("delta.columnMapping.mode" in read_properties(spark, orders)) is mapped

    def test_columns_of_a_new_table_are_nullable(self, spark: SparkSession, orders: OpenDelta) -> None:
        """Later batches may have NULL where the rows of the first batch cannot."""
        orders.ensure_place(spark, spark.range(1).schema)
        assert [field.nullable for field in spark.table(orders.destination.sql_name).schema] == [True]

    def test_no_table_is_made_without_a_schema(self, spark: SparkSession, orders: OpenDelta) -> None:
        """The place remains empty."""
        assert orders.ensure_place(spark, None) == Identity(place=orders.destination.place)
        assert not Path(orders.destination.place).exists()

    @pytest.mark.parametrize("name", ["50%41 grün x`y it's #1", "st*r[a]{b,c}?", "a:b\nline"])
    def test_a_path_may_have_any_name(self, spark: SparkSession, tmp_path: Path, name: str) -> None:
        """The table takes every name that the file system takes, and Wherry reads its log there."""
        table = Delta(path=str(tmp_path / name)).open()
        identity = table.ensure_place(spark, make_schema("id bigint", spark))
        mine = make_label()
        assert table.write(spark, FrameRows(spark.range(2)), [mine]).version == 1
        found = table.find(spark, mine, identity)
        assert found is not None
        assert found.rows == 2

    def test_a_place_with_other_content_is_refused(self, spark: SparkSession, tmp_path: Path) -> None:
        """A folder with other files remains unchanged, and the error names the problem."""
        (tmp_path / "file").touch()
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "data.csv").touch()
        taken = "something other than a Delta table is there"
        for place, why in {"full": taken, "file": taken, "file/below": "is a file"}.items():
            with pytest.raises(DestinationError, match=why):
                Delta(path=str(tmp_path / place)).open().ensure_place(spark, make_schema("id bigint", spark))
        assert sorted(path.name for path in tmp_path.rglob("*")) == ["data.csv", "file", "full"]

    def test_a_missing_schema_of_a_catalog_is_named(self, spark: SparkSession) -> None:
        """Wherry does not make the schema of a table."""
        with pytest.raises(DestinationError, match="the schema does not exist"):
            Delta(table="nowhere.orders").open().ensure_place(spark, make_schema("id bigint", spark))

    def test_a_table_of_another_format_is_refused(self, spark: SparkSession, database: str) -> None:
        """Only Delta tables remember batches."""
        spark.sql(f"CREATE TABLE {database}.plain (id bigint) USING parquet")
        with pytest.raises(DestinationError, match="is not a Delta table; it is parquet"):
            Delta(table=f"{database}.plain").open().ensure_place(spark, make_schema("id bigint", spark))


@pytest.mark.spark
class TestFitting:
    def test_every_problem_is_reported_at_once_with_its_remedy(self, spark: SparkSession, orders: OpenDelta) -> None:
        """The problems are types, columns that the table lacks, and columns that it requires."""
        make_table(spark, orders, "id bigint, amount decimal(10,2), `a.b` int, must int NOT NULL")
        with pytest.raises(Misfit) as told:
            orders.ensure_place(spark, make_schema("id bigint, amount string, `A.B` string, extra double", spark))
        assert told.value.message.splitlines()[1:] == [
            '  amount: the rows have string, the table decimal(10,2); cast: {amount: "decimal(10,2)"}',
            '  A.B: the rows have string, the table int; cast: {"A.B": "int"}',
            "  extra: the table has no such column; leave it out, drop: [extra], or add it, "
            f"ALTER TABLE {orders.destination.sql_name} ADD COLUMNS (`extra` double)",
            "  must: the table needs a value in every row (NOT NULL); add it, with_columns: {must: …}",
        ]

    def test_columns_that_no_table_can_have_are_reported_before_one_is_made(
        self, spark: SparkSession, orders: OpenDelta
    ) -> None:
        """They are intervals, columns without a type, and two names that differ only in case."""
        rows = spark.sql("SELECT NULL AS nothing, INTERVAL 1 DAY AS took, 1 AS a, 2 AS A, array(NULL) AS inside")
        with pytest.raises(Misfit) as told:
            orders.ensure_place(spark, rows.schema)
        assert told.value.message.splitlines()[1:] == [
            '  nothing: it is NULL in all rows and has no type; set one, cast: {nothing: "string"}',
            '  took: Delta has no intervals; keep it as text, cast: {took: "string"}',
            "  a: another column differs only in upper and lower case; rename one of them",
            "  A: another column differs only in upper and lower case; rename one of them",
            '  inside: it is NULL in all rows and has no type; set one, cast: {inside: "string"}',
        ]
        assert not Path(orders.destination.place).exists()

    def test_rows_without_columns_do_not_fit(self, spark: SparkSession, orders: OpenDelta) -> None:
        """A stage has dropped all columns."""
        with pytest.raises(Misfit, match="the rows have no columns"):
            orders.ensure_place(spark, spark.range(1).drop("id").schema)

    @pytest.mark.parametrize(
        "rows",
        [
            "ID bigint, S struct<B: string, a: int>, list array<struct<X: int>>, pairs map<string, struct<y: int>>",
            "list array<struct<x: int>>, s struct<b: string>, id bigint",
        ],
    )
    def test_case_and_order_of_columns_do_not_matter_and_columns_may_be_missing(
        self, spark: SparkSession, orders: OpenDelta, rows: str
    ) -> None:
        """Missing columns are NULL in the table."""
        make_table(spark, orders, TABLE)
        orders.ensure_place(spark, make_schema(rows, spark))
        orders.write(spark, FrameRows(spark.createDataFrame([], make_schema(rows, spark))), [make_label()])
        assert read_rows(spark, orders) == []

    def test_another_type_at_any_depth_does_not_fit(self, spark: SparkSession, orders: OpenDelta) -> None:
        """Wherry never changes a type when it writes."""
        make_table(spark, orders, TABLE)
        for kinds in (
            "id int, s struct<a: bigint>, list array<struct<x: string>>, pairs map<string, struct<y: bigint>>",
            "id string, s struct<a: int, c: int>, list array<int>, pairs map<int, struct<y: int>>",
        ):
            with pytest.raises(Misfit) as told:
                orders.ensure_place(spark, make_schema(kinds, spark))
            problems = told.value.message.splitlines()[1:]
            assert [(each.split()[0][0], "cast: " in each) for each in problems] == [(name, True) for name in "islp"]

    def test_columns_that_the_table_fills_may_be_missing(self, spark: SparkSession, orders: OpenDelta) -> None:
        """Every row needs a default, a generated and an identity column, but the rows need not bring them."""
        make_table(
            spark,
            orders,
            "id bigint, d int NOT NULL DEFAULT 7, g bigint NOT NULL GENERATED ALWAYS AS (id + 1), "
            "k bigint NOT NULL GENERATED ALWAYS AS IDENTITY",
            "'delta.feature.allowColumnDefaults' = 'supported'",
        )
        orders.ensure_place(spark, make_schema("id bigint", spark))
        orders.write(spark, FrameRows(spark.range(0, 1, 1, 1)), [make_label()])
        assert read_rows(spark, orders) == [{"id": 0, "d": 7, "g": 1, "k": 1}]

    def test_a_struct_without_a_required_field_does_not_fit(self, spark: SparkSession, orders: OpenDelta) -> None:
        """NOT NULL also counts inside a struct, even if the struct may be NULL."""
        make_table(spark, orders, "id bigint, s struct<a: int NOT NULL, b: int>")
        for rows in ("id bigint, s struct<b: int>", "id bigint"):
            with pytest.raises(Misfit, match=r"s\.a: the table needs a value in every row"):
                orders.ensure_place(spark, make_schema(rows, spark))

    def test_checking_whether_rows_fit_commits_nothing(self, spark: SparkSession, orders: OpenDelta) -> None:
        """Wherry checks this with a write that always fails."""
        make_table(spark, orders, "id bigint, k bigint NOT NULL GENERATED ALWAYS AS IDENTITY")
        assert orders.ensure_place(spark, make_schema("id bigint", spark)).version == 0
        assert orders.ensure_place(spark, make_schema("id bigint", spark)).version == 0


@pytest.mark.spark
class TestWriting:
    def test_fields_of_structs_are_matched_by_name(self, spark: SparkSession, orders: OpenDelta) -> None:
        """Their order and case may differ, also in a table with mapped names."""
        make_table(spark, orders, "id bigint, s struct<`x;y`: int, b: int>", "'delta.columnMapping.mode' = 'name'")
        rows = spark.sql("SELECT named_struct('b', 1, 'X;Y', 2) AS S, 3L AS ID")
        orders.ensure_place(spark, rows.schema)
        orders.write(spark, FrameRows(rows), [make_label()])
        assert read_rows(spark, orders) == [{"id": 3, "s": {"x;y": 2, "b": 1}}]

    def test_a_write_without_rows_makes_no_commit(
        self, spark: SparkSession, opened: tuple[OpenDelta, Identity]
    ) -> None:
        """Delta skips it, so no version has the label."""
        orders, identity = opened
        assert orders.write(spark, FrameRows(spark.range(9).where("id < 0")), [make_label()]) == Written(rows=0)
        assert orders.ensure_place(spark, None).version == identity.version

    def test_the_batchs_label_overrides_a_tag_of_the_session(
        self, spark: SparkSession, opened: tuple[OpenDelta, Identity]
    ) -> None:
        """A session may be configured to write a tag with every commit."""
        orders, identity = opened
        spark.conf.set(TAG, "mine")
        mine = make_label()
        written = orders.write(spark, FrameRows(spark.range(1)), [mine])
        assert orders.find(spark, mine, identity) == written

    def test_a_dropped_table_is_not_made_again(self, spark: SparkSession, opened: tuple[OpenDelta, Identity]) -> None:
        """If the table is dropped during a run, the next write fails before it writes anything."""
        orders, _ = opened
        shutil.rmtree(orders.destination.place)
        with pytest.raises(DestinationError, match="is missing"):
            orders.write(spark, FrameRows(spark.range(1)), [make_label()])
        assert not Path(orders.destination.place).exists()

    def test_a_table_that_replaced_another_is_not_written(
        self, spark: SparkSession, opened: tuple[OpenDelta, Identity]
    ) -> None:
        """The run belongs to the table that it opened."""
        orders, _ = opened
        orders.write(spark, FrameRows(spark.range(1)), [make_label()])
        shutil.rmtree(orders.destination.place)
        make_table(spark, orders, "id bigint")
        with pytest.raises(DestinationError, match="was replaced by another table"):
            orders.write(spark, FrameRows(spark.range(1)), [make_label()])
        assert read_rows(spark, orders) == []

    def test_a_table_with_a_cleaned_up_log_can_be_written(self, spark: SparkSession, tmp_path: Path) -> None:
        """Delta deletes old versions over time, and the table remains the same."""
        orders = Delta(path=str(tmp_path / "orders"), properties={"delta.checkpointInterval": "1"}).open()
        orders.ensure_place(spark, make_schema("id bigint", spark))
        spark.range(1).write.format("delta").mode("append").save(orders.destination.place)
        locate_version(orders, 0).unlink()
        assert orders.write(spark, FrameRows(spark.range(1)), [make_label()]).version == 2

    def test_a_log_without_checksums_is_read_through_spark(
        self, spark: SparkSession, opened: tuple[OpenDelta, Identity]
    ) -> None:
        """If Wherry cannot find out whether the local folder is Spark's table, it asks Spark."""
        orders, identity = opened
        locate_version(orders, 0).with_suffix(".crc").unlink()
        again, mine = Delta(path=orders.destination.path).open(), make_label()
        written = again.write(spark, FrameRows(spark.range(3)), [mine])
        assert written.rows == 3
        assert again.find(spark, mine, identity) == written

    def test_a_write_waits_for_another_process_and_logs_it(
        self, spark: SparkSession, opened: tuple[OpenDelta, Identity], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Two JVMs can lose each other's commits on a local disk, so they take turns."""
        orders, _ = opened
        monkeypatch.setattr(table_lock, "_LONG", 0.0)
        with ThreadPoolExecutor(1) as pool, hold_elsewhere(orders) as other, watch_log("waiting for another") as waits:
            write = pool.submit(orders.write, spark, FrameRows(spark.range(1)), [make_label()])
            assert waits.wait(60)
            assert not write.done()
            other.communicate("go\n")
            assert write.result().version == 1

    def test_a_fence_waits_only_for_a_limited_time(
        self, spark: SparkSession, opened: tuple[OpenDelta, Identity], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A process that is frozen during a write cannot stop its successor from fencing the table."""
        orders, identity = opened
        monkeypatch.setattr(delta, "_PATIENCE", 0.0)
        with hold_elsewhere(orders):
            orders.fence(spark, "token")
        assert orders.ensure_place(spark, None).version == identity.version + 1

    def test_a_fence_with_the_same_token_has_no_effect(self, spark: SparkSession, orders: OpenDelta) -> None:
        """Delta sees no change in the metadata of a table that Spark writes, so the token must be random."""
        spark.sql(
            f"CREATE TABLE {orders.destination.sql_name} (id bigint, text string) USING delta PARTITIONED BY (text)"
        ).collect()
        orders.ensure_place(spark, make_schema("id bigint, text string", spark))
        orders.fence(spark, "token")
        with start_paused_write(spark, orders, make_label()) as (write, let_go):
            orders.fence(spark, "token")
            let_go()
            assert write.result().rows == 1


@pytest.mark.spark
@pytest.mark.promise("CD-22")
class TestFinding:
    def test_later_changes_of_the_table_do_not_hide_a_batch(
        self, spark: SparkSession, opened: tuple[OpenDelta, Identity]
    ) -> None:
        """Rows may be corrected and deleted, files rewritten, and properties set."""
        orders, identity = opened
        mine = make_label()
        written = orders.write(spark, FrameRows(spark.range(3)), [mine])
        spark.range(5).write.format("delta").mode("append").save(orders.destination.place)
        for statement in ("UPDATE {} SET id = 9 WHERE id = 1", "DELETE FROM {} WHERE id = 2", "OPTIMIZE {}"):
            spark.sql(statement.format(orders.destination.sql_name))
        assert orders.find(spark, mine, identity) == written
        assert orders.find(spark, make_label(), identity) is None

    @pytest.mark.parametrize("statement", ["RESTORE TABLE {} TO VERSION AS OF 0", "DELETE FROM {}"])
    def test_a_batch_before_the_table_was_emptied_is_unsure(
        self, spark: SparkSession, opened: tuple[OpenDelta, Identity], statement: str
    ) -> None:
        """The history has the label, but the table may no longer have the rows. Neither yes nor no would be safe."""
        orders, identity = opened
        mine = make_label(number=412, lane="3")
        orders.write(spark, FrameRows(spark.range(3)), [mine])
        spark.sql(statement.format(orders.destination.sql_name))
        with pytest.raises(Unsure) as told:
            orders.find(spark, mine, identity)
        operation = spark.sql(f"DESCRIBE HISTORY {orders.destination.sql_name} LIMIT 1").collect()[0]["operation"]
        assert told.value.message == (
            f"orders cannot say whether it has batch 412 of lane 3: version 1 has it, but a later version undid that: "
            f"{operation}, version 2 ({orders.destination.place})."
        )
        assert "--assume delivered" in told.value.hint

    def test_a_batch_that_came_after_a_restore_is_found(
        self, spark: SparkSession, opened: tuple[OpenDelta, Identity]
    ) -> None:
        """Only a commit after the label can have removed its rows. A label that is missing is not found."""
        orders, identity = opened
        orders.write(spark, FrameRows(spark.range(3)), [make_label()])
        spark.sql(f"TRUNCATE TABLE {orders.destination.sql_name}")
        mine = make_label()
        written = orders.write(spark, FrameRows(spark.range(3)), [mine])
        assert orders.find(spark, mine, identity) == written
        assert orders.find(spark, make_label(), identity) is None

    def test_another_table_at_the_same_place_proves_nothing(self, spark: SparkSession, database: str) -> None:
        """It cannot show whether the table that the run opened had the batch."""
        orders = Delta(table=f"{database}.orders").open()
        identity = orders.ensure_place(spark, make_schema("id bigint", spark))
        spark.sql(f"REPLACE TABLE {orders.destination.sql_name} (id bigint) USING delta")
        with pytest.raises(Unsure, match="the table was replaced after the run opened it"):
            orders.find(spark, make_label(), identity)

    def test_a_missing_table_leaves_a_batch_unsure(
        self, spark: SparkSession, opened: tuple[OpenDelta, Identity]
    ) -> None:
        """The table may have had the batch."""
        orders, identity = opened
        shutil.rmtree(orders.destination.place)
        with pytest.raises(Unsure, match="the table is missing"):
            orders.find(spark, make_label(), identity)

    def test_a_batch_counts_as_missing_only_if_the_history_is_complete(
        self, spark: SparkSession, opened: tuple[OpenDelta, Identity]
    ) -> None:
        """A deleted version may have had the label. A label in the remaining versions still proves the batch."""
        orders, identity = opened
        orders.write(spark, FrameRows(spark.range(1)), [make_label()])
        mine = make_label()
        written = orders.write(spark, FrameRows(spark.range(2)), [mine])
        locate_version(orders, 0).unlink()
        locate_version(orders, 1).unlink()
        assert orders.find(spark, mine, identity) == written
        with pytest.raises(Unsure, match="no longer reaches back to version 0"):
            orders.find(spark, make_label(), identity)

    def test_a_session_tag_on_other_commits_proves_nothing(
        self, spark: SparkSession, opened: tuple[OpenDelta, Identity]
    ) -> None:
        """ALTER, UPDATE and OPTIMIZE of a session also have its tag, and bring no rows."""
        orders, identity = opened
        orders.write(spark, FrameRows(spark.range(3)), [make_label()])
        mine = make_label()
        spark.conf.set(TAG, make_tag([mine]))
        spark.sql(f"ALTER TABLE {orders.destination.sql_name} SET TBLPROPERTIES ('a' = 'b')")
        spark.sql(f"UPDATE {orders.destination.sql_name} SET id = 9 WHERE id = 1")
        history = spark.sql(f"DESCRIBE HISTORY {orders.destination.sql_name} LIMIT 2").collect()
        assert [mine.key in commit["userMetadata"] for commit in history] == [True, True]
        assert orders.find(spark, mine, identity) is None


TABLE = "id bigint, s struct<a: int, b: string>, list array<struct<x: int>>, pairs map<string, struct<y: int>>"
HOLDER = """
import sys
from pathlib import Path
from destinations.delta.lock import hold_table

with hold_table(Path(sys.argv[1])):
    print("in", flush=True)
    sys.stdin.readline()
"""


def make_schema(columns: str, spark: SparkSession) -> StructType:
    """Return the type of rows with these columns."""
    return spark.createDataFrame([], columns).schema


def make_table(spark: SparkSession, table: OpenDelta, columns: str, properties: str = "'a' = 'b'") -> None:
    """Make the table outside Wherry."""
    spark.sql(f"CREATE TABLE {table.destination.sql_name} ({columns}) USING delta TBLPROPERTIES ({properties})")


def read_rows(spark: SparkSession, table: OpenDelta) -> list[Row]:
    """Return all rows of the table."""
    return [row.asDict(recursive=True) for row in spark.table(table.destination.sql_name).collect()]


def read_properties(spark: SparkSession, table: OpenDelta) -> dict[str, str]:
    """Return the properties of the table that were set explicitly."""
    found = spark.sql(f"DESCRIBE DETAIL {table.destination.sql_name}").collect()[0]["properties"]
    return {key: value for key, value in found.items() if key != "delta.columnMapping.maxColumnId"}


def locate_version(table: OpenDelta, number: int) -> Path:
    """Return the file of a version in the table's log."""
    return Path(table.destination.place) / "_delta_log" / f"{number:020}.json"


@contextmanager
def hold_elsewhere(table: OpenDelta) -> Iterator[subprocess.Popen[str]]:
    """Start another process that holds the table until it gets a line, or until the block ends."""
    command = [sys.executable, "-c", HOLDER, table.destination.place]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def watch_log(words: str) -> Iterator[threading.Event]:
    """Give an event that is set when these words are logged."""
    heard = threading.Event()
    handler = logging.Handler()
    handler.emit = lambda record: heard.set() if words in record.getMessage() else None  # type: ignore[method-assign]
    logging.getLogger("wherry").addHandler(handler)
    try:
        yield heard
    finally:
        logging.getLogger("wherry").removeHandler(handler)
