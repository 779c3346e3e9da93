"""A choice of rows in the DLQ, the same for all commands, and the causes for which rows were refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING
from urllib.parse import unquote

from destinations.dead_letters import MOST_LISTED, lacks_replays, match_ids, query_dlq
from destinations.destination import Destination
from origins.batch import JSON
from origins.errors import has_condition, list_spark_errors
from origins.nack import DLQ_COLUMNS
from origins.names import quote_text
from origins.protection import Protection
from runners.model.causes import CauseCounter, Causes, find_file_name, parse_message
from runners.model.clock import convert_to_utc
from runners.model.errors import Refusal
from runners.model.text import summarise_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LETTERS = (
    "SELECT id, origin, stage, destination, code, delivered_to, md5(original_schema) AS kind, message, part, "
    "nacked_at, {replays} FROM {table}{where} ORDER BY nacked_at, lane, number, position, id"
)
_COLUMNS = ", ".join(column.split(" ")[0] for column in DLQ_COLUMNS.split(", "))


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A choice of rows in the DLQ: those that meet all conditions, by default every row."""

    ids: tuple[str, ...] = ()
    code: str = ""
    stage: str = ""
    """The stage that refused them, or the destination."""
    column: str = ""
    """The column that the message names, in any case of letters."""
    file: str = ""
    """The file that they were in: its name, its whole path, or a pattern such as `2026-*.csv`."""
    where: str = ""
    """A condition in Spark's SQL over the columns of the DLQ. NULL counts as false."""
    since: datetime | None = None
    """Rows that were refused then or later. A time without a zone is in UTC."""
    until: datetime | None = None
    """Rows that were refused before."""

    @property
    def chooses_all(self) -> bool:
        """Whether it has no condition."""
        return self == Choice()

    def json(self) -> dict[str, JSON]:
        """As the ledger keeps it."""
        moments = {
            name: at and convert_to_utc(at).isoformat() for name, at in (("since", self.since), ("until", self.until))
        }
        return {**vars(self), "ids": list(self.ids), **moments}

    def select_letters(
        self, dlq: Destination, spark: Callable[[], SparkSession], decided: Container[str]
    ) -> list[Letter]:
        """The chosen rows of the DLQ that wait, the oldest first. Otherwise as `list_letters`."""
        return [letter for letter in self.list_letters(dlq, spark) if letter.id not in decided]

    def list_letters(self, dlq: Destination, spark: Callable[[], SparkSession]) -> list[Letter]:
        """The chosen rows of the DLQ, the oldest first.

        Without Spark where there is no `where` and the DLQ lies on this machine. Raises `Refusal` for an id that is
        not there, and for a `where` that Spark does not understand.
        """
        try:
            conditions = [match_ids(self.ids)] if 0 < len(self.ids) <= MOST_LISTED else []
            conditions += [f"(\n{self.where}\n)"] if self.where else []
            where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
            query = _LETTERS.replace("{where}", where.replace("{", "{{").replace("}", "}}"))
            query = query.replace("{replays}", "NULL AS replays" if lacks_replays(dlq) else "replays")
            rows = query_dlq(dlq, spark, query, in_sparks_words=bool(self.where))
        except list_spark_errors() as error:
            if not self.where or has_condition(error, "DELTA_MISSING"):
                raise
            raise Refusal(
                f"--where is not valid for the DLQ: {summarise_error(error)}",
                hint=f"Write a condition in Spark's SQL over the columns of the DLQ: {_COLUMNS}.",
            ) from error
        letters = [Letter.of(row) for row in rows]
        unknown = set(self.ids) - {letter.id for letter in letters}
        if unknown:
            more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
            raise Refusal(
                f"The DLQ has no row {', '.join(sorted(unknown)[:3])}{more}"
                f"{' that meets --where' if self.where else ''}.",
                hint="See the ids:  wherry dlq show FILE",
            )
        return [letter for letter in letters if self._is_meant(letter)]

    def _is_meant(self, letter: Letter) -> bool:
        return (
            (not self.ids or letter.id in self.ids)
            and self.code in ("", letter.code)
            and self.stage in ("", letter.stage, letter.destination)
            and (not self.since or convert_to_utc(letter.nacked_at) >= convert_to_utc(self.since))
            and (not self.until or convert_to_utc(letter.nacked_at) < convert_to_utc(self.until))
            and (not self.file or _is_file(letter.part, self.file))
            and (not self.column or self.column.lower() in map(str.lower, parse_message(letter.message).columns))
        )


def _is_file(part: str, wanted: str) -> bool:
    names = {path for whole in {part, unquote(part)} for path in (whole, find_file_name(whole))}
    return any(name == wanted or name.endswith(f"/{wanted}") or fnmatchcase(name, wanted) for name in names if name)


@dataclass(frozen=True, kw_only=True)
class Letter:
    """A row of the DLQ, as far as it must be known to carry it again."""

    id: str
    origin: str
    stage: str
    destination: str | None = None
    code: str = ""
    delivered_to: tuple[str, ...] = ()
    kind: str | None = None
    """What tells apart rows that were read with different schemas; None where the row as it was read was not kept."""
    message: str = ""
    part: str = ""
    """The file that it was in."""
    nacked_at: datetime = datetime(1970, 1, 1)
    replays: str = ""
    """The id of the row of which this is the replay that was refused again."""

    @staticmethod
    def of(row: Mapping[str, JSON]) -> Letter:
        """From the columns of the DLQ."""
        texts = {name: row[name] or "" for name in ("code", "message", "part", "replays")}
        return Letter(**{**row, **texts, "delivered_to": tuple(row["delivered_to"] or ())})


MOST_MESSAGES = 100_000
"""So many different refusals of a run are looked at for its report; of more, the most frequent."""
_OF_RUN = (
    "SELECT code, stage, destination, message, part, count(*) AS alike, min(id) AS id FROM {{table}} WHERE run = {run} "
    "GROUP BY code, stage, destination, message, part ORDER BY alike DESC, message, part LIMIT {most}"
)
_ROWS = "SELECT count(*) AS n FROM {{table}} WHERE run = {run}"
_EXAMPLES = "SELECT id, stage, message, `row`, original FROM {{table}} WHERE id IN ({ids})"


def count_causes_of_run(
    dlq: Destination, spark: Callable[[], SparkSession], run: str, protection: Protection = Protection()
) -> Causes:
    """Why the rows were refused that are in the DLQ from this run; the values of protected columns are masked."""
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
    """Mask the counted causes, so that no value of a protected column stands in them, also not under another name."""
    if protection:
        known = read_examples(dlq, spark, [cause.sample for cause in counter.count().found], protection)
        counter.put_messages({sample: row["message"] for sample, row in known.items()})


def read_examples(
    dlq: Destination, spark: Callable[[], SparkSession], ids: Iterable[str], protection: Protection
) -> Mapping[str, JSON]:
    """These rows of the DLQ by their ids, masked: `message` and `row`."""
    listed = ", ".join(sorted({quote_text(each) for each in ids}))
    rows = query_dlq(dlq, spark, _EXAMPLES.format(ids=listed)) if listed else []
    return {row["id"]: protection.mask_nack(_decode(row)) for row in rows}


def _decode(row: Mapping[str, JSON]) -> Mapping[str, JSON]:
    """The row with its payload as values."""
    original = row["original"]
    return {**row, "row": json.loads(row["row"]), "original": json.loads(original) if original is not None else None}
