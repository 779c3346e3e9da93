"""A replay of chosen rows of the DLQ: which rows it can process, grouped into batches."""

from __future__ import annotations

import functools
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from destinations.dead_letters import format_moment, narrow_to_ids, query_dlq
from destinations.delta.delta import Delta
from destinations.destination import Destination
from origins.batch import JSON, Batch, Span
from origins.batch_rows import FrameRows
from origins.codec import INLINE, LEFT_OUT, JsonForm, decode, encode_fields
from origins.lazy import DataFrame, F, SparkSession, T
from origins.nack import RAW, REFUSED, convert_value, describe_misfit, make_refusal, restore
from origins.names import HIDDEN
from origins.origin import PLACE, RowSource
from origins.problems import refuse_unknown
from runners.model.errors import Refusal, check_reason
from runners.model.pipeline_state import REPLAY, PipelineState, is_replay, list_meant, make_rows_key
from runners.model.run_report import Report
from runners.model.spec import PipelineSpec
from runners.model.text import format_count
from runners.running.aggregates import OF_A_REPLAY
from runners.running.choice import Choice, Letter, refuse_gone_conditions
from runners.running.compatibility import resolve_names
from runners.running.fix import NO_FIX, Fix, is_fix
from runners.running.opening import make_chains
from runners.running.work import OpenRun, PastLane, Work
from runners.state.journal import Journal, list_decided, list_settled_ever
from runners.state.location import StateLocation, check_pipeline, find_dlq
from runners.state.prepared_store import PreparedStore
from runners.ways.stage_chain import StageChain, name_destinations
from stages.bisection import FAILS

MOST = 10_000
"""The most rows of the DLQ in a batch. The ledger keeps the id of each."""

FIX_PIN = ":fix"
"""The name under which a plan records the fix of its rows. No stage has this name."""
_FEW = 10
"""At most this many rows are read in this process."""
_ROW, _ID, _READ, _CORRECTED = (f"{HIDDEN}{name}" for name in ("row", "id", "read", "corrected"))
UNREAD = hashlib.md5(RAW.encode(), usedforsecurity=False).hexdigest()
NOT_READ = "the origin could not read these lines; correct them and add them in a new file"
NOT_KEPT = "the DLQ did not keep the original rows (dlq.original is false)"
"""Why a row cannot be processed again."""


@dataclass(frozen=True, kw_only=True)
class PlannedRows:
    """The rows of one origin that a replay would process."""

    rows: int
    batches: int
    destinations: Sequence[str]
    """The destinations that lack some of them."""


@dataclass(frozen=True, kw_only=True)
class ReplayPlan(JsonForm):
    """What a replay would process, in numbers. Nothing has happened yet."""

    origins: Mapping[str, PlannedRows]
    left: Mapping[str, int]
    """How many chosen rows cannot be replayed, by reason."""

    @property
    def rows(self) -> int:
        """The number of rows to process."""
        return sum(each.rows for each in self.origins.values())

    @property
    def notices(self) -> Sequence[str]:
        """A sentence for each reason why rows are left out."""
        return [f"{format_count(rows)} in the DLQ cannot be replayed: {why}" for why, rows in self.left.items()]


@dataclass(frozen=True, kw_only=True)
class SortedLetters:
    """The rows that can be replayed, and the number of the others, by reason."""

    batches: Mapping[str, Sequence[tuple[Span, tuple[str, ...]]]]
    """By origin, the rows in batches, each with the destinations that lack them."""
    left: Mapping[str, int]
    refusers: Mapping[str, str]
    """By the end of each batch, the stage before which the fix is applied; empty if that is the first stage."""

    def put_fix(self, fix: Fix, chain: StageChain, span: Span) -> StageChain:
        """Return the chain with the fix for the rows of a batch."""
        return fix.put_into(chain, self.refusers[str(span.end)])

    @property
    def plan(self) -> ReplayPlan:
        """The same in numbers."""
        origins = {
            name: PlannedRows(
                rows=sum(len(span.parts) for span, _ in batches),
                batches=len(batches),
                destinations=[*dict.fromkeys(name for _, names in batches for name in names)],
            )
            for name, batches in self.batches.items()
        }
        return ReplayPlan(origins=origins, left=self.left)

    def check(self, destinations: Mapping[str, Destination]) -> None:
        """Raises `Refusal` if late rows would replace newer rows."""
        wanted = {name for batches in self.batches.values() for _, names in batches for name in names}
        for name in sorted(name for name in wanted if destinations[name].ordered):
            raise Refusal(
                f"'{name}' keeps the row that arrives last, and rows of the DLQ arrive late: an old row would replace "
                "a newer one.",
                hint="Set `sequence_by` there, so that the newest row wins.",
            )


