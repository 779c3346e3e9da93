"""Tests that every origin must pass. Inherit `OriginConformance`, define how your origin is made, and run pytest.

The tests need a fixture `spark`, a Spark session.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone

from origins.batch import Batch, Json, Limits, Span
from origins.capabilities import FetchesAhead, ReactsToCommits, complete_schema
from origins.errors import OriginError
from origins.lazy import DataFrame, Row, SparkSession
from origins.nack import REFUSED
from origins.origin import BATCH, PLACE, Origin, Progress

_ENOUGH = 1_000
"""An upper bound for the number of batches of an origin in a test."""


class OriginConformance(ABC):
    """The promises of `origins.origin.Origin`. Each test gets a new instance, and so separate data."""

    @abstractmethod
    def origin(self) -> Origin:
        """Return a new object for the origin. At least three batches must be waiting under some of the limits."""

    def limits(self) -> Sequence[Limits]:
        """Return the limits to plan by, only such as the origin applies: first no limit, last the narrowest."""
        return [Limits(), *(Limits(**{bound: size}) for bound in sorted(self.origin().binds) for size in (2, 1))]

    def more(self) -> None:
        """Add rows that wait for a batch. It does nothing if that is impossible."""
        return

    def spoil(self, batch: Batch) -> None:
        """Change the source of the batch. It is called only for an origin that `FetchesAhead`."""
        raise NotImplementedError

    def test_batches_have_every_row_once_with_any_limits(self, spark: SparkSession) -> None:
        """One large batch and many small ones carry the same rows. No row is left out, and none is carried twice."""
        whole, *others = [
            [row for batch in self._plan_batches(spark, self.origin(), limits) for row in self._read_rows(spark, batch)]
            for limits in self.limits()
        ]
        assert whole
        assert all(Counter(rows) == Counter(whole) for rows in others)

    def test_narrow_limits_make_at_least_three_batches_and_are_kept(self, spark: SparkSession) -> None:
        """A batch has no more rows than its limit. Without small batches the other tests would show nothing."""
        planned = {limits: list(self._plan_batches(spark, self.origin(), limits)) for limits in self.limits()}
        assert max(map(len, planned.values())) >= 3
        if "rows" in self.origin().binds:
            bounded = [(batch, limits.rows) for limits, batches in planned.items() for batch in batches if limits.rows]
            assert all(len(self._read_rows(spark, batch)) <= rows for batch, rows in bounded)

    def test_without_limits_a_lane_gives_one_batch(self, spark: SparkSession) -> None:
        """With `batch: whole` and no limits, an origin that supports it gives each lane one batch."""
        origin = self.origin()
        whole = replace(origin, batch="whole") if origin.whole_by == "batch: whole" else origin
        backlog, most = origin.survey(spark, Progress()), _ENOUGH if whole.may_give_several() else 1
        for lane in origin.lane_names():
            start, batches = None, 0
            while (span := backlog.take(lane, start, Limits())) is not None:
                start, batches = span.end, batches + 1
            assert batches <= most

    def test_a_batch_reads_the_same_again(self, spark: SparkSession) -> None:
        """The batch reads the same now or after a crash, by the object that planned it or by another."""
        origin = self.origin()
        for batch in self._plan_batches(spark, origin, self.limits()[-1]):
            first = Counter(map(str, origin.fetch(spark, [batch]).frame().collect()))
            assert Counter(map(str, origin.fetch(spark, [batch]).frame().collect())) == first
            assert Counter(map(str, self.origin().fetch(spark, [batch]).frame().collect())) == first

    def test_batches_fetched_together_have_the_same_rows(self, spark: SparkSession) -> None:
        """An origin that fetches several batches in one frame marks each row with its batch."""
        origin = self.origin()
        batches = list(self._plan_batches(spark, origin, self.limits()[-1]))
        if not (isinstance(origin, FetchesAhead) and origin.joins(batches)):
            return
        frame = origin.fetch(spark, batches).frame()
        alone = [_count_values(origin.fetch(spark, [batch], places=True).frame()) for batch in batches]
        assert [_count_values(frame.where(f"{BATCH} = {at}")) for at in range(len(batches))] == alone
        assert _count_values(frame) == sum(alone, Counter())

    def test_counted_rows_equal_read_rows(self, spark: SparkSession) -> None:
        """If an origin knows the number of rows of a batch, or gives them to Spark itself, Spark reads that number."""
        origin = self.origin()
        for batch in self._plan_batches(spark, origin, self.limits()[-1]):
            for places in (False, True):
                rows = origin.fetch(spark, [batch], places=places)
                read = rows.frame().count()
                assert rows.count() in (None, read)
                assert rows.count_given() in (None, read)
                parts = rows.count_parts()
                if places and parts is not None:
                    there = rows.frame().select(f"{PLACE}.part", f"{PLACE}.block", f"{PLACE}.row").collect()
                    numbered = [(part, 0, row) for part, count in parts.items() for row in range(count)]
                    assert sorted(tuple(each) for each in there) == sorted(numbered)

    def test_rows_read_in_this_process_equal_rows_read_by_spark(self, spark: SparkSession) -> None:
        """The rows have the same types in Arrow, too."""
        origin = self.origin()
        for batch in self._plan_batches(spark, origin, self.limits()[-1]):
            table = origin.fetch(spark, [batch]).table()
            found = origin.fetch(spark, [batch]).frame().drop(REFUSED).toArrow()
            assert table is None or table.schema.equals(found.schema)
            assert table is None or Counter(map(str, table.to_pylist())) == Counter(map(str, found.to_pylist()))

    def test_a_batch_survives_the_ledger(self, spark: SparkSession) -> None:
        """The span is JSON.

        A span that was read back from JSON gives the same rows, and the next batch continues from it.
        """
        origin = self.origin()
        backlog, schema, limits = origin.survey(spark, Progress()), self._schema(spark, origin), self.limits()[-1]
        for lane in origin.lane_names():
            span = backlog.take(lane, None, limits)
            if span is None:
                continue
            body = json.loads(json.dumps([span.start, span.end, list(span.parts)]))
            again = Span(start=body[0], end=body[1], parts=tuple(body[2]), label=span.label)
            one, other = (_make_batch(lane, each, schema) for each in (span, again))
            assert self._read_rows(spark, one) == self._read_rows(spark, other)
            assert _end(backlog.take(lane, again.end, limits)) == _end(backlog.take(lane, span.end, limits))

    def test_planning_leaves_no_trace(self, spark: SparkSession) -> None:
        """The same call gives the same plan, so a plan that was dropped can be made again."""
        backlog, limits = self.origin().survey(spark, Progress()), self.limits()[-1]
        for lane in self.origin().lane_names():
            assert backlog.take(lane, None, limits) == backlog.take(lane, None, limits)

    def test_the_next_run_continues_after_the_committed_rows(self, spark: SparkSession) -> None:
        """If an origin knows what was carried, it gives the rest, or nothing if everything was carried."""
        limits = self.limits()[-1]
        batches = list(self._plan_batches(spark, self.origin(), limits))
        for carried in (batches[:1], batches):
            progress = Progress(
                offsets={batch.lane: batch.span.end for batch in carried},
                parts=[part for batch in carried for part in batch.span.parts],
            )
            rest = [
                row
                for batch in self._plan_batches(spark, self.origin(), limits, progress)
                for row in self._read_rows(spark, batch)
            ]
            expected = [row for batch in batches[len(carried) :] for row in self._read_rows(spark, batch)]
            assert Counter(rest) == Counter(expected)

    def test_a_planned_batch_does_not_grow(self, spark: SparkSession) -> None:
        """Rows that arrive after the plan belong to a later batch."""
        batches = list(self._plan_batches(spark, self.origin(), self.limits()[0]))
        before = [self._read_rows(spark, batch) for batch in batches]
        self.more()
        assert [self._read_rows(spark, batch) for batch in batches] == before

    def test_a_batch_that_was_fetched_early_is_checked_in_time(self, spark: SparkSession) -> None:
        """Rows that were fetched early equal those fetched at the batch's turn.

        A change of the source since then is an error.
        """
        origin = self.origin()
        if not isinstance(origin, FetchesAhead):
            return
        first, second, *_ = self._plan_batches(spark, origin, self.limits()[-1])
        early = origin.fetch(spark, [second], places=True).frame()
        assert self._read_rows(spark, first)
        origin.check(spark, second)
        late = origin.fetch(spark, [second], places=True).frame()
        assert Counter(map(str, early.collect())) == Counter(map(str, late.collect()))
        self.spoil(second)
        try:
            origin.check(spark, second)
        except OriginError:
            return
        raise AssertionError("what the batch is read from has changed, and `check` does not say so")

    def test_rows_have_the_planned_columns(self, spark: SparkSession) -> None:
        """The columns equal the batch's schema, in its order and with its types. Only requested columns are added."""
        batch = next(self._plan_batches(spark, self.origin(), Limits()))
        pinned = [(field["name"], field["type"]) for field in json.loads(batch.schema)["fields"]]
        for places, beside in ((False, set()), (True, {PLACE})):
            fields = json.loads(self.origin().fetch(spark, [batch], places=places).frame().schema.json())["fields"]
            assert [
                (field["name"], field["type"]) for field in fields if field["name"] not in (PLACE, REFUSED)
            ] == pinned
            assert {field["name"] for field in fields} - {name for name, _ in pinned} - {REFUSED} == beside

    def test_every_row_has_a_unique_place(self, spark: SparkSession) -> None:
        """Each place is in one of the batch's parts. The rows of a block have consecutive numbers."""
        first, *_, last = self.limits()
        batches = [*self._plan_batches(spark, self.origin(), first), *self._plan_batches(spark, self.origin(), last)]
        for batch in batches:
            places = [row[PLACE] for row in self.origin().fetch(spark, [batch], places=True).frame().collect()]
            blocks: dict[tuple[str, int], list[int]] = {}
            for place in places:
                blocks.setdefault((place.part, place.block), []).append(place.row)
            assert {place.part for place in places} <= set(self.origin().parts(batch))
            for rows in map(sorted, blocks.values()):
                assert rows == list(range(rows[0], rows[0] + len(rows))), "number the rows of a block without gaps"

    def test_the_order_of_rows_does_not_depend_on_limits(self, spark: SparkSession) -> None:
        """Ordered by their places, the rows of a lane have the same order in one batch and in many."""
        orders = []
        for limits in self.limits():
            lanes: dict[str, list[str]] = {}
            for batch in self._plan_batches(spark, self.origin(), limits):
                lanes.setdefault(batch.lane, []).extend(self._read_rows(spark, batch))
            orders.append(lanes)
        for lane, whole in orders[0].items():
            for rows in (order[lane] for order in orders[1:]):
                assert [row for row in rows if row in whole] == [row for row in whole if row in rows]

    def test_a_repeated_commit_notice_changes_nothing(self, spark: SparkSession) -> None:
        """After a crash, the origin may be notified again that a batch is committed, and this may be another object."""
        batches = list(self._plan_batches(spark, self.origin(), self.limits()[-1]))
        for origin in (self.origin(), self.origin()):
            if isinstance(origin, ReactsToCommits):
                origin.committed(spark, batches[0])
        assert any(self._read_rows(spark, batch) for batch in batches[1:])

    def _schema(self, spark: SparkSession, origin: Origin) -> str:
        schema = origin.columns(spark, origin.survey(spark, Progress()))
        assert schema is not None
        return complete_schema(origin, schema)

    def _plan_batches(
        self, spark: SparkSession, origin: Origin, limits: Limits, progress: Progress | None = None
    ) -> Iterator[Batch]:
        schema = self._schema(spark, origin)
        backlog = origin.survey(spark, progress or Progress())
        for lane in origin.lane_names():
            start = progress.offsets.get(lane) if progress else None
            for number in range(1, _ENOUGH):
                span = backlog.take(lane, start, limits)
                if span is None:
                    break
                yield _make_batch(lane, span, schema, number)
                start = span.end

    def _read_rows(self, spark: SparkSession, batch: Batch) -> list[str]:
        """Return the rows of a batch as text, in the order of their places."""
        origin = self.origin()
        order = {part: index for index, part in enumerate(origin.parts(batch))}

        def place(row: Row) -> tuple[int, int, int]:
            return order.get(row[PLACE].part, len(order)), row[PLACE].block, row[PLACE].row

        rows = sorted(origin.fetch(spark, [batch], places=True).frame().collect(), key=place)
        return [str(tuple(value for name, value in row.asDict().items() if name != PLACE)) for row in rows]


def _count_values(frame: DataFrame) -> Counter[str]:
    rows = [row.asDict() for row in frame.drop(BATCH, PLACE).collect()]
    return Counter(str({**row, REFUSED: row.get(REFUSED) is not None}) for row in rows)


def _make_batch(lane: str, span: Span, schema: str, number: int = 1) -> Batch:
    return Batch(
        pipeline="conformance",
        run="run",
        origin="origin",
        lane=lane,
        number=number,
        plan=f"{lane}-{number}",
        span=span,
        schema=schema,
        time=datetime(2026, 1, 1, tzinfo=timezone.utc),
    )


def _end(span: Span | None) -> Json:
    return None if span is None else span.end
