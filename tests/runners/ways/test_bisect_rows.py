"""Which rows are tried together to find a row that raises, and what happens with its error, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import MagicMock

import pytest

from destinations.memory import Memory
from runners.ways.bisect_rows import RowErrorIsolator, split_runs
from runners.ways.stage_chain import StageChain
from runners.ways.way import Thresholds
from stages.bisection import AttemptRaised
from stages.cast import Cast
from stages.conditions import Filter
from stages.python import Handler
from stages.query import Query
from stages.rows import Rows, take_live
from stages.sql import Sql
from stages.stage import Stage
from tests.spark_errors import make_spark_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from runners.ways.deciding import BatchDecision
    from runners.ways.stage_chain import PlacedStage

CAST, FILTER, SQL = Cast({"id": "long"}), Filter("id"), Sql("select * from rows")
ASKING = Handler("somewhere:rows")
DIVISION = make_spark_error("DIVIDE_BY_ZERO", "Division by zero.", "22012")


def make_steps(*stages: Stage) -> Sequence[PlacedStage]:
    return StageChain.of(stages, {"orders": Memory()}).common


@dataclass
class Piece:
    """Rows of a frame. Computing them raises if one of them is bad after this many steps."""

    rows: range
    raising: Mapping[int, tuple[int, Exception]]
    upto: int = 0
    explained: str = ""
    columns: tuple[str, ...] = ()
    computed: list[range] = field(default_factory=list)

    @property
    def sparkSession(self) -> Any:  # noqa: N802  (as Spark calls it)
        explained = SimpleNamespace(collect=lambda: [[self.explained]])
        return SimpleNamespace(sql=lambda *_, **__: explained)

    @property
    def write(self) -> Any:
        chain = MagicMock()
        chain.format.return_value.mode.return_value.save = self._compute
        return chain

    def _compute(self) -> None:
        self.computed.append(self.rows)
        for row, (step, error) in self.raising.items():
            if row in self.rows and step <= self.upto:
                raise error

    def drop(self, *_: str) -> Piece:
        return self

    def count(self) -> int:
        return len(self.rows)

    def withColumn(self, *_: Any) -> Piece:  # noqa: N802  (as Spark calls it)
        return self


@dataclass
class Bench:
    """An isolator over a double of a frame, and the rows that it found."""

    raising: Mapping[int, tuple[int, Exception]]
    rows: int = 8
    explained: str = ""
    limits: Thresholds = field(default_factory=Thresholds)
    found: dict[int, tuple[int, AttemptRaised]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.frame = Piece(range(self.rows), self.raising, explained=self.explained)
        self.settings: dict[str, str] = {}
        conf = SimpleNamespace(
            isModifiable=lambda _: True,
            get=lambda key, _: self.settings.get(key),
            set=self.settings.__setitem__,
            unset=self.settings.pop,
        )
        store = SimpleNamespace(write=lambda *_: None, read=lambda *_: self.frame)
        preparation = SimpleNamespace(
            name="p1", store=store, spark=SimpleNamespace(conf=conf), limits=self.limits, pins={}
        )
        self.isolator = RowErrorIsolator(cast("BatchDecision", preparation))

    def isolate(self, monkeypatch: pytest.MonkeyPatch, *stages: Stage) -> Rows:
        """Look for the rows at which one of the stages raises."""
        module = "runners.ways.bisect_rows"
        for name in ("F", "pyspark"):
            monkeypatch.setattr(f"{module}.{name}", MagicMock())
        monkeypatch.setattr(f"{module}._part", self._cut)
        monkeypatch.setattr(f"{module}._make_poison", lambda found: self.found.update(found) or MagicMock())
        monkeypatch.setattr(RowErrorIsolator, "_apply_steps", lambda _, rows, mine: _pass_stages(rows, mine))
        rows = Rows(
            query=Query(cast("DataFrame", self.frame)),
            names=("id",),
            labels={},
            materialise=take_live,
        )
        return self.isolator.isolate(rows, make_steps(*stages))

    def _cut(self, rows: Any, first: int, end: int) -> Any:
        piece = Piece(range(first, end), self.raising, explained=self.explained, computed=self.frame.computed)
        return SimpleNamespace(frame=piece)


def _pass_stages(rows: Any, mine: Sequence[PlacedStage]) -> Piece:
    rows.frame.upto = mine[-1].number
    found: Piece = rows.frame
    return found


@pytest.mark.parametrize(
    ("stages", "runs"),
    [
        ([CAST, FILTER, CAST], [[1, 2, 3]]),
        ([CAST, SQL, FILTER], [[1], [2], [3]]),
        ([CAST, ASKING, FILTER, CAST], [[1], [2], [3, 4]]),
        ([], []),
    ],
    ids=["of a row each", "one changes rows", "one asks outside", "none"],
)
def test_stages_are_tried_together_if_each_needs_only_one_row(stages: list[Stage], runs: list[list[int]]) -> None:
    """A stage that changes rows or asks an outside system is tried separately."""
    assert [[step.number for step in run] for run in split_runs(make_steps(*stages))] == runs


def test_a_wrong_value_in_combined_rows_belongs_to_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is wrong independently of the other rows."""
    plan = "== Analyzed Logical Plan ==\n+- Aggregate [id]\n== Optimized Logical Plan =="
    bench = Bench({3: (1, DIVISION)}, explained=plan)
    bench.isolate(monkeypatch, SQL)
    assert list(bench.found) == [3]


@pytest.mark.parametrize(("most", "compiled"), [(8, [False]), (7, [True])])
def test_few_rows_are_computed_without_code_generation(
    monkeypatch: pytest.MonkeyPatch, most: int, compiled: Sequence[bool]
) -> None:
    """Afterwards, the setting has its earlier value."""
    bench = Bench({}, limits=Thresholds(interpreted_rows=most))
    bench.settings["spark.sql.codegen.wholeStage"] = "kept"
    seen: list[bool] = []
    compute: Callable[[Piece], None] = Piece._compute

    def watched(piece: Piece) -> None:
        seen.append(bench.settings["spark.sql.codegen.wholeStage"] == "kept")
        compute(piece)

    monkeypatch.setattr(Piece, "_compute", watched)
    bench.isolate(monkeypatch, CAST)
    assert (seen, bench.settings) == (compiled, {"spark.sql.codegen.wholeStage": "kept"})
