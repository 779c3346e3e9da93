"""How many rows of a batch have each verdict and note, and the batch's equation from that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

from origins.batch import JSON
from origins.errors import list_spark_errors
from origins.lazy import Column, DataFrame, F, SparkSession, pa, pc, pyspark
from origins.names import HIDDEN
from origins.origin import BATCH, PLACE
from runners.model.causes import MOST_FILES
from runners.model.planned_batch import BranchCounts, Counts, StageCount
from runners.state.prepared_store import PreparedStore
from runners.ways.stage_chain import PlacedStage, StageChain
from stages.rows import NOTE, STATE, VERDICT, MarkedRows


@dataclass(frozen=True, kw_only=True)
class RowOutcomes:
    """The outcomes of rows that were written together."""

    states: Counter[int]
    """The number of rows by state: 0 live, n filtered by the n-th stage, -n refused by it."""
    filters: Mapping[str, Counter[int]] = field(default_factory=dict)
    """The live rows that stages of a destination filtered, by the destination's column and by the stage."""

    @property
    def rows(self) -> int:
        """The number of all rows."""
        return self.states.total()

    @property
    def refused(self) -> int:
        """The number of refused rows."""
        return sum(rows for state, rows in self.states.items() if state < 0)

    @staticmethod
    def of(groups: Sequence[Mapping[str, JSON]]) -> RowOutcomes:
        """Make it from rows grouped by `state` and by the columns of filters, with their number as `rows`."""
        states = Counter[int]()
        filters: dict[str, Counter[int]] = {}
        for group in groups:
            states[group["state"]] += group["rows"]
            for name in group if group["state"] == 0 else ():
                if is_filter(name) and group[name]:
                    filters.setdefault(name, Counter())[group[name]] += group["rows"]
        return RowOutcomes(states=states, filters=filters)


@dataclass(frozen=True)
class NoteObserver:
    """Observes the notes of rows while they are written. Most rows have the usual note of a stage."""

    frame: DataFrame
    """The rows, which have a `state`."""
    _steps: Mapping[str, PlacedStage]
    """The steps that note every row that reaches them, by the column of their notes."""
    _observation: pyspark.sql.Observation | None = None

    @staticmethod
    def of(rows: MarkedRows, steps: Sequence[PlacedStage]) -> NoteObserver:
        """Make an observer for the notes of these steps. If there are none, it observes nothing."""
        noting = {f"{NOTE}{step.number}": step for step in steps if f"{NOTE}{step.number}" in rows.notes}
        known = {
            name: step for name, step in noting.items() if step.stage.when is None and step.stage.usual_note is not None
        }
        if not known:
            return NoteObserver(rows.frame, {})
        observation = pyspark.sql.Observation()
        figures = [
            F.count_if((F.col(STATE) >= 0) & (F.col(name) == step.stage.usual_note)).alias(name)
            for name, step in known.items()
        ]
        return NoteObserver(rows.frame.observe(observation, *figures), known, observation)

    def count_notes(
        self, outcomes: RowOutcomes, refused: Callable[[Sequence[str]], Mapping[str, Mapping[str, int]]]
    ) -> Mapping[str, Mapping[str, int]]:
        """Return, by column, how many rows have which note. A column is missing unless its notes are certain.

        They are certain if all rows that reached the step and were not refused have the usual note. `refused` counts
        the notes of the refused rows.
        """
        seen = read_observation(self._observation)
        usual: dict[str, tuple[str, int]] = {}
        for name, step in self._steps.items():
            came = sum(rows for state, rows in outcomes.states.items() if state == 0 or state >= step.number)
            if seen.get(name) == came:
                usual[name] = step.stage.usual_note, came
        others = refused([*usual]) if usual and outcomes.refused else {}
        return {name: Counter({note: came}) + Counter(others.get(name, {})) for name, (note, came) in usual.items()}


PLACE_COLUMNS = tuple(f"{PLACE}.{name} AS {name}" for name in ("part", "block", "row"))
"""The columns for a row's place in its batch, as SQL."""
VERDICT_COLUMNS = (*PLACE_COLUMNS, f"{STATE} AS state", f"{VERDICT} AS nack")
"""The columns for a row's place and its verdict, as SQL."""


