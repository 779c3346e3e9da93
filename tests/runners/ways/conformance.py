"""The contract of every way of a batch, as tests.

Each way must have the outcome of rows that Spark writes, for every kind of batch. For your way, subclass the suite:

    class TestMine(WayConformance):
        way = "mine"
        carries = frozenset({"clean", "empty"})

Define a fixture `spark`, which returns a session on this machine.
"""

from __future__ import annotations

import json
import tempfile
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from string import ascii_letters
from typing import TYPE_CHECKING, Any, ClassVar, cast
from zlib import crc32

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow import parquet
from pyspark.sql.types import StructType

from destinations.delta import Delta
from destinations.destination import Destination
from destinations.dlq import DLQ
from destinations.memory import Memory
from origins.batch import JSON, Backlog, Batch, Limits
from origins.codec import encode
from origins.crash_points import watch_points
from origins.files.files import Files
from origins.origin import Progress
from runners.model.nack_window import NackWindow
from runners.model.planned_batch import DecidedBatch, PlannedBatch
from runners.model.spec import PipelineSpec
from runners.model.tasks import (
    Deliver,
    Failed,
    GroupWritten,
    Landed,
    Outcome,
    Prepare,
    Prepared,
    WriteGroup,
    WriteStraight,
)
from runners.spark import late
from runners.spark.late import LateSession, LateSpark
from runners.spark.own_session import make_own_session
from runners.spark.session import is_late
from runners.state.decided_rows import FilteredRows, RefusedRows, select_rows_for
from runners.state.prepared_store import FolderStore
from runners.ways.choose import WRITTEN
from runners.ways.stage_chain import StageChain
from runners.ways.task_executor import TaskExecutor
from runners.ways.way import Thresholds
from stages.conditions import Filter, Require
from stages.expect.expect import Expect
from stages.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("id", pa.int64()), ("amount", pa.float64()), ("name", pa.string())])
NESTED = SCHEMA.append(pa.field("nested", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]))).append(
    pa.field("pairs", pa.map_(pa.string(), pa.int32()))
)
GOOD: Sequence[Stage] = (Filter("id <> 4", name="not_four"), Require({"good": "amount >= 0"}, name="good"))


def make_row(number: int, amount: float | None = 1.0) -> dict[str, Any]:
    """Return a row with values of every shape. Every third row lacks some values."""
    if number % 3 == 0:
        return {"id": number, "amount": amount}
    nested = {"a": number, "b": ["x", None][: number % 3]}
    return {"id": number, "amount": amount, "name": f"n{number}", "nested": nested, "pairs": [("k", number)]}


@dataclass(frozen=True, kw_only=True)
class WayCase:
    """A batch, its stages, and the stages of each destination."""

    rows: Sequence[Mapping[str, Any]]
    schema: pa.Schema = SCHEMA
    stages: Sequence[Stage] = GOOD
    own: Mapping[str, Sequence[Stage]] = field(default_factory=lambda: {"all": ()})
    into_a_table: str = ""
    """The format of the file whose rows go into a Delta table. If empty, rows go from parquet into memory."""

    @property
    def needs_spark(self) -> bool:
        """Whether this process cannot process the case without Spark."""
        return bool(self.stages or any(self.own.values()) or self.into_a_table != "json")


CASES: Mapping[str, WayCase] = {
    "clean": WayCase(rows=[make_row(1), make_row(2), make_row(2), make_row(3), make_row(4)]),
    "nested": WayCase(rows=[make_row(1), make_row(2, -1.0), make_row(3), make_row(4)], schema=NESTED),
    "every": WayCase(rows=[make_row(1, -1.0), make_row(2, None)]),
    "empty": WayCase(rows=[]),
    "same for two": WayCase(rows=[make_row(1), make_row(2, -1.0), make_row(5)], own={"a": (), "b": ()}),
    "branches": WayCase(
        rows=[make_row(1), make_row(2, -1.0), make_row(3), make_row(5)],
        own={"a": (), "b": (Filter("id > 2", name="late"),)},
    ),
    "expected": WayCase(
        rows=[make_row(1), make_row(2, -5.0), make_row(3, None), make_row(6)],
        stages=[
            Expect([{"expect_column_values_to_be_between": {"column": "amount", "min_value": 0}}], name="expected"),
            Filter("id <> 6", name="not_six"),
        ],
    ),
    "raising": WayCase(
        rows=[make_row(1), make_row(2), make_row(3)], stages=[Filter("1 div (id - 2) <> 7", name="divides")]
    ),
    **{
        f"plain {kind}": WayCase(
            rows=[make_row(1), make_row(2), make_row(2), make_row(3, None)], stages=(), into_a_table=kind
        )
        for kind in ("json", "parquet")
    },
}
"""The cases by their subject: which rows are refused, and where the rows go."""


