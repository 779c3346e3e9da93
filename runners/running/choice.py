"""A choice of rows in the DLQ, the same for all commands, and the causes for which rows were refused."""

from __future__ import annotations

import heapq
import json
import logging
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any
from urllib.parse import unquote

from destinations.dead_letters import MOST_LISTED, NEWEST, lacks_replays, narrow_to_ids, query_dlq, stream_dlq
from destinations.delta.delta import Delta
from destinations.destination import Destination
from origins.batch import JSON
from origins.batch_rows import to_python_rows
from origins.errors import has_condition, list_spark_errors
from origins.lazy import SparkSession, pa
from origins.nack import DLQ_COLUMNS
from origins.names import quote_in_hex, quote_text
from origins.problems import refuse_unknown
from origins.protection import Protection, walk_texts
from runners.model.causes import CauseCounter, Causes, find_file_name, parse_message
from runners.model.clock import convert_to_utc
from runners.model.errors import Refusal
from runners.model.run_report import MOST_REPORTED, Report
from runners.model.text import join_some, summarise_error

log = logging.getLogger("wherry")

_LETTERS = (
    "id, origin, stage, destination, code, delivered_to, md5(original_schema) AS kind, message, part, nacked_at, "
    "replays"
)
_FIRST_JUDGED, _MORE_JUDGED = 20_000, 8
"""The number of the newest rows that Wherry checks first, and the factor by which each later part is larger."""
OLDEST_FIRST = "ORDER BY nacked_at, lane, number, position, id"
"""The SQL that sorts rows by the time of their refusal, the oldest first."""
_COLUMNS = ", ".join(column.split(" ")[0] for column in DLQ_COLUMNS.split(", "))


