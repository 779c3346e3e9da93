"""`dlq`: the rows that another pipeline refused, read from the Delta table of its dead letter queue."""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import ClassVar, Literal

from origins.batch import Backlog, Batch, Json, Limits, Span
from origins.batch_rows import FrameRows
from origins.capabilities import KnowsPlace, NamesSources, TakesOffsets
from origins.codec import decode
from origins.delta import Delta, DeltaBacklog
from origins.delta_actions import AddedFile, StatisticsBody
from origins.delta_table import DeltaTable, Part, add_file, fetch_rows, fit_columns, read_whole, select_columns
from origins.errors import OriginError
from origins.lazy import Column, DataFrame, F, SparkSession, T
from origins.nack import (
    DLQ_COLUMNS,
    RAW,
    REFUSED,
    convert_value,
    describe_misfit,
    find_field,
    make_refusal,
    parse_columns,
    restore,
)
from origins.names import HIDDEN, is_no_such_table
from origins.origin import PLACE, Origin, Progress
from origins.schema import check_schema, format_ddl, parse_schema

_NEEDED = ("id", "plan", "code", "row", "row_schema", "nacked_at")
"""The columns without which a table is no DLQ."""
_LISTED = 5
"""The number of schemas that a message lists."""
_NOT_KEPT = "the DLQ does not keep this row as it was read"
_MOST_NAMED = 1_000
"""The number of plans that a query lists at most."""
_ROW = HIDDEN + "row"
_PLAN, _SINCE, _UNTIL = HIDDEN + "plan", HIDDEN + "since", HIDDEN + "until"


