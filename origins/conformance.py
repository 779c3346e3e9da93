"""What every origin must do, as tests: inherit `OriginConformance`, say how yours is made, and run pytest.

The tests ask for a fixture `spark`, a Spark session.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructType

from origins.batch import JSON, Batch, Limits, Span
from origins.errors import OriginError
from origins.nack import REFUSED
from origins.names import quoted
from origins.origin import BATCH, PLACE, Origin, Progress
from origins.parquet_here import pieces

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_ENOUGH = 1_000
"""No origin in a test has more batches than this."""


class OriginConformance(ABC):
    """The promises of `origins.origin.Origin`. Every test gets an instance, and so data, of its own."""

    @abstractmethod
    def origin(self) -> Origin:
        """The origin, with at least three batches waiting under some limits; each call gives another object."""

    def limits(self) -> Sequence[Limits]:
        """Limits to plan by, those that the origin keeps to: first none, last the narrowest."""
        return [Limits(), *(Limits(**{bound: size}) for bound in sorted(self.origin().binds) for size in (2, 1))]

    def more(self) -> None:
        """Let more wait than before. Does nothing where that cannot be."""
        return

    def spoil(self, batch: Batch) -> None:
        """Change what the batch is read from. Asked only of origins that say `foresees`."""
        raise NotImplementedError

    def test_batches_hold_every_row_once_whatever_their_limits(self, spark: SparkSession) -> None:
        """The same rows are carried by one large batch and by many small ones, none left out and none twice."""
        whole, *others = [self._rows(spark, limits) for limits in self.limits()]
        assert whole
        assert all(Counter(rows) == Counter(whole) for rows in others)

    def test_narrow_limits_make_at_least_three_batches_and_are_kept(self, spark: SparkSession) -> None:
        """A batch has no more rows than it may; and without small batches nothing here is tried."""
        planned = {limits: list(self._planned(spark, self.origin(), limits)) for limits in self.limits()}
        assert max(map(len, planned.values())) >= 3
        if "rows" in self.origin().binds:
            bounded = [(batch, limits.rows) for limits, batches in planned.items() for batch in batches if limits.rows]
            assert all(len(self._read(spark, batch)) <= rows for batch, rows in bounded)

    def test_all_that_waits_is_one_batch_where_that_is_promised(self, spark: SparkSession) -> None:
        """Without limits an origin that says so of itself with `batch: whole` gives each lane one batch."""
        origin = self.origin()
        whole = replace(origin, batch="whole") if origin.whole_by == "batch: whole" else origin
        backlog, most = origin.survey(spark, Progress()), _ENOUGH if whole.may_give_several() else 1
        for lane in origin.lane_names():
            start, batches = None, 0
            while (span := backlog.take(lane, start, Limits())) is not None:
                start, batches = span.end, batches + 1
            assert batches <= most

    def test_a_batch_reads_the_same_again(self, spark: SparkSession) -> None:
        """Now or after a crash, by the object that planned it or by another."""
        origin = self.origin()
        for batch in self._planned(spark, origin, self.limits()[-1]):
            first = Counter(map(str, origin.fetch(spark, batch).collect()))
            assert Counter(map(str, origin.fetch(spark, batch).collect())) == first
            assert Counter(map(str, self.origin().fetch(spark, batch).collect())) == first

    def test_several_batches_at_once_are_the_same_batches(self, spark: SparkSession) -> None:
        """An origin that fetches them in one frame says of each row which batch it is of."""
        origin = self.origin()
        batches = list(self._planned(spark, origin, self.limits()[-1]))
        frame = origin.fetch_several(spark, batches)
        if frame is None:
            return
        alone = [_content(origin.fetch(spark, batch, places=True)) for batch in batches]
        assert [_content(frame.where(f"{BATCH} = {at}")) for at in range(len(batches))] == alone
        assert _content(frame) == sum(alone, Counter())

    def test_rows_that_it_has_counted_are_those_that_it_reads(self, spark: SparkSession) -> None:
        """An origin that knows how many rows a batch has reads as many."""
        origin = self.origin()
        for batch in self._planned(spark, origin, self.limits()[-1]):
            assert origin.count(batch) in (None, origin.fetch(spark, batch).count())

    def test_files_that_are_copied_hold_the_rows_that_it_reads(self, spark: SparkSession) -> None:
        """In their places, where it says that the rows lie in files of this machine as they are."""
        origin = self.origin()
        for batch in self._planned(spark, origin, self.limits()[-1]):
            files = origin.files_here(spark, batch)
            schema = StructType.fromJson(json.loads(batch.schema))
            fetched = origin.fetch(spark, batch, places=True).select(PLACE, *map(quoted, schema.names))
            rows = fetched.toArrow().to_pylist() if files else []
            there = {(*row.pop(PLACE).values(), repr(row)) for row in rows}
            here = {
                (part, 0, number, repr(row))
                for part, file in files.items()
                for number, row in enumerate(pa.concat_tables(pieces(file, schema, [])).to_pylist())
            }
            assert here == there

    def test_a_batch_survives_the_ledger(self, spark: SparkSession) -> None:
        """Its span is JSON, and what comes back from JSON reads the same and is gone on from."""
        origin = self.origin()
        backlog, schema, limits = origin.survey(spark, Progress()), self._schema(spark, origin), self.limits()[-1]
        for lane in origin.lane_names():
            span = backlog.take(lane, None, limits)
            if span is None:
                continue
            body = json.loads(json.dumps([span.start, span.end, list(span.parts)]))
            again = Span(start=body[0], end=body[1], parts=tuple(body[2]), label=span.label)
            one, other = (_batch(lane, each, schema) for each in (span, again))
            assert self._read(spark, one) == self._read(spark, other)
            assert _end(backlog.take(lane, again.end, limits)) == _end(backlog.take(lane, span.end, limits))

    def test_planning_leaves_no_trace(self, spark: SparkSession) -> None:
        """The same question gets the same answer: a plan that was dropped is made again."""
        backlog, limits = self.origin().survey(spark, Progress()), self.limits()[-1]
        for lane in self.origin().lane_names():
            assert backlog.take(lane, None, limits) == backlog.take(lane, None, limits)

    def test_the_next_run_goes_on_behind_what_was_carried(self, spark: SparkSession) -> None:
        """An origin that is told what was carried gives the rest, and nothing when all of it was."""
        limits = self.limits()[-1]
        batches = list(self._planned(spark, self.origin(), limits))
        for carried in (batches[:1], batches):
            progress = _progress(carried)
            rest = [
                row
                for batch in self._planned(spark, self.origin(), limits, progress)
                for row in self._read(spark, batch)
            ]
            expected = [row for batch in batches[len(carried) :] for row in self._read(spark, batch)]
            assert Counter(rest) == Counter(expected)

    def test_a_planned_batch_does_not_grow(self, spark: SparkSession) -> None:
        """What arrives after the plan belongs to a later batch."""
        batches = list(self._planned(spark, self.origin(), self.limits()[0]))
        before = [self._read(spark, batch) for batch in batches]
        self.more()
        assert [self._read(spark, batch) for batch in batches] == before

    def test_a_batch_that_was_fetched_early_is_checked_in_time(self, spark: SparkSession) -> None:
        """Its rows are those that it has in its turn, and what has changed since is an error."""
        origin = self.origin()
        if not origin.foresees:
            return
        first, second, *_ = self._planned(spark, origin, self.limits()[-1])
        early = origin.fetch(spark, second, places=True)
        assert self._read(spark, first)
        origin.check(spark, second)
        late = origin.fetch(spark, second, places=True)
        assert Counter(map(str, early.collect())) == Counter(map(str, late.collect()))
        self.spoil(second)
        try:
            origin.check(spark, second)
        except OriginError:
            return
        raise AssertionError("what the batch is read from has changed, and `check` does not say so")

    def test_rows_have_the_columns_that_were_pinned(self, spark: SparkSession) -> None:
        """Those of the batch's schema, in its order and with its types; beside them only what was asked for."""
        batch = next(self._planned(spark, self.origin(), Limits()))
        pinned = [(field["name"], field["type"]) for field in json.loads(batch.schema)["fields"]]
        for places, beside in ((False, set()), (True, {PLACE})):
            fields = json.loads(self.origin().fetch(spark, batch, places=places).schema.json())["fields"]
            assert [
                (field["name"], field["type"]) for field in fields if field["name"] not in (PLACE, REFUSED)
            ] == pinned
            assert {field["name"] for field in fields} - {name for name, _ in pinned} - {REFUSED} == beside

    def test_every_row_has_a_place_of_its_own(self, spark: SparkSession) -> None:
        """In one of the batch's parts; in a block rows have consecutive numbers."""
        first, *_, last = self.limits()
        batches = [*self._planned(spark, self.origin(), first), *self._planned(spark, self.origin(), last)]
        for batch in batches:
            places = [row[PLACE] for row in self.origin().fetch(spark, batch, places=True).collect()]
            blocks: dict[tuple[str, int], list[int]] = {}
            for place in places:
                blocks.setdefault((place.part, place.block), []).append(place.row)
            assert {place.part for place in places} <= set(self.origin().parts(batch))
            assert all(sorted(rows) == list(range(min(rows), min(rows) + len(rows))) for rows in blocks.values())

    def test_rows_stand_in_one_order_whatever_the_limits(self, spark: SparkSession) -> None:
        """By their places the rows of a lane come in the same order in one batch and in many."""
        orders = []
        for limits in self.limits():
            lanes: dict[str, list[str]] = {}
            for batch in self._planned(spark, self.origin(), limits):
                lanes.setdefault(batch.lane, []).extend(self._read(spark, batch))
            orders.append(lanes)
        for lane, whole in orders[0].items():
            for rows in (order[lane] for order in orders[1:]):
                assert [row for row in rows if row in whole] == [row for row in whole if row in rows]

    def test_being_told_twice_is_being_told_once(self, spark: SparkSession) -> None:
        """That a batch is committed may come again after a crash, and to another object."""
        batches = list(self._planned(spark, self.origin(), self.limits()[-1]))
        for _ in range(2):
            self.origin().committed(spark, batches[0])
        assert any(self._read(spark, batch) for batch in batches[1:])

    def _schema(self, spark: SparkSession, origin: Origin) -> str:
        schema = origin.columns(spark, origin.survey(spark, Progress()))
        assert schema is not None
        return origin.completed(schema)

    def _planned(
        self, spark: SparkSession, origin: Origin, limits: Limits, progress: Progress | None = None
    ) -> Iterator[Batch]:
        """All batches that wait, lane by lane."""
        schema = self._schema(spark, origin)
        backlog = origin.survey(spark, progress or Progress())
        for lane in origin.lane_names():
            start = progress.offsets.get(lane) if progress else None
            for number in range(1, _ENOUGH):
                span = backlog.take(lane, start, limits)
                if span is None:
                    break
                yield _batch(lane, span, schema, number)
                start = span.end

    def _rows(self, spark: SparkSession, limits: Limits) -> list[str]:
        return [row for batch in self._planned(spark, self.origin(), limits) for row in self._read(spark, batch)]

    def _read(self, spark: SparkSession, batch: Batch) -> list[str]:
        """The rows of a batch as text, in the order of their places."""
        origin = self.origin()
        order = {part: index for index, part in enumerate(origin.parts(batch))}

        def place(row: Row) -> tuple[int, int, int]:
            return order.get(row[PLACE].part, len(order)), row[PLACE].block, row[PLACE].row

        rows = sorted(origin.fetch(spark, batch, places=True).collect(), key=place)
        return [str(tuple(value for name, value in row.asDict().items() if name != PLACE)) for row in rows]


def _content(frame: DataFrame) -> Counter[str]:
    """The values of all rows, and whether each is refused."""
    rows = [row.asDict() for row in frame.drop(BATCH, PLACE).collect()]
    return Counter(str({**row, REFUSED: row.get(REFUSED) is not None}) for row in rows)


def _batch(lane: str, span: Span, schema: str, number: int = 1) -> Batch:
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


def _progress(batches: Sequence[Batch]) -> Progress:
    """What the ledger would say when these batches are settled."""
    return Progress(
        offsets={batch.lane: batch.span.end for batch in batches},
        parts=[part for batch in batches for part in batch.span.parts],
    )


def _end(span: Span | None) -> JSON:
    return None if span is None else span.end