@dataclass(frozen=True, kw_only=True)
class Decided:
    """The whole decision about a batch."""

    counts: JSON
    refused: Sequence[tuple[int, str]]
    rows: Mapping[str, Counter[str]]


class WayBench:
    """A batch of a case in a folder, with an executor that uses only some ways."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        case: WayCase,
        ways: Sequence[str],
        limits: Thresholds,
        *,
        keeps_filtered: bool = False,
        late: bool = False,
        lanes: int = 1,
    ) -> None:
        self.up, self.spark, self.folder = spark, _make_late(spark) if late else spark, folder
        self.origin = _land(case, folder / "landing", lanes)
        self.store = FolderStore(folder / "prepared")
        self.destinations: Mapping[str, Destination] = {
            name: Delta(path=str(folder / name), name=name, stages=stages)
            if case.into_a_table or lanes > 1
            else Memory(name=name, stages=stages)
            for name, stages in case.own.items()
        }
        self.opened = {name: each.open() for name, each in self.destinations.items()}
        self.runner = TaskExecutor(
            spark=self.spark,
            group=f"ways-{uuid.uuid4().hex[:8]}",
            pipeline=PipelineSpec(
                name="ways",
                destinations=list(self.destinations.values()),
                keep_filtered="1d" if keeps_filtered else "0s",
            ),
            origins={"files": self.origin},
            destinations={**self.destinations, DLQ: Memory()},
            opened=self.opened,
            store=self.store,
            thresholds=replace(limits, ways=ways),
        )
        self.runner.reading.chains = {"files": StageChain.of(case.stages, self.destinations)}

    def plan(self, *, straight: bool) -> PlannedBatch:
        """Plan all waiting rows as one batch."""
        (plan,) = self.plan_lanes(straight=straight)
        return plan

    def plan_lanes(self, *, straight: bool) -> Sequence[PlannedBatch]:
        """Plan all waiting rows as one batch in each lane."""
        backlog = self.origin.survey(self.up, Progress())
        schema = self.origin.columns(self.up, backlog)
        assert schema is not None
        for each in self.opened.values():
            each.ensure_place(self.spark, StructType.fromJson(json.loads(schema)))
        return [self._plan_lane(lane, backlog, schema, straight=straight) for lane in self.origin.lane_names()]

    def _plan_lane(self, lane: str, backlog: Backlog, schema: str, *, straight: bool) -> PlannedBatch:
        span = backlog.take(lane, None, Limits())
        assert span is not None
        batch = Batch(
            pipeline="ways",
            run="r",
            origin="files",
            lane=lane,
            number=1,
            plan=uuid.uuid4().hex,
            span=replace(span, bytes=1_000),  # the unpacked size of parquet is unknown
            schema=schema,
            time=datetime(2026, 1, 1, tzinfo=timezone.utc),
        )
        return PlannedBatch(batch=batch, destinations=tuple(self.destinations), straight=straight)

    def carry(self, task: WriteStraight | WriteGroup | Prepare | Deliver) -> Outcome:
        """Return the outcome of the task. Raise its error if it failed."""
        outcome = self.runner.process(task)
        if isinstance(outcome, Failed):
            raise outcome.error
        return outcome

    def rows(self, name: str) -> Sequence[Mapping[str, Any]]:
        """Return the rows of a destination without Spark."""
        destination = self.destinations[name]
        if isinstance(destination, Memory):
            return destination.rows
        rows: Sequence[Mapping[str, Any]] = DeltaTable(str(self.folder / name)).to_pyarrow_table().to_pylist()
        return rows

    def close(self) -> None:
        """End its threads."""
        self.runner.close()


def _make_late(spark: SparkSession) -> SparkSession:
    """Return a late Spark that becomes this one at its first use."""
    settings = {key: str(spark.conf.get(key)) for key in ("spark.sql.session.timeZone", "spark.sql.ansi.enabled")}
    return make_own_session(cast("SparkSession", LateSession(LateSpark(lambda: spark, settings), lambda given: given)))


def _land(case: WayCase, landing: Path, lanes: int) -> Files:
    """Write the rows of a case into a file for each lane. Return the origin that reads them."""
    table = pa.Table.from_pylist(list(case.rows), case.schema)
    landing.mkdir(parents=True)
    names = [next(name for name in ascii_letters if crc32(name.encode()) % lanes == lane) for lane in range(lanes)]
    if case.into_a_table != "json":
        for name in names:
            parquet.write_table(table, landing / name)
        return Files(path=str(landing), format="parquet", name="files", lanes=lanes)
    text = "".join(f"{json.dumps(row)}\n" for row in table.to_pylist())
    for name in names:
        (landing / name).write_text(text, encoding="utf-8")
    return Files(
        path=str(landing), format="json", schema="id long, amount double, name string", name="files", lanes=lanes
    )


LARGE = Thresholds(small_bytes=0)
"""Every batch counts as large."""


class WayConformance:
    """A suite for one deciding way, compared with `Written`."""

    way: ClassVar[str]
    carries: ClassVar[frozenset[str]]
    """The cases that it processes. It declines the others."""
    limits: ClassVar[Thresholds] = LARGE
    """Limits with which it is the first possible way."""

    @pytest.mark.parametrize("name", CASES)
    def test_it_decides_the_same_as_the_way_that_writes_every_row(
        self, spark: SparkSession, tmp_path: Path, name: str
    ) -> None:
        """Counts, results of rules, refused rows with positions and codes, and rows of destinations are the same."""
        bench = WayBench(spark, tmp_path, CASES[name], [self.way], self.limits)
        prepared, outcome = _decide(bench, bench.plan(straight=False))
        bench.close()
        assert (prepared.way == self.way) is (name in self.carries)
        assert outcome == expect_decided(spark, name)

    def test_a_declined_batch_leaves_nothing_in_the_store(self, spark: SparkSession, tmp_path: Path) -> None:
        """Only the rows of the final decision are stored."""
        bench = WayBench(spark, tmp_path, CASES["branches"], [self.way], self.limits)
        prepared, _ = _decide(bench, bench.plan(straight=False))
        bench.close()
        assert {each.name.rpartition("-")[0] for each in bench.store.root.iterdir()} == {prepared.path}

    def test_a_batch_that_is_decided_twice_lands_once(self, spark: SparkSession, tmp_path: Path) -> None:
        """Both decisions have the same outcome and pass the same points. Rows that are not delivered can be swept."""
        bench = WayBench(spark, tmp_path, CASES["clean"], [self.way], self.limits)
        plan, points = bench.plan(straight=False), list[str]()
        first, outcome = _decide(bench, plan)

        def note(point: str, of: str, rows: Any) -> Any:
            points.append(point)
            return rows

        with watch_points(note):
            second, again = _decide(bench, plan)
            bench.store.sweep(spark, lambda: [second.path])
            landed = bench.carry(Deliver(plan=plan, decision=_make_decision(second), names=plan.destinations))
        bench.close()
        assert points == ["after-prepare", "before-write", "after-write", "after-writes"]
        assert (first.path == second.path, outcome == again) == (False, True)
        assert isinstance(landed, Landed)
        assert Counter(str(each["id"]) for each in bench.rows("all")) == Counter("1223")


class StraightConformance:
    """A suite for the way whose write is the decision, compared with `Written`.

    It declines a batch with a refused row.
    """

    carries: ClassVar[frozenset[str]] = frozenset({"clean", "empty", "plain json", "plain parquet"})

    @pytest.fixture(autouse=True)
    def _alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let no other run of this process have a Spark."""
        monkeypatch.setattr(late, "has_context", lambda: False)

    @pytest.mark.parametrize("name", ["clean", "nested", "empty", "raising", "plain json", "plain parquet"])
    def test_it_lands_the_decided_rows_or_nothing(self, spark: SparkSession, tmp_path: Path, name: str) -> None:
        """Counts, results of rules and rows are the same. The JVM starts only if the batch needs Spark."""
        limits = LARGE if CASES[name].needs_spark else Thresholds()
        bench = WayBench(spark, tmp_path, CASES[name], [], limits, late=True)
        plan = bench.plan(straight=True)
        assert is_late(bench.spark)
        outcome = bench.carry(WriteStraight(plan=plan))
        bench.close()
        assert is_late(bench.spark) is not CASES[name].needs_spark
        rows = Counter(map(_format_row, bench.rows("all")))
        if name not in self.carries:
            assert (isinstance(outcome, Landed), rows) == (False, Counter())
            return
        expected = expect_decided(spark, name)
        assert isinstance(outcome, Landed)
        assert outcome.counts is not None
        assert (encode(outcome.counts), rows) == (expected.counts, expected.rows["all"])