@dataclass(frozen=True, kw_only=True)
class DlqEntries(Origin, KnowsPlace, NamesSources, TakesOffsets):
    """Reads the rows that another pipeline refused, once each, from the Delta table in which it keeps them.

    A row is an entry of the DLQ with its reason, or with `rows` the refused row itself. Neither a replay nor a discard
    of an entry makes it new. The other pipeline may run meanwhile.

    Example:
        dlq:
          path: .wherry/shop/dlq
          code: [CAST, PARSE]
    """

    binds: ClassVar[frozenset[str]] = frozenset({"rows", "bytes", "files"})
    whole_by: ClassVar[str] = "read: whole"

    path: str | None = field(default=None, metadata={"path": True})
    """The folder of the DLQ: `dlq` in the state of the other pipeline, or what its `dlq:` names."""
    table: str | None = field(default=None, metadata={"like": "main.wherry.orders_dlq"})
    """The DLQ's name in a catalog. Give either this or `path`."""
    rows: Literal["entries", "refused", "original"] = "entries"
    """What a row is: an entry of the DLQ, the refused row as its stage got it, or the refused row as it was read."""
    schema: str | Mapping[str, str] | None = None
    """The columns of refused rows and their types. By default the first run takes them from the entries that wait."""
    code: str | Sequence[str] = ()
    """Read only rows that were refused with this code, or with one of these."""
    stage: str | Sequence[str] = ()
    """Read only rows that this stage refused, or one of these."""
    destination: str | Sequence[str] = ()
    """Read only rows that this destination refused, or one of these."""
    refused_again: bool = True
    """Whether to read the entries of rows that a replay refused again. Each names the one before it in `replays`."""
    starting_version: str | int = "beginning"
    """Where the first run begins: `beginning`, `latest` (only rows that are refused from now on), or a version."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rows not in ("entries", "refused", "original"):
            raise ValueError(f"rows: expected entries, refused or original, got {self.rows!r}")
        if self.rows == "entries" and self.schema is not None:
            raise ValueError("schema: expected with rows: refused or rows: original only; entries have fixed columns")
        for option in ("code", "stage", "destination"):
            if any(not isinstance(each, str) or not each for each in _list_texts(getattr(self, option))):
                raise ValueError(f"{option}: expected one name or a list of names, got {getattr(self, option)!r}")
        _ = self._delta

    @property
    def _delta(self) -> Delta:
        """Return the origin for the table, which also tracks the offset."""
        return Delta(
            path=self.path,
            table=self.table,
            name=self.name,
            lanes=self.lanes,
            read=self.read,
            starting_version=self.starting_version,
            is_dlq=True,
        )

    @property
    def infers(self) -> bool:
        return self.rows != "entries" and self.schema is None

    @property
    def place(self) -> str:
        return self._delta.place

    def check_offset(self, lane: str, offset: Json) -> None:
        self._delta.check_offset(lane, offset)

    def is_still(self, spark: SparkSession, offsets: Sequence[Json]) -> bool:
        return self._delta.is_still(spark, offsets)

    def stands(self, spark: SparkSession, offsets: Mapping[str, Json]) -> bool:
        return self._delta.stands(spark, offsets)

    def name_source(self, span: Span) -> str:
        return self._delta.name_source(span)

    def describe_skipped(self, before: Json, after: Json) -> str:
        return self._delta.describe_skipped(before, after)

    def survey(self, spark: SparkSession, progress: Progress) -> DeltaBacklog:
        try:
            backlog = self._delta.survey(spark, progress)
        except OriginError as error:
            if not isinstance(error.__cause__, Exception) or not is_no_such_table(error.__cause__):
                raise
            raise OriginError(f"No DLQ was found at {self.place}.", hint=_WHERE_IT_IS) from error
        there = {column["name"].lower() for column in json.loads(backlog.columns_there)["fields"]}
        if missing := [name for name in _NEEDED if name not in there]:
            raise OriginError(
                f"{self.place} is a Delta table, but not a DLQ: it has no column {missing[0]}.", hint=_WHERE_IT_IS
            )
        return backlog

    def columns(self, spark: SparkSession, backlog: Backlog) -> str | None:
        if self.rows == "entries":
            return str(parse_columns(DLQ_COLUMNS).json())
        if self.schema is not None:
            return str(check_schema(parse_schema(spark, self.schema, self.place), self.place).json())
        assert isinstance(backlog, DeltaBacklog)
        found: dict[str | None, list[str]] = {}
        for span in _list_spans(backlog):
            entries = self._read_entries(spark, span)
            kind = F.col(self._payload_schema)
            by = entries.select(kind.alias("kind"), F.coalesce("stage", "destination").alias("by")).distinct()
            for row in by.collect():
                found.setdefault(row["kind"], []).append(str(row["by"]))
        kept = {kind: stages for kind, stages in found.items() if kind is not None}
        if len(kept) > 1:
            raise self._refuse_schemas(kept)
        if found and not kept:
            raise OriginError(
                f"The DLQ at {self.place} keeps no rows as they were read, since its pipeline has `original: false`.",
                hint="Set `rows: refused`, which every DLQ keeps.",
            )
        schemas = [check_schema(_parse_payload_schema(kind), self.place) for kind in kept]
        return str(schemas[0].json()) if schemas else None

    def fetch(self, spark: SparkSession, batches: Sequence[Batch], *, places: bool = False) -> FrameRows:
        (batch,) = batches
        entries = self._read_entries(spark, batch.span, places=places)
        if self.rows == "entries":
            return FrameRows(entries)
        now = T.StructType.fromJson(json.loads(batch.schema))
        kinds = [row[0] for row in entries.select(self._payload_schema).distinct().collect()]
        return FrameRows(self._restore_rows(entries, now, [kind for kind in kinds if kind is not None], places=places))

    def parts(self, batch: Batch) -> Sequence[str]:
        return list(dict.fromkeys(["", *self._delta.parts(batch)]))

    @property
    def _payload(self) -> str:
        return "row" if self.rows == "refused" else "original"

    @property
    def _payload_schema(self) -> str:
        return f"{self._payload}_schema"

    @property
    def _is_chosen(self) -> Column | None:
        """Return the condition for the entries to read; None if all are read."""
        lists = {name: _list_texts(getattr(self, name)) for name in ("code", "stage", "destination")}
        conditions = [F.col(name).isin(*texts) for name, texts in lists.items() if texts]
        conditions += [] if self.refused_again else [F.col("replays").isNull()]
        return functools.reduce(operator.and_, conditions) if conditions else None

    def _read_entries(self, spark: SparkSession, span: Span, *, places: bool = False) -> DataFrame:
        """Return the chosen entries of a span.

        If their files were compacted, or rows were deleted from them, the entries are read from the table of today. A
        VACUUM may have deleted the old files.
        """
        columns, named = parse_columns(DLQ_COLUMNS), bool(self.table)
        table = DeltaTable.find(spark, self.place, named=named)
        where = self._is_chosen  # a column, which needs the Spark session that DeltaTable.find started
        rewritten = _find_rewritten(spark, table, span) if span.parts else None
        if rewritten is None:
            return fetch_rows(spark, self.place, span, columns, named=named, places=places, where=where, beside=True)
        frame = add_file(fit_columns(read_whole(spark, self.place, named=named), columns, table.name, beside=True))
        frame = rewritten.select(spark, frame if where is None else frame.where(where))
        return select_columns(frame, columns, table.log.location, is_all=True, places=places)

    def _restore_rows(self, entries: DataFrame, now: T.StructType, kinds: Sequence[str], *, places: bool) -> DataFrame:
        """Return the refused rows with the columns of today.

        A row is refused if it has other columns or was not kept.
        """
        kind = F.col(self._payload_schema)
        rows = [F.when(kind == each, _read_as(self._payload, _parse_payload_schema(each), now)) for each in kinds]
        nothing = F.struct(
            *(F.lit(None).cast(column.dataType).alias(column.name) for column in now),
            make_refusal(F.lit(_NOT_KEPT), F.lit(None).cast("string")).alias(REFUSED),
        )
        beside = [PLACE] if places else []
        frame = entries.select(F.coalesce(*rows, nothing).alias(_ROW), *beside)
        return frame.select(*(F.col(_ROW)[name].alias(name) for name in (*now.names, REFUSED)), *beside)

    def _refuse_schemas(self, kinds: Mapping[str, Sequence[str]]) -> OriginError:
        listed = [
            f"{', '.join(sorted(stages))}:  {format_ddl(_parse_payload_schema(kind))}"
            for kind, stages in list(kinds.items())[:_LISTED]
        ]
        more = [f"and {len(kinds) - _LISTED} more"] if len(kinds) > _LISTED else []
        return OriginError(
            f"The refused rows that wait in {self.place} have {len(kinds)} schemas; `rows: {self.rows}` needs one.",
            hint="Choose rows by `stage`, `code` or `destination`, or give the `schema` that they all get.\n"
            "`rows: entries` needs none. The schemas, with the stages that refused the rows:\n"
            + "\n".join([*listed, *more]),
        )


_WHERE_IT_IS = (
    "Give the folder `dlq` in the state of the other pipeline, for example `.wherry/orders/dlq`, or the place that its "
    "`dlq:` names. The DLQ is there once that pipeline has run."
)


def _list_texts(given: str | Sequence[str]) -> Sequence[str]:
    return [given] if isinstance(given, str) and given else list(given)


def _list_spans(backlog: DeltaBacklog) -> Iterator[Span]:
    """Yield the waiting versions, in spans without limits."""
    (lane,) = backlog.origin.lane_names()
    span = backlog.take(lane, None, Limits())
    while span is not None:
        yield span
        span = backlog.take(lane, span.end, Limits())


@dataclass(frozen=True, kw_only=True)
class _Write:
    """The identity of one write of entries: a batch's plan and the moment of the write."""

    plan: str
    since: datetime
    until: datetime

    @staticmethod
    def of(file: AddedFile) -> _Write | None:
        """Return the write that made a file; None if the file's statistics do not identify it."""
        stats: StatisticsBody = json.loads(file.stats or "{}")
        least, most = stats.get("minValues", {}), stats.get("maxValues", {})
        plan, since, until = least.get("plan"), least.get("nacked_at"), most.get("nacked_at")
        if not isinstance(plan, str) or plan != most.get("plan") or not since or not until:
            return None
        rounded = timedelta(milliseconds=1)  # Spark truncates timestamps in statistics
        return _Write(plan=plan, since=_parse_moment(since), until=_parse_moment(until) + rounded)