def sort(
    letters: Sequence[Letter], chains: Mapping[str, StageChain], most: int | None = None, fix: Fix = NO_FIX
) -> SortedLetters:
    """Return which of these rows can be replayed through the chains of today, in batches.

    The rows of a batch were read with the same schema, go to the same destinations, and get the fix at the same place.
    """
    left: Counter[str] = Counter()
    alike: dict[tuple[str, JSON, tuple[str, ...], str], list[str]] = {}
    for letter in letters:
        why = _explain_staying(letter, chains, fix)
        if why:
            left[why] += 1
        else:
            names = tuple(name for name in chains[letter.origin].branches if name not in letter.delivered_to)
            refuser = letter.stage if fix.start == "refused" else ""
            alike.setdefault((letter.origin, letter.kind, names, refuser), []).append(letter.id)
    batches: dict[str, list[tuple[Span, tuple[str, ...]]]] = {}
    refusers: dict[str, str] = {}
    for (origin, _, names, refuser), ids in alike.items():
        for span in _make_spans(ids, min(most or MOST, MOST)):
            batches.setdefault(origin, []).append((span, names))
            refusers[str(span.end)] = refuser
    return SortedLetters(batches=batches, left=left, refusers=refusers)


def leave_to_backfills(
    letters: Sequence[Letter], journal: Journal, destinations: Mapping[str, Destination]
) -> Sequence[Letter]:
    """Return the rows, so that each leaves out destinations that another batch with the same rows was for.

    A backfill that refused a row again left a second row in the DLQ. That second row goes to the backfill's
    destinations.
    """
    if not journal.state.backfills:
        return letters
    today = resolve_names(destinations)
    settled = {each.plan: each for each in list_settled_ever(journal)}
    meant = {plan: {today[name] for name in list_meant(each) if name in today} for plan, each in settled.items()}
    by_rows: dict[str, set[str]] = {}
    for plan, each in settled.items():
        by_rows.setdefault(make_rows_key(each), set()).update(meant[plan])

    @functools.cache
    def find_others(plan: str) -> frozenset[str]:
        each = settled.get(plan)
        if each is None:
            return frozenset()
        if is_replay(each.lane):
            return frozenset().union(*(find_others(str(part).rpartition("/")[0]) for part in each.span.parts))
        return frozenset(by_rows[make_rows_key(each)] - meant[plan])

    return [
        replace(each, delivered_to=(*each.delivered_to, *sorted(find_others(each.id.rpartition("/")[0]))))
        for each in letters
    ]


def _explain_staying(letter: Letter, chains: Mapping[str, StageChain], fix: Fix) -> str:
    """Return why this row cannot be replayed; empty if it can."""
    chain = chains.get(letter.origin)
    if chain is None:
        return f"the origin '{letter.origin}' no longer exists"
    if letter.kind is None:
        return NOT_KEPT
    if letter.kind == UNREAD:
        return NOT_READ
    if all(name in letter.delivered_to for name in chain.branches):
        return "every destination has them already"
    if fix.start == "refused" and letter.destination:
        return f"the destination '{letter.destination}' refused them, not a stage; apply the fix at the beginning"
    if fix.start == "refused" and letter.stage not in [step.name for step in chain.steps]:
        return f"the definition has no stage '{letter.stage}' now; apply the fix at the beginning"
    names = [step.name for step in chain.common]
    changes = next((at for at, step in enumerate(chain.common) if step.stage.changes_rows), None)
    by_fix = bool(letter.replays) and is_fix(letter.stage) and letter.stage not in names
    if changes is not None and not by_fix and letter.stage not in names[:changes]:
        return f"they were refused after '{names[changes]}', which makes other rows"
    return ""