@refuse_unknown
@dataclass(frozen=True, kw_only=True)
class Choice:
    """A choice of rows in the DLQ: the rows that meet all conditions, by default every row."""

    ids: tuple[str, ...] = ()
    code: str = ""
    stage: str = ""
    """The stage or the destination that refused the rows."""
    column: str = ""
    """A column that the message names. Case does not matter."""
    file: str = ""
    """The file of the rows: its name, its whole path, or a pattern such as `2026-*.csv`."""
    where: str = ""
    """A condition in Spark's SQL over the columns of the DLQ. NULL counts as false."""
    since: datetime | None = None
    """Choose rows that were refused at this time or later. A time without a zone is in UTC."""
    until: datetime | None = None
    """Choose rows that were refused before this time."""
    values: tuple[str, ...] = ()
    """Choose rows that have all these values, as they were read or as their stage got them.

    Each is `COLUMN=VALUE`. The value may be a pattern such as `*@shop.example`, or `NULL`.
    """
    text: str = ""
    """Choose rows that have this text in a value or in their message. Case does not matter."""

    @property
    def chooses_all(self) -> bool:
        """Whether it has no condition."""
        return self == Choice()

    def __post_init__(self) -> None:
        for name, at in (("since", self.since), ("until", self.until)):
            object.__setattr__(self, name, at and convert_to_utc(at))

    def covers(self, moment: datetime) -> bool:
        """Whether it can choose rows that were refused at this moment."""
        at = convert_to_utc(moment)
        return (not self.since or at >= self.since) and (not self.until or at < self.until)

    def select_letters(
        self, dlq: Destination, spark: Callable[[], SparkSession], decided: Container[str]
    ) -> list[Letter]:
        """Return the chosen rows of the DLQ that wait, the oldest first. Otherwise it works as `list_letters`."""
        return [letter for letter in self.list_letters(dlq, spark) if letter.id not in decided]

    def list_letters(self, dlq: Destination, spark: Callable[[], SparkSession]) -> list[Letter]:
        """Return the chosen rows of the DLQ, the oldest first.

        It needs no Spark if `where` is empty and the DLQ is on this machine. Raises `Refusal` for an id that the DLQ
        does not have, and for a `where` that Spark does not understand.
        """
        return [Letter.of(row) for row in self.list_rows(dlq, spark, _LETTERS, then=OLDEST_FIRST)]

    def list_newest(
        self, dlq: Destination, spark: Callable[[], SparkSession], most: int, *, but: frozenset[str] = frozenset()
    ) -> list[str]:
        """Return the ids of the chosen rows that were refused last, the newest first, without the ids in `but`.

        If SQL cannot check all conditions, it reads the newest rows first, and older rows only until it has enough.
        """
        order = f"ORDER BY {NEWEST} LIMIT {most + len(but)}" if not self._judged_columns else ""
        names = [each.split(" ")[0] for each in NEWEST.split(", ")]
        by_time = self._judged_columns and not (self.ids or self.file or self.where)
        found: list[Mapping[str, Any]] = []
        for window in self._list_windows(dlq, spark) if by_time else [""]:
            rows = self.list_rows(dlq, spark, ", ".join(["id", *names]), where=window, then=order)
            others = (row for row in rows if row["id"] not in but)
            found = heapq.nlargest(most, chain(found, others), itemgetter(*names))
            if len(found) == most:
                break
        return [row["id"] for row in found]

    def _list_windows(self, dlq: Destination, spark: Callable[[], SparkSession]) -> Sequence[str]:
        """Return conditions that divide the DLQ by time, the newest rows first, in parts of growing size."""
        windows: list[str] = []
        until, rows, most = "true", 0, _FIRST_JUDGED
        for table in self._query(dlq, spark, "nacked_at, count(*) AS n", then="GROUP BY nacked_at ORDER BY 1 DESC"):
            for row in to_python_rows(table):
                rows += row["n"]
                if rows >= most:
                    moment = _write_moment(row["nacked_at"])
                    windows.append(f"nacked_at >= {moment} AND {until}")
                    until, rows, most = f"nacked_at < {moment}", 0, most * _MORE_JUDGED
        return [*windows, until]

    def list_rows(
        self, dlq: Destination, spark: Callable[[], SparkSession], columns: str, *, where: str = "", then: str = ""
    ) -> Iterator[Mapping[str, Any]]:
        """Return the rows of `stream_rows`, one by one."""
        tables = self.stream_rows(dlq, spark, columns, where=where, then=then)
        return (row for table in tables for row in to_python_rows(table))

    def stream_rows(
        self, dlq: Destination, spark: Callable[[], SparkSession], columns: str, *, where: str = "", then: str = ""
    ) -> Iterator[pa.Table]:
        """Yield these columns of the chosen rows, in tables of bounded size.

        `where` is a further condition. `then` is SQL after all conditions. Raises as `list_letters` does.
        """
        if self.file:
            found = (part for table in self._query(dlq, spark, "DISTINCT part") for part in table["part"].to_pylist())
            parts = [part for part in found if _is_file(part or "", self.file)]
            if len(parts) <= MOST_LISTED:
                listed = f"part IN ({', '.join(map(quote_in_hex, parts))})" if parts else "false"
                where = f"{where} AND {listed}" if where else listed
                yield from replace(self, file="").stream_rows(dlq, spark, columns, where=where, then=then)
                return
        if self.ids:
            self._check_ids(dlq, spark)
        conditions = [*self._list_conditions(), *([where] if where else [])]
        if not self._judged_columns:
            yield from self._query(dlq, spark, columns, conditions, then)
            return
        ids = frozenset() if self._names_ids else frozenset(self.ids)
        beside = [each for each in self._judged_columns if each not in columns.split(", ")]
        for table in self._query(dlq, spark, ", ".join([columns, *beside]), conditions, then):
            rows = [row for row in to_python_rows(table) if self._is_meant(row, ids)]
            if rows:
                yield pa.Table.from_pylist(rows, pa.schema([*table.schema][: len(table.schema) - len(beside)]))

    def _query(
        self,
        dlq: Destination,
        spark: Callable[[], SparkSession],
        columns: str,
        conditions: Sequence[str] = (),
        then: str = "",
    ) -> Iterator[pa.Table]:
        if lacks_replays(dlq):
            columns = re.sub(r"\breplays\b", "CAST(NULL AS STRING) AS replays", columns)
        where = f" WHERE {' AND '.join(conditions)}".replace("{", "{{").replace("}", "}}") if conditions else ""
        query = f"SELECT {columns} FROM {{table}}{where} {then}"
        try:
            yield from stream_dlq(dlq, spark, query, in_sparks_words=bool(self.where))
        except list_spark_errors() as error:
            if not self.where or has_condition(error, "DELTA_MISSING"):
                raise
            raise Refusal(
                f"--where is not valid for the DLQ: {summarise_error(error)}",
                hint=f"Write a condition in Spark's SQL over the columns of the DLQ: {_COLUMNS}.",
            ) from error

    def _check_ids(self, dlq: Destination, spark: Callable[[], SparkSession]) -> None:
        """Raises `Refusal` for an id that the DLQ does not have."""
        conditions = [narrow_to_ids(self.ids)]
        conditions += [f"(\n{self.where}\n)"] if self.where else []
        tables = self._query(dlq, spark, "id", conditions)
        unknown = set(self.ids).difference(*(table["id"].to_pylist() for table in tables))
        if unknown:
            raise Refusal(
                f"The DLQ has no row {join_some(sorted(unknown))}{' that meets --where' if self.where else ''}.",
                hint="See the ids:  wherry dlq show FILE",
            )

    @property
    def _names_ids(self) -> bool:
        """Whether a query can list its ids."""
        return 0 < len(self.ids) <= MOST_LISTED

    @property
    def _judged_columns(self) -> Sequence[str]:
        """The columns that Wherry must check itself, because SQL cannot express the whole condition."""
        asked = {
            "id": bool(self.ids) and not self._names_ids,
            "part": bool(self.file),
            "message": bool(self.column or self.text),
            **dict.fromkeys(("`row`", "original"), bool(self.values or self.text)),
        }
        return [name for name, is_asked in asked.items() if is_asked]

    def _list_conditions(self) -> Iterator[str]:
        """Yield SQL conditions that are true for every chosen row, and for few others."""
        if self.ids:
            yield narrow_to_ids(self.ids)
        if self.code:
            yield f"code = {quote_in_hex(self.code)}"
        if self.stage:
            yield f"(stage = {quote_in_hex(self.stage)} OR destination = {quote_in_hex(self.stage)})"
        if self.since:
            yield f"nacked_at >= {_write_moment(self.since)}"
        if self.until:
            yield f"nacked_at < {_write_moment(self.until)}"
        if self.where:
            yield f"(\n{self.where}\n)"
        if self.column and _is_same_in_json(self.column):
            yield _contain(("message",), (self.column.lower(),))
        if self.text and _is_same_in_json(self.text):
            yield _contain(("message", "`row`", "original"), (self.text.lower(),))
        for value in self.values:
            if pieces := _list_pieces(value.partition("=")[2]):
                yield _contain(("`row`", "original"), pieces)

    def _is_meant(self, row: Mapping[str, JSON], ids: Container[str]) -> bool:
        """Whether the row meets the conditions that SQL cannot check."""
        return (
            (not ids or row["id"] in ids)
            and (not self.file or _is_file(row["part"] or "", self.file))
            and (not self.column or self.column.lower() in _list_named(row["message"] or ""))
            and (not (self.values or self.text) or self._has_values(row))
        )

    def _has_values(self, row: Mapping[str, JSON]) -> bool:
        payloads: list[JSON] = [
            json.loads(row[name], parse_int=_Number, parse_float=_Number)
            for name in ("row", "original")
            if row[name] is not None
        ]
        if not all(any(_has_value(each, value) for each in payloads) for value in self.values):
            return False
        return not self.text or any(
            self.text.lower() in text.lower() for each in (row["message"], *payloads) for text in walk_texts(each)
        )


