"""In mode `replace`, a run's first batch replaces the table's rows, and the other batches append."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from destinations.conformance import make_label, start_paused_write
from destinations.delta import Delta
from destinations.delta.delta import OpenDelta
from destinations.destination import DestinationError, Misfit, Unsure, Written
from destinations.labels import Label
from origins.batch_rows import FrameRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def orders(spark: SparkSession, tmp_path: Path) -> OpenDelta:
    """A table of one column, with the rows of an earlier run: 0 to 9."""
    table = Delta(path=str(tmp_path / "orders"), mode="replace").open()
    table.ensure_place(spark, spark.range(1).schema)
    table.write(spark, FrameRows(spark.range(10)), [make_label()])
    return table


class TestTheFirstBatch:
    @pytest.mark.connect
    def test_its_rows_replace_all_others_and_later_batches_append(self, spark: SparkSession, orders: OpenDelta) -> None:
        """The replacement is one commit, which has the label."""
        identity = orders.ensure_place(spark, spark.range(1).schema)
        mine, next_one = make_first_label(), make_label(number=2)
        written = orders.write(spark, FrameRows(spark.range(20, 22)), [mine])
        assert (written.rows, written.version) == (2, identity.version + 1)
        assert orders.find(spark, mine, identity) == written
        assert orders.write(spark, FrameRows(spark.range(22, 23)), [next_one]).rows == 1
        assert read_ids(spark, orders) == [20, 21, 22]
        assert orders.find(spark, mine, identity) == written

    def test_a_first_batch_without_rows_empties_the_table_and_is_found(
        self, spark: SparkSession, orders: OpenDelta
    ) -> None:
        """The commit has a label and 0 rows. A table that is already empty gets no commit."""
        identity = orders.ensure_place(spark, spark.range(1).schema)
        mine, again = make_first_label(), make_first_label()
        written = orders.write(spark, FrameRows(spark.range(0)), [mine])
        assert written.rows == 0
        assert orders.find(spark, mine, identity) == written
        assert read_ids(spark, orders) == []
        assert orders.write(spark, FrameRows(spark.range(0)), [again]) == Written(rows=0)
        assert orders.find(spark, again, identity) is None

    def test_it_undoes_batches_of_earlier_runs(self, spark: SparkSession, orders: OpenDelta) -> None:
        """A label proves nothing after a later run has replaced the rows."""
        identity = orders.ensure_place(spark, spark.range(1).schema)
        before = make_label(number=7)
        orders.write(spark, FrameRows(spark.range(1)), [before])
        orders.write(spark, FrameRows(spark.range(2)), [make_first_label()])
        with pytest.raises(Unsure, match="version 2 has it, but a later version undid that: WRITE, version 3"):
            orders.find(spark, before, identity)

    def test_a_fence_stops_a_replacement_as_it_stops_any_write(self, spark: SparkSession, tmp_path: Path) -> None:
        """The rows that it would have replaced remain."""
        table = Delta(path=str(tmp_path / "t"), mode="replace").open()
        rows = spark.createDataFrame([(1, "a")], "id bigint, text string")
        identity = table.ensure_place(spark, rows.schema)
        table.write(spark, FrameRows(rows), [make_label()])
        late = make_first_label()
        with start_paused_write(spark, table, late) as (write, let_go):
            table.fence(spark, "token")
            let_go()
            assert "DELTA_METADATA_CHANGED" in str(write.exception())
        assert table.find(spark, late, identity) is None
        assert read_ids(spark, table) == [1]


class TestWhere:
    def test_only_rows_that_match_are_replaced(self, spark: SparkSession, tmp_path: Path) -> None:
        """Other rows of a partition remain, even if the session overwrites partitions dynamically."""
        table = Delta(
            path=str(tmp_path / "t"), mode="replace", where="day = 1 and id is not null", partition_by=["day"]
        ).open()
        rows = spark.createDataFrame([(1, 1), (2, 1), (None, 1), (3, 2)], "id bigint, day int")
        table.ensure_place(spark, rows.schema)
        table.write(spark, FrameRows(rows), [make_label()])
        spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
        identity, mine, empty = table.ensure_place(spark, rows.schema), make_first_label(), make_first_label()
        written = table.write(spark, FrameRows(rows.where("id = 1")), [mine])
        assert written.rows == 1
        assert table.find(spark, mine, identity) == written
        assert sorted(map(tuple, spark.table(table.destination.sql_name).collect()), key=str) == [
            (1, 1),
            (3, 2),
            (None, 1),
        ]
        written = table.write(spark, FrameRows(rows.where("id = 9")), [empty])
        assert (written.rows, written.version) == (0, identity.version + 2)
        assert table.find(spark, empty, identity) == written
        assert sorted(map(tuple, spark.table(table.destination.sql_name).collect()), key=str) == [(3, 2), (None, 1)]
        with pytest.raises(Unsure, match="but a later version undid that: WRITE"):
            table.find(spark, mine, identity)

    def test_a_condition_that_spark_cannot_resolve_is_reported_at_once(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        """The error comes before a table is made."""
        table = Delta(path=str(tmp_path / "t"), mode="replace", where="dya = 1").open()
        with pytest.raises(Misfit, match=r"where: \[UNRESOLVED_COLUMN"):
            table.ensure_place(spark, spark.range(1).schema)
        assert not Path(table.destination.place).exists()


class TestLayout:
    @pytest.mark.connect
    def test_a_new_table_gets_the_layout_of_the_options(self, spark: SparkSession, tmp_path: Path) -> None:
        """It is partitioned or clustered, and has a comment. An existing table keeps its layout."""
        rows = spark.createDataFrame([], "`a b` int, `c``d` int, e int").schema
        parted = Delta(path=str(tmp_path / "p"), partition_by=["C`D", "_batch"], comment="it's", stamp="_batch").open()
        parted.ensure_place(spark, rows)
        Delta(path=parted.destination.path, cluster_by=["e"], comment="other").open().ensure_place(spark, rows)
        clustered = Delta(path=str(tmp_path / "c"), cluster_by=["a b"]).open()
        clustered.ensure_place(spark, rows)
        assert read_detail(spark, parted) == (["c`d", "_batch"], [], "it's")
        assert read_detail(spark, clustered) == ([], ["`a b`"], None)

    def test_a_stamp_names_the_batch_of_a_row(self, spark: SparkSession, tmp_path: Path) -> None:
        """It is the lane and the number, and satisfies the table's constraints.

        A write of several batches is refused.
        """
        table = Delta(path=str(tmp_path / "t"), stamp="_batch").open()
        spark.sql(f"CREATE TABLE {table.destination.sql_name} (id bigint, _batch string NOT NULL) USING delta")
        spark.sql(f"ALTER TABLE {table.destination.sql_name} ADD CONSTRAINT a CHECK (_batch like '%/%')")
        table.ensure_place(spark, spark.range(1).schema)
        assert table.demands(spark, spark.range(1).schema) == []
        table.write(spark, FrameRows(spark.range(1)), [make_label(lane="it's", number=7)])
        assert spark.table(table.destination.sql_name).collect() == [(0, "it's/7")]
        with pytest.raises(DestinationError, match="A stamp names one batch"):
            table.write(spark, FrameRows(spark.range(1)), [make_label(), make_label()])


def make_first_label() -> Label:
    """Return the label of a run's first batch."""
    planned = make_label()
    return dataclasses.replace(planned, batch=dataclasses.replace(planned.batch, first=True))


def read_ids(spark: SparkSession, table: OpenDelta) -> list[int]:
    """Return the sorted ids in the table."""
    return sorted(row["id"] for row in spark.table(table.destination.sql_name).collect())


def read_detail(spark: SparkSession, table: OpenDelta) -> tuple[list[str], list[str], str | None]:
    """Return how the table is partitioned and clustered, and its comment."""
    columns = ("partitionColumns", "clusteringColumns", "description")
    ((partitions, clusters, comment),) = (
        spark.sql(f"DESCRIBE DETAIL {table.destination.sql_name}").select(*columns).collect()
    )
    return partitions, clusters, comment