def _make_spans(ids: Sequence[str], most: int) -> Iterator[Span]:
    for first in range(0, len(ids), most):
        own = tuple(ids[first : first + most])
        yield Span(start=None, end=own[-1], parts=own, label=f"{format_count(len(own))} of the DLQ")


@refuse_unknown
@dataclass(frozen=True, kw_only=True)
class Replay(Work):
    """The rows of the DLQ to process again, and the reason.

    Each row is processed once, even if the replay is repeated or its process dies. If a row is refused again, that is a
    new row of the DLQ, which names the old row.
    """

    takes_letters = True
    split = OF_A_REPLAY

    choice: Choice = field(default=Choice(), metadata=INLINE)
    reason: str
    fix: Fix = field(default=NO_FIX, metadata=LEFT_OUT)
    """The change to each row before it is processed."""
    give_up: bool = field(default=False, metadata=LEFT_OUT)
    """Whether to give up an interrupted replay with another fix."""

    def __post_init__(self) -> None:
        check_reason(self.reason, "A replay")

    def json(self) -> Mapping[str, JSON]:
        return encode_fields(self)

    @staticmethod
    def resume(state: PipelineState) -> Replay:
        """Return the interrupted replay with its fix. Raises `Refusal` if no replay was interrupted."""
        if state.replay is None:
            raise Refusal("No replay with a fix was interrupted, so there is none to resume.")
        refuse_gone_conditions(state.replay.body)
        return replace(decode(Replay, state.replay.body), give_up=False)

    def check(self, journal: Journal, dlq: Destination, spark: Callable[[], SparkSession]) -> None:
        """Raises `Refusal` if an interrupted replay with another fix still has waiting rows.

        That replay must have applied its fix to some of its rows.
        """
        known = journal.state.replay
        if self.give_up or known is None or not known.decided:
            return
        if decode(Fix, known.body["fix"]).key == self.fix.key:
            return
        before = Replay.resume(journal.state)
        waiting = replace(before.choice, ids=()).select_letters(dlq, spark, list_decided(journal))
        left = [each for each in waiting if not before.choice.ids or each.id in before.choice.ids]
        if left:
            began = format_moment(datetime.fromisoformat(known.at))
            raise Refusal(
                f"A replay with the fix {before.fix.describe()} was cut short. It began at {began}, and left "
                f"{format_count(len(left))} without that fix.",
                hint="Give the others the same fix:  wherry dlq replay FILE --resume\n"
                "Or give that replay up, and begin this one:  --give-up",
            )

    def select_rows(self, run: OpenRun) -> Sequence[PastLane]:
        """Return the rows by origin, and let the run read them with the fix.

        Corrected rows are in the state before the first of them is planned.
        """
        reading, journal = run.reading, run.journal
        if self.fix.rows and isinstance(run.dlq, Delta):
            kept = self.fix.rows.keep(StateLocation.of(run.pipeline).store(), run.spark)
            letters = DeadLetterRows(dlq=run.dlq, corrected=kept.texts)
            reading.origins = {**reading.origins, REPLAY: letters}
        found = self.sort_letters(run.pipeline, journal, reading.chains, run.dlq, lambda: run.spark)
        reading.fix = partial(found.put_fix, self.fix)
        return [
            PastLane(
                origin=origin,
                name=lane,
                lane=lane,
                start=journal.state.get_lane(lane).offset,
                batches=found.batches.get(origin, ()),
                pins={FIX_PIN: self.fix.key} if self.fix else {},
                notices=() if at else found.plan.notices,
            )
            for at, (origin, lane) in enumerate((each, f"{REPLAY}{each}") for each in reading.chains)
        ]

    def sort_letters(
        self,
        pipeline: PipelineSpec,
        journal: Journal,
        chains: Mapping[str, StageChain],
        dlq: Destination,
        spark: Callable[[], SparkSession],
    ) -> SortedLetters:
        """Return the chosen rows, in batches. Raises `Refusal` if a destination must not get old rows."""
        destinations, most = name_destinations(pipeline.every_destination), pipeline.run_options.batch.rows
        letters = self.choice.select_letters(dlq, spark, list_decided(journal))
        found = sort(leave_to_backfills(letters, journal, destinations), chains, most, self.fix)
        found.check(destinations)
        return found

    def clean_up(self, store: PreparedStore, spark: SparkSession) -> None:
        if self.fix.rows:
            self.fix.rows.remove(store, spark)