def is_filter(name: str) -> bool:
    """Whether this column has what a destination's stages filtered."""
    return name[0] == "f" and name[1:].isdigit()


def read_observation(observation: pyspark.sql.Observation | None) -> Mapping[str, Any]:
    """Return what was observed; empty if the optimizer removed the rows that would have passed."""
    try:
        return observation.get if observation is not None else {}
    except list_spark_errors():  # classic Spark raises where Spark Connect returns nothing
        return {}


def group_by_spark(frame: DataFrame) -> Sequence[Mapping[str, JSON]]:
    """Return, for each part, block, state and filter: the number of `rows`, the `first` one, and the `refused` ones."""
    keys = ["part", "block", "state", *filter(is_filter, frame.columns)]
    refused = F.collect_list(F.when(F.col("state") < 0, F.col("row"))).alias("refused")
    grouped = frame.groupBy(*keys).agg(F.count(F.lit(1)).alias("rows"), F.min("row").alias("first"), refused)
    return [row.asDict() for row in grouped.collect()]


def group_by_arrow(table: Any) -> Sequence[Mapping[str, JSON]]:
    """Return the groups of rows that are in memory, as `group_by_spark` does."""
    keys = ["part", "block", "state", *filter(is_filter, table.column_names)]
    refused: dict[tuple[JSON, ...], list[int]] = {}
    for row in table.filter(pc.less(table["state"], 0)).to_pylist():
        refused.setdefault(tuple(row[key] for key in keys), []).append(row["row"])
    found = []
    for group in table.group_by(keys).aggregate([("row", "count"), ("row", "min")]).to_pylist():
        key = {name: group[name] for name in keys}
        own = refused.get(tuple(key.values()), [])
        found.append({**key, "rows": group["row_count"], "first": group["row_min"], "refused": own})
    return found


def count_notes(
    spark: SparkSession, store: PreparedStore, name: str, columns: Sequence[str]
) -> Mapping[str, Mapping[str, int]]:
    """Return, for each of these columns, how many rows have which note. Rows without a note are not counted.

    Small batches on this machine are read without Spark.
    """
    if not columns:
        return {}
    scanned = store.scan(name, lambda column: column in columns)
    return (
        count_by_spark(store.read(spark, name), columns) if scanned is None else by_arrow(scanned.read_all(), columns)
    )