class GroupedConformance:
    """A suite for the way of several lanes, compared with `Written`. A group with a refused row lands no row."""

    carries: ClassVar[frozenset[str]] = StraightConformance.carries

    @pytest.mark.parametrize("name", ["clean", "nested", "plain json"])
    def test_each_lane_lands_the_rows_decided_for_it_alone_or_none_does(
        self, spark: SparkSession, tmp_path: Path, name: str
    ) -> None:
        """Counts and results of rules are the same for each lane. One write has the rows of both."""
        limits = LARGE if CASES[name].needs_spark else Thresholds()
        bench = WayBench(spark, tmp_path, CASES[name], [], limits, lanes=2)
        plans = bench.plan_lanes(straight=True)
        outcome = bench.carry(WriteGroup(writes=[WriteStraight(plan=plan) for plan in plans]))
        bench.close()
        rows = Counter(map(_format_row, bench.rows("all")))
        if name not in self.carries:
            assert (isinstance(outcome, GroupWritten), rows) == (False, Counter())
            return
        expected = expect_decided(spark, name)
        assert isinstance(outcome, GroupWritten)
        counts = {lane: landed.counts and encode(landed.counts) for lane, landed in outcome.outcomes.items()}
        assert counts == {plan.batch.lane: expected.counts for plan in plans}
        assert rows == expected.rows["all"] + expected.rows["all"]


