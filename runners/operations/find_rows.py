"""Finds what happened to the rows for which a condition is true: in batches, destinations, the DLQ and stored rows.

Wherry reads the batches of the ledger again. Their matching rows pass the stages as in a preview. Nothing is written.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, TypeVar
from urllib.parse import unquote

from destinations.capabilities import BroughtBatch, find_account
from destinations.dead_letters import format_moment, narrow_to_ids, query_dlq
from destinations.delta.delta import Delta
from destinations.delta.table import TargetTable
from destinations.destination import Destination, DestinationError
from origins.batch import JSON, Batch
from origins.capabilities import check_source
from origins.errors import WherryError, clean_up_by, list_spark_errors
from origins.lazy import Column, DataFrame, F, Row, T, pa
from origins.nack import RAW, REFUSED, restore
from origins.names import HIDDEN, quote_text
from origins.origin import Origin
from origins.schema import make_empty_frame
from runners.definitions.definition import Definition
from runners.model.causes import find_file_name
from runners.model.clock import convert_to_utc
from runners.model.error_kinds import classify
from runners.model.errors import CarryFailed, Refusal
from runners.model.pipeline_state import is_aside
from runners.model.spec import PipelineSpec
from runners.model.text import format_count
from runners.operations.found_rows import (
    SHOWN,
    BatchMatches,
    DestinationMatches,
    DlqMatches,
    FoundRows,
    KeptMatch,
    KeptMatches,
    LetterMatch,
    UnreadBatch,
    Write,
)
from runners.operations.preview import READ, describe_batch
from runners.operations.row_condition import MATCHES, RowCondition
from runners.operations.tracer import Tracer
from runners.spark.own_session import put_settings_back
from runners.state.journal import DecidedLetters, list_decided
from runners.state.location import StateLocation, find_dlq
from runners.ways.batch_source import strip_lane_prefix
from runners.ways.stage_chain import StageChain, name_destinations

_TOGETHER = 20
"""The number of batches that one query searches."""
_MOST_TRACED = 50
"""The most matching batches that pass the stages."""
_AT, _FILE, _ROW = HIDDEN + "at", HIDDEN + "file", HIDDEN + "row"
_OF_A_ROW = ("lane", "number", "stage", "destination", "code", "message")
_OF_A_LETTER = ("id", "position", "nacked_at")
_NEWEST = ("nacked_at", "lane", "number", "position")
"""The columns that order the rows of a DLQ, the newest first."""

Value = TypeVar("Value")
K = TypeVar("K", KeptMatch, LetterMatch)


@put_settings_back()
def find_rows(
    definition: Definition, *, where: str, since: datetime | None = None, say: Callable[[str], None] = lambda _: None
) -> FoundRows:
    """Find the rows for which `where` is true, as `Pipeline.find` describes. `say` gets messages about progress."""
    tracer, condition = Tracer.open(definition), RowCondition(text=where)
    with clean_up_by(lambda: condition.drop_views(tracer.spark)):
        return _RowSearch(tracer=tracer, condition=condition, since=since and convert_to_utc(since), say=say).search()


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    """A batch that may have matching rows."""

    origin: Origin
    batch: Batch
    at: str = ""
    """When the batch was settled; empty for an open batch."""
    condition: RowCondition | None = None
    """The condition that selects its matching rows without raising, once that is known."""
    rows: int = 0
    """The number of its matching rows."""

    def leave_out(self, why: str) -> UnreadBatch:
        batch = self.batch
        return UnreadBatch(lane=batch.lane, number=batch.number, label=batch.span.label, why=why)


@dataclass(frozen=True, kw_only=True)
class _RowSearch:
    """One search, which changes nothing."""

    tracer: Tracer
    condition: RowCondition
    since: datetime | None
    say: Callable[[str], None]

    def search(self) -> FoundRows:
        """Search the batches, and then the destinations and the DLQ."""
        pipeline, origins, spark = self._pipeline, self._pipeline.origins_by_name, self.tracer.spark
        schemas = {name: schema for name, each in origins.items() if (schema := self.tracer.find_schema(each))}
        searched = self._check_where(schemas)
        candidates, unread = self._list_candidates({name: schemas[name] for name in searched})
        matching: list[_Candidate] = []
        searched_batches, not_compared = len(candidates), 0
        for first in range(0, len(candidates), _TOGETHER):
            self.say(f"reading batches: {first:,} of {len(candidates):,}")
            counted, failed, lost = self._count_matching(candidates[first : first + _TOGETHER])
            matching += counted
            not_compared += failed
            unread += lost
            searched_batches -= len(lost)
        chains = {name: self.tracer.make_chain(origins[name], schemas[name]) for name in searched}
        pins = {name: chains[name].pins(spark) for name in {each.batch.origin: None for each in matching}}
        batches = []
        for at, each in enumerate(matching[:_MOST_TRACED], 1):
            self.say(f"passing the stages: batch {at:,} of {min(len(matching), _MOST_TRACED):,}")
            batches.append(self._trace(each, chains[each.batch.origin], pins[each.batch.origin]))
        self.say("searching the destinations and the DLQ")
        return FoundRows(
            pipeline=pipeline.name,
            where=self.condition.text,
            since=self.since.isoformat() if self.since else "",
            searched=searched_batches,
            read=sum(each.rows for each in matching),
            matching=len(matching),
            not_compared=not_compared,
            batches=_limit_rows(batches),
            unread=unread,
            destinations={
                name: self._search_destination(each)
                for name, each in name_destinations(pipeline.every_destination).items()
            },
            dlq=self._search_dlq(),
            kept=self._search_filtered(),
            notices=(
                *self._list_notices(schemas, searched, matching),
                *list_pin_notices([stage for each in pins.values() for stage in each]),
            ),
        )

    def _check_where(self, schemas: Mapping[str, str]) -> Sequence[str]:
        """Return the origins whose rows have the columns of the condition. Raises `Refusal` if no origin has them."""
        found: list[str] = []
        columns: list[str] = []
        problem = ""
        for name, schema in schemas.items():
            kind = T.StructType.fromJson(json.loads(schema))
            try:
                nothing = make_empty_frame(self.tracer.spark, kind)
                nothing.where(F.expr(self.condition.text)).isLocal()  # makes Spark analyse it, also on Connect
                found.append(name)
            except list_spark_errors() as error:
                problem = problem or self.tracer.mask_error(error)
                columns += [f"{', '.join(kind.names)}" + (f" (of {name})" if len(schemas) > 1 else "")]
        if schemas and not found:
            raise Refusal(
                f"--where is not valid for the rows as read: {problem}",
                hint=f"Write a condition in Spark's SQL over the columns: {'; '.join(columns)}.",
            )
        return found

    def _list_candidates(self, schemas: Mapping[str, str]) -> tuple[list[_Candidate], list[UnreadBatch]]:
        """Return the batches to read again, the newest first, and the batches that cannot be read again."""
        pipeline, journal = self._pipeline, self.tracer.journal
        settled = [each for each in journal.list_settled() if not is_aside(each.lane)]
        if self.since is not None:
            settled = [each for each in settled if datetime.fromisoformat(each.at) >= self.since]
        found: list[_Candidate] = []
        for name, schema in schemas.items():
            origin = pipeline.origins_by_name[name]
            own = [each for each in settled if pipeline.owns(origin, each.lane)]
            found += [
                _Candidate(origin=origin, batch=self.tracer.make_batch(each, name, schema), at=each.at) for each in own
            ]
            found += [
                _Candidate(origin=origin, batch=plan.batch)
                for plan in journal.state.open_plans
                if plan.batch.origin == name and not is_aside(plan.batch.lane) and not plan.published
            ]
        found.sort(key=lambda each: each.at or "9", reverse=True)
        there, unread = [], []
        for each in found:
            try:
                if not each.origin.repeatable:
                    raise CarryFailed("the origin cannot be read twice")
                check_source(each.origin, self.tracer.spark, strip_lane_prefix(each.batch))
                there.append(each)
            except (WherryError, OSError) as error:
                unread.append(each.leave_out(self.tracer.mask_error(error)))
        return there, unread

    def _count_matching(self, candidates: Sequence[_Candidate]) -> tuple[list[_Candidate], int, list[UnreadBatch]]:
        """Count the matching rows of the batches in one query.

        Return the batches with matching rows, the number of rows that cannot be compared, and the batches that cannot
        be read. Raises `Refusal` if the condition always fails at a row.
        """

        def count(condition: RowCondition) -> list[Row]:
            frames = [
                condition.select(self._read(each)).select(F.lit(at), MATCHES) for at, each in enumerate(candidates)
            ]
            rows = functools.reduce(lambda one, other: one.union(other), frames).toDF(_AT, MATCHES)
            return rows.groupBy(_AT, MATCHES).count().collect()

        try:
            condition, counted = self.condition.ask(count)
        except list_spark_errors(WherryError) as error:
            kind = classify(error)
            if kind.is_session_lost:
                raise
            if kind.is_row:
                raise Refusal(
                    f"--where fails at a row: {self.tracer.mask_error(error)}",
                    hint="Write a condition that works for every row, for example with try_cast.",
                ) from error
            if len(candidates) == 1:
                return [], 0, [candidates[0].leave_out(self.tracer.mask_error(error))]
            parts = [self._count_matching([each]) for each in candidates]
            found = [each for own, _, _ in parts for each in own]
            lost = [each for _, _, own in parts for each in own]
            return found, sum(failed for _, failed, _ in parts), lost
        rows = {row[_AT]: row["count"] for row in counted if row[MATCHES]}
        failed = sum(row["count"] for row in counted if not row[MATCHES])
        matching = [
            replace(each, condition=condition, rows=rows[at]) for at, each in enumerate(candidates) if at in rows
        ]
        return matching, failed, []

    def _read(self, each: _Candidate) -> DataFrame:
        rows = each.origin.fetch(self.tracer.spark, [strip_lane_prefix(each.batch)]).frame()
        return rows.where(F.col(REFUSED).isNull()) if REFUSED in rows.columns else rows

    def _trace(self, each: _Candidate, chain: StageChain, pins: Mapping[str, JSON]) -> BatchMatches:
        """Pass the matching rows of a batch through the stages."""
        found = self.tracer.trace_batch(each.origin, chain, each.batch, pins, shown=SHOWN, wanted=each.condition)
        described = describe_batch(self._pipeline, each.origin, each.batch, found)
        stages = [stage.counts for stage in described.stages]
        counts = {"origin" if stage.stage == READ else stage.stage: stage for stage in stages}
        return BatchMatches(
            lane=described.lane,
            number=described.number,
            label=described.label,
            at=each.at,
            read=described.read,
            filtered={name: each.filtered for name, each in counts.items() if each.filtered},
            rejected={name: each.nacked for name, each in counts.items() if each.nacked},
            wanted=described.destinations,
            rows=tuple(found.show_rows(self._pipeline)),
        )

    def _search_destination(self, destination: Destination) -> DestinationMatches:
        """Count the matching rows of a table, and find the versions that brought them."""
        if not isinstance(destination, Delta):
            return DestinationMatches(rows=None, why="only tables of the kind `delta` can be searched")
        spark = self.tracer.spark
        if TargetTable.find(spark, destination.sql_name, destination.folder) is None:
            return DestinationMatches(rows=0)
        table = spark.sql(f"SELECT *, _metadata.file_path AS {_FILE} FROM {destination.sql_name}")

        def count(condition: RowCondition) -> list[Row]:
            return condition.select(table).where(F.col(MATCHES)).groupBy(_FILE).count().collect()

        try:
            files = self.condition.ask(count)[1]
        except list_spark_errors() as error:
            return DestinationMatches(rows=None, why=self.tracer.mask_error(error))
        if not files:
            return DestinationMatches(rows=0)
        account = find_account(destination, lambda: spark, self._pipeline.name)
        rows = {find_file_name(unquote(each[_FILE])): each["count"] for each in files}
        return DestinationMatches(
            rows=sum(rows.values()),
            writes=group_writes(rows, account.brought if account else ())[:SHOWN],
            merges=bool(account and account.silent),
        )

    def _search_dlq(self) -> DlqMatches:
        """Search the DLQ, by the rows as they were read, or as they were refused if the original was not kept."""
        dlq, _ = find_dlq(self._pipeline)

        def take(found: DataFrame) -> pa.Table:
            return found.select("id", *_NEWEST).toArrow()

        try:
            taken, unread, lacking = self._match_kept(dlq, _OF_A_LETTER, take)
        except DestinationError as error:
            return DlqMatches(why=error.message)
        why = [_explain_unread(unread)] if unread else []
        why += [f"{_explain_lacking(lacking, 'refused')} See:  wherry dlq show FILE"] if lacking else []
        states = Counter({"open": 0, "replayed": 0, "discarded": 0})
        states.update(_find_state(letter, self._decided) for each in taken for letter in each["id"].to_pylist())
        rows = [self._describe_letter(row) for row in self._read_newest(dlq, taken)]
        return DlqMatches(states=states, rows=_limit_newest(rows), why="\n".join(why))

    def _read_newest(self, dlq: Destination, taken: Sequence[pa.Table]) -> list[Mapping[str, Any]]:
        """Return the newest of these rows with all facts about each. Their JSON is not parsed again."""
        if not any(each.num_rows for each in taken):
            return []
        assert isinstance(dlq, Delta)
        order = [(at, "descending" if at == "nacked_at" else "ascending") for at in _NEWEST]
        ids = pa.concat_tables(taken).sort_by(order)["id"].slice(0, SHOWN).to_pylist()
        found = self.tracer.spark.sql(f"SELECT * FROM {dlq.sql_name} WHERE {narrow_to_ids(ids)}")
        return _collect_newest(found.select(*_list_facts(_OF_A_LETTER)), *_NEWEST)

    def _search_filtered(self) -> KeptMatches | None:
        """Search the filtered rows that the state keeps. Return None if it never kept any."""

        def take(found: DataFrame) -> tuple[Mapping[str, int], list[Mapping[str, Any]]]:
            stages = {row["stage"]: row["count"] for row in found.groupBy("stage").count().collect()}
            return stages, _collect_newest(found, "filtered_at", "lane", "number") if stages else []

        table = StateLocation.of(self._pipeline).make_filtered()
        try:
            taken, _, lacking = self._match_kept(table, ("filtered_at",), take)
        except DestinationError as error:
            return KeptMatches(why=error.message)
        if not (taken or lacking or self._pipeline.keeps_filtered):
            return None
        rows = [self._describe_kept(row) for _, newest in taken for row in newest]
        stages = sum((Counter(each) for each, _ in taken), Counter[str]())
        why = _explain_lacking(lacking, "filtered") if lacking else ""
        return KeptMatches(stages=stages, rows=_limit_newest(rows), why=why)

    def _match_kept(
        self, table: Destination, more: Sequence[str], take: Callable[[DataFrame], Value]
    ) -> tuple[list[Value], int, int]:
        """Apply `take` to the matching rows of a table that keeps rows as text, once for each schema.

        The rows are matched as they were read, or as they were later if the original was not kept. Also return how many
        rows have no columns because they could not be read, and how many lack the columns of --where. `more` names
        columns beside `_OF_A_ROW`; the last has the rows' time.
        """
        pipeline = quote_text(self._pipeline.name)
        kind = "coalesce(original_schema, row_schema)"
        query = f"SELECT {kind} AS kind, count(*) AS n FROM {{table}} WHERE pipeline = {pipeline} GROUP BY 1"
        taken, unread, lacking = list[Value](), 0, 0
        for each in query_dlq(table, lambda: self.tracer.spark, query):
            assert isinstance(table, Delta)
            if each["kind"] in (None, RAW):
                unread += each["n"]
                continue
            try:
                taken.append(self._take_kept(table, each["kind"], more, take))
            except list_spark_errors() as error:
                if classify(error).is_session_lost:
                    raise
                lacking += each["n"]
        return taken, unread, lacking

    def _take_kept(self, table: Delta, schema: str, more: Sequence[str], take: Callable[[DataFrame], Value]) -> Value:
        """Apply `take` to the matching rows that have this schema."""
        rows = self._select_kept(table, schema, more)

        def match(condition: RowCondition) -> Value:
            return take(condition.select(rows).where(F.col(MATCHES)).select(f"{_AT}.*"))

        return self.condition.ask(match)[1]

    def _select_kept(self, table: Delta, schema: str, more: Sequence[str]) -> DataFrame:
        """Return the rows that have this schema, with all facts about each."""
        frame = self.tracer.spark.sql(f"SELECT * FROM {table.sql_name}")  # first, because columns need a started Spark
        kind = T.StructType.fromJson(json.loads(schema))
        is_same = F.coalesce("original_schema", "row_schema") == F.lit(schema)
        own = f"if(coalesce(original_schema, row_schema) = {quote_text(schema)}, coalesce(original, row), null)"
        since = F.lit(True) if self.since is None else F.col(more[-1]) >= F.lit(self.since)
        mine = F.col("pipeline") == F.lit(self._pipeline.name)
        about = F.struct(*_list_facts(more)).alias(_AT)
        return (
            frame.where(is_same & since & mine)
            .select(about, F.expr(restore(own, kind)).alias(_ROW))
            .select(_AT, f"{_ROW}.*")
        )

    def _mask_kept(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the masked `message` and `row` of such a row."""
        rows = {"row": json.loads(row["shown"]), "original": json.loads(row["text"])}
        masked = self._pipeline.mask_nack({**row, "message": row["message"] or "", **rows})
        return {"message": str(masked["message"]), "row": masked["row"]}

    def _describe_kept(self, row: Mapping[str, Any]) -> KeptMatch:
        names = ("lane", "number", "stage", "destination", "at")
        return KeptMatch(**{name: row[name] for name in names}, **self._mask_kept(row))

    def _describe_letter(self, letter: Mapping[str, Any]) -> LetterMatch:
        return LetterMatch(
            **{name: letter[name] for name in ("id", "lane", "number", "at", "code")},
            stage=letter["stage"] or letter["destination"],
            state=_find_state(letter["id"], self._decided),
            **self._mask_kept(letter),
        )

    def _list_notices(
        self, schemas: Mapping[str, str], searched: Sequence[str], matching: Sequence[object]
    ) -> Iterator[str]:
        left = [name for name in self._pipeline.origins_by_name if name not in searched]
        if left:
            why = "their rows lack the columns of --where" if schemas else "no batch of them was processed"
            yield f"These origins were not searched: {', '.join(left)}; {why}."
        if len(matching) > _MOST_TRACED:
            yield (
                f"Only the newest {_MOST_TRACED} of {len(matching):,} matching batches passed the stages. Narrow the "
                "search with --where or --since."
            )
        opened = self.tracer.journal.state.opened.hash
        if opened and opened != self.tracer.definition.hash:
            yield "The definition changed since the last run. Stages and destinations are those of today."

    @property
    def _pipeline(self) -> PipelineSpec:
        return self.tracer.definition.pipeline

    @functools.cached_property
    def _decided(self) -> DecidedLetters:
        return list_decided(self.tracer.journal)


