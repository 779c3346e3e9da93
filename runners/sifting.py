"""A batch at whose rows a stage's own expressions raise: these rows are found where nothing can land, and refused."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from origins.names import HIDDEN
from origins.origin import PLACE
from runners.blame import of_a_row, of_a_value, told
from runners.errors import CarryFailed
from runners.line import Step, passing
from runners.preparing import Preparation, branched
from stages.halving import Raised, halved
from stages.rows import POISON, STATE, Marked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST = 100
"""So many rows of a batch may make expressions raise; with more it is the expressions, and the batch fails."""
_FEW = 10_000
_COMPILING = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_INDEX = HIDDEN + "index"
_TOGETHER = re.compile(
    r"^[\s:]*[:+]- (?:Aggregate|Window|Distinct|Deduplicate|\w+Limit|Offset|Tail|Intersect|Except|\w*Groups\w*)\b",
    re.MULTILINE,
)
"""The nodes of a plan that look at several rows at once."""


@dataclass
class Sieve:
    """Looks for the rows at which stages raise, section by section. What it looks at is written down first, so that
    neither the origin nor a stage that asks outside is asked again."""

    preparation: Preparation
    also: Sequence[str] = ()
    """Words of errors that pass by themselves, beside those that are known."""
    tries: int = 0
    """How often rows were computed to see whether they raise."""
    _written: itertools.count[int] = field(default_factory=itertools.count)

    def describe(self, rows: Marked) -> DataFrame:
        """What `Preparation.describe` gives, without what raises: such rows are refused, by the stage that raises and
        in the cause's own words."""
        preparation, line = self.preparation, self.preparation.line
        rows = preparation.ready(rows)
        for run in runs_of(line.common):
            rows = passing(self.sifted(rows, run), run, preparation.pins)
        return branched(self.sifted_for_branches(rows), line, preparation.pins)

    def sifted(self, rows: Marked, run: Sequence[Step]) -> Marked:
        """The rows at the door of these steps (`runs_of`), which then refuse those at which one of them raises."""
        if run[0].stage.changes_rows:
            return self._sifted(rows, run, self._changed)
        return rows if run[0].stage.asks_outside else self._sifted(rows, run, self._passed)

    def sifted_for_branches(self, rows: Marked) -> Marked:
        """The same, where rows part for their destinations."""
        last = [step for steps in self.preparation.line.branches.values() for step in steps]
        return self._sifted(rows, last, self._branched) if last else rows

    def _sifted(
        self, rows: Marked, steps: Sequence[Step], behind: Callable[[Marked, Sequence[Step]], DataFrame]
    ) -> Marked:
        """The rows, beside those at which one of the steps raises what it said (`POISON`)."""
        kept = tuple(name for name in rows.kept if name != POISON)
        place = F.col(PLACE)
        order = Window.partitionBy(F.lit(0)).orderBy(place["part"], place["block"], place["row"])
        frame = rows.frame.drop(POISON).withColumn(_INDEX, F.row_number().over(order) - 1)
        name = f"{self.preparation.name}-sifted{next(self._written)}"
        count = self.preparation.store.write(name, frame)
        frame = self.preparation.store.read(self.preparation.spark, name)
        rows = replace(rows, frame=frame, kept=kept)

        tried = replace(rows, hold=None)  # a part of the rows is no batch that could be judged

        def attempt(first: int, end: int) -> None:
            self.tries += 1
            self._try(behind(_part(tried, first, end), steps), steps, few=end - first <= _FEW)

        raising: dict[int, Raised] = {}
        for first, _, raised in halved(frame.count() if count is None else count, attempt):
            if isinstance(raised, Raised):
                raising[first] = raised
            if len(raising) > MOST:
                raise CarryFailed(
                    f"more than {MOST} rows of the batch make a stage raise, the last of them: {raising[first].said}",
                    hint="Mend the expression; or say what is meant for such values, with try_divide or try_cast say.",
                )
        if not raising:
            return replace(rows, frame=frame.drop(_INDEX))
        found = {
            first: (self._blamed(_part(tried, first, first + 1), steps, behind), raised)
            for first, raised in raising.items()
        }
        frame = frame.withColumn(POISON, _poison(found)[F.col(_INDEX)]).drop(_INDEX)
        return replace(rows, frame=frame, kept=(*kept, POISON))

    def _try(self, frame: DataFrame, steps: Sequence[Step], *, few: bool) -> None:
        """Compute all of the frame, which is behind these steps, for nothing. Raises `Raised` if a row may be to blame.

        Where a statement puts rows together, a row is to blame only for a value that Spark itself calls wrong.
        """
        try:
            with _interpreted(self.preparation.spark) if few else contextlib.nullcontext():
                frame.write.format("noop").mode("overwrite").save()
        except Exception as error:
            if not of_a_row(error, self.also):
                raise
            if steps[0].stage.changes_rows and not of_a_value(error) and _puts_together(frame):
                raise
            code, said = told(error)
            raise Raised(said, code) from error

    def _blamed(self, row: Marked, steps: Sequence[Step], behind: Callable[[Marked, Sequence[Step]], DataFrame]) -> int:
        """The number of the first step at which the row raises."""
        for upto in range(1, len(steps)):
            try:
                self._try(behind(row, steps[:upto]), steps, few=True)
            except Raised:
                return steps[upto - 1].number
        return steps[-1].number

    def _passed(self, rows: Marked, steps: Sequence[Step]) -> DataFrame:
        return passing(rows, steps, self.preparation.pins).frame

    def _changed(self, rows: Marked, steps: Sequence[Step]) -> DataFrame:
        def live(rows: Marked) -> DataFrame:
            return rows.frame.where(F.col(STATE) == 0).select(*[rows.column(name) for name in rows.names])

        return passing(replace(rows, materialise=live), steps, self.preparation.pins).frame

    def _branched(self, rows: Marked, steps: Sequence[Step]) -> DataFrame:
        line = self.preparation.line
        chosen = {step.number for step in steps}
        own = {name: [step for step in each if step.number in chosen] for name, each in line.branches.items()}
        return branched(rows, replace(line, branches=own), self.preparation.pins)


