"""The way that decides a batch in one pass:

Spark writes the live rows and picks out the refused ones, if they are few.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence

from origins.batch import JSON
from origins.lazy import Column, DataFrame, F, pyspark
from origins.names import HIDDEN, quote_name
from origins.origin import PLACE
from origins.quick_dataclass import dataclass
from runners.model.tasks import Declined, Prepared
from runners.state.prepared_store import PreparedStore
from runners.ways.deciding import BatchDecision
from runners.ways.row_outcomes import (
    ROW_OF_PARTITION,
    VERDICT_COLUMNS,
    PickedRows,
    RowOutcomes,
    read_observation,
)
from runners.ways.stage_chain import PlacedStage, StageChain
from runners.ways.way import Candidate, Thresholds, Way
from stages.rows import NOTE, STATE, VERDICT, MarkedRows

_OF_A_ROW = ("stage", "destination", "code", "message", "row", "original")
_OF_A_STAGE = ("row_schema", "original_schema")
"""The fields of a nack that differ by row, and those that are equal for all rows that its stage refused."""
_PICKED, _BLOCK, _ROW = HIDDEN + "picked", HIDDEN + "block", HIDDEN + "row"


class OnePass(Way[BatchDecision, Prepared]):
    """Spark writes the live rows separately, and picks out the refused ones, if they are few, in the same pass."""

    name = "one_pass"

    def why_not(self, batch: Candidate) -> str:
        return explain_not_apart(batch)

    def carry(self, batches: Sequence[Candidate], work: BatchDecision) -> Prepared | Declined:
        (batch,) = batches
        if work.passed is None:
            return Declined(reason="a stage gives other rows than it gets")
        picking = RowPicker.of(work.passed, batch.chain, work.order, batch.thresholds)
        picked = picking.pick_live(work.store, work.live)
        prepared = None if picked is None else work.decide_apart(picked)
        if prepared is None:
            work.remove_live()
            why = f"a task met more than {batch.thresholds.picked_rows:,} refused rows, or long ones"
            return Declined(reason=why, remember=True, until_clean=True)
        return prepared


def explain_not_apart(batch: Candidate) -> str:
    """Return why the live rows of a batch cannot be written separately in one pass; empty if they can."""
    steps = batch.chain.steps
    if not batch.spark_is_local:
        return "Spark may not run on this machine"
    if batch.is_small:
        return f"it has at most {batch.thresholds.small_bytes:,} bytes"
    if batch.changing:
        return f"{batch.changing} gives other rows than it gets"
    if batch.keeps_filtered and steps:
        return "keep_filtered stores the rows that stages filter"
    for step in steps:
        if step.stage.gathers:
            return f"{step.name} needs more than one row"
        if step.stage.asks_outside:
            return f"{step.name} calls another system, which may notice that it is called twice"
    if any(batch.chain.branches.values()):
        return "its destinations get different rows"
    most = batch.thresholds.figures
    return f"there are more than {most} stages" if len(steps) > most else ""


@dataclass(frozen=True)
class RowPicker:
    """One pass over a batch. `live` is the frame to write."""

    live: DataFrame
    _rows: MarkedRows
    _parts: Sequence[str]
    _steps: Sequence[PlacedStage]
    _observation: pyspark.sql.Observation

    @staticmethod
    def of(rows: MarkedRows, chain: StageChain, parts: Sequence[str], limits: Thresholds) -> RowPicker:
        """Make it from the rows of these parts after all stages."""
        observation = pyspark.sql.Observation()
        data = [F.col(quote_name(name)) for name in rows.names]
        stood = [F.col(PLACE)["block"].alias(_BLOCK), F.col(PLACE)["row"].alias(_ROW)] if len(parts) == 1 else []
        seen = rows.frame.select(STATE, _make_picked_row(rows, limits).alias(_PICKED), *stood, *rows.notes, *data)
        live = (
            seen.observe(observation, *_make_figures(rows, chain, bool(stood))).where(F.col(STATE) == 0).select(*data)
        )
        return RowPicker(live, rows, parts, chain.common, observation)

    def pick_live(self, store: PreparedStore, name: str) -> PickedRows | None:
        """Write the live rows to the store under this name, and return what was observed.

        It is None if that is not certain, or if more rows were refused than could be picked.
        """
        written = store.write(name, self.live)
        seen = read_observation(self._observation)
        if not seen or written is None:
            return None
        refused = _restore_schemas(json.loads(str(seen["picked"])))
        states = Counter({step.number: seen[f"state {step.number}"] for step in self._steps})
        states[0] = seen["rows"] - seen["refused"] - states.total()
        if refused is None or len(refused) != seen["refused"] or states[0] != written:
            return None
        noted = {name: self._count_notes_of(name, seen, states, refused) for name in self._rows.notes}
        verdicts = RowOutcomes(states=states + Counter(row["state"] for row in refused))
        blocks = None
        if seen.get("last block") == 0:  # all rows are in one block of the only part
            first = {"part": self._parts[0], "block": 0, "rows": verdicts.rows, "first": seen["first"]}
            blocks = [{**first, "state": 0, "refused": []}]
        return PickedRows(
            verdicts=verdicts,
            refused=refused,
            blocks=blocks,
            notes={name: counted for name, counted in noted.items() if counted is not None},
        )

    def _count_notes_of(
        self, name: str, seen: Mapping[str, JSON], states: Counter[int], refused: Sequence[Mapping[str, JSON]]
    ) -> Mapping[str, int] | None:
        """Return the notes of a stage that notes every row that reaches it; None if they differ."""
        step = find_noting_step(name, self._steps)
        came = sum(rows for state, rows in states.items() if state == 0 or state >= step.number)
        if step.stage.when is not None or seen.get(f"{name} usual") != came:
            return None
        return Counter(row[name] for row in refused if row.get(name) is not None) + Counter(
            {step.stage.usual_note: came}
        )


def find_noting_step(name: str, steps: Sequence[PlacedStage]) -> PlacedStage:
    """Return the step whose notes are in this column."""
    return next(step for step in steps if f"{NOTE}{step.number}" == name)


def _make_picked_row(rows: MarkedRows, limits: Thresholds) -> Column:
    """Return a refused row as it is picked. NULL for other rows, and for those after the last row that a task picks."""
    longest = limits.picked_row_bytes
    most = min(limits.picked_rows, limits.picked_bytes // (2 * len(rows.original_schema) + longest))
    nth = F.monotonically_increasing_id().bitwiseAND(ROW_OF_PARTITION)
    row = F.expr(f"struct({', '.join([*VERDICT_COLUMNS, *rows.notes])})")
    return F.when(F.col(STATE) < 0, F.when((nth < most) & is_short(longest), row))


def is_short(longest: int) -> Column:
    """Whether the texts of a refused row have at most this many bytes."""
    texts = (F.octet_length(F.col(VERDICT)[of]) for of in ("message", "row", "original"))
    return sum((F.coalesce(length, F.lit(0)) for length in texts), F.lit(0)) <= longest


def _collect_picked(rows: MarkedRows) -> Column:
    """Return the picked rows as text, without their schemas.

    The schemas are there once for each stage that refused rows.
    """

    def row(each: Column) -> Column:
        own = [each[name].alias(name) for name in ("part", "block", "row", "state", *rows.notes)]
        nack = F.struct(*[each["nack"][name].alias(name) for name in _OF_A_ROW])
        return F.struct(*own, nack.alias("nack"))

    def schemas(each: Column) -> Column:
        return F.struct(each["state"].alias("state"), *[each["nack"][name].alias(name) for name in _OF_A_STAGE])

    def both(picked: Column) -> Column:
        known = F.array_distinct(F.transform(picked, schemas))
        return F.struct(F.transform(picked, row).alias("rows"), known.alias("schemas"))

    return F.to_json(F.transform(F.array(F.collect_list(_PICKED)), both)[0])


def _restore_schemas(picked: Mapping[str, JSON]) -> Sequence[Mapping[str, JSON]] | None:
    """Return the rows with their schemas; None if a stage refused rows with several schemas."""
    known = {each.pop("state"): each for each in picked["schemas"]}
    if len(known) < len(picked["schemas"]):
        return None
    return [{**row, "nack": {**row["nack"], **known[row["state"]]}} for row in picked["rows"]]


def _make_figures(rows: MarkedRows, chain: StageChain, placed: bool) -> list[Column]:
    state = F.col(STATE)
    figures = {
        "rows": F.count(F.lit(1)),
        "refused": F.count_if(state < 0),
        "picked": _collect_picked(rows),
        **{f"state {step.number}": F.count_if(state == step.number) for step in chain.common},
    }
    if placed:
        figures |= {"last block": F.max(_BLOCK), "first": F.min(_ROW)}
    for name in rows.notes:
        usual = find_noting_step(name, chain.common).stage.usual_note
        if usual is not None:
            figures[f"{name} usual"] = F.count_if((state >= 0) & (F.col(name) == usual))
    return [column.alias(name) for name, column in figures.items()]
