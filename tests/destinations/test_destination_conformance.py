"""Each fault is found by a check of the suite."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from destinations.conformance import RememberingConformance, Row
from destinations.destination import Identity, Written
from destinations.labels import Label
from destinations.memory import Memory
from origins.batch_rows import BatchRows, FrameRows
from origins.names import quote_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class Suite(RememberingConformance):
    def content(self, spark: SparkSession, destination: Memory) -> Sequence[Row]:
        return destination.rows


class LosesRows(Memory):
    """Keeps ten rows, and does not report the others."""

    @property
    def rows(self) -> list[Row]:
        return super().rows[:10]


class RoundsDecimals(Memory):
    """Keeps decimals as doubles."""

    def write(self, spark: SparkSession, rows: BatchRows, labels: Sequence[Label]) -> Written:
        from pyspark.sql import functions as F

        kinds = {name: "double" if kind.startswith("decimal") else kind for name, kind in rows.frame().dtypes}
        columns = [F.col(quote_name(name)).cast(kind).alias(name) for name, kind in kinds.items() if kind == "double"]
        others = [F.col(quote_name(name)) for name, kind in kinds.items() if kind != "double"]
        return super().write(spark, FrameRows(rows.frame().select(*others, *columns)), labels)


class RenamesColumns(Memory):
    """Replaces dots in column names."""

    def write(self, spark: SparkSession, rows: BatchRows, labels: Sequence[Label]) -> Written:
        frame = rows.frame()
        return super().write(spark, FrameRows(frame.toDF(*[name.replace(".", "_") for name in frame.columns])), labels)


class NeedsARow(Memory):
    """Raises if there are no rows."""

    def write(self, spark: SparkSession, rows: BatchRows, labels: Sequence[Label]) -> Written:
        written = super().write(spark, rows, labels)
        if not written.rows:
            raise ValueError("no rows")
        return written


class Tears(Memory):
    """Leaves a row in the destination if a write fails."""

    def write(self, spark: SparkSession, rows: BatchRows, labels: Sequence[Label]) -> Written:
        try:
            return super().write(spark, rows, labels)
        except Exception as error:
            if "torn" in str(error):
                super().write(spark, FrameRows(rows.frame().limit(1)), labels)
            raise


class SkipsSameRows(Memory):
    """Skips a batch whose rows equal the rows of an earlier batch."""

    def write(self, spark: SparkSession, rows: BatchRows, labels: Sequence[Label]) -> Written:
        written = super().write(spark, rows, labels)
        earlier = [commit.rows for commit in self._kept.commits[:-1]]
        if written.rows and self._kept.commits[-1].rows in earlier:
            self._kept.commits.pop()
        return written


class SkipsLowerNumbers(Memory):
    """Skips a batch whose number is lower than an earlier number."""

    def write(self, spark: SparkSession, rows: BatchRows, labels: Sequence[Label]) -> Written:
        number = labels[0].batch.number
        highest = max((seen for _, seen in self.__dict__.setdefault("seen", [])), default=0)
        self.__dict__["seen"].append((labels[0].batch.lane, number))
        return Written(rows=0) if number < highest else super().write(spark, rows, labels)


class OneThreadOnly(Memory):
    """Accepts writes only from the thread that wrote first."""

    def write(self, spark: SparkSession, rows: BatchRows, labels: Sequence[Label]) -> Written:
        mine = self.__dict__.setdefault("thread", threading.get_ident())
        if mine != threading.get_ident():
            raise RuntimeError("this connection belongs to another thread")
        return super().write(spark, rows, labels)


class OpensAnew(Memory):
    """Loses its rows at each opening."""

    def ensure_place(self, spark: SparkSession, schema: StructType | None) -> Identity:
        self._kept.commits.clear()
        return super().ensure_place(spark, schema)


class SharesItsConnection(Memory):
    """Has one connection, which the first run that ends closes for all runs."""

    def close(self) -> None:
        self.__dict__["closed"] = True

    def write(self, spark: SparkSession, rows: BatchRows, labels: Sequence[Label]) -> Written:
        if self.__dict__.get("closed"):
            raise RuntimeError("the connection is closed")
        return super().write(spark, rows, labels)


class TakesTheFirstForDone(Memory):
    """Finds the first batch before any write."""

    def find(self, spark: SparkSession, label: Label, identity: Identity) -> Written | None:
        if not self._kept.commits and label.batch.number == 1:
            return Written(rows=0)
        return super().find(spark, label, identity)


class FindsWithoutCount(Memory):
    """Remembers a batch without its number of rows."""

    def find(self, spark: SparkSession, label: Label, identity: Identity) -> Written | None:
        found = super().find(spark, label, identity)
        return Written(rows=1, version=found.version) if found and found.rows else found


class ComparesNumbers(Memory):
    """Compares only the lane and the number of a batch."""

    def write(self, spark: SparkSession, rows: BatchRows, labels: Sequence[Label]) -> Written:
        written = super().write(spark, rows, labels)
        self.__dict__.setdefault("numbers", []).append((labels[0].batch.lane, labels[0].batch.number, written))
        return written

    def find(self, spark: SparkSession, label: Label, identity: Identity) -> Written | None:
        wanted = (label.batch.lane, label.batch.number)
        by_number = (each for *seen, each in self.__dict__.get("numbers", []) if tuple(seen) == wanted)
        return super().find(spark, label, identity) or next(by_number, None)


class KeepsTheFirstLabel(Memory):
    """Remembers only the first label of a write."""

    def write(self, spark: SparkSession, rows: BatchRows, labels: Sequence[Label]) -> Written:
        return super().write(spark, rows, labels[:1])


class HasNoFence(Memory):
    """Accepts a late write."""

    def fence(self, spark: SparkSession, token: str) -> None:
        """Do nothing."""


class FenceForgets(Memory):
    """Forgets all labels at a fence."""

    def fence(self, spark: SparkSession, token: str) -> None:
        super().fence(spark, token)
        self.__dict__["forgets"] = True

    def find(self, spark: SparkSession, label: Label, identity: Identity) -> Written | None:
        return None if self.__dict__.get("forgets") else super().find(spark, label, identity)


FAULTS = {
    LosesRows: "test_every_row_of_every_partition_arrives_and_is_counted",
    RoundsDecimals: "test_values_keep_their_type_and_value",
    RenamesColumns: "test_columns_may_have_any_name",
    NeedsARow: "test_an_empty_frame_is_written_as_zero_rows",
    Tears: "test_a_write_that_fails_leaves_nothing",
    SkipsSameRows: "test_equal_rows_of_another_batch_are_written_too",
    SkipsLowerNumbers: "test_batches_may_come_in_any_order",
    OneThreadOnly: "test_threads_write_at_the_same_time",
    OpensAnew: "test_opening_again_changes_nothing",
    SharesItsConnection: "test_each_open_destination_has_a_separate_state",
    TakesTheFirstForDone: "test_a_batch_that_was_not_written_is_not_found",
    FindsWithoutCount: "test_a_written_batch_is_found_with_its_count",
    ComparesNumbers: "test_another_plan_of_the_same_batch_is_not_found",
    KeepsTheFirstLabel: "test_each_of_several_labels_is_found",
    HasNoFence: "test_a_write_that_began_before_a_fence_does_not_land",
    FenceForgets: "test_a_fence_keeps_earlier_rows_and_admits_later_writes",
}
CHECKS = [name for name in dir(Suite) if name.startswith("test_")]


@pytest.mark.spark
@pytest.mark.parametrize(("double", "check"), FAULTS.items())
def test_a_fault_is_found_by_its_check(spark: SparkSession, double: type[Memory], check: str) -> None:
    """A correct destination passes all checks, as `test_memory.py` shows."""
    with pytest.raises((Exception, pytest.fail.Exception)):
        getattr(Suite(), check)(spark, double())


def test_every_check_has_a_fault() -> None:
    """Each check fails for at least one fault, and each double is in the table of faults."""
    assert set(CHECKS) == set(FAULTS.values())
    assert set(Memory.__subclasses__()) & {each for each in globals().values() if isinstance(each, type)} == set(FAULTS)