@contextlib.contextmanager
def _interpreted(spark: SparkSession) -> Iterator[None]:
    """Spark compiles nothing in here: for a few rows that takes longer than all the rest of a query."""
    keys = [key for key in _COMPILING if spark.conf.isModifiable(key)]
    before = {key: spark.conf.get(key, None) for key in keys}
    for key in keys:
        spark.conf.set(key, _COMPILING[key])
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.set(key, value) if value is not None else spark.conf.unset(key)


def _puts_together(frame: DataFrame) -> bool:
    """Whether a statement behind which the frame is looks at several rows at once, as Spark plans it."""
    said = frame.sparkSession.sql("EXPLAIN EXTENDED SELECT * FROM {frame}", frame=frame).collect()[0][0]
    plan = said.partition("== Analyzed Logical Plan ==")[2].partition("== Optimized Logical Plan ==")[0]
    asked = len(re.findall(r"^[\s:]*[:+]- CTERelationRef ", plan, re.MULTILINE))
    return not plan or asked > 1 or _TOGETHER.search(plan) is not None


def _part(rows: Marked, first: int, end: int) -> Marked:
    """Some of the rows, `end` exclusive."""
    index = F.col(_INDEX)
    return replace(rows, frame=rows.frame.where((index >= first) & (index < end)).drop(_INDEX))


def _poison(found: dict[int, tuple[int, Raised]]) -> Any:
    """From each row's index to what is known of it."""
    pairs: list[Any] = []
    for index, (step, raised) in found.items():
        said = {"step": F.lit(step), "code": F.lit(raised.code), "message": F.lit(raised.said)}
        pairs += [F.lit(index), F.struct(*[column.alias(name) for name, column in said.items()])]
    return F.create_map(*pairs)


def runs_of(steps: Sequence[Step]) -> list[list[Step]]:
    """The steps one after the other, in runs that can be looked at together."""
    runs: list[list[Step]] = []
    for step in steps:
        alone = step.stage.changes_rows or step.stage.asks_outside
        before = runs[-1][-1].stage if runs else None
        if alone or before is None or before.changes_rows or before.asks_outside:
            runs.append([])
        runs[-1].append(step)
    return runs