def by_arrow(table: pa.Table, columns: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
    """Count the notes of rows that are in memory."""
    counted = {column: table[column].drop_null().value_counts().to_pylist() for column in columns}
    return {column: {each["values"]: each["counts"] for each in found} for column, found in counted.items()}


def count_by_spark(frame: DataFrame, columns: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
    """Count the notes of any number of rows, in one query."""
    found: dict[str, dict[str, int]] = {column: {} for column in columns}
    for row in frame.groupBy(*columns).count().collect():
        for column in columns:
            if row[column] is not None:
                found[column][row[column]] = found[column].get(row[column], 0) + row["count"]
    return found


MOST_GROUPS = 10_000
"""How many groups are fetched. They are the most frequent ones."""


def group_refusals(refused: DataFrame, by: Sequence[str], shown: Sequence[str]) -> list[dict[str, Any]]:
    """Return groups of rows that are equal in the columns `by` and in the shape of their `message`, the largest first.

    Each has the columns `shown` of one of its rows, the number of its rows (`alike`), and their `files`, from the
    column `part`.
    """
    message = F.coalesce(F.col("message"), F.lit(""))
    one = F.min_by(F.struct(*shown), message).alias("one")
    files = F.slice(F.array_sort(F.collect_set("part")), 1, MOST_FILES).alias("files")
    groups = refused.groupBy(*by, _make_shape(message).alias("shape")).agg(F.count(F.lit(1)).alias("alike"), one, files)
    found = groups.orderBy(F.col("alike").desc(), "shape").limit(MOST_GROUPS).drop("shape").collect()
    rows = [row.asDict(recursive=True) for row in found]
    return [{**row, **row["one"]} for row in rows]


def _make_shape(message: Column) -> Column:
    """Return the message with short forms of the quoted parts.

    Messages of one cause may have several shapes. Messages of one shape have the same cause.
    """

    def shorten(piece: Column, at: Column) -> Column:
        letters = F.regexp_replace(piece, r"\p{L}+", "a")
        return F.when(at % 2 == 1, F.regexp_replace(letters, "[0-9]+", "9")).otherwise(piece)

    pieces = F.concat_ws("'", F.transform(F.split(message, "'"), shorten))
    digits = F.regexp_replace(message, "[0-9]+", "9")
    return F.when(message.contains("column "), pieces).otherwise(digits)


_PASS = HIDDEN + "pass"
ROW_OF_PARTITION = (1 << 33) - 1
"""The bits of Spark's increasing ids that count the rows of one partition, from 0."""


@dataclass(frozen=True, kw_only=True)
class SeenFigure:
    """How many rows were observed at a step, and how to count them exactly."""

    step: int
    seen: int | None
    """The observed number; None if it was not observed."""
    twice: bool = False
    """Whether some of the rows were surely observed twice."""
    again: Callable[[], int]
    """Counts the rows with a separate query."""


@dataclass(frozen=True)
class RowTally:
    """Counts the rows of a straight batch while they pass the stages.

    Spark adds a task's figures whenever the task succeeds. Tasks before a shuffle run again if their output is lost. So
    if a stage brings rows of several tasks together, each task also records its partition's number. A partition that
    occurs twice reveals the retry.

    Nothing is observed before a stage that may need only some of its rows. Those rows are counted afterwards. If the
    origin has already counted its rows, they are not observed either.
    """

    chain: StageChain
    read: int | None = None
    """How many rows the batch has, if its origin reports it."""
    given: int | None = None
    """How many rows this process gave to Spark; None if Spark reads them itself."""
    _batches: int = 0
    """How many batches pass in one frame, whose rows have `BATCH`. 0: only one, without this column."""
    _own: int = 0
    """The number of this batch among them."""
    _observed: list[tuple[int, DataFrame | None, Callable[[], Mapping[str, int]]]] = field(default_factory=list)
    """The steps at which rows are counted, each with its rows and its figures.

    The rows are None if they were counted before.
    """

    @staticmethod
    def make_several(chain: StageChain, batches: int) -> Sequence[RowTally]:
        """Return a tally for each of so many batches that pass this chain in one frame.

        Any tally can observe the frame.
        """
        first = RowTally(chain, _batches=batches)
        return [replace(first, _own=own) for own in range(batches)]

    @staticmethod
    def make_counted(chain: StageChain, rows: int) -> RowTally:
        """Return the tally of a batch whose rows were counted, and pass all stages unchanged."""
        return RowTally(chain, _observed=[(0, None, lambda: {_make_rows_name(0): rows})])

    def observe(self, frame: DataFrame, step: int) -> DataFrame:
        """Return the same frame, in which the rows that pass are counted under the step's number."""
        if step == 0 and self.read is not None:
            known = {_make_rows_name(0): self.read}
            self._observed.append((step, frame, lambda: known))
            return frame
        ahead = [each.stage for each in self.chain.common if each.number > step and each.stage.changes_rows]
        if not all(stage.takes_all for stage in ahead):
            self._observed.append((step, frame, dict))
            return frame
        observation = pyspark.sql.Observation()
        self._observed.append((step, frame, cache(lambda: read_observation(observation))))
        rows = [F.expr(f"count_if({BATCH} = {own}) as {_make_rows_name(own)}") for own in range(self._batches)]
        rows = rows or [F.count(F.lit(1)).alias(_make_rows_name(0))]
        if not any(each.stage.gathers for each in self.chain.common):
            return frame.observe(observation, *rows)
        passes = F.collect_list(_PASS)
        twice = (F.size(passes) != F.size(F.array_distinct(passes))).alias("twice")
        return frame.select("*", _mark_partition().alias(_PASS)).observe(observation, *rows, twice).drop(_PASS)

    def compute_counts(self, delivered: int | None, *, doubtful: bool = False) -> Counts:
        """Return the equation of a batch. `delivered` is the number of rows that the destination reports.

        `doubtful` means that the observed figures are wrong for a reason found elsewhere. If Spark saw other rows
        than the origin reports, or than this process gave to it, the equation does not balance.
        """
        known = self.read if self.given is None else self.given
        figures = []
        for step, frame, seen in self._observed:
            twice, rows = bool(seen().get("twice")), seen().get(_make_rows_name(self._own))
            again = partial(self._count, frame, rows)
            figures.append(SeenFigure(step=step, seen=rows, twice=twice, again=again))
        passed = verify_figures(figures, delivered, doubtful=doubtful)
        if known not in (None, passed[0]):
            passed = verify_figures(figures, delivered, doubtful=True)
        counts = make_straight_counts(self.chain, passed)
        return counts if known is None else replace(counts, read=known)

    def _count(self, frame: DataFrame | None, seen: int | None) -> int:
        if frame is None:
            assert seen is not None
            return seen
        return (frame.where(f"{BATCH} = {self._own}") if self._batches else frame).count()


def split_counts(tallies: Sequence[RowTally], delivered: int | None) -> Sequence[tuple[Counts, int | None]]:
    """Return the equations of batches that were written together, and how many rows of each the destination got.

    The destination reports only the total. If the figures do not add up, the first batch gets the difference.
    """
    counted = [tally.compute_counts(None) for tally in tallies]
    if delivered is not None and sum(map(_get_expected, counted)) != delivered:
        counted = [tally.compute_counts(None, doubtful=True) for tally in tallies]
    if delivered is None:
        return [(counts, None) for counts in counted]
    others = [_get_expected(counts) for counts in counted[1:]]
    return list(zip(counted, [delivered - sum(others), *others], strict=True))


def verify_figures(
    figures: Sequence[SeenFigure], delivered: int | None, *, doubtful: bool = False
) -> Mapping[int, int]:
    """Return the rows that passed each step.

    Observed figures are used only if nothing was observed twice, and if the last one equals the destination's count.
    Figures that were not observed are counted.
    """
    last = figures[-1].seen
    differs = None not in (last, delivered) and last != delivered
    again = doubtful or differs or any(figure.twice for figure in figures)
    return {figure.step: figure.again() if again or figure.seen is None else figure.seen for figure in figures}


def make_straight_counts(chain: StageChain, passed: Mapping[int, int]) -> Counts:
    """Return the equation of a batch without refused rows, from the rows that passed each step. Step 0 is the read."""
    (name,) = chain.branches
    current, filtered, changed = passed[0], 0, 0
    stages, findings = [], {}
    for step in chain.common:
        left = passed.get(step.number, current)
        lost = 0 if step.stage.changes_rows else current - left
        stages.append(StageCount(stage=step.name, entered=current, left=left, filtered=lost))
        filtered += lost
        changed += left - current if step.stage.changes_rows else 0
        finding = step.stage.summarise_notes({"": current - lost})
        if finding is not None:
            findings[step.name] = finding
        current = left
    branch = BranchCounts(expected=current, filtered=filtered, changed=changed)
    return Counts(read=passed[0], branches={name: branch}, stages=stages, findings=findings)


def make_stage_counts(
    steps: Sequence[PlacedStage], entered: int, states: Mapping[int, int]
) -> tuple[list[StageCount], int]:
    """Return what each stage did, from the rows by state, and the rows left.

    State n is filtered by step n, -n refused by it.
    """
    stages = []
    for step in steps:
        filtered, nacked = states.get(step.number, 0), states.get(-step.number, 0)
        left = entered - filtered - nacked
        stages.append(StageCount(stage=step.name, entered=entered, left=left, filtered=filtered, nacked=nacked))
        entered = left
    return stages, entered


def _get_expected(counts: Counts) -> int:
    (branch,) = counts.branches.values()
    return branch.expected


def _make_rows_name(own: int) -> str:
    """Return the name of a batch's row count among the observed figures."""
    return f"rows{own}"


def _mark_partition() -> Column:
    """Return the number of the partition, beside its first row only."""
    place = F.monotonically_increasing_id().bitwiseAND(F.lit(ROW_OF_PARTITION))
    return F.when(place == 0, F.spark_partition_id())
