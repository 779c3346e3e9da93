"""What a run decides when it opens, before it reads a row. Without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

import pytest

from destinations.memory import Memory as MemoryTable
from origins.batch import JSON, Backlog, Batch, Limits, Span
from origins.batch_rows import BatchRows
from origins.capabilities import KeepsParts
from origins.origin import Origin, Progress
from runners.model.entry import Entry
from runners.model.spec import BatchOptions
from runners.pipeline import Pipeline
from runners.running.opening import (
    find_recorded_schema,
    find_schema,
    make_candidate,
    make_chain,
    make_limits,
    survey_origin,
)
from runners.state.journal import Journal
from runners.ways.stage_chain import name_destinations
from runners.ways.straight import list_prepare_reasons
from stages.cast import Cast
from stages.columns import WithColumns
from stages.conditions import Filter
from stages.stage import Stage
from tests.runners.state.ledger.memory_ledger import MemoryLedger
from tests.runners.state.ledger.test_progress import PLANNED, make_settle_entry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stages.rows import Rows

SPARK = cast("SparkSession", None)
GOOD = Cast({"amount": "int"})


class Nothing(Backlog):
    """A backlog without waiting rows."""

    def take(self, lane: str, start: JSON, limits: Limits) -> Span | None:
        return None


@dataclass(frozen=True, kw_only=True)
class Numbers(Origin):
    """An origin that records the progress it gets."""

    told: list[Progress]
    schema: str | None = "found out"
    finds_out: bool = False

    @property
    def infers(self) -> bool:
        return self.finds_out

    def survey(self, spark: SparkSession, progress: Progress) -> Backlog:
        self.told.append(progress)
        return Nothing()

    def columns(self, spark: SparkSession, backlog: Backlog) -> str | None:
        return self.schema

    def fetch(self, spark: SparkSession, batches: Sequence[Batch], *, places: bool = False) -> BatchRows:
        raise AssertionError("nothing is read when a run opens")


@dataclass(frozen=True, kw_only=True)
class Parts(Numbers, KeepsParts):
    """An origin that keeps progress by parts."""

    def find_changed(self, parts: Sequence[JSON]) -> Mapping[str, str]:
        return {}

    def make_span(self, spark: SparkSession, part: str) -> Span | None:
        return None

    def list_paths(self, part: str) -> Sequence[str]:
        return ()


@dataclass(frozen=True, kw_only=True)
class Once(Numbers):
    """An origin whose rows differ when they are read again."""

    repeatable: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class Judging(Stage):
    """A stage that must see the batch before it is delivered."""

    @property
    def prepares(self) -> str:
        return "judges the whole batch"

    def apply(self, rows: Rows) -> Rows:
        raise AssertionError("nothing is read when a run opens")


def make_pipeline(
    *, origin: Origin | None = None, destinations: int = 1, stages: Sequence[Stage] = (GOOD,)
) -> Pipeline:
    tables = [MemoryTable(name=name) for name in "abc"[:destinations]]
    return Pipeline(name="orders", origin=origin or Numbers(told=[]), destinations=tables, stages=stages)


def list_reasons(given: Pipeline) -> list[str]:
    (origin,) = given.every_origin
    destinations = name_destinations(given.every_destination)
    candidate = make_candidate(given, origin, make_chain(given, origin, destinations), destinations)
    return list(list_prepare_reasons(candidate))


def make_journal(*entries: Entry) -> Journal:
    journal = Journal(MemoryLedger())
    journal.acquire({"pipeline": "orders"})
    for entry in entries:
        journal.record(entry)
    return journal


def test_an_origin_with_other_rows_on_a_second_read_is_a_reason_to_prepare() -> None:
    """The reason names the origin."""
    given = make_pipeline(origin=Once(told=[], name="queue"))
    assert list_reasons(given) == ["queue may give other rows when a batch is read again"]


@pytest.mark.parametrize(
    ("stage", "reason"),
    [
        (WithColumns({"dice": "rand()"}), "withcolumns may answer differently when it is run again"),
        (Filter("amount > rand()"), "filter may answer differently when it is run again"),
        (Judging(), "judging judges the whole batch"),
    ],
)
def test_a_stage_is_a_reason_to_prepare(stage: Stage, reason: str) -> None:
    """Such a stage gives other rows when it runs again, or must see the whole batch."""
    assert list_reasons(make_pipeline(stages=[stage])) == [reason]


def test_sizes_become_limits() -> None:
    """Bytes have a unit. A size that is not given is no limit."""
    assert make_limits(BatchOptions(rows=5, bytes="2KiB", files=3)) == Limits(rows=5, bytes=2048, files=3)
    assert make_limits(BatchOptions(rows=None, bytes=None, files=None)) == Limits()


def test_an_origin_gets_the_offsets_of_its_lanes() -> None:
    """They have the origin's names of the lanes. Lanes without a batch are omitted."""
    told: list[Progress] = []
    given = make_pipeline(origin=Numbers(told=told, lanes=2))
    survey_origin(given, given.every_origin[0], make_journal(PLANNED, make_settle_entry()), SPARK)
    assert told == [Progress(offsets={"0": make_settle_entry().body["offset"]}, parts=[])]


def test_an_origin_that_keeps_parts_gets_all_processed_parts() -> None:
    """They come from all settled batches of its lanes."""
    told: list[Progress] = []
    given = make_pipeline(origin=Parts(told=told))
    survey_origin(given, given.every_origin[0], make_journal(PLANNED, make_settle_entry()), SPARK)
    assert list(told[0].parts) == list(PLANNED.body["span"]["parts"])


def make_opened_journal(schema: str | None) -> Journal:
    return make_journal(Entry(kind="open", body={"pipeline": "orders", "origins": {"origin": {"schema": schema}}}))


def test_an_inferred_schema_is_kept() -> None:
    """A later run uses it, and does not infer another schema."""
    origin = Numbers(told=[], finds_out=True)
    known = find_recorded_schema(origin, make_opened_journal("of the first run"))
    assert find_schema(origin, known, SPARK, Nothing()) == "of the first run"


def test_a_given_schema_applies_at_once() -> None:
    """It replaces the schema of an earlier run."""
    origin = Numbers(told=[], schema="given now")
    known = find_recorded_schema(origin, make_opened_journal("given before"))
    assert find_schema(origin, known, SPARK, Nothing()) == "given now"


def test_there_is_no_schema_without_rows_to_infer_it_from() -> None:
    """No schema was recorded before."""
    origin = Numbers(told=[], schema=None, finds_out=True)
    assert find_schema(origin, find_recorded_schema(origin, make_journal()), SPARK, Nothing()) is None