def _list_facts(more: Sequence[str]) -> Sequence[Column | str]:
    """Return the columns with the facts about a row in such a table: its place, the reason, and the row as text."""
    return [*_OF_A_ROW, *more, F.col("row").alias("shown"), F.coalesce("original", "row").alias("text")]


def _collect_newest(found: DataFrame, at: str, *ties: str) -> list[Mapping[str, Any]]:
    """Return the newest rows by the column with their time, which becomes `at`."""
    rows = found.orderBy(F.desc(at), *ties).limit(SHOWN).collect()
    return [{**row.asDict(), "at": format_moment(row[at])} for row in rows]


def _limit_newest(rows: Sequence[K]) -> Sequence[K]:
    return sorted(rows, key=lambda row: row.at, reverse=True)[:SHOWN]


def _explain_unread(rows: int) -> str:
    counted, they = format_count(rows, "refused line", "refused lines"), "it has" if rows == 1 else "they have"
    command = "wherry dlq show FILE --code PARSE"
    return f"{counted} could not be read, so {they} no columns to search. See:  {command}"


def _explain_lacking(rows: int, kind: str) -> str:
    counted = format_count(rows, f"{kind} row lacks", f"{kind} rows lack")
    return f"{counted} the columns of --where, and {'was' if rows == 1 else 'were'} not searched."


