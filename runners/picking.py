"""A batch decided in one pass: its live rows are written while the refused ones, if they are few, are picked out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from origins.batch import JSON
from origins.names import HIDDEN, quoted
from origins.origin import PLACE
from runners import groups, notes
from runners.counting import ROW_OF_PARTITION
from runners.line import Line, Step
from runners.verdicts import MOST_FIGURES, Verdicts, found, place, verdict
from stages.rows import NOTE, STATE, VERDICT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation

    from runners.store import Store
    from stages.rows import Marked

MOST = 10_000
"""Refused rows up to which a task picks them; a batch with more is decided as any other."""
_LONGEST = 8 << 10
"""The length of a refused row's texts up to which it is picked."""
_SPACE = 64 << 20
"""The bytes that a task may pick."""
_OF_A_ROW = ("stage", "destination", "code", "message", "row", "original")
_OF_A_STAGE = ("row_schema", "original_schema")
"""What a nack says of its row, and what is the same for all rows that its stage refused."""
_PICKED, _BLOCK, _ROW = HIDDEN + "picked", HIDDEN + "block", HIDDEN + "row"


@dataclass(frozen=True, kw_only=True)
class Picked:
    """What was seen of a batch while its live rows were written."""

    verdicts: Verdicts
    refused: Sequence[Mapping[str, JSON]]
    """The refused rows, with all that stands beside them."""
    first: int | None = None
    """The number of the first row, where all are of one part and of its block 0."""
    notes: Mapping[str, Mapping[str, int]]
    """How many rows have which note, of each column in which all that were not refused have the usual one."""


@dataclass(frozen=True)
class Picking:
    """One pass over a batch; `live` is what is written."""

    live: DataFrame
    _rows: Marked
    _parts: Sequence[str]
    _steps: Sequence[Step]
    _observation: Observation

    @staticmethod
    def of(rows: Marked, line: Line, parts: Sequence[str]) -> Picking | None:
        """Of the rows of these parts behind all stages; None where one pass does not do."""
        from pyspark.sql import Observation

        if not is_one_pass(line):
            return None
        observation = Observation()
        data = [F.col(quoted(name)) for name in rows.names]
        stood = [F.col(PLACE)["block"].alias(_BLOCK), F.col(PLACE)["row"].alias(_ROW)] if len(parts) == 1 else []
        seen = rows.frame.select(STATE, _picked(rows).alias(_PICKED), *stood, *rows.notes, *data)
        live = seen.observe(observation, *_figures(rows, line, bool(stood))).where(F.col(STATE) == 0).select(*data)
        return Picking(live, rows, parts, line.common, observation)

    def picked(self, store: Store, name: str) -> Picked | None:
        """Write the live rows into the store under this name; what was seen. None where that is not sure, or more rows
        were refused than could be picked."""
        written = store.write(name, self.live)
        seen = found(self._observation)
        if not seen or written is None:
            return None
        refused = _whole(json.loads(str(seen["picked"])))
        states = Counter({step.number: seen[f"state {step.number}"] for step in self._steps})
        states[0] = seen["rows"] - seen["refused"] - states.total()
        if refused is None or len(refused) != seen["refused"] or states[0] != written:
            return None
        noted = {name: self._noted(name, seen, states, refused) for name in self._rows.notes}
        return Picked(
            verdicts=Verdicts(states=states + Counter(row["state"] for row in refused)),
            refused=refused,
            first=seen["first"] if seen.get("last block") == 0 else None,
            notes={name: counted for name, counted in noted.items() if counted is not None},
        )

    def notes(self, picked: Picked, columns: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
        """For each of these columns, how many rows have which note. Asks Spark where rows of different notes live."""
        others = [name for name in columns if name not in picked.notes]
        known = {name: picked.notes[name] for name in columns if name in picked.notes}
        return {**known, **(notes.by_spark(self._rows.frame, others) if others else {})}

    def groups(self, picked: Picked) -> list[Mapping[str, JSON]]:
        """Where the rows stood, as `groups_of` says it of rows that were written. Asks Spark where they are of several
        blocks."""
        if picked.first is not None:
            only = {"part": self._parts[0], "block": 0, "rows": picked.verdicts.rows, "first": picked.first}
            blocks: Sequence[Mapping[str, JSON]] = [{**only, "state": 0, "refused": []}]
        else:
            blocks = groups.by_spark(self._rows.frame.select(*place(), F.lit(0).alias("state")))
        refused = [{**row, "rows": 0, "first": row["row"], "refused": [row["row"]]} for row in picked.refused]
        return [*blocks, *refused]

    def _noted(
        self, name: str, seen: Mapping[str, JSON], states: Counter[int], refused: Sequence[Mapping[str, JSON]]
    ) -> Mapping[str, int] | None:
        """The notes of a stage that is about every row which comes to its door; None where they differ."""
        step = noting(name, self._steps)
        came = sum(rows for state, rows in states.items() if state == 0 or state >= step.number)
        if step.stage.when is not None or seen.get(f"{name} usual") != came:
            return None
        return Counter(row[name] for row in refused if row.get(name) is not None) + Counter(
            {step.stage.usual_note: came}
        )


def is_one_pass(line: Line) -> bool:
    """Whether all destinations get the same rows, and no question is asked again that is dear, or that others
    notice."""
    again = any(step.stage.gathers or step.stage.asks_outside for step in line.steps)
    return not again and not any(line.branches.values()) and len(line.common) <= MOST_FIGURES


def noting(name: str, steps: Sequence[Step]) -> Step:
    """The step that keeps its notes in this column."""
    return next(step for step in steps if f"{NOTE}{step.number}" == name)


def _picked(rows: Marked) -> Column:
    """A refused row as it is picked; NULL for the others, and for those behind the last that a task picks."""
    most = min(MOST, _SPACE // (2 * len(rows.original_schema) + _LONGEST))
    nth = F.monotonically_increasing_id().bitwiseAND(ROW_OF_PARTITION)
    return F.when(F.col(STATE) < 0, F.when((nth < most) & is_short(), F.struct(*verdict(), *rows.notes)))


def is_short() -> Column:
    """Whether the texts of a refused row are no longer than those of one that is picked."""
    texts = (F.octet_length(F.col(VERDICT)[of]) for of in ("message", "row", "original"))
    return sum((F.coalesce(length, F.lit(0)) for length in texts), F.lit(0)) <= _LONGEST


def _brought(rows: Marked) -> Column:
    """What was picked, as text: the rows without schemas, and these once for all that one stage refused."""

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


def _whole(picked: Mapping[str, JSON]) -> Sequence[Mapping[str, JSON]] | None:
    """The rows with their schemas; None where a stage refused rows of several."""
    known = {each.pop("state"): each for each in picked["schemas"]}
    if len(known) < len(picked["schemas"]):
        return None
    return [{**row, "nack": {**row["nack"], **known[row["state"]]}} for row in picked["rows"]]


def _figures(rows: Marked, line: Line, placed: bool) -> list[Column]:
    state = F.col(STATE)

    def count(holds: Column) -> Column:
        return F.count(F.when(holds, F.lit(1)))

    figures = {
        "rows": F.count(F.lit(1)),
        "refused": count(state < 0),
        "picked": _brought(rows),
        **{f"state {step.number}": count(state == step.number) for step in line.common},
    }
    if placed:
        figures |= {"last block": F.max(_BLOCK), "first": F.min(_ROW)}
    for name in rows.notes:
        usual = noting(name, line.common).stage.usual_note
        if usual is not None:
            figures[f"{name} usual"] = count((state >= 0) & (F.col(name) == usual))
    return [column.alias(name) for name, column in figures.items()]
