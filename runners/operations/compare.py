"""Compares two definitions on the same batches: which rows leave their stages differently, by column and cause."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeAlias, TypeVar

from origins.batch import JSON, Batch
from origins.lazy import Column, DataFrame, F, T
from origins.names import HIDDEN
from origins.origin import PLACE, Origin
from runners.definitions.definition import Definition
from runners.model.comparison import ComparedBatch, ComparedDestination, Comparison, Difference, Fate, Outcome
from runners.model.errors import Refusal
from runners.model.masking import without
from runners.model.spec import PipelineSpec
from runners.operations.batch_trial import hold_nothing, isolate_if_needed, make_isolator, without_stop
from runners.operations.trial import TrialRun
from runners.spark.own_session import put_settings_back
from runners.ways.batch_source import list_columns, strip_lane_prefix
from runners.ways.bisect_rows import RowErrorIsolator, split_runs
from runners.ways.deciding import FILTERED_BY, pass_branches
from runners.ways.stage_chain import StageChain, apply_chain, make_labels
from stages.expressions import SqlText
from stages.rows import (
    ORIGINAL,
    REFUSED_BY_ORIGIN,
    STATE,
    VERDICT,
    Expression,
    Rows,
    compute_once,
    encode_struct,
    make_struct,
)


@put_settings_back()
def compare_definitions(old: Definition, new: Definition, *, batches: int = 1) -> Comparison:
    """Try both definitions on the next batches of the old one, or on the newest processed batches if no batch waits.

    Nothing is written, and no offset moves. Raises `Refusal` if the definitions read from different places, or if no
    batch exists.
    """
    trial = TrialRun.open(old)
    other = replace(trial, definition=new)
    pairs = [_OriginPair(trial, other, *each) for each in _pair_origins(old.pipeline, new.pipeline)]
    found = [*islice(_list_waiting(trial, pairs), batches)]
    carried = [] if found else [*islice(_list_carried(trial, pairs), batches)]
    if not found and not carried:
        raise Refusal(
            f"No rows wait for {old.pipeline.name}, and there is no earlier batch to read again.",
            hint="Run it once, or let rows arrive.",
        )
    return Comparison(batches=[pair.compare(batch) for pair, batch in found or carried], carried=bool(carried))


def _pair_origins(old: PipelineSpec, new: PipelineSpec) -> Sequence[tuple[Origin, Origin]]:
    """Return each origin of the old definition with its counterpart in the new one.

    Raises `Refusal` if they read from different places.
    """
    theirs, pairs = new.origins_by_name, []
    for name, origin in old.origins_by_name.items():
        other = new.every_origin[0] if len(theirs) == 1 else theirs.get(name)
        if other is None or (type(other), other.place) != (type(origin), origin.place):
            reads = "has no such origin" if other is None else f"reads {other.place}"
            raise Refusal(
                f"Both definitions must read the same rows: the old one reads {origin.place}, the new one {reads}.",
                hint="Let both read from the same place. A relative path begins at its definition.",
            )
        pairs.append((origin, other))
    return pairs


def _list_waiting(trial: TrialRun, pairs: Sequence[_OriginPair]) -> Iterator[tuple[_OriginPair, Batch]]:
    for pair in pairs:
        lanes = [*trial.definition.pipeline.lanes_of(pair.origin)]
        yield from ((pair, plan.batch) for _, plan in trial.list_waiting(pair.origin, lanes))


def _list_carried(trial: TrialRun, pairs: Sequence[_OriginPair]) -> Iterator[tuple[_OriginPair, Batch]]:
    """Yield the processed batches, the newest first."""
    again = [pair for pair in pairs if pair.origin.repeatable]
    schemas = {pair: trial.find_schema(pair.origin) for pair in again}
    own = {lane: pair for pair in again for lane in trial.definition.pipeline.lanes_of(pair.origin)}
    for settled in sorted(trial.journal.list_settled(), key=lambda each: each.at, reverse=True):
        pair = own.get(settled.lane)
        schema = schemas[pair] if pair else None
        if pair is not None and schema is not None:
            yield pair, trial.make_batch(settled, pair.origin.name or "origin", schema)


_FILTER, _ROW = HIDDEN + "filter", HIDDEN + "row"
_OLD, _STATE, _VERDICT = HIDDEN + "old", HIDDEN + "state_as_read", HIDDEN + "verdict_as_read"
_NEW, _ID = HIDDEN + "new", HIDDEN + "id"
Made = TypeVar("Made")
_Isolators: TypeAlias = "tuple[RowErrorIsolator | None, RowErrorIsolator | None]"
"""The isolators of the rows at which stages raise, for both definitions."""


@dataclass(frozen=True, kw_only=True)
class _Walk:
    """The rows of a batch after the stages of one definition, each with its fate for every destination."""

    frame: DataFrame
    chain: StageChain
    schemas: Mapping[str, T.StructType]
    """By destination, the schema of its rows."""

    def make_outcome(self) -> Column:
        """Return everything that is known about a row as one column."""
        rows = [F.col(f"{_ROW}{at}") for at, _ in enumerate(self.chain.branches)]
        filters = [F.col(f"{_FILTER}{at}") for at, _ in enumerate(self.chain.branches)]
        return F.struct(F.col(STATE).alias(STATE), F.col(VERDICT).alias(VERDICT), *rows, *filters)

    def find_number(self, name: str) -> int:
        """Return the number of a destination, with which the names of its columns end."""
        return list(self.chain.branches).index(name)

    def keep_delivered(self, name: str) -> DataFrame:
        """Return the frame with only the rows that one destination gets."""
        return self.frame.where((F.col(STATE) == 0) & (F.col(f"{_FILTER}{self.find_number(name)}") == 0))

    def encode_row(self, name: str, of: str = "") -> Column:
        """Return the row of a destination as text, from the column `of` with an outcome if that is given."""
        column = f"{_ROW}{self.find_number(name)}"
        return F.expr(encode_struct(f"{of}.{column}" if of else column, self.schemas[name].json()))


@dataclass(frozen=True, eq=False)
class _OriginPair:
    """An origin of the old definition and its counterpart in the new one, which reads the same rows."""

    old: TrialRun
    new: TrialRun
    origin: Origin
    other: Origin

    def compare(self, batch: Batch) -> ComparedBatch:
        """Return what both definitions make of a batch. An error names the batch."""
        return _BatchPair(self, batch).compare()

    @property
    def reads_alike(self) -> bool:
        """Whether both origins give the same rows, so that Wherry reads them once."""
        return replace(self.other, name=self.origin.name) == self.origin

    @functools.lru_cache(maxsize=1)  # noqa: B019 -- the object lives as long as one comparison
    def make_chains(self, schema: str) -> tuple[StageChain, StageChain, str]:
        """Return the stages of both definitions, and the schema with which the new one reads.

        `schema` is the old definition's. All batches of a comparison share it.
        """
        theirs = schema
        if not self.reads_alike:
            theirs = self.other.complete_schema(self.new.find_schema(self.other) or schema)
        return self.old.make_chain(self.origin, schema), self.new.make_chain(self.other, theirs), theirs

    def show_row(self, side: str, row: str | None) -> Mapping[str, JSON]:
        """Return a masked example of a row that is given as text."""
        return {} if row is None else {side: self.mask_row(json.loads(row))}

    def mask_row(self, row: JSON, as_it_came: JSON = None) -> JSON:
        """Return a row without what either definition masks."""
        for trial in (self.old, self.new):
            pipeline = trial.definition.pipeline
            row = without(pipeline.secrets, pipeline.protection.mask_row(row, as_it_came))
        return row

    def mask_message(self, nack: Mapping[str, JSON]) -> JSON:
        """Return why a row is refused, without what either definition masks."""
        masked = dict(nack)
        for trial in (self.old, self.new):
            pipeline = trial.definition.pipeline
            masked = {**pipeline.protection.mask_nack(masked)}
            masked["message"] = without(pipeline.secrets, masked["message"])
        return masked["message"]


class _BatchPair:
    """One batch, on which both definitions are tried."""

    def __init__(self, pair: _OriginPair, batch: Batch) -> None:
        self._pair, self._batch, self._spark = pair, batch, pair.old.spark
        self._own = strip_lane_prefix(batch)
        self._order = pair.origin.parts(self._own)
        *self._chains, schema = pair.make_chains(batch.schema)
        self._theirs = replace(self._own, schema=schema)
        self._pins = [chain.pins(self._spark) for chain in self._chains]

    def compare(self) -> ComparedBatch:
        """Return what both definitions make of the batch."""
        by_row = self._pair.reads_alike and not any(
            step.stage.changes_rows for chain in self._chains for step in chain.steps
        )
        old, new = (list(chain.branches) for chain in self._chains)
        both = [name for name in old if name in new]
        compare = self._compare_rows if by_row else self._compare_contents
        with self._pair.new.name_failure(self._batch, "compared"):
            self._pair.origin.check(self._spark, self._own)
            found = isolate_if_needed(lambda isolators: compare(both, isolators or (None, None)), self._make_isolators)
        return ComparedBatch(
            origin=self._batch.origin,
            lane=self._batch.lane,
            number=self._batch.number,
            label=self._batch.span.label,
            by_row=by_row,
            destinations=found,
            only_old=[name for name in old if name not in both],
            only_new=[name for name in new if name not in both],
        )

    def _make_isolators(self) -> _Isolators:
        first, second = (
            make_isolator(self._spark, chain, pins, self._order)
            for chain, pins in zip(self._chains, self._pins, strict=True)
        )
        return first, second

    def _begin(self, origin: Origin, batch: Batch) -> Rows:
        frame = origin.fetch(self._spark, [batch], places=True).frame()
        rows = Rows.begin(frame, list_columns(batch), make_labels(batch), Rows.take_live)
        return replace(rows, parts=self._order, hold=hold_nothing, note_finding=lambda *_: None, claims=None)

    def _walk(self, rows: Rows, which: int, isolator: RowErrorIsolator | None) -> _Walk:
        """Return the rows after the stages of the first or the second definition."""
        chain, pins = self._chains[which], self._pins[which]
        for run in split_runs(chain.common):
            steps = [*map(without_stop, run)]
            rows = apply_chain(isolator.isolate(rows, run) if isolator else rows, steps, pins, checked=True)
        if isolator:
            rows = isolator.isolate_for_branches(rows)
        return _pass_destinations(rows, chain, pins)

    def _compare_rows(self, both: Sequence[str], isolators: _Isolators) -> Sequence[ComparedDestination]:
        """Compare by row: each row passes the old stages and then, as it was read, the new stages."""
        begun = self._begin(self._pair.origin, self._own)
        beside = {_ID: F.monotonically_increasing_id(), _STATE: F.col(STATE), _VERDICT: F.col(VERDICT)}
        begun = begun.with_frame(begun.frame.withColumns(beside))
        old = self._walk(replace(begun, kept=tuple(beside)), 0, isolators[0])
        again = old.frame.select(
            F.col(PLACE),
            F.col(_STATE).alias(STATE),
            F.col(_VERDICT).alias(VERDICT),
            F.col(ORIGINAL),
            F.col(_ID),
            old.make_outcome().alias(_OLD),
            *[F.col(ORIGINAL)[name].alias(name) for name in begun.names],
        )
        new = self._walk(replace(begun.with_frame(again), kept=(_ID, _OLD)), 1, isolators[1])
        walked = new.frame.select(_ID, ORIGINAL, F.col(_OLD), new.make_outcome().alias(_NEW))
        return _RowQuery(self._pair, walked, old, new, begun.original_schema).ask(both)

    def _compare_contents(self, both: Sequence[str], isolators: _Isolators) -> Sequence[ComparedDestination]:
        """Compare by content: count how often each definition delivers each row."""
        walks = [
            self._walk(self._begin(self._pair.origin, self._own), 0, isolators[0]),
            self._walk(self._begin(self._pair.other, self._theirs), 1, isolators[1]),
        ]
        found = []
        for name in both:
            texts = [walk.keep_delivered(name).select(walk.encode_row(name).alias("row")) for walk in walks]
            counts = [rows.groupBy("row").count() for rows in texts]
            old, new = (F.coalesce(F.col(f"{side}.count"), F.lit(0)) for side in ("old", "new"))
            joined = counts[0].alias("old").join(counts[1].alias("new"), F.col("old.row") == F.col("new.row"), "full")
            row = F.coalesce(F.col("old.row"), F.col("new.row"))
            (total,) = joined.agg(
                F.sum(F.least(old, new)).alias("same"),
                F.sum(F.greatest(old - new, F.lit(0))).alias("old"),
                F.sum(F.greatest(new - old, F.lit(0))).alias("new"),
                F.min(F.when(old > new, row)).alias("old_row"),
                F.min(F.when(new > old, row)).alias("new_row"),
            ).collect()
            differences = [
                Difference(
                    rows=total[side],
                    old=Outcome(fate="delivered") if side == "old" else None,
                    new=Outcome(fate="delivered") if side == "new" else None,
                    example=self._pair.show_row(side, total[f"{side}_row"]),
                )
                for side in ("old", "new")
                if total[side]
            ]
            found.append(
                ComparedDestination(
                    name=name,
                    same=total["same"] or 0,
                    differences=differences,
                    changed_columns=_list_changed_columns(walks[0].schemas[name], walks[1].schemas[name]),
                )
            )
        return found


def _pass_destinations(rows: Rows, chain: StageChain, pins: Mapping[str, JSON]) -> _Walk:
    """Return the rows after the stages of all destinations, each with how it leaves for every destination."""
    schemas = dict.fromkeys(chain.branches, rows.schema)
    plain = [at for at, steps in enumerate(chain.branches.values()) if not steps]
    columns = {f"{_ROW}{at}": make_struct(rows.names) for at in plain} | {
        f"{_FILTER}{at}": SqlText("0") for at in plain
    }
    if columns:
        query = rows.query.select("*", *[compute_once(sql, name) for name, sql in columns.items()])
        rows = replace(rows, query=query, kept=(*rows.kept, *columns))
    steps = {(at, name): own for at, (name, own) in enumerate(chain.branches.items()) if own}

    def own(rows: Rows, which: tuple[int, str]) -> tuple[Rows, Mapping[str, Expression]]:
        at, name = which
        passed = apply_chain(rows, [*map(without_stop, steps[which])], pins, checked=True)
        schemas[name] = passed.schema
        return passed, {f"{_ROW}{at}": make_struct(passed.names), f"{_FILTER}{at}": FILTERED_BY}

    frame = pass_branches(rows, steps, own).frame if steps else rows.frame
    return _Walk(frame=frame, chain=chain, schemas=schemas)


@dataclass(frozen=True)
class _RowQuery:
    """Counts the rows by what both definitions make of them, and reads one row of each kind that differs."""

    pair: _OriginPair
    walked: DataFrame
    old: _Walk
    new: _Walk
    read: str
    """The schema of the rows as they were read."""

    def ask(self, both: Sequence[str]) -> Sequence[ComparedDestination]:
        """Return what differs for each of these destinations."""
        kinds = F.explode(F.array(*[self._make_kind(at, name) for at, name in enumerate(both)])).alias("kind")
        groups = self.walked.select(_ID, kinds).groupBy("kind")
        counted = groups.agg(F.count(F.lit(1)).alias("rows"), F.min(_ID).alias("id")).collect()
        found = [self._describe(row, both) for row in counted]
        examples = self._read_examples([row["id"] for row, each in zip(counted, found, strict=True) if each], both)
        compared = []
        for at, name in enumerate(both):
            own = [(row, each) for row, each in zip(counted, found, strict=True) if row["kind"]["at"] == at]
            differences = [
                replace(each, example=self._make_example(each, examples.get(row["id"]), at))
                for row, each in own
                if each
            ]
            compared.append(
                ComparedDestination(
                    name=name,
                    same=sum(row["rows"] for row, each in own if each is None),
                    differences=sorted(differences, key=lambda each: (-each.rows, str(each.old), str(each.new))),
                    changed_columns=_list_changed_columns(self.old.schemas[name], self.new.schemas[name]),
                )
            )
        return compared

    def _make_kind(self, at: int, name: str) -> Column:
        """Return what both definitions make of a row for one destination, in a form that Spark groups quickly.

        For each definition it has the step at which the row left, and why. For rows that both deliver it has a digit
        for each column: 1 if the column differs.
        """
        (old, old_code, old_row), (new, new_code, new_row) = (
            self._find(self.old, _OLD, name),
            self._find(self.new, _NEW, name),
        )
        then, now = self.old.schemas[name], self.new.schemas[name]
        same = [
            F.when(_is_same(old_row[each], then[each].dataType, new_row[each], now[each].dataType), "0").otherwise("1")
            for each in self._list_shared(name)
        ]
        digits = F.when((old == 0) & (new == 0), F.concat(F.lit(""), *same)).otherwise("")
        parts = {"old": old, "old_code": old_code, "new": new, "new_code": new_code, "differs": digits}
        return F.struct(F.lit(at).alias("at"), *[column.alias(part) for part, column in parts.items()])

    def _list_shared(self, name: str) -> Sequence[str]:
        return [each for each in self.old.schemas[name].names if each in self.new.schemas[name].names]

    def _find(self, walk: _Walk, column: str, name: str) -> tuple[Column, Column, Column]:
        """Return where a row left on its way to a destination, why, and the row as it is delivered."""
        outcome, at = F.col(column), walk.find_number(name)
        state = outcome[STATE]
        left = F.when(state != 0, state).otherwise(outcome[f"{_FILTER}{at}"])
        return left, F.when(state < 0, outcome[VERDICT]["code"]), outcome[f"{_ROW}{at}"]

    def _describe(self, row: T.Row, both: Sequence[str]) -> Difference | None:
        """Describe a kind of rows, or return None if both definitions treat them equally."""
        kind = row["kind"]
        old, new = (
            _name_outcome(self.old, kind["old"], kind["old_code"]),
            _name_outcome(self.new, kind["new"], kind["new_code"]),
        )
        shared = self._list_shared(both[kind["at"]])
        columns = [name for name, differs in zip(shared, kind["differs"], strict=False) if differs == "1"]
        return None if old == new and not columns else Difference(rows=row["rows"], old=old, new=new, columns=columns)

    def _read_examples(self, ids: Sequence[int], both: Sequence[str]) -> Mapping[int, T.Row]:
        if not ids:
            return {}
        verdict = F.coalesce(F.col(_NEW)[VERDICT], F.col(_OLD)[VERDICT])
        shown = [
            walk.encode_row(name, column).alias(f"{side}{at}")
            for at, name in enumerate(both)
            for side, column, walk in (("old", _OLD, self.old), ("new", _NEW, self.new))
        ]
        why = [verdict[name].alias(name) for name in ("stage", "message", "row")]
        read = F.expr(encode_struct(ORIGINAL, self.read)).alias("read")
        rows = self.walked.where(F.col(_ID).isin(*ids)).select(F.col(_ID).alias("id"), read, *shown, *why)
        return {row["id"]: row for row in rows.collect()}

    def _make_example(self, difference: Difference, row: T.Row | None, at: int) -> Mapping[str, JSON]:
        """Return the masked row as it was read, as it is delivered, and why it is refused."""
        if row is None:
            return {}
        read = json.loads(row["read"])
        example: dict[str, JSON] = {"read": self.pair.mask_row(read, read)}
        fates = {side: outcome.fate for side, outcome in (("old", difference.old), ("new", difference.new)) if outcome}
        for side, fate in fates.items():
            if fate == "delivered":
                example[side] = self.pair.mask_row(json.loads(row[f"{side}{at}"]), read)
        if "refused" in fates.values():
            nack = {name: row[name] for name in ("stage", "message")}
            example["why"] = self.pair.mask_message({**nack, "row": json.loads(row["row"]), "original": read})
        return example


def _name_outcome(walk: _Walk, left: int, code: str | None) -> Outcome:
    names = {0: "", -REFUSED_BY_ORIGIN: "origin", **{step.number: step.name for step in walk.chain.steps}}
    fate: Fate = "refused" if left < 0 else "filtered" if left else "delivered"
    return Outcome(fate=fate, stage=names[abs(left)], code=code)


def _is_same(old: Column, then: T.DataType, new: Column, now: T.DataType) -> Column:
    """Whether two values are the same. Values of different types are compared as text."""
    if then == now and not _holds_map(then):
        return old.eqNullSafe(new)
    return _as_text(old, then).eqNullSafe(_as_text(new, now))


def _as_text(value: Column, kind: T.DataType) -> Column:
    is_nested = isinstance(kind, T.StructType | T.ArrayType | T.MapType)
    return F.to_json(F.struct(value.alias("v"))) if is_nested else value.cast("string")


def _holds_map(kind: T.DataType) -> bool:
    if isinstance(kind, T.StructType):
        return any(_holds_map(each.dataType) for each in kind)
    return isinstance(kind, T.MapType | T.VariantType) or (
        isinstance(kind, T.ArrayType) and _holds_map(kind.elementType)
    )


def _list_changed_columns(old: T.StructType, new: T.StructType) -> Mapping[str, Sequence[str | None]]:
    types = [{each.name: each.dataType.simpleString() for each in schema} for schema in (old, new)]
    names = dict.fromkeys(name for each in types for name in each)
    return {name: [each.get(name) for each in types] for name in names if types[0].get(name) != types[1].get(name)}
