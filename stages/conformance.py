"""Tests that every stage must pass: subclass `StageConformance`, and define the stage and the rows.

class TestMine(StageConformance):
    schema = "a int"
    rows = [(1,), (None,)]

    def stage(self):
        return Mine(...)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, ClassVar

from pyspark.errors import PySparkException
from pyspark.sql import Row

from origins.errors import get_raised_words
from origins.lazy import DataFrame, F, SparkSession
from origins.nack import REFUSED, make_reason, restore
from origins.origin import PLACE
from stages.bisection import MARK
from stages.rows import STATE, VERDICT, Rows, complete_verdicts, enter_stage, make_rows, place_rows, take_clean
from stages.stage import Stage, apply_stage

LABELS: Mapping[str, str | int | datetime] = {
    "origin": "origin",
    "lane": "0",
    "number": 7,
    "run": "run",
    "batch_time": datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc),
}


class StageConformance:
    """Tests that send the same rows through a stage in both ways. The results must agree row by row."""

    schema: ClassVar[str]
    rows: ClassVar[Sequence[tuple[Any, ...]]]
    """Rows of which the stage keeps some; with NULLs, and with some that it refuses if it can."""
    raising: ClassVar[Sequence[tuple[Any, ...]]] = ()
    """Rows on which the stage's own expressions raise."""

    def stage(self) -> Stage:
        """Return a new instance of the stage."""
        raise AssertionError("a suite says which stage it is for")

    def test_both_ways_keep_the_same_rows(self, spark: SparkSession) -> None:
        """A batch that is decided and a straight batch keep the same rows, columns and types.

        The rows that the first one refuses are left out of both. A stage that needs places has only one way.
        """
        marked = self._run_marked(spark, self.rows)
        kept, refused, _ = collect_decided(marked)
        straight = self._run_straight(spark, [row for index, row in enumerate(self.rows) if index not in refused])
        if not self.stage().needs_places:
            assert Counter(map(str, kept)) == Counter(map(str, take_clean(straight).collect()))
        assert straight.names == marked.names
        assert straight.schema.simpleString() == marked.schema.simpleString()

    def test_a_straight_batch_raises_at_a_row_that_is_refused(self, spark: SparkSession) -> None:
        """It raises even if a later filter keeps no row. A successful write thus proves that no row was refused."""
        _, refused, _ = collect_decided(self._run_marked(spark, self.rows))
        for index in refused:
            straight = self._run_straight(spark, [self.rows[index]])
            assert does_raise_mark(take_clean(straight))
            assert does_raise_mark(take_clean(straight.filter(F.lit(False))))

    def test_every_row_is_kept_filtered_or_refused(self, spark: SparkSession) -> None:
        """No row vanishes, unless the stage returns other rows than it gets."""
        kept, refused, filtered = collect_decided(self._run_marked(spark, self.rows))
        assert self.stage().changes_rows or len(kept) + len(refused) + filtered == len(self.rows)

    def test_nothing_is_evaluated_on_a_refused_row(self, spark: SparkSession) -> None:
        """A row that was refused before keeps its state."""
        marked = self._run_marked(spark, [*self.rows, *self.raising], dead=True)
        states = {row[STATE] for row in marked.frame.select(STATE).collect()}
        assert states <= {-1}
        assert self.stage().changes_rows or states == {-1}

    def test_nothing_is_evaluated_on_a_filtered_row_of_a_clean_batch(self, spark: SparkSession) -> None:
        """No row comes back, and none is refused."""
        begun = enter_stage(self._begin_straight(spark, [*self.rows, *self.raising]), "first", 1).filter(F.lit(False))
        left = take_clean(self._apply_stage(begun)).count()
        assert left == 0 or self.stage().changes_rows

    def test_a_refused_row_is_kept_unchanged(self, spark: SparkSession) -> None:
        """The nack has the stage's name, a code and a message, and the row can be restored exactly."""
        came = spark.createDataFrame(list(self.rows), self.schema)
        back = F.expr(restore("row", came.schema)).alias("back")
        nacks = complete_verdicts(self._run_marked(spark, self.rows)).frame.where(F.col(VERDICT).isNotNull())
        found = nacks.select(f"{VERDICT}.*", F.col(PLACE)["row"].alias("at")).select("*", back).collect()
        rows = came.collect()
        for nack in found:
            assert nack["stage"] == "it"
            assert nack["code"]
            assert nack["message"]
            assert str(nack["back"]) == str(rows[nack["at"]])
            assert nack["original"] == nack["row"]

    def test_a_repeatable_stage_gives_the_same_result_again(self, spark: SparkSession) -> None:
        """Wherry may compute the batch of a repeatable stage twice."""
        first, second = (collect_decided(self._run_marked(spark, self.rows)) for _ in range(2))
        assert str(first) == str(second) or not self.stage().repeatable

    def test_the_stage_starts_no_spark_job(self, spark: SparkSession) -> None:
        """The stage is applied lazily, before any row is read."""
        begun = self._begin_straight(spark, self.rows)
        broken = begun.frame.where("raise_error('a Spark job was started') is null")
        assert self._apply_stage(begun.with_frame(broken)).names == self._run_straight(spark, []).names

    def test_an_empty_batch_gives_no_rows(self, spark: SparkSession) -> None:
        """An empty batch gives no rows, unless the stage has `changes_rows` and counts rows, for example."""
        left = take_clean(self._run_straight(spark, [])).count()
        assert left == 0 or self.stage().changes_rows

    def _begin_straight(self, spark: SparkSession, rows: Sequence[tuple[Any, ...]]) -> Rows:
        return begin_straight(spark.createDataFrame(list(rows), self.schema))

    def _apply_stage(self, rows: Rows) -> Rows:
        stage = self.stage()
        return apply_stage(stage, enter_stage(rows, "it", 2, pin=stage.pin(rows.frame.sparkSession)))

    def _run_straight(self, spark: SparkSession, rows: Sequence[tuple[Any, ...]]) -> Rows:
        return self._apply_stage(self._begin_straight(spark, rows))

    def _run_marked(self, spark: SparkSession, rows: Sequence[tuple[Any, ...]], *, dead: bool = False) -> Rows:
        return self._apply_stage(begin(spark.createDataFrame(list(rows), self.schema), dead=dead))


def begin(frame: DataFrame, *, dead: bool = False) -> Rows:
    """Return rows with a verdict each. With `dead`, every row is refused already."""
    names = tuple(name for name in frame.columns if name != REFUSED)
    begun = make_rows(place_rows(frame.coalesce(1)), names, LABELS)
    return enter_stage(begun, "first", 1).refuse(make_reason("FIRST", F.lit("first"))) if dead else begun


def begin_straight(frame: DataFrame) -> Rows:
    """Return rows that have only their state."""
    names = tuple(name for name in frame.columns if name != REFUSED)
    return make_rows(frame, names, LABELS, take_clean, explains=False)


def collect_decided(rows: Rows) -> tuple[list[Any], list[int], int]:
    """Return the kept rows, the places of the refused rows, and the number of filtered rows."""
    found = rows.frame.collect()
    kept = [tuple(row[name] for name in rows.names) for row in found if row[STATE] == 0]
    refused = [int(row[PLACE]["row"]) for row in found if row[STATE] < 0]
    shown = [Row(*rows.names)(*values) for values in kept]
    return shown, refused, sum(1 for row in found if row[STATE] > 0)


def does_raise_mark(frame: DataFrame) -> bool:
    """Return whether the frame raises the error of a straight batch at a refused row."""
    try:
        frame.collect()
    except PySparkException as error:
        return get_raised_words(error) == MARK
    return False
