"""A choice of rows in the DLQ, the same for all commands, and the causes for which rows were refused."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any
from urllib.parse import quote

from destinations.dead_letters import MOST_LISTED, NEWEST, lacks_replays, narrow_to_ids, query_dlq, stream_dlq
from destinations.delta.delta import Delta
from destinations.destination import Destination
from origins.batch import JSON
from origins.batch_rows import to_python_rows
from origins.codec import named
from origins.errors import has_condition, list_spark_errors
from origins.lazy import SparkSession, pa
from origins.nack import DLQ_COLUMNS
from origins.names import quote_in_hex, quote_moment, quote_text
from origins.problems import refuse_unknown
from origins.protection import Protection
from runners.model.causes import CauseCounter, Causes
from runners.model.clock import convert_to_utc
from runners.model.errors import Refusal
from runners.model.run_report import MOST_REPORTED, Report
from runners.model.text import join_some, summarise_error

log = logging.getLogger("wherry")

_LETTERS = (
    "id, origin, stage, destination, code, delivered_to, md5(original_schema) AS kind, message, part, nacked_at, "
    "replays"
)
OLDEST_FIRST = "ORDER BY nacked_at, lane, number, position, id"
"""The SQL that sorts rows by the time of their refusal, the oldest first."""
_GONE = {"values": "--column NAME=VALUE", "text": "--text, which looked only at values", "column": "--column"}
"""The conditions that an older version kept in the ledger, and their options."""
_COLUMNS = ", ".join(column.split(" ")[0] for column in DLQ_COLUMNS.split(", "))


def refuse_gone_conditions(body: Mapping[str, JSON]) -> None:
    """Raise `Refusal` if the ledger keeps a choice with a condition that is gone. Without it, more rows are chosen."""
    for name, option in _GONE.items():
        if body.get(name):
            raise Refusal(
                f"The rows of a replay that was cut short were chosen by {option}, which is gone from Wherry.",
                hint="Choose the rows that wait with --where, and give that replay up:  --give-up",
            )


@refuse_unknown
@dataclass(frozen=True, kw_only=True)
class Choice:
    """A choice of rows in the DLQ: the rows that meet all conditions, by default every row."""

    ids: tuple[str, ...] = ()
    code: str = ""
    stage: str = ""
    """The stage or the destination that refused the rows."""
    file: str = ""
    """The file of the rows: its name, its path, or a pattern such as `2026-*.csv`. `*` is any text, `?` one letter."""
    where: str = ""
    """A condition in Spark's SQL over the columns of the DLQ. NULL counts as false."""
    since: datetime | None = None
    """Choose rows that were refused at this time or later. A time without a zone is in UTC."""
    until: datetime | None = None
    """Choose rows that were refused before this time."""
    text: str = field(default="", metadata=named("contains"))
    """Choose rows that have this text in their message or in the JSON of the row. Case does not matter."""

    @property
    def chooses_all(self) -> bool:
        """Whether it has no condition."""
        return self == Choice()

    def __post_init__(self) -> None:
        for name, at in (("since", self.since), ("until", self.until)):
            object.__setattr__(self, name, at and convert_to_utc(at))

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
        """Return the ids of the chosen rows that were refused last, the newest first, without the ids in `but`."""
        limit = f" LIMIT {most + len(but)}" if len(self.ids) <= MOST_LISTED else ""
        rows = self.list_rows(dlq, spark, "id", then=f"ORDER BY {NEWEST}{limit}")
        return [*islice((row["id"] for row in rows if row["id"] not in but), most)]

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

        `where` is a further condition. `then` is SQL after all conditions. The id must be a column if the choice has
        more than `MOST_LISTED` ids. Raises as `list_letters` does.
        """
        if self.ids:
            self._check_ids(dlq, spark)
        tables = self._query(dlq, spark, columns, [*self._list_conditions(), *([where] if where else [])], then)
        if len(self.ids) <= MOST_LISTED:
            yield from tables
            return
        ids = frozenset(self.ids)
        for table in tables:  # the query chose whole batches
            yield pa.Table.from_pylist([row for row in to_python_rows(table) if row["id"] in ids], table.schema)

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

    def _list_conditions(self) -> Iterator[str]:
        """Yield the conditions in SQL. Without `where`, Spark and deltalake give the same answer."""
        if self.ids:
            yield narrow_to_ids(self.ids)
        if self.code:
            yield f"code = {quote_in_hex(self.code)}"
        if self.stage:
            yield f"(stage = {quote_in_hex(self.stage)} OR destination = {quote_in_hex(self.stage)})"
        if self.file:
            yield f"regexp_like(part, {quote_in_hex(_match_file(self.file))})"
        if self.since:
            yield f"nacked_at >= {quote_moment(self.since)}"
        if self.until:
            yield f"nacked_at < {quote_moment(self.until)}"
        if self.text:
            forms = dict.fromkeys((self.text, json.dumps(self.text, ensure_ascii=False)[1:-1]))
            found = [
                f"contains(lower({column}), lower({quote_in_hex(form)}))"
                for column in ("message", "`row`", "original")
                for form in forms
            ]
            yield f"({' OR '.join(found)})"
        if self.where:
            yield f"(\n{self.where}\n)"


def _match_file(wanted: str) -> str:
    """Return a pattern, for Spark and for deltalake, for the parts of this file. A part may be a URL."""
    anywhere = "/" in wanted
    start = r"\A" if anywhere and "*" in wanted else r"(?:\A|/)"
    jokers = {"*": ".*", "?": "."} if anywhere else {"*": "[^/]*", "?": "[^/]"}
    return f"(?s){start}{''.join(jokers.get(each) or _match_in_url(each) for each in wanted)}\\z"


def _match_in_url(letter: str) -> str:
    plain, quoted = re.escape(letter), quote(letter)
    return plain if quoted == letter else f"(?:{plain}|{quoted})"


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
