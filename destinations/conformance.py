"""What every destination promises, as tests. For your destination, subclass the suite that fits:

    class TestMine(RememberingConformance):
        @pytest.fixture
        def destination(self, tmp_path):
            return Mine(path=str(tmp_path / "mine"))

        def content(self, spark, destination):
            return [row.asDict(recursive=True) for row in spark.read.json(destination.path).collect()]

You must provide a fixture `spark`: a session on this machine.
"""

from __future__ import annotations

import datetime as dt
import os
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from destinations.capabilities import StopsWriters
from destinations.destination import Destination, Identity, OpenDestination, Written
from destinations.labels import Label
from origins.batch import Batch, Span
from origins.batch_rows import BatchRows, FrameRows
from origins.lazy import DataFrame, F, SparkSession

Row = Mapping[str, Any]

ODD = ["a.b", "two words", "grün", "back`tick", "semi;colon", "(brackets)", "quote'", "%41", "select"]
"""Column names with unusual characters."""
WIDE = (
    "long bigint, tiny tinyint, real double, exact decimal(38,18), flag boolean, day date, moment timestamp, "
    "local timestamp_ntz, bytes binary, text string, many array<struct<x: int, y: string>>, pairs map<string, bigint>, "
    "inner struct<deep: struct<value: decimal(5,2)>>, nothing string"
)
"""A column of each common type."""
_MOMENT = dt.datetime(2026, 6, 15, 11, 59, 59, 999999)
WIDE_ROW = {
    "long": 2**63 - 1,
    "tiny": -128,
    "real": 1e300,
    "exact": Decimal("12345678901234567890.123456789012345678"),
    "flag": False,
    "day": dt.date(1, 1, 1),
    "moment": _MOMENT,
    "local": _MOMENT,
    "bytes": b"\x00\xff",
    "text": "tab\t, line\n, ß and 🜁",
    "many": [{"x": 1, "y": None}, {"x": None, "y": ""}],
    "pairs": {"a": 1, "": None},
    "inner": {"deep": {"value": Decimal("-1.50")}},
    "nothing": None,
}