def _find_state(letter: str, decided: DecidedLetters) -> Literal["open", "replayed", "discarded"]:
    if letter in decided.replayed:
        return "replayed"
    return "discarded" if letter in decided.discarded else "open"


def _limit_rows(batches: Sequence[BatchMatches]) -> Sequence[BatchMatches]:
    """Return the batches with at most `SHOWN` rows in all. The newest batches keep theirs."""
    found, left = [], SHOWN
    for batch in batches:
        found.append(replace(batch, rows=batch.rows[:left]))
        left -= len(found[-1].rows)
    return found


def list_pin_notices(stages: Sequence[str]) -> Iterator[str]:
    """Yield a notice about stages that compare rows with a table, if any."""
    if stages:
        yield (
            f"These stages read tables as they are now: {', '.join(dict.fromkeys(stages))}. They may count a delivered "
            "row as filtered or refused. The destinations show what was delivered."
        )


def group_writes(rows: Mapping[str, int], brought: Sequence[BroughtBatch]) -> Sequence[Write]:
    """Group the matching rows by the version that added their files, the newest first. `rows` counts them by file."""
    batches: dict[str, list[BroughtBatch]] = {}
    for each in brought:
        for file in each.files:
            batches.setdefault(find_file_name(unquote(file)), []).append(each)
    writes: dict[int | None, Write] = {}
    for file, number in rows.items():
        found = batches.get(file, [])
        version = max((each.version for each in found if each.version is not None), default=None)
        labels = [(each.label.lane, each.label.number) for each in found if each.version == version]
        before = writes.get(version, Write(rows=0, version=version, batches=tuple(dict.fromkeys(labels))))
        writes[version] = replace(before, rows=before.rows + number)
    return sorted(writes.values(), key=lambda each: -1 if each.version is None else each.version, reverse=True)
