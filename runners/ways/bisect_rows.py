"""Finds the rows at which a stage's expressions raise, without any effect outside, and refuses them."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from origins.errors import list_spark_errors
from origins.lazy import DataFrame, F, SparkSession, pyspark
from origins.names import HIDDEN
from origins.origin import PLACE
from origins.spark_settings import FACTORY, WHOLE_STAGE
from runners.model.error_kinds import classify, explain_row_error
from runners.model.errors import CarryFailed
from runners.model.text import summarise_error
from runners.ways.deciding import BatchDecision, apply_branches
from runners.ways.stage_chain import PlacedStage, apply_chain
from stages.bisection import AttemptRaised, bisect_rows
from stages.rows import POISON, Rows, take_live

_INDEX = HIDDEN + "index"
_TOGETHER = re.compile(
    r"^[\s:]*[:+]- (?:Aggregate|Window|Distinct|Deduplicate|\w+Limit|Offset|Tail|Intersect|Except|\w*Groups\w*)\b",
    re.MULTILINE,
)
"""The nodes of a plan that look at several rows at once."""


@dataclass
class RowErrorIsolator:
    """Looks for the rows at which stages raise, section by section.

    It writes the rows down before it looks at them. So neither the origin nor a stage that calls another system is
    called again.
    """

    preparation: BatchDecision
    also: Sequence[str] = ()
    """More texts of errors that pass by themselves, beside the known ones."""
    tries: int = 0
    """How often rows were computed to see whether they raise."""
    _written: itertools.count[int] = field(default_factory=itertools.count)

    def describe(self, rows: Rows) -> DataFrame:
        """Return what `BatchDecision.describe` returns, but refuse the rows at which a stage raises.

        The stage that raises refuses them, with the text of the error.
        """
        preparation, chain = self.preparation, self.preparation.chain
        rows = preparation.begin_rows(rows)
        for run in split_runs(chain.common):
            rows = apply_chain(self.isolate(rows, run), run, preparation.pins)
        return apply_branches(self.isolate_for_branches(rows), chain, preparation.pins)

    def isolate(self, rows: Rows, run: Sequence[PlacedStage]) -> Rows:
        """Return the rows before these steps (`split_runs`).

        The steps then refuse the rows at which one of them raises.
        """
        return rows if run[0].stage.asks_outside else self._isolate(rows, run, self._apply_steps)

    def isolate_for_branches(self, rows: Rows) -> Rows:
        """Return the rows before the branches, which then refuse the rows at which one of their stages raises."""
        last = [step for steps in self.preparation.chain.branches.values() for step in steps]
        return self._isolate(rows, last, self._apply_branches) if last else rows

    def _isolate(
        self, rows: Rows, steps: Sequence[PlacedStage], behind: Callable[[Rows, Sequence[PlacedStage]], DataFrame]
    ) -> Rows:
        """Return the rows. Those at which one of the steps raises have the error beside them (`POISON`)."""
        kept = tuple(name for name in rows.kept if name != POISON)
        place = F.col(PLACE)
        order = pyspark.sql.Window.partitionBy(F.lit(0)).orderBy(place["part"], place["block"], place["row"])
        frame = rows.frame.drop(POISON).withColumn(_INDEX, F.row_number().over(order) - 1)
        name = f"{self.preparation.name}-sifted{next(self._written)}"
        count = self.preparation.store.write(name, frame)
        frame = self.preparation.store.read(self.preparation.spark, name)
        rows = replace(rows.with_frame(frame), kept=kept)

        tried = replace(rows, hold=None)  # a part of the rows is no whole batch, which a stage could judge

        limits = self.preparation.limits

        def attempt(first: int, end: int) -> None:
            self.tries += 1
            self._try(behind(_part(tried, first, end), steps), steps, few=end - first <= limits.interpreted_rows)

        raising: dict[int, AttemptRaised] = {}
        for first, _, raised in bisect_rows(frame.count() if count is None else count, attempt):
            if isinstance(raised, AttemptRaised):
                raising[first] = raised
            if len(raising) > limits.raising_rows:
                raise CarryFailed(
                    f"more than {limits.raising_rows} rows of the batch make a stage fail, the last with: "
                    f"{raising[first].message}",
                    hint="Correct the expression; or handle such values explicitly, for example with try_divide or "
                    "try_cast.",
                )
        if not raising:
            return rows.with_frame(frame.drop(_INDEX))
        found = {
            first: (self._find_raising_step(_part(tried, first, first + 1), steps, behind), raised)
            for first, raised in raising.items()
        }
        frame = frame.withColumn(POISON, _make_poison(found)[F.col(_INDEX)]).drop(_INDEX)
        return replace(rows.with_frame(frame), kept=(*kept, POISON))

    def _try(self, frame: DataFrame, steps: Sequence[PlacedStage], *, few: bool) -> None:
        """Compute all rows of the frame, which is the result of these steps, and discard them.

        Raises `AttemptRaised` if a row may be the cause. If a statement combines rows, a row is the cause only if Spark
        reports an invalid value.
        """
        try:
            with _disable_codegen(self.preparation.spark) if few else contextlib.nullcontext():
                frame.write.format("noop").mode("overwrite").save()
        except list_spark_errors() as error:
            kind = classify(error, self.also)
            if not kind.is_row:
                raise
            if steps[0].stage.changes_rows and not kind.is_value and _does_combine_rows(frame):
                raise
            code, message = explain_row_error(error)
            raise AttemptRaised(message or summarise_error(error), code) from error

    def _find_raising_step(
        self, row: Rows, steps: Sequence[PlacedStage], behind: Callable[[Rows, Sequence[PlacedStage]], DataFrame]
    ) -> int:
        """Return the number of the first step at which the row raises."""
        for upto in range(1, len(steps)):
            try:
                self._try(behind(row, steps[:upto]), steps, few=True)
            except AttemptRaised:
                return steps[upto - 1].number
        return steps[-1].number

    def _apply_steps(self, rows: Rows, steps: Sequence[PlacedStage]) -> DataFrame:
        return apply_chain(replace(rows, materialise=take_live), steps, self.preparation.pins).frame

    def _apply_branches(self, rows: Rows, steps: Sequence[PlacedStage]) -> DataFrame:
        chain = self.preparation.chain
        chosen = {step.number for step in steps}
        own = {name: [step for step in each if step.number in chosen] for name, each in chain.branches.items()}
        return apply_branches(rows, replace(chain, branches=own), self.preparation.pins)


@contextlib.contextmanager
def _disable_codegen(spark: SparkSession) -> Iterator[None]:
    """Stop Spark from compiling code in this block. For a few rows, compiling takes longer than the rest of a query."""
    with WHOLE_STAGE.change(spark, "false"), FACTORY.change(spark, "NO_CODEGEN"):
        yield


def _does_combine_rows(frame: DataFrame) -> bool:
    """Whether a statement in the frame's query looks at several rows at once, by Spark's plan."""
    explained = frame.sparkSession.sql("EXPLAIN EXTENDED SELECT * FROM {frame}", frame=frame).collect()[0][0]
    plan = explained.partition("== Analyzed Logical Plan ==")[2].partition("== Optimized Logical Plan ==")[0]
    asked = len(re.findall(r"^[\s:]*[:+]- CTERelationRef ", plan, re.MULTILINE))
    return not plan or asked > 1 or _TOGETHER.search(plan) is not None


def _part(rows: Rows, first: int, end: int) -> Rows:
    """Return some of the rows; `end` is exclusive."""
    index = F.col(_INDEX)
    return rows.with_frame(rows.frame.where((index >= first) & (index < end)).drop(_INDEX))


def _make_poison(found: dict[int, tuple[int, AttemptRaised]]) -> Any:
    """Return a map from each row's index to its error."""
    pairs: list[Any] = []
    for index, (step, raised) in found.items():
        fields = {"step": F.lit(step), "code": F.lit(raised.code), "message": F.lit(raised.message)}
        pairs += [F.lit(index), F.struct(*[column.alias(name) for name, column in fields.items()])]
    return F.create_map(*pairs)


def split_runs(steps: Sequence[PlacedStage]) -> list[list[PlacedStage]]:
    """Return the steps in order, in runs whose rows can be tried together."""
    runs: list[list[PlacedStage]] = []
    for step in steps:
        alone = step.stage.changes_rows or step.stage.asks_outside
        before = runs[-1][-1].stage if runs else None
        if alone or before is None or before.changes_rows or before.asks_outside:
            runs.append([])
        runs[-1].append(step)
    return runs