@lru_cache(maxsize=10_000)
def _list_named(message: str) -> Sequence[str]:
    """Return the columns that a message names, in lower case. Cached, because messages repeat."""
    return [name.lower() for name in parse_message(message).columns]


class _Number(str):
    """A number in the spelling of its JSON."""


def _has_value(payload: JSON, wanted: str) -> bool:
    column, _, value = wanted.partition("=")
    return any(_is_value(each, value) for each in _find_values(payload, column.lower()))


def _find_values(row: JSON, column: str) -> Iterator[JSON]:
    """Yield the values of this column, or of a field such as `buyer.email`. Looks into each item of a list."""
    if isinstance(row, list):
        for each in row:
            yield from _find_values(each, column)
    elif isinstance(row, Mapping):
        for name, value in row.items():
            if name.lower() == column:
                yield from value if isinstance(value, list) else [value]
            elif column.startswith(f"{name.lower()}."):
                yield from _find_values(value, column[len(name) + 1 :])


def _is_value(value: JSON, wanted: str) -> bool:
    if value is None or isinstance(value, bool):
        return wanted.lower() == ("null" if value is None else str(value).lower())
    if isinstance(value, _Number) and _parse_number(value) == _parse_number(wanted):
        return True
    return isinstance(value, str) and (value == wanted or fnmatchcase(value, wanted))


def _parse_number(text: str) -> Decimal | None:
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


def _list_pieces(wanted: str) -> Sequence[str]:
    """Return texts of which the JSON of every row with this value contains at least one. Empty if no text is known."""
    digits = wanted.removeprefix("-")
    if re.fullmatch("0|[1-9][0-9]*", digits):
        return digits, f"{digits[0]}.{digits[1:].rstrip('0') or '0'}e"  # a large number may be written as 1.7E7
    if re.fullmatch(r"[1-9][0-9]{0,6}\.[0-9]*[1-9]", digits):
        return (digits,)
    if "[" in wanted or wanted.lower() in ("null", "true", "false") or _parse_number(wanted) is not None:
        return ()
    piece = max(re.split(r"[*?]", wanted), key=len)
    return (piece.lower(),) if piece and _is_same_in_json(piece) else ()


def _is_same_in_json(text: str) -> bool:
    """Whether the text looks the same in JSON, and every engine gives it the same lower case."""
    return all(each.isprintable() and each < "\u0100" and each not in '"\\' for each in text)


def _contain(columns: Sequence[str], pieces: Sequence[str]) -> str:
    """Return SQL that is true if one of the columns contains one of the pieces, which are in lower case."""
    every = [f"contains(lower({column}), {quote_in_hex(piece)})" for column in columns for piece in pieces]
    return f"({' OR '.join(every)})"


