"""Every kind of origin keeps its promises, and the suite finds each broken promise."""

from __future__ import annotations

import functools
import itertools
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from origins.batch import JSON, Backlog, Batch, Limits, Span
from origins.batch_rows import FrameRows
from origins.capabilities import FetchesAhead, ReactsToCommits
from origins.conformance import OriginConformance
from origins.delta import Delta
from origins.dlq import DlqEntries
from origins.errors import OriginError
from origins.files import Files
from origins.files.listing import list_files
from origins.generate import Generate
from origins.memory import Crash, End, Item, Memory
from origins.origin import BATCH, PLACE, Origin, Progress
from tests.runners.running.letterbox import append_letters, make_letters

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


class PreparedSuite(OriginConformance):
    """The suite for a kind of origin whose source is made in a folder."""

    def prepare(self, spark: SparkSession, folder: Path) -> None:
        """Make the source. It does nothing if there is nothing to make."""


class FilesConformance(PreparedSuite):
    """Four files of three lines each."""

    kind: str
    lines: Sequence[str]
    header: str = ""
    schema: str | None = "id int, name string"
    lanes = 1

    def prepare(self, spark: SparkSession, folder: Path) -> None:
        self.folder = folder
        for number, name in enumerate(("d d", "c", "b%20", "ä")):
            self.write(f"{name}.txt", number)

    def write(self, name: str, number: int) -> None:
        """Write a file of three lines, older than the next one."""
        lines = [line.format(3 * number + at) for at, line in enumerate(self.lines)]
        (self.folder / name).write_text("\n".join([*filter(None, [self.header]), *lines]))
        os.utime(self.folder / name, (1_000 + number, 1_000 + number))

    def origin(self) -> Origin:
        return Files(path=f"{self.folder}/*.txt", format=self.kind, schema=self.schema, lanes=self.lanes)

    def more(self) -> None:
        self.write("later.txt", 7)

    def spoil(self, batch: Batch) -> None:
        lengthen_file(self.folder, batch)


class JsonFilesSuite(FilesConformance):
    """Lines of JSON, one of which does not fit the schema."""

    kind = "json"
    lines = ('{{"id": {}, "name": "x"}}', '{{"id": {}}}', '{{"id": "no number {}"}}')


class CsvFilesSuite(FilesConformance):
    """Lines of CSV in two lanes, one of which does not fit the schema."""

    kind = "csv"
    header = "name,id"
    lines = ("x,{}", ",{}", "x,no number {}")
    lanes = 2


class ParquetFilesSuite(PreparedSuite):
    """Files that Spark wrote."""

    def prepare(self, spark: SparkSession, folder: Path) -> None:
        self.folder, self.spark = folder / "in", spark
        for number in range(3):
            spark.range(number * 3, number * 3 + 3, 1, 1).write.parquet(f"{self.folder}/{number}.parquet")

    def origin(self) -> Origin:
        return Files(path=f"{self.folder}/*.parquet", format="parquet", schema="id long")

    def more(self) -> None:
        self.spark.range(9, 12).write.parquet(f"{self.folder}/3.parquet")

    def spoil(self, batch: Batch) -> None:
        lengthen_file(self.folder, batch)


def lengthen_file(folder: Path, batch: Batch) -> None:
    """Append a byte to the batch's first file."""
    with (folder / list_files(batch.span.parts)[0].name).open("ab") as file:
        file.write(b"\n")


class DeltaSuite(PreparedSuite):
    """Four versions of one row each."""

    def prepare(self, spark: SparkSession, folder: Path) -> None:
        self.folder = folder / "table"
        for number in range(4):
            self.append(number)

    def append(self, number: int) -> None:
        """Add a version."""
        write_deltalake(str(self.folder), pa.table({"id": [number], "name": ["x"]}), mode="append")

    def origin(self) -> Origin:
        return Delta(path=str(self.folder))

    def more(self) -> None:
        self.append(4)


class DlqSuite(PreparedSuite):
    """Four batches with one refused row each."""

    def prepare(self, spark: SparkSession, folder: Path) -> None:
        self.folder = folder / "dlq"
        for number in range(4):
            self.refuse(number)

    def refuse(self, number: int) -> None:
        """Add a batch."""
        append_letters(self.folder, make_letters(1, plan=f"plan-{number}", original=json.dumps({"id": number})))

    def origin(self) -> Origin:
        return DlqEntries(path=str(self.folder))

    def more(self) -> None:
        self.refuse(4)


class DeltaChangesSuite(PreparedSuite):
    """An insert, an update and a delete."""

    def prepare(self, spark: SparkSession, folder: Path) -> None:
        self.folder = folder / "table"
        for statement in (
            "CREATE TABLE {t} (id int, name string) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)",
            "INSERT INTO {t} VALUES (1, 'a'), (2, 'b')",
            "UPDATE {t} SET name = 'x' WHERE id = 1",
            "DELETE FROM {t} WHERE id = 2",
        ):
            spark.sql(statement.format(t=f"delta.`{self.folder}`")).collect()

    def origin(self) -> Origin:
        return Delta(path=str(self.folder), changes=True, starting_version=1)

    def more(self) -> None:
        write_deltalake(str(self.folder), pa.table({"id": pa.array([3], pa.int32()), "name": ["x"]}), mode="append")