class DestinationConformance:
    """Tests that every destination must pass."""

    @pytest.fixture
    def destination(self) -> Destination:
        """Return a new destination, in a place that no other test uses."""
        raise LookupError("give the suite a fixture `destination`")

    def rows(self, frame: DataFrame) -> BatchRows:
        """Return the rows in the form in which this suite writes them."""
        return FrameRows(frame)

    def content(self, spark: SparkSession, destination: Any) -> Sequence[Row] | None:
        """Return all rows of the destination, or None if its rows cannot be read."""
        return None

    def test_every_row_of_every_partition_arrives_and_is_counted(
        self, spark: SparkSession, destination: Destination
    ) -> None:
        """The destination has all rows of a frame with several partitions, and reports their number."""
        rows = spark.range(0, 20, 1, 4)
        opened, _ = open_for(spark, destination, rows)
        assert opened.write(spark, self.rows(rows), [make_label()]).rows == 20
        self.holds(spark, destination, [{"id": number} for number in range(20)])

    def test_values_keep_their_type_and_value(self, spark: SparkSession, destination: Destination) -> None:
        """Numbers, times, bytes, text and nested values keep their type and value."""
        rows = spark.createDataFrame([tuple(WIDE_ROW.values())], WIDE)
        opened, _ = open_for(spark, destination, rows)
        opened.write(spark, self.rows(rows), [make_label()])
        self.holds(spark, destination, [WIDE_ROW])

    def test_columns_may_have_any_name(self, spark: SparkSession, destination: Destination) -> None:
        """Names may have dots, spaces, quotes and umlauts, and may be SQL keywords."""
        rows = spark.createDataFrame([tuple(range(len(ODD)))], ODD)
        opened, _ = open_for(spark, destination, rows)
        opened.write(spark, self.rows(rows), [make_label()])
        self.holds(spark, destination, [dict(zip(ODD, range(len(ODD)), strict=True))])

    def test_an_empty_frame_is_written_as_zero_rows(self, spark: SparkSession, destination: Destination) -> None:
        """A frame without rows is written without an error, and counts 0."""
        rows = spark.range(1).where("id < 0")
        opened, _ = open_for(spark, destination, rows)
        assert opened.write(spark, self.rows(rows), [make_label()]).rows == 0
        self.holds(spark, destination, [])

    def test_a_write_that_fails_leaves_nothing(self, spark: SparkSession, destination: Destination) -> None:
        """If the last row cannot be computed, no other row is written, and the label is not found."""
        rows = spark.range(0, 20, 1, 4)
        opened, identity = open_for(spark, destination, rows)
        torn = rows.select(F.when(F.col("id") < 19, F.col("id")).otherwise(F.raise_error(F.lit("torn"))).alias("id"))
        torn = torn.select(F.col("id").cast("bigint"))
        failed = make_label(number=2)
        with pytest.raises(Exception, match="torn"):
            opened.write(spark, self.rows(torn), [failed])
        assert opened.find(spark, failed, identity) is None
        self.holds(spark, destination, [])

    def test_equal_rows_of_another_batch_are_written_too(self, spark: SparkSession, destination: Destination) -> None:
        """The plan identifies a batch, not the batch's rows."""
        rows = spark.range(2)
        opened, _ = open_for(spark, destination, rows)
        opened.write(spark, self.rows(rows), [make_label(number=1)])
        opened.write(spark, self.rows(rows), [make_label(number=2)])
        self.holds(spark, destination, [{"id": 0}, {"id": 1}] * 2)

    def test_batches_may_come_in_any_order(self, spark: SparkSession, destination: Destination) -> None:
        """A lower number may come after a higher one, because lanes run in parallel."""
        opened, _ = open_for(spark, destination, spark.range(1))
        opened.write(spark, self.rows(spark.range(5, 6)), [make_label(number=2, lane="a")])
        opened.write(spark, self.rows(spark.range(7, 8)), [make_label(number=1, lane="b")])
        self.holds(spark, destination, [{"id": 5}, {"id": 7}])

    def test_threads_write_at_the_same_time(self, spark: SparkSession, destination: Destination) -> None:
        """Several runners can write at once without losing a row. Each gets the count of its rows."""
        opened, _ = open_for(spark, destination, spark.range(1))
        start = threading.Barrier(3)

        def write(lane: int) -> int | None:
            start.wait()
            return opened.write(spark, self.rows(spark.range(lane + 1)), [make_label(lane=str(lane))]).rows

        with ThreadPoolExecutor(3) as pool:
            assert list(pool.map(write, range(3))) == [1, 2, 3]
        self.holds(spark, destination, [{"id": number} for number in (0, 0, 1, 0, 1, 2)])

    def test_opening_again_changes_nothing(self, spark: SparkSession, destination: Destination) -> None:
        """The place and all its rows stay the same."""
        rows = spark.range(1)
        opened, first = open_for(spark, destination, rows)
        opened.write(spark, self.rows(rows), [make_label()])
        _, again = open_for(spark, destination, rows)
        assert (again.place, again.id) == (first.place, first.id)
        self.holds(spark, destination, [{"id": 0}])

    def test_each_open_destination_has_a_separate_state(self, spark: SparkSession, destination: Destination) -> None:
        """Two runs may have it open at once. What one run expects, and its end, do not affect the other run."""
        rows = spark.range(1)
        opened, identity = open_for(spark, destination, rows)
        other = destination.open()
        other.expects(Identity(place=identity.place, id="another"))
        other.close()
        assert opened.ensure_place(spark, rows.schema).id == identity.id
        assert opened.write(spark, self.rows(rows), [make_label()]).rows == 1
        self.holds(spark, destination, [{"id": 0}])

    def test_a_batch_that_was_not_written_is_not_found(self, spark: SparkSession, destination: Destination) -> None:
        """A destination without any write finds no label."""
        opened, identity = open_for(spark, destination, spark.range(1))
        assert opened.find(spark, make_label(), identity) is None

    def holds(self, spark: SparkSession, destination: Destination, rows: Sequence[Row]) -> None:
        """Assert that the destination has exactly these rows, in any order. It passes if the rows cannot be read."""
        found = self.content(spark, destination)
        if found is not None:
            left = [dict(row) for row in found]
            for row in rows:
                assert row in left, f"expected {row}, found {left}"
                left.remove(dict(row))
            assert not left, f"expected no more rows, found {left}"


