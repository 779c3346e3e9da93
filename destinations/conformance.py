"""What every destination promises, as tests. For a destination of your own, subclass the suite that fits:

    class TestMine(RememberingConformance):
        @pytest.fixture
        def destination(self, tmp_path):
            return Mine(path=str(tmp_path / "mine"))

        def content(self, spark, destination):
            return [row.asDict(recursive=True) for row in spark.read.json(destination.path).collect()]

`spark` is a fixture of yours: a session on this machine.
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
from typing import TYPE_CHECKING, Any

import pytest

from destinations.destination import Destination, Identity, Label, OpenDestination, Written
from origins.batch import Batch, Span
from origins.batch_rows import BatchRows, FrameRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = Mapping[str, Any]

ODD = ["a.b", "two words", "grün", "back`tick", "semi;colon", "(brackets)", "quote'", "%41", "select"]
"""Names that a column may have."""
WIDE = (
    "long bigint, tiny tinyint, real double, exact decimal(38,18), flag boolean, day date, moment timestamp, "
    "local timestamp_ntz, bytes binary, text string, many array<struct<x: int, y: string>>, pairs map<string, bigint>, "
    "inner struct<deep: struct<value: decimal(5,2)>>, nothing string"
)
"""A column of every type that rows usually have."""
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
    """What holds for every destination."""

    @pytest.fixture
    def destination(self) -> Destination:
        """A new destination, in a place of its own."""
        raise LookupError("give the suite a fixture `destination`")

    def rows(self, frame: DataFrame) -> BatchRows:
        """The rows in the form in which they are written here."""
        return FrameRows(frame)

    def content(self, spark: SparkSession, destination: Any) -> Sequence[Row] | None:
        """All rows that the destination holds; None for one whose rows cannot be read again."""
        return None

    def test_every_row_of_every_partition_arrives_and_is_counted(
        self, spark: SparkSession, destination: Destination
    ) -> None:
        """All rows of a frame of several partitions are there, and the destination says how many came."""
        rows = spark.range(0, 20, 1, 4)
        opened, _ = open_for(spark, destination, rows)
        assert opened.write(spark, self.rows(rows), [make_label()]).rows == 20
        self.holds(spark, destination, [{"id": number} for number in range(20)])

    def test_values_come_as_they_are(self, spark: SparkSession, destination: Destination) -> None:
        """Numbers, times, bytes, text and what is nested keep type and value."""
        rows = spark.createDataFrame([tuple(WIDE_ROW.values())], WIDE)
        opened, _ = open_for(spark, destination, rows)
        opened.write(spark, self.rows(rows), [make_label()])
        self.holds(spark, destination, [WIDE_ROW])

    def test_columns_may_have_any_name(self, spark: SparkSession, destination: Destination) -> None:
        """Dots, spaces, quotes, umlauts and words of SQL are names like any other."""
        rows = spark.createDataFrame([tuple(range(len(ODD)))], ODD)
        opened, _ = open_for(spark, destination, rows)
        opened.write(spark, self.rows(rows), [make_label()])
        self.holds(spark, destination, [dict(zip(ODD, range(len(ODD)), strict=True))])

    def test_no_rows_are_a_write_of_nothing(self, spark: SparkSession, destination: Destination) -> None:
        """A frame without rows is written without complaint, and counts 0."""
        rows = spark.range(1).where("id < 0")
        opened, _ = open_for(spark, destination, rows)
        assert opened.write(spark, self.rows(rows), [make_label()]).rows == 0
        self.holds(spark, destination, [])

    def test_a_write_that_fails_leaves_nothing(self, spark: SparkSession, destination: Destination) -> None:
        """When the last row cannot be computed, none of the others is there, and the label is not found."""
        from pyspark.sql import functions as F

        rows = spark.range(0, 20, 1, 4)
        opened, identity = open_for(spark, destination, rows)
        torn = rows.select(F.when(F.col("id") < 19, F.col("id")).otherwise(F.raise_error(F.lit("torn"))).alias("id"))
        torn = torn.select(F.col("id").cast("bigint"))
        failed = make_label(number=2)
        with pytest.raises(Exception, match="torn"):
            opened.write(spark, self.rows(torn), [failed])
        assert opened.find(spark, failed, identity) is None
        self.holds(spark, destination, [])

    def test_rows_that_come_again_in_another_batch_are_other_rows(
        self, spark: SparkSession, destination: Destination
    ) -> None:
        """A batch is known by its plan, not by what is in it."""
        rows = spark.range(2)
        opened, _ = open_for(spark, destination, rows)
        opened.write(spark, self.rows(rows), [make_label(number=1)])
        opened.write(spark, self.rows(rows), [make_label(number=2)])
        self.holds(spark, destination, [{"id": 0}, {"id": 1}] * 2)

    def test_batches_may_come_in_any_order(self, spark: SparkSession, destination: Destination) -> None:
        """A lower number after a higher one is written like any other: lanes run side by side."""
        opened, _ = open_for(spark, destination, spark.range(1))
        opened.write(spark, self.rows(spark.range(5, 6)), [make_label(number=2, lane="a")])
        opened.write(spark, self.rows(spark.range(7, 8)), [make_label(number=1, lane="b")])
        self.holds(spark, destination, [{"id": 5}, {"id": 7}])

    def test_threads_write_at_the_same_time(self, spark: SparkSession, destination: Destination) -> None:
        """No row that several runners write at once is lost, and each gets its own count."""
        opened, _ = open_for(spark, destination, spark.range(1))
        start = threading.Barrier(3)

        def write(lane: int) -> int | None:
            start.wait()
            return opened.write(spark, self.rows(spark.range(lane + 1)), [make_label(lane=str(lane))]).rows

        with ThreadPoolExecutor(3) as pool:
            assert list(pool.map(write, range(3))) == [1, 2, 3]
        self.holds(spark, destination, [{"id": number} for number in (0, 0, 1, 0, 1, 2)])

    def test_opening_twice_is_once(self, spark: SparkSession, destination: Destination) -> None:
        """The place stays what it was, with all that is in it."""
        rows = spark.range(1)
        opened, first = open_for(spark, destination, rows)
        opened.write(spark, self.rows(rows), [make_label()])
        _, again = open_for(spark, destination, rows)
        assert (again.place, again.id) == (first.place, first.id)
        self.holds(spark, destination, [{"id": 0}])

    def test_each_that_is_open_has_its_own_state(self, spark: SparkSession, destination: Destination) -> None:
        """Two runs may have it open at once: what one of them expects, and its end, are nothing to the other."""
        rows = spark.range(1)
        opened, identity = open_for(spark, destination, rows)
        other = destination.open()
        other.expects(Identity(place=identity.place, id="another"))
        other.close()
        assert opened.ensure_place(spark, rows.schema).id == identity.id
        assert opened.write(spark, self.rows(rows), [make_label()]).rows == 1
        self.holds(spark, destination, [{"id": 0}])

    def test_what_was_never_written_is_not_found(self, spark: SparkSession, destination: Destination) -> None:
        """A destination that is asked before any write says no."""
        opened, identity = open_for(spark, destination, spark.range(1))
        assert opened.find(spark, make_label(), identity) is None

    def holds(self, spark: SparkSession, destination: Destination, rows: Sequence[Row]) -> None:
        """Assert that these rows are there and no others, in any order, as far as they can be read again."""
        found = self.content(spark, destination)
        if found is not None:
            left = [dict(row) for row in found]
            for row in rows:
                assert row in left, f"expected {row}, found {left}"
                left.remove(dict(row))
            assert not left, f"expected no more rows, found {left}"


class RememberingConformance(DestinationConformance):
    """What holds as well for a destination that remembers."""

    def test_what_was_written_is_found_with_its_count(self, spark: SparkSession, destination: Destination) -> None:
        """Asked for a label, the destination says what was written under it."""
        opened, identity = open_for(spark, destination, spark.range(1))
        mine = make_label(number=7)
        written = opened.write(spark, self.rows(spark.range(3)), [mine])
        opened.write(spark, self.rows(spark.range(5)), [make_label(number=8)])
        assert written.rows == 3
        assert opened.find(spark, mine, identity) == written

    def test_another_plan_of_the_same_batch_is_not_found(self, spark: SparkSession, destination: Destination) -> None:
        """Lane and number do not prove anything, nor does the plan under another destination's name."""
        opened, identity = open_for(spark, destination, spark.range(1))
        mine = make_label(number=7)
        opened.write(spark, self.rows(spark.range(3)), [mine])
        assert opened.find(spark, make_label(number=7), identity) is None
        assert opened.find(spark, Label(batch=mine.batch, destination="another"), identity) is None

    def test_each_of_several_labels_is_found(self, spark: SparkSession, destination: Destination) -> None:
        """One write may carry the labels of several batches; whose the rows are is not guessed."""
        opened, identity = open_for(spark, destination, spark.range(1))
        labels = [make_label(lane="a"), make_label(lane="b")]
        written = opened.write(spark, self.rows(spark.range(3)), labels)
        assert written.rows == 3
        found = [opened.find(spark, one, identity) for one in labels]
        assert found == [Written(rows=None, version=written.version)] * 2

    def test_a_write_that_began_before_a_fence_does_not_land(
        self, spark: SparkSession, destination: Destination
    ) -> None:
        """After a fence, what an earlier owner had begun fails, however late it ends."""
        opened, identity = open_for(spark, destination, spark.createDataFrame([], "id bigint, text string"))
        late = make_label(number=2)
        with start_paused_write(spark, opened, late, self.rows) as (write, let_go):
            opened.fence(spark, uuid.uuid4().hex)
            let_go()
            assert write.exception() is not None
        assert opened.find(spark, late, identity) is None
        self.holds(spark, destination, [])

    def test_a_fence_keeps_what_was_there_and_lets_in_what_comes(
        self, spark: SparkSession, destination: Destination
    ) -> None:
        """Only writes under way are hit: what had landed is found, and the next one lands."""
        opened, identity = open_for(spark, destination, spark.range(1))
        before = make_label(number=1)
        written = opened.write(spark, self.rows(spark.range(1)), [before])
        opened.fence(spark, uuid.uuid4().hex)
        assert opened.find(spark, before, identity) == written
        assert opened.write(spark, self.rows(spark.range(1, 2)), [make_label(number=2)]).rows == 1
        self.holds(spark, destination, [{"id": 0}, {"id": 1}])


def make_label(*, number: int = 1, lane: str = "0", destination: str = "orders") -> Label:
    """The label of a batch that was just planned."""
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
    """The destination, open for rows like these, and what it is."""
    opened = destination.open()
    return opened, opened.ensure_place(spark, rows.schema)


@contextmanager
def start_paused_write(
    spark: SparkSession,
    opened: OpenDestination,
    label: Label,
    form: Callable[[DataFrame], BatchRows] = FrameRows,
) -> Iterator[tuple[Future[Written], Callable[[], None]]]:
    """A write of one row that is under way and stands still; the write, and what lets it go.

    Its row is computed by opening two named pipes: the first tells us that Spark has come so far, at the second
    Spark waits for us.
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