class GenerateSuite(PreparedSuite):
    """Seven orders in two lanes, some of them bad."""

    def origin(self) -> Origin:
        return Generate(rows=7, lanes=2, bad=0.5)


class MemorySuite(PreparedSuite):
    """Two scripts, one of which has an end in the middle."""

    def origin(self) -> Origin:
        crash = Crash()
        crash.happened = True
        items: dict[str, list[Item]] = {
            "north": [{"id": 1}, {"id": 2, "name": "x"}, crash, {"id": 3}, {"id": 4}],
            "süd": [End(), {"id": 5}, {"name": "y"}],
        }
        return Memory(items=items, schema="id int, name string")


CHECKS = [name for name in dir(OriginConformance) if name.startswith("test_")]
ONCE = [
    "test_batches_have_every_row_once_with_any_limits",
    "test_a_batch_reads_the_same_again",
    "test_a_batch_survives_the_ledger",
    "test_the_next_run_continues_after_the_committed_rows",
    "test_a_planned_batch_does_not_grow",
    "test_every_row_has_a_unique_place",
]
"""The checks that show that no row is lost or read twice."""
HERE = ["test_counted_rows_equal_read_rows", "test_rows_read_in_this_process_equal_rows_read_by_spark"]
"""The checks of what an origin knows without Spark."""
SUITES: dict[type[PreparedSuite], tuple[Sequence[str], Sequence[pytest.MarkDecorator]]] = {
    JsonFilesSuite: (CHECKS, [pytest.mark.promise("HP-04", "SS-02", "CD-27")]),
    CsvFilesSuite: ([*ONCE, *HERE], []),
    ParquetFilesSuite: ([*ONCE, *HERE], []),
    DeltaSuite: (CHECKS, []),
    DeltaChangesSuite: ([*ONCE, "test_the_order_of_rows_does_not_depend_on_limits"], [pytest.mark.long]),
    DlqSuite: (ONCE, []),
    GenerateSuite: (ONCE, [pytest.mark.promise("HP-20", "SS-14")]),
    MemorySuite: (ONCE, [pytest.mark.promise("HP-12", "HP-13")]),
}
"""The checks of each kind of origin, and the promises that they show. Two kinds show all checks.

The scenarios of `delta` read change feeds in each run of the tests, so the suite of them is long."""


@pytest.mark.connect
@pytest.mark.parametrize(
    ("suite", "check"),
    [pytest.param(suite, check, marks=marks) for suite, (checks, marks) in SUITES.items() for check in checks],
)
def test_an_origin_keeps_its_promises(
    spark: SparkSession, tmp_path: Path, suite: type[PreparedSuite], check: str
) -> None:
    """The suite is the same for all kinds."""
    kind = suite()
    kind.prepare(spark, tmp_path)
    getattr(kind, check)(spark)


SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
COUNTER = itertools.count(1)
SPOILT = -1


@dataclass(frozen=True, kw_only=True)
class Numbers(Origin, FetchesAhead, ReactsToCommits):
    """Four numbers, with one promise broken."""

    binds = frozenset({"rows"})
    fault: str
    there: list[int]
    folder: Path

    def may_give_several(self) -> bool:
        return False

    def survey(self, spark: SparkSession, progress: Progress) -> Backlog:
        return NumbersWaiting(self.fault, resumed=bool(progress.offsets))

    def columns(self, spark: SparkSession, backlog: Backlog) -> str:
        return json.dumps(SCHEMA).replace("long", "string" if self.fault == "another type" else "long")

    def joins(self, batches: Sequence[Batch]) -> bool:
        return self.fault != "another answer each time"

    def fetch(self, spark: SparkSession, batches: Sequence[Batch], *, places: bool = False) -> FrameRows:
        last = len(batches) - 1
        told = [at if self.fault != "mixes batches" else last - at for at in range(len(batches))]
        frames = [self._fetch(spark, batch, places=places) for batch in batches]
        each = [frame.selectExpr("*", f"{at} as {BATCH}") for frame, at in zip(frames, told, strict=True)]
        if not last:
            return NumbersRows(frames[0], fault=self.fault)
        return FrameRows(functools.reduce(lambda above, below: above.union(below), each))

    def _fetch(self, spark: SparkSession, batch: Batch, *, places: bool) -> DataFrame:
        start, end = _parse_number(batch.span.start), _parse_number(batch.span.end)
        numbers = self.there[start : None if self.fault == "grows" and end == 4 else end]
        if self.fault == "loses a row" and start == 2:
            numbers = numbers[1:]
        if self.fault == "another answer each time" and not places:
            numbers = [next(COUNTER) for _ in numbers]
        rows = [(number, self._place(index)) for index, number in enumerate(numbers)]
        frame = spark.createDataFrame(rows, f"id long, {PLACE} struct<part: string, block: long, row: long>")
        return frame if places else frame.drop(PLACE)

    def check(self, spark: SparkSession, batch: Batch) -> None:
        if self.there[0] == SPOILT and self.fault != "blind":
            raise OriginError("The numbers are others now.")

    def _place(self, index: int) -> tuple[str, int, int]:
        row = {"gaps": 2 * index, "backwards": 100 - index}.get(self.fault, index)
        return "elsewhere" if self.fault == "another part" else "", 0, row

    def committed(self, spark: SparkSession, batch: Batch) -> None:
        if self.fault == "hears once":
            self.there.remove(0)


