"""How many rows of a batch have each verdict and note, and the batch's equation from that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, partial
from typing import Any

from origins.batch import JSON
from origins.errors import list_spark_errors
from origins.lazy import Column, DataFrame, F, SparkSession, pa, pc, pyspark
from origins.names import HIDDEN
from origins.origin import BATCH, PLACE
from runners.model.causes import MOST_FILES
from runners.model.errors import StageError
from runners.model.planned_batch import BranchCounts, Counts, StageCount
from runners.state.prepared_store import PreparedStore
from runners.ways.stage_chain import PlacedStage, StageChain
from stages.query import Query, Schemas
from stages.rows import NOTE, REFUSED_BY_ORIGIN, STATE, VERDICT, Rows, list_notes, make_rows, stop_at_refused, take_live


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

    rows: Rows
    """The rows, which are observed."""
    _steps: Mapping[str, PlacedStage]
    """The steps that note every row that reaches them, by the column of their notes."""
    _observation: pyspark.sql.Observation | None = None

    @staticmethod
    def of(rows: Rows, steps: Sequence[PlacedStage]) -> NoteObserver:
        """Make an observer for the notes of these steps. If there are none, it observes nothing."""
        noting = {f"{NOTE}{step.number}": step for step in steps if f"{NOTE}{step.number}" in list_notes(rows)}
        known = {
            name: step for name, step in noting.items() if step.stage.when is None and step.stage.usual_note is not None
        }
        if not known:
            return NoteObserver(rows, {})
        observation = pyspark.sql.Observation()
        figures = [
            F.count_if((F.col(STATE) >= 0) & (F.col(name) == step.stage.usual_note)).alias(name)
            for name, step in known.items()
        ]
        observed = replace(rows, query=rows.query.observe(observation, *figures))
        return NoteObserver(observed, known, observation)

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
class SectionStates:
    """How many rows of each batch had which state when they reached the end of a section."""

    seen: Sequence[Counter[int]] | None
    """What was observed, for each batch; None if it was not observed."""
    twice: bool = False
    """Whether some of the rows were surely observed twice."""
    again: Callable[[], Sequence[Counter[int]]]
    """Counts the rows with a separate query."""


def verify_states(
    read: SectionStates, sections: Sequence[SectionStates], delivered: int | None
) -> Sequence[Sequence[Counter[int]]]:
    """Return the states of the rows as they were read, and at the end of each section, for each batch.

    Observed states are used only if nothing was observed twice. The destination must report as many rows as were live
    at the end of the last section, and the first section must have as many rows as were read. States that were not
    observed are counted.
    """
    first, last = sections[0].seen, sections[-1].seen
    began = None if read.seen is None else sum(states.total() for states in read.seen)
    came = None if first is None else sum(states.total() for states in first)
    left = None if last is None else sum(states[0] for states in last)
    differs = (None not in (left, delivered) and left != delivered) or (None not in (began, came) and began != came)
    every = [read, *sections]
    again = differs or any(section.twice for section in every)
    return [section.again() if again or section.seen is None else section.seen for section in every]


@dataclass(frozen=True)
class StateTally:
    """Counts the rows of batches by their states while the only destination takes them.

    The rows are counted as they are read, unless their number is known, and at the end of each section. So rows that a
    stage loses or doubles do not balance.

    Spark adds a task's figures whenever the task succeeds. Tasks before a shuffle run again if their output is lost. So
    if a stage brings rows of several tasks together, each task also records its partition's number. A partition that
    occurs twice reveals the retry.

    Nothing is observed before a stage that may need only some of its rows. Those rows are counted afterwards. If
    anything is observed, the rows at the end are too, by a call of its own. Spark then finds all observations.
    """

    chain: StageChain
    read: int | None = None
    """How many rows the batch has, if its origin reports it."""
    given: int | None = None
    """How many rows this process gave to Spark; None if Spark reads them itself."""
    batches: int = 0
    """How many batches pass in one frame, whose rows have `BATCH`. 0: only one, without this column."""
    _read: list[Callable[[], SectionStates]] = field(default_factory=list)
    """Returns the rows as they were read. Without a stage, this is missing, and the rows at the end are the same."""
    _sections: list[Callable[[], SectionStates]] = field(default_factory=list)
    """Return the states at the end of each section, in order."""

    @staticmethod
    def make_counted(chain: StageChain, rows: Sequence[int]) -> StateTally:
        """Return the tally of batches whose rows were counted, and pass all stages unchanged."""
        known = _make_known(rows)
        return StateTally(chain, _read=[lambda: known], _sections=[lambda: known])

    def begin(
        self, frame: DataFrame, names: tuple[str, ...], labels: Mapping[str, str | int | datetime], schemas: Schemas
    ) -> Rows:
        """Return the rows as they are read, with their state. `schemas` has what earlier batches found out."""
        kept = (BATCH,) if self.batches else ()
        frame = self.count_read(frame)
        return make_rows(frame, names, labels, self.take_counted, explains=False, kept=kept, schemas=schemas)

    def take_counted(self, rows: Rows) -> DataFrame:
        """Return the live rows for a stage that changes rows, and count all rows by their states.

        The first refused row makes the query raise `MARK`.
        """
        clean, again = stop_at_refused(rows), partial(self._count_again, rows.query, STATE)
        if not self._sections and not rows.filters and self.read is not None:
            known = SectionStates(seen=[Counter({0: self.read})], again=again)
            self._sections.append(lambda: known)
            return take_live(clean)
        parts = split_sections(self.chain.common)[len(self._sections) + 1 :]
        query, states = self._observe(clean.query, rows.filters, [step for part in parts for step in part], again)
        self._sections.append(states)
        return take_live(replace(clean, query=query))

    def end(self, rows: Rows) -> DataFrame:
        """Return the live rows for the destination, as `take_counted` does.

        Raise `StageError` if a stage gave other rows than it got without `Rows.change`.
        """
        live, parts = self.take_counted(rows), split_sections(self.chain.common)
        if len(self._sections) != len(parts):
            names = ", ".join(repr(part[0].name) for part in parts[1:])
            raise StageError(
                f"{names or 'the stages'}: expected one call of `Rows.change` for each stage with `changes_rows`, "
                f"found {len(self._sections) - 1}"
            )
        return live

    def count(self, delivered: int | None) -> Sequence[Counts]:
        """Return the equation of each batch. `delivered` is the number of all rows that the destination reports."""
        (states,) = self._read or self._sections
        read, *sections = verify_states(states(), [section() for section in self._sections], delivered)
        counted = [make_straight_counts(self.chain, each) for each in zip(*sections, strict=True)]
        return [replace(counts, read=own.total()) for counts, own in zip(counted, read, strict=True)]

    def count_read(self, frame: DataFrame) -> DataFrame:
        """Return the rows as they are read, which are counted while they pass unless their number is known."""
        number = self.read if self.given is None else self.given
        if number is not None:
            known = _make_known([number])
            self._read.append(lambda: known)
        elif self.chain.common:
            query = Query.of(frame)
            query, states = self._observe(query, (), self.chain.common, partial(self._count_again, query, "0"))
            self._read.append(states)
            return query.frame
        return frame

    def _observe(
        self,
        query: Query,
        filters: Sequence[int],
        ahead: Sequence[PlacedStage],
        again: Callable[[], Sequence[Counter[int]]],
    ) -> tuple[Query, Callable[[], SectionStates]]:
        """Return the query, and a function that returns what was observed: all rows, and those that steps filtered."""
        if not all(step.stage.takes_all for step in ahead):
            return query, lambda: SectionStates(seen=None, again=again)
        observation, figures = pyspark.sql.Observation(), []
        for own in range(max(self.batches, 1)):
            mine = f"{BATCH} = {own}" if self.batches else "true"
            figures.append(F.expr(f"count_if({mine}) AS rows{own}"))
            figures += [F.expr(f"count_if({mine} AND {STATE} = {step}) AS rows{own}_{step}") for step in filters]
        if any(step.stage.gathers for step in self.chain.common):
            passes = F.collect_list(_PASS)
            figures.append((F.size(passes) != F.size(F.array_distinct(passes))).alias("twice"))
            query = query.select("*", _mark_partition().alias(_PASS))

        def read_states() -> SectionStates:
            seen = read_observation(observation)
            if not seen:
                return SectionStates(seen=None, again=again)
            states = []
            for own in range(max(self.batches, 1)):
                filtered = Counter({step: seen[f"rows{own}_{step}"] for step in filters})
                states.append(filtered + Counter({0: seen[f"rows{own}"] - filtered.total()}))
            return SectionStates(seen=states, twice=bool(seen.get("twice")), again=again)

        return query.observe(observation, *figures), cache(read_states)

    def _count_again(self, query: Query, state: str) -> Sequence[Counter[int]]:
        """Return the states of these rows for each batch, by a computation of their own."""
        columns = F.expr(BATCH if self.batches else "0").alias("own"), F.expr(state).alias("state")
        found = [Counter[int]() for _ in range(max(self.batches, 1))]
        for row in query.frame.groupBy(*columns).count().collect():
            found[row["own"]][row["state"]] += row["count"]
        return found


def _make_known(rows: Sequence[int]) -> SectionStates:
    """Return what is known about batches with these numbers of rows, which are all live."""
    states = [Counter({0: each}) for each in rows]
    return SectionStates(seen=states, again=lambda: states)


def make_straight_counts(chain: StageChain, sections: Sequence[Counter[int]]) -> Counts:
    """Return the equation of a batch without refused rows, from the states of its rows at the end of each section."""
    counts = count_sections(chain, [RowOutcomes(states=states) for states in sections])
    findings = {}
    for step, stage in zip(chain.common, counts.stages, strict=True):
        finding = step.stage.summarise_notes({"": stage.entered - stage.filtered})
        if finding is not None:
            findings[step.name] = finding
    return replace(counts, findings=findings)


def split_sections(steps: Sequence[PlacedStage]) -> list[list[PlacedStage]]:
    """Return the stages between the points where batches are written down. Later lists begin with a changing stage."""
    sections: list[list[PlacedStage]] = [[]]
    for step in steps:
        if step.stage.changes_rows:
            sections.append([])
        sections[-1].append(step)
    return sections


def count_sections(chain: StageChain, sections: Sequence[RowOutcomes]) -> Counts:
    """Return the equation of a batch, from the outcomes of the rows of each section."""
    read = entered = sections[0].rows
    stages: list[StageCount] = []
    filtered = changed = nacked = 0
    states = Counter[int]()
    for verdicts, steps in zip(sections, split_sections(chain.common), strict=True):
        changing = 0 if verdicts is sections[0] else 1
        for step in steps[:changing]:
            lost = {"filtered": states[step.number], "nacked": states[-step.number]}
            stages.append(StageCount(stage=step.name, entered=entered, left=verdicts.rows, **lost))
            changed += verdicts.rows - (entered - sum(lost.values()))
        states = verdicts.states
        counted, entered = make_stage_counts(steps[changing:], verdicts.rows - states[REFUSED_BY_ORIGIN], states)
        stages += counted
        filtered += sum(rows for state, rows in states.items() if state > 0)
        nacked += verdicts.refused
    last = sections[-1]
    refused = Counter({state: rows for state, rows in last.states.items() if state < 0})
    branches = {}
    for index, (name, mine) in enumerate(chain.branches.items()):
        by_filter = last.filters.get(f"f{index}", Counter())
        kept = last.states[0] - by_filter.total()
        branches[name] = BranchCounts(expected=kept, filtered=filtered + by_filter.total(), changed=changed)
        counted, _ = make_stage_counts(mine, entered, by_filter + refused)
        stages += counted
        entered -= sum(count.nacked for count in counted)
    return Counts(read=read, nacked=nacked, branches=branches, stages=stages)


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


def _mark_partition() -> Column:
    """Return the number of the partition, beside its first row only."""
    place = F.monotonically_increasing_id().bitwiseAND(F.lit(ROW_OF_PARTITION))
    return F.when(place == 0, F.spark_partition_id())