def _parse_moment(text: Json) -> datetime:
    return datetime.fromisoformat(str(text).replace("Z", "+00:00"))


@dataclass(frozen=True, kw_only=True)
class _RewrittenWrites:
    """Writes whose files are no longer in the table, although their entries are."""

    writes: Sequence[_Write]
    others: bool = False
    """Whether the selection is of the entries of all other writes."""

    def select(self, spark: SparkSession, entries: DataFrame) -> DataFrame:
        """Return the selected entries."""
        rows = [(write.plan, write.since, write.until) for write in self.writes]
        writes = F.broadcast(spark.createDataFrame(rows, f"{_PLAN} string, {_SINCE} timestamp, {_UNTIL} timestamp"))
        if not self.others and len(rows) <= _MOST_NAMED:
            entries = entries.where(F.col("plan").isin(*{write.plan for write in self.writes}))
        is_one = (F.col("plan") == F.col(_PLAN)) & F.col("nacked_at").between(F.col(_SINCE), F.col(_UNTIL))
        return entries.join(writes, is_one, "left_anti" if self.others else "left_semi")


def _find_rewritten(spark: SparkSession, table: DeltaTable, span: Span) -> _RewrittenWrites | None:
    """Return the writes of a span if a later version moved its files.

    It is None if no version did, or if the log does not show it.
    """
    parts = [decode(Part, part) for part in span.parts]
    if any(part.asked.added for part in parts):
        return None
    paths = {part.path for part in parts}
    is_all, end = paths == {""}, table.version_of(span.end)
    begin = end if is_all else table.version_of(span.start) if span.start else -1
    versions = table.log.list_after(spark, begin)
    removed = {path for version in versions if version.number > end for path in version.removed}
    if not removed or (not is_all and removed.isdisjoint(paths)):
        return None
    added = [file for version in versions if not version.rewrites for file in version.added]
    meant = [file for file in added if is_all or file.path in paths]
    is_known = versions[0].number == end + 1 if is_all else paths <= {file.path for file in meant}
    writes = [write for file in meant if (write := _Write.of(file)) is not None]
    return _RewrittenWrites(writes=writes, others=is_all) if is_known and len(writes) == len(meant) else None


def _parse_payload_schema(text: str) -> T.StructType:
    return T.StructType.fromJson(json.loads(text))


def _read_as(text: str, before: T.StructType, now: T.StructType) -> Column:
    """Return the row that a column of the DLQ has as text.

    It has the columns of `now` and the reason of its refusal.
    """
    unread = before == _parse_payload_schema(RAW) and before != now

    def convert(row: Column) -> Column:
        columns = [convert_value(column, before, row).alias(column.name) for column in now]
        raw = row["raw"] if unread else F.col(text)
        return F.struct(*columns, make_refusal(_describe_problems(row), raw).alias(REFUSED))

    def _describe_problems(row: Column) -> Column:
        if unread:
            return F.lit("the other pipeline could not read this row")
        misfits = [why for column in now if (why := describe_misfit(column, before, row)) is not None]
        beside = [column.name for column in before if find_field(column.name, now) is None]
        others = [
            F.when(row[name].isNotNull(), F.lit(f"column {name}: is not in the schema of this origin"))
            for name in beside
        ]
        return F.concat_ws("; ", *misfits, *others) if misfits or others else F.lit("")

    return F.transform(F.array(F.expr(restore(text, before))), convert)[0]  # so that the text is parsed only once
