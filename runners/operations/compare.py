"""Compares two definitions on the same batches: which rows leave their stages differently, by column and cause."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from origins.batch import JSON, Batch
from origins.capabilities import check_source, complete_schema
from origins.lazy import Column, DataFrame, F, Row, T
from origins.names import HIDDEN
from origins.origin import Origin
from runners.definitions.definition import Definition
from runners.model.comparison import ComparedBatch, ComparedDestination, Comparison, Difference, Fate, Outcome
from runners.model.errors import Refusal
from runners.model.spec import PipelineSpec
from runners.operations.trace import PassRows, Trace, ask
from runners.operations.tracer import Tracer
from runners.spark.own_session import put_settings_back
from runners.ways.batch_source import strip_lane_prefix
from runners.ways.stage_chain import StageChain
from stages.rows import ORIGINAL, STATE, VERDICT, encode_struct


@put_settings_back()
def compare_definitions(old: Definition, new: Definition, *, batches: int = 1) -> Comparison:
    """Try both definitions on the next batches of the old one, or on the newest processed batches if no batch waits.

    Nothing is written, and no offset moves. Raises `Refusal` if the definitions read from different places, or if no
    batch exists.
    """
    tracer = Tracer.open(old)
    other = replace(tracer, definition=new)
    pairs = [_OriginPair(tracer, other, *each) for each in _pair_origins(old.pipeline, new.pipeline)]
    found = [*islice(_list_waiting(tracer, pairs), batches)]
    carried = [] if found else [*islice(_list_carried(tracer, pairs), batches)]
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


def _list_waiting(tracer: Tracer, pairs: Sequence[_OriginPair]) -> Iterator[tuple[_OriginPair, Batch]]:
    for pair in pairs:
        lanes = [*tracer.definition.pipeline.lanes_of(pair.origin)]
        yield from ((pair, plan.batch) for _, plan in tracer.list_waiting(pair.origin, lanes))


def _list_carried(tracer: Tracer, pairs: Sequence[_OriginPair]) -> Iterator[tuple[_OriginPair, Batch]]:
    """Yield the processed batches, the newest first."""
    again = [pair for pair in pairs if pair.origin.repeatable]
    schemas = {pair: tracer.find_schema(pair.origin) for pair in again}
    own = {lane: pair for pair in again for lane in tracer.definition.pipeline.lanes_of(pair.origin)}
    for settled in sorted(tracer.journal.list_settled(), key=lambda each: each.at, reverse=True):
        pair = own.get(settled.lane)
        schema = schemas[pair] if pair else None
        if pair is not None and schema is not None:
            yield pair, tracer.make_batch(settled, pair.origin.name or "origin", schema)


_OLD, _NEW, _ID = HIDDEN + "old", HIDDEN + "new", HIDDEN + "id"


@dataclass(frozen=True, eq=False)
class _OriginPair:
    """An origin of the old definition and its counterpart in the new one, which reads the same rows."""

    old: Tracer
    new: Tracer
    origin: Origin
    other: Origin

    def compare(self, batch: Batch) -> ComparedBatch:
        """Return what both definitions make of a batch. An error names the batch.

        If possible, each row passes the old stages and then, as it was read, the new stages.
        """
        *chains, schema = self.make_chains(batch.schema)
        pins = [chain.pins(self.old.spark) for chain in chains]
        by_row = self.reads_alike and not any(step.stage.changes_rows for chain in chains for step in chain.steps)
        old, new = (list(chain.branches) for chain in chains)
        both = [name for name in old if name in new]

        protected = tuple({*self.old.definition.pipeline.protect, *self.new.definition.pipeline.protect})

        def view(pass_rows: PassRows) -> Sequence[ComparedDestination]:
            rows = replace(self.old.begin_rows(self.origin, batch), protected=protected)
            if by_row:
                frame = rows.frame.withColumn(_ID, F.monotonically_increasing_id())
                first = pass_rows(replace(rows.with_frame(frame), kept=(_ID,)), chains[0], pins[0])
                second = pass_rows(first.begin_again(_OLD), chains[1], pins[1])
                return _RowQuery(self, first, second, both).ask()
            theirs = self.new.begin_rows(self.other, replace(batch, schema=schema))
            theirs = replace(theirs, protected=protected)
            first, second = pass_rows(rows, chains[0], pins[0]), pass_rows(theirs, chains[1], pins[1])
            return [self._compare_contents(first, second, name) for name in both]

        with self.new.name_failure(batch, "compared"):
            check_source(self.origin, self.old.spark, strip_lane_prefix(batch))
            found = ask(view)
        return ComparedBatch(
            origin=batch.origin,
            lane=batch.lane,
            number=batch.number,
            label=batch.span.label,
            by_row=by_row,
            destinations=found,
            only_old=[name for name in old if name not in both],
            only_new=[name for name in new if name not in both],
        )

    def _compare_contents(self, before: Trace, after: Trace, name: str) -> ComparedDestination:
        """Count how often each definition delivers each row to a destination."""
        counts = [trace.select_delivered(name).groupBy("row").count() for trace in (before, after)]
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
        delivered = Outcome(fate="delivered")
        differences = [
            Difference(
                rows=total[side],
                old=delivered if side == "old" else None,
                new=delivered if side == "new" else None,
                example={side: self.mask_row(json.loads(total[f"{side}_row"]))},
            )
            for side in ("old", "new")
            if total[side]
        ]
        return ComparedDestination(
            name=name,
            same=total["same"] or 0,
            differences=differences,
            changed_columns=_list_changed_columns(before, after, name),
        )

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
            theirs = complete_schema(self.other, self.new.find_schema(self.other) or schema)
        return self.old.make_chain(self.origin, schema), self.new.make_chain(self.other, theirs), theirs

    def mask_row(self, row: JSON, as_it_came: JSON = None) -> JSON:
        """Return a row without what either definition masks."""
        return self.new.definition.pipeline.mask_row(self.old.definition.pipeline.mask_row(row, as_it_came), as_it_came)

    def mask_message(self, nack: Mapping[str, JSON]) -> JSON:
        """Return why a row is refused, without what either definition masks."""
        masked = self.old.definition.pipeline.mask_nack(nack)
        return self.new.definition.pipeline.mask_nack(masked)["message"]


@dataclass(frozen=True)
class _RowQuery:
    """Counts the rows by what both definitions make of them, and reads one row of each kind that differs."""

    pair: _OriginPair
    old: Trace
    new: Trace
    both: Sequence[str]
    """The destinations of both definitions."""

    @functools.cached_property
    def passed(self) -> DataFrame:
        """The rows with both outcomes."""
        (section,) = self.new.sections
        return section.frame.select(_ID, ORIGINAL, _OLD, section.pack().alias(_NEW))

    def ask(self) -> Sequence[ComparedDestination]:
        """Return what differs for each destination."""
        kinds = F.explode(F.array(*[self._make_kind(at, name) for at, name in enumerate(self.both)])).alias("kind")
        groups = self.passed.select(_ID, kinds).groupBy("kind")
        counted = groups.agg(F.count(F.lit(1)).alias("rows"), F.min(_ID).alias("id")).collect()
        found = [(row, self._describe(row)) for row in counted]
        examples = self._read_examples([row["id"] for row, each in found if each])
        compared = []
        for at, name in enumerate(self.both):
            own = [(row, each) for row, each in found if row["kind"]["at"] == at]
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
                    changed_columns=_list_changed_columns(self.old, self.new, name),
                )
            )
        return compared

    def _list_shared(self, name: str) -> Sequence[tuple[str, T.DataType, T.DataType]]:
        """Return the columns that a destination gets in both definitions, with their types."""
        then, now = (trace.sections[0].get_schema(name) for trace in (self.old, self.new))
        return [(each, then[each].dataType, now[each].dataType) for each in then.names if each in now.names]

    def _make_kind(self, at: int, name: str) -> Column:
        """Return what both definitions make of a row for one destination, in a form that Spark groups quickly.

        For each definition it has the step at which the row left, and why. For rows that both deliver it has a digit
        for each column: 1 if the column differs.
        """
        old, old_code, old_row = self._find(self.old, _OLD, name)
        new, new_code, new_row = self._find(self.new, _NEW, name)
        same = [
            F.when(_is_same(old_row[each], then, new_row[each], now), "0").otherwise("1")
            for each, then, now in self._list_shared(name)
        ]
        digits = F.when((old == 0) & (new == 0), F.concat(F.lit(""), *same)).otherwise("")
        parts = {"old": old, "old_code": old_code, "new": new, "new_code": new_code, "differs": digits}
        return F.struct(F.lit(at).alias("at"), *[column.alias(part) for part, column in parts.items()])

    def _find(self, trace: Trace, of: str, name: str) -> tuple[Column, Column, Column]:
        """Return where a row left on its way to a destination, why, and the row as it is delivered."""
        (section,), outcome = trace.sections, F.col(of)
        code = F.when(outcome[STATE] < 0, outcome[VERDICT]["code"])
        return section.find_exit(name, of), code, outcome[section.get_last(name).column]

    def _describe(self, row: Row) -> Difference | None:
        """Describe a kind of rows, or return None if both definitions treat them equally."""
        kind = row["kind"]
        old = _name_outcome(self.old, kind["old"], kind["old_code"])
        new = _name_outcome(self.new, kind["new"], kind["new_code"])
        shared = self._list_shared(self.both[kind["at"]])
        columns = [name for (name, *_), differs in zip(shared, kind["differs"], strict=False) if differs == "1"]
        return None if old == new and not columns else Difference(rows=row["rows"], old=old, new=new, columns=columns)

    def _read_examples(self, ids: Sequence[int]) -> Mapping[int, Row]:
        if not ids:
            return {}
        verdict = F.coalesce(F.col(_NEW)[VERDICT], F.col(_OLD)[VERDICT])
        shown = [
            trace.sections[0].get_last(name).encode(column).alias(f"{side}{at}")
            for at, name in enumerate(self.both)
            for side, column, trace in (("old", _OLD, self.old), ("new", _NEW, self.new))
        ]
        why = [verdict[name].alias(name) for name in ("stage", "message", "row")]
        read = F.expr(encode_struct(ORIGINAL, self.old.rows.original_schema)).alias("read")
        rows = self.passed.where(F.col(_ID).isin(*ids)).select(F.col(_ID).alias("id"), read, *shown, *why)
        return {row["id"]: row for row in rows.collect()}

    def _make_example(self, difference: Difference, row: Row | None, at: int) -> Mapping[str, JSON]:
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


def _name_outcome(trace: Trace, left: int, code: str | None) -> Outcome:
    fate: Fate = "refused" if left < 0 else "filtered" if left else "delivered"
    return Outcome(fate=fate, stage=trace.name_step(left), code=code)


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


def _list_changed_columns(old: Trace, new: Trace, name: str) -> Mapping[str, Sequence[str | None]]:
    """Return the columns of a destination's rows that have different types, or that only one definition has."""
    schemas = [trace.sections[-1].get_schema(name) for trace in (old, new)]
    types = [{each.name: each.dataType.simpleString() for each in schema} for schema in schemas]
    names = dict.fromkeys(each for own in types for each in own)
    return {each: [own.get(each) for own in types] for each in names if types[0].get(each) != types[1].get(each)}