class RememberingConformance(DestinationConformance):
    """Tests that a destination that remembers must pass too."""

    def test_a_written_batch_is_found_with_its_count(self, spark: SparkSession, destination: Destination) -> None:
        """For a label, the destination returns what was written with it."""
        opened, identity = open_for(spark, destination, spark.range(1))
        mine = make_label(number=7)
        written = opened.write(spark, self.rows(spark.range(3)), [mine])
        opened.write(spark, self.rows(spark.range(5)), [make_label(number=8)])
        assert written.rows == 3
        assert opened.find(spark, mine, identity) == written

    def test_another_plan_of_the_same_batch_is_not_found(self, spark: SparkSession, destination: Destination) -> None:
        """The lane and the number prove nothing. Neither does the plan with another destination's name."""
        opened, identity = open_for(spark, destination, spark.range(1))
        mine = make_label(number=7)
        opened.write(spark, self.rows(spark.range(3)), [mine])
        assert opened.find(spark, make_label(number=7), identity) is None
        assert opened.find(spark, Label(batch=mine.batch, destination="another"), identity) is None

    def test_each_of_several_labels_is_found(self, spark: SparkSession, destination: Destination) -> None:
        """One write may have the labels of several batches.

        The destination does not guess how many rows each batch has.
        """
        opened, identity = open_for(spark, destination, spark.range(1))
        labels = [make_label(lane="a"), make_label(lane="b")]
        written = opened.write(spark, self.rows(spark.range(3)), labels)
        assert written.rows == 3
        found = [opened.find(spark, one, identity) for one in labels]
        assert found == [Written(rows=None, version=written.version)] * 2

    def test_a_write_that_began_before_a_fence_does_not_land(
        self, spark: SparkSession, destination: Destination
    ) -> None:
        """After a fence, a write that an earlier owner began fails, however late it ends."""
        opened, identity = open_for(spark, destination, spark.createDataFrame([], "id bigint, text string"))
        late = make_label(number=2)
        with start_paused_write(spark, opened, late, self.rows) as (write, let_go):
            assert isinstance(opened, StopsWriters)
            opened.fence(spark, uuid.uuid4().hex)
            let_go()
            assert write.exception() is not None
        assert opened.find(spark, late, identity) is None
        self.holds(spark, destination, [])

    def test_a_fence_keeps_earlier_rows_and_admits_later_writes(
        self, spark: SparkSession, destination: Destination
    ) -> None:
        """A fence stops only writes in progress. Earlier writes are still found, and the next write succeeds."""
        opened, identity = open_for(spark, destination, spark.range(1))
        before = make_label(number=1)
        written = opened.write(spark, self.rows(spark.range(1)), [before])
        assert isinstance(opened, StopsWriters)
        opened.fence(spark, uuid.uuid4().hex)
        assert opened.find(spark, before, identity) == written
        assert opened.write(spark, self.rows(spark.range(1, 2)), [make_label(number=2)]).rows == 1
        self.holds(spark, destination, [{"id": 0}, {"id": 1}])


def make_label(*, number: int = 1, lane: str = "0", destination: str = "orders") -> Label:
    """Return the label of a newly planned batch."""
    batch = Batch(
        pipeline="conformance",
        run="run",
        origin="origin",
        lane=lane,
        number=number,
        plan=uuid.uuid4().hex,
        span=Span(start=None, end=number),
        schema="",
        time=dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc),
    )
    return Label(batch=batch, destination=destination)


def open_for(spark: SparkSession, destination: Destination, rows: DataFrame) -> tuple[OpenDestination, Identity]:
    """Return the destination, open for rows like these, and its identity."""
    opened = destination.open()
    return opened, opened.ensure_place(spark, rows.schema)


@contextmanager
def start_paused_write(
    spark: SparkSession, opened: OpenDestination, label: Label, form: Callable[[DataFrame], BatchRows] = FrameRows
) -> Iterator[tuple[Future[Written], Callable[[], None]]]:
    """Start a write of one row that pauses. Give the write, and a function that lets it continue.

    To compute the row, Spark opens two named pipes. The first one tells the test that Spark has reached it. Spark waits
    at the second one.
    """
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as pool, ExitStack() as ends:
        reached, go = Path(folder, "reached"), Path(folder, "go")

        def meet(pipe: Path) -> None:
            ends.callback(os.close, os.open(pipe, os.O_WRONLY))

        def let_pipes_go(_: Future[Written]) -> None:
            for pipe in (reached, go):
                ends.callback(os.close, os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))

        for pipe in (reached, go):
            os.mkfifo(pipe)
        text = ", ".join(f"reflect('scala.io.Source', 'fromFile', '{pipe}', 'UTF-8')" for pipe in (reached, go))
        rows = spark.range(1).selectExpr("id", f"concat({text}) as text")
        write = pool.submit(opened.write, spark, form(rows), [label])
        write.add_done_callback(let_pipes_go)
        meet(reached)
        yield write, lambda: meet(go)