def _decide(bench: WayBench, plan: PlannedBatch) -> tuple[Prepared, Decided]:
    """Prepare the batch. Return what was prepared, and the whole decision as read from the store."""
    prepared = bench.carry(Prepare(plan=plan))
    assert isinstance(prepared, Prepared)
    decision, spark, store = _make_decision(prepared), bench.spark, bench.store
    refused = RefusedRows(spark, store, decision).frame().collect() if prepared.counts.nacked else []
    rows = {}
    for name in bench.destinations:
        live = select_rows_for(spark, store, decision, name)
        table = live.table()
        found = Counter(_format_row(each.asDict(recursive=True)) for each in live.frame().collect())
        assert table is None or table.num_rows == found.total()
        rows[name] = found
    assert sorted(each["position"] for each in refused) == list(prepared.nacks)
    return prepared, Decided(
        counts=encode(prepared.counts),
        refused=sorted((each["position"], each["nack"]["code"]) for each in refused),
        rows=rows,
    )


@cache
def expect_decided(spark: SparkSession, name: str) -> Decided:
    """Return the decision about a case when every row is written."""
    with tempfile.TemporaryDirectory() as folder:
        bench = WayBench(spark, Path(folder), CASES[name], [WRITTEN.name], LARGE)
        prepared, decided = _decide(bench, bench.plan(straight=False))
        bench.close()
    assert prepared.way == WRITTEN.name
    return decided


def find_filtered(bench: WayBench, plan: PlannedBatch) -> tuple[str, Counter[tuple[str, ...]], Decided]:
    """Return the way of the batch, its filtered rows by stage and destination, and the rest of the decision."""
    prepared, decided = _decide(bench, plan)
    rows = FilteredRows(bench.spark, bench.store, replace(_make_decision(prepared), keeps_filtered=True))
    table, found = rows.table(), Counter(map(_describe_filtered, rows.frame().collect()))
    assert table is None or Counter(map(_describe_filtered, table.to_pylist())) == found
    assert found.total() == rows.count()
    return prepared.way, found, decided


def _describe_filtered(row: Any) -> tuple[str, ...]:
    nack = row["nack"]
    return nack["stage"], str(nack["destination"]), nack["row"], nack["original"]


def _make_decision(prepared: Prepared) -> DecidedBatch:
    return DecidedBatch(
        path=prepared.path,
        counts=prepared.counts,
        window=NackWindow(),
        sections=prepared.sections,
        bases=prepared.bases,
        way=prepared.way,
    )


def _format_row(row: Mapping[str, Any]) -> str:
    return str(sorted(row.items()))