def plan_replay(pipeline: PipelineSpec, replay: Replay) -> SortedLetters:
    """Return the rows that a replay would process, and those that it would leave out.

    It asks Spark only for a `where`, or for a DLQ in a catalog. Raises `Refusal` if a destination must not get old
    rows.
    """
    place = StateLocation.of(pipeline)
    journal = place.open_journal(pipeline)
    check_pipeline(pipeline, place, journal.state)
    return replay.sort_letters(pipeline, journal, make_chains(pipeline), *find_dlq(pipeline))


def make_empty_report(pipeline: str) -> Report:
    """Return the report of a replay that has no rows to process. No run begins for it."""
    return Report(pipeline=pipeline, run="", status="succeeded", reason="no row waits in the DLQ")


@dataclass(frozen=True, kw_only=True)
class DeadLetterRows(RowSource):
    """The rows of a DLQ that a batch names in its span, with today's columns of their origin.

    A new column is NULL. A removed column is left out. Wherry converts the values of a column that has another type
    now, and refuses a row with a value that cannot be converted.
    """

    name: str | None = None
    dlq: Delta
    corrected: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Corrected rows by the ids of their entries. They are read in place of the rows in the DLQ."""

    def fetch(self, spark: SparkSession, batches: Sequence[Batch], *, places: bool = False) -> FrameRows:
        (batch,) = batches
        ids = batch.span.parts
        asked = [(number, id_, self.corrected.get(str(id_))) for number, id_ in enumerate(ids)]
        wanted = spark.createDataFrame(asked, f"{_ROW} bigint, {_ID} string, {_CORRECTED} string")
        kept, schema = self._find_rows(spark, [str(each) for each in ids])
        now = T.StructType.fromJson(json.loads(batch.schema))
        before = T.StructType.fromJson(json.loads(schema)) if schema else now
        lost = F.raise_error(F.concat(F.lit(f"{FAILS}the DLQ no longer has this row: "), F.col(_ID)))
        original = F.coalesce(F.col("original"), lost.cast("string"))
        original = F.coalesce(F.col(_CORRECTED), original) if self.corrected else original
        frame = wanted.join(kept, _ID, "left")
        frame = frame.select(_ROW, original.alias("original"))
        frame = frame.select("*", F.expr(restore("original", before)).alias(_READ))
        read = F.col(_READ)
        problems = [why for field in now if (why := describe_misfit(field, before, read)) is not None]
        columns = [convert_value(field, before, read).alias(field.name) for field in now]
        if problems:
            columns.append(make_refusal(F.concat_ws("; ", *problems), F.col("original")).alias(REFUSED))
        if places:
            block = F.lit(0).cast("bigint").alias("block")
            columns.append(F.struct(F.lit("").alias("part"), block, F.col(_ROW).alias("row")).alias(PLACE))
        return FrameRows(frame.select(*columns))

    def _find_rows(self, spark: SparkSession, ids: Sequence[str]) -> tuple[DataFrame, str]:
        """Return the rows with these ids, perhaps among others, and the schema with which they were read.

        The schema is empty if the rows are gone. Few rows are read without Spark, because a new Spark needs seconds to
        open the table.
        """
        columns = f"id AS {_ID}, original"
        if len(ids) <= _FEW:
            query = f"SELECT {columns}, original_schema FROM {{table}} WHERE {narrow_to_ids(ids)}"
            rows = query_dlq(self.dlq, lambda: spark, query)
            texts = [(row[_ID], row["original"]) for row in rows]
            return spark.createDataFrame(texts, f"{_ID} string, original string"), _find_schema(rows)
        first = f"SELECT original_schema FROM {{table}} WHERE {narrow_to_ids(ids[:1])}"
        kept = spark.sql(f"SELECT {columns} FROM {self.dlq.sql_name} WHERE {narrow_to_ids(ids)}")
        return kept, _find_schema(query_dlq(self.dlq, lambda: spark, first))


def _find_schema(rows: Sequence[Mapping[str, Any]]) -> str:
    return str(rows[0]["original_schema"]) if rows else ""