def _write_moment(moment: datetime) -> str:
    return f"CAST('{convert_to_utc(moment).isoformat()}' AS TIMESTAMP)"


def _is_file(part: str, wanted: str) -> bool:
    names = {path for whole in {part, unquote(part)} for path in (whole, find_file_name(whole))}
    return any(name == wanted or name.endswith(f"/{wanted}") or fnmatchcase(name, wanted) for name in names if name)


@dataclass(frozen=True, kw_only=True)
class Letter:
    """A row of the DLQ, with the facts that a replay needs."""

    id: str
    origin: str
    stage: str
    destination: str | None = None
    code: str = ""
    delivered_to: tuple[str, ...] = ()
    kind: str | None = None
    """A text that differs for rows that were read with different schemas, or None if the original row was not kept."""
    message: str = ""
    part: str = ""
    """The file of the row."""
    nacked_at: datetime = datetime(1970, 1, 1)
    replays: str = ""
    """The id of the row whose replay was refused again and left this row; empty for a first refusal."""

    @staticmethod
    def of(row: Mapping[str, JSON]) -> Letter:
        """Return the letter from the columns of the DLQ."""
        texts = {name: row[name] or "" for name in ("code", "message", "part", "replays")}
        return Letter(**{**row, **texts, "delivered_to": tuple(row["delivered_to"] or ())})


MOST_MESSAGES = 100_000
"""The number of different refusals of a run that its report considers. The most frequent are considered first."""
_OF_RUN = (
    "SELECT code, stage, destination, message, part, count(*) AS alike, min(id) AS id FROM {{table}} WHERE run = {run} "
    "GROUP BY code, stage, destination, message, part ORDER BY alike DESC, message, part LIMIT {most}"
)
_ROWS = "SELECT count(*) AS n FROM {{table}} WHERE run = {run}"
_EXAMPLES = "SELECT id, stage, message, `row`, original FROM {{table}} WHERE id IN ({ids})"


def count_causes_of_report(
    report: Report, dlq: Destination, spark: Callable[[], SparkSession], protection: Protection
) -> Causes:
    """Return why the run refused rows. If the DLQ cannot be read, Wherry logs a warning, and the run does not fail."""
    if report.nacked <= report.discarded or not isinstance(dlq, Delta):
        return Causes()
    if report.error is not None and dlq.folder is None:
        return Causes()  # perhaps Spark failed
    try:
        return count_causes_of_run(dlq, spark, report.run, protection).keep_first(MOST_REPORTED)
    except Exception as error:  # noqa: BLE001 -- the run is done, and its report is not written yet
        message = protection.mask_error(error, summarise_error(error))
        log.warning("the causes of the refused rows could not be counted: %s", message)
        return Causes()


def count_causes_of_run(
    dlq: Destination, spark: Callable[[], SparkSession], run: str, protection: Protection = Protection()
) -> Causes:
    """Return why this run refused the rows that the DLQ has from it. Values of protected columns are masked."""
    counter = CauseCounter()
    of_run = quote_text(run)
    rows = query_dlq(dlq, spark, _OF_RUN.format(run=of_run, most=MOST_MESSAGES))
    every = query_dlq(dlq, spark, _ROWS.format(run=of_run))[0]["n"] if len(rows) == MOST_MESSAGES else 0
    for row in rows:
        message = protection.mask_message(row["message"] or "")
        counter.add({**row, "message": message}, row["alike"], [row["part"]], row["id"])
    mask_causes(dlq, spark, counter, protection)
    return counter.count(of=every)


def mask_causes(
    dlq: Destination, spark: Callable[[], SparkSession], counter: CauseCounter, protection: Protection
) -> None:
    """Mask the counted causes, so that they show no value of a protected column, even under another name."""
    if protection:
        known = read_examples(dlq, spark, [cause.sample for cause in counter.count().found], protection)
        counter.put_messages({sample: row["message"] for sample, row in known.items()})


def read_examples(
    dlq: Destination, spark: Callable[[], SparkSession], ids: Iterable[str], protection: Protection
) -> Mapping[str, JSON]:
    """Return the masked `message` and `row` of these rows of the DLQ, by id."""
    listed = ", ".join(sorted({quote_text(each) for each in ids}))
    rows = query_dlq(dlq, spark, _EXAMPLES.format(ids=listed)) if listed else []
    return {row["id"]: protection.mask_nack(_decode(row)) for row in rows}


def _decode(row: Mapping[str, JSON]) -> Mapping[str, JSON]:
    """Return the row with its payload as values."""
    original = row["original"]
    return {**row, "row": json.loads(row["row"]), "original": json.loads(original) if original is not None else None}