FORMS = {"reads others here", "miscounts", "gives fewer"}


@dataclass(frozen=True, kw_only=True)
class NumbersRows(FrameRows):
    """The numbers of a batch in every form, one of which may be wrong. With other faults it has only a frame."""

    fault: str

    def table(self) -> pa.Table | None:
        return self._table("reads others here")

    def count(self) -> int | None:
        table = self._table("miscounts")
        return None if table is None else table.num_rows

    def count_given(self) -> int | None:
        table = self._table("gives fewer")
        return None if table is None else table.num_rows

    def _table(self, fault: str) -> pa.Table | None:
        if self.fault and self.fault not in FORMS:
            return None
        numbers = [row["id"] for row in self.rows.collect()][self.fault == fault :]
        return pa.table({"id": pa.array(numbers, pa.int64())})


class NumbersWaiting(Backlog):
    """What waits of the numbers."""

    def __init__(self, fault: str, *, resumed: bool) -> None:
        self.fault = fault
        self.deaf = fault == "deaf" and resumed

    def take(self, lane: str, start: JSON, limits: Limits) -> Span | None:
        begin = 0 if self.deaf or (self.fault == "no JSON" and isinstance(start, list)) else _parse_number(start)
        self.deaf = False
        most = limits.rows or (3 if self.fault == "breaks up" else 4)
        end = min(4, begin + most + (self.fault == "exceeds" and limits.rows == 2))
        label = str(next(COUNTER)) if self.fault == "restless" else ""
        return Span(start=start, end=(end,) if self.fault == "no JSON" else end, label=label) if end > begin else None


def _parse_number(offset: JSON) -> int:
    return offset[0] if isinstance(offset, tuple | list) else offset or 0


class NumbersConformance(OriginConformance):
    """The suite for an origin with this fault."""

    def __init__(self, fault: str, folder: Path) -> None:
        self.fault = fault
        self.there = list(range(4))
        self.folder = folder

    def origin(self) -> Origin:
        return Numbers(fault=self.fault, there=self.there, folder=self.folder)

    def more(self) -> None:
        self.there.append(99)

    def spoil(self, batch: Batch) -> None:
        self.there[0] = SPOILT


FAULTS = {
    "loses a row": "test_batches_have_every_row_once_with_any_limits",
    "exceeds": "test_narrow_limits_make_at_least_three_batches_and_are_kept",
    "breaks up": "test_without_limits_a_lane_gives_one_batch",
    "another answer each time": "test_a_batch_reads_the_same_again",
    "mixes batches": "test_batches_fetched_together_have_the_same_rows",
    "miscounts": "test_counted_rows_equal_read_rows",
    "gives fewer": "test_counted_rows_equal_read_rows",
    "reads others here": "test_rows_read_in_this_process_equal_rows_read_by_spark",
    "no JSON": "test_a_batch_survives_the_ledger",
    "restless": "test_planning_leaves_no_trace",
    "deaf": "test_the_next_run_continues_after_the_committed_rows",
    "grows": "test_a_planned_batch_does_not_grow",
    "another type": "test_rows_have_the_planned_columns",
    "gaps": "test_every_row_has_a_unique_place",
    "another part": "test_every_row_has_a_unique_place",
    "backwards": "test_the_order_of_rows_does_not_depend_on_limits",
    "blind": "test_a_batch_that_was_fetched_early_is_checked_in_time",
    "hears once": "test_a_repeated_commit_notice_changes_nothing",
}


@pytest.mark.parametrize(("fault", "check"), FAULTS.items())
def test_a_fault_is_found_by_its_check(spark: SparkSession, tmp_path: Path, fault: str, check: str) -> None:
    """An origin without a fault passes it."""
    getattr(NumbersConformance("", tmp_path / "right"), check)(spark)
    with pytest.raises((AssertionError, ValueError)):
        getattr(NumbersConformance(fault, tmp_path / "wrong"), check)(spark)


def test_every_check_has_a_fault() -> None:
    """Each check fails for at least one fault."""
    assert set(CHECKS) == set(FAULTS.values())
