"""Which rows of the DLQ are carried again: those that somebody chose and nobody decided on, grouped into batches."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from destinations.dead_letters import SCHEMA, asked
from destinations.destination import Destination
from origins.batch import JSON, Limits, Span
from origins.nack import RAW
from origins.origin import Backlog
from runners.errors import Refusal
from runners.line import Line
from runners.numbered import counted
from runners.session import in_short

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST = 10_000
"""How many rows of the DLQ a batch has at most: the ledger keeps the id of each."""

UNREAD = hashlib.md5(RAW.encode(), usedforsecurity=False).hexdigest()
_LETTERS = (
    "SELECT id, origin, stage, destination, code, delivered_to, md5(original_schema) AS kind FROM {table}{where} "
    "ORDER BY nacked_at, lane, number, position, id"
)
_COLUMNS = ", ".join(column.split(" ")[0] for column in SCHEMA.split(", "))


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which rows of the DLQ somebody means; those that meet all of it, and by default every one."""

    ids: tuple[str, ...] = ()
    code: str = ""
    stage: str = ""
    """The stage that refused them, or the destination."""
    where: str = ""
    """A condition in Spark's SQL over the columns of the DLQ."""

    def of(self, dlq: Destination, spark: Callable[[], SparkSession], decided: Container[str]) -> list[Letter]:
        """The rows of the DLQ that are meant and of which nobody decided anything, the oldest first.

        Without Spark where there is no `where` and the DLQ lies on this machine. Raises `Refusal` for an id that is
        not there, and for a `where` that Spark does not understand.
        """
        try:
            where = f" WHERE (\n{self.where}\n)" if self.where else ""
            query = _LETTERS.replace("{where}", where.replace("{", "{{").replace("}", "}}"))
            rows = asked(dlq, spark, query, in_sparks_words=bool(self.where))
        except Exception as error:
            if not self.where or "DELTA_MISSING" in str(error):
                raise
            raise Refusal(
                f"--where cannot be asked of the dead letter queue: {in_short(error)}",
                hint=f"It is a condition in Spark's SQL over its columns: {_COLUMNS}.",
            ) from error
        letters = [Letter.of(row) for row in rows]
        unknown = set(self.ids) - {letter.id for letter in letters}
        if unknown:
            more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
            raise Refusal(
                f"The dead letter queue has no row {', '.join(sorted(unknown)[:3])}{more}"
                f"{' for which --where holds' if self.where else ''}.",
                hint="The ids are in:  wherry dlq show FILE --json",
            )
        return [letter for letter in letters if self._means(letter) and letter.id not in decided]

    def _means(self, letter: Letter) -> bool:
        return (
            (not self.ids or letter.id in self.ids)
            and self.code in ("", letter.code)
            and self.stage in ("", letter.stage, letter.destination)
        )


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

    @staticmethod
    def of(row: Mapping[str, JSON]) -> Letter:
        """From the columns of the DLQ."""
        return Letter(**{**row, "delivered_to": tuple(row["delivered_to"] or ())})


@dataclass(frozen=True, kw_only=True)
class Sorted:
    """The rows that can be carried again, by origin, and how many cannot, by the reason."""

    spans: Mapping[str, Sequence[Span]]
    wanted: Mapping[str, tuple[str, ...]]
    """To which destinations each span goes, by its end."""
    left: Mapping[str, int]

    @property
    def rows(self) -> int:
        """How many rows are carried."""
        return sum(len(span.parts) for spans in self.spans.values() for span in spans)

    @property
    def notices(self) -> Sequence[str]:
        """What is not carried, a sentence for each reason."""
        return [f"{counted(rows)} of the dead letter queue stay there: {why}" for why, rows in self.left.items()]

    def check(self, destinations: Mapping[str, Destination]) -> None:
        """Raises `Refusal` where late rows would take the place of newer ones."""
        for name in {name for names in self.wanted.values() for name in names if destinations[name].ordered}:
            raise Refusal(
                f"'{name}' keeps the row that arrives last, and rows of the dead letter queue arrive late: an old one "
                "would take the place of a newer one.",
                hint="Give it `sequence_by`, so that the newest wins whenever it comes.",
            )


def sort(letters: Sequence[Letter], lines: Mapping[str, Line], most: int | None = None) -> Sorted:
    """Which of these rows can be carried again through the lines of today, in batches of rows that were read alike and
    go to the same destinations."""
    left: Counter[str] = Counter()
    alike: dict[tuple[str, JSON, tuple[str, ...]], list[str]] = {}
    for letter in letters:
        why = _stays(letter, lines)
        if why:
            left[why] += 1
        else:
            names = tuple(name for name in lines[letter.origin].branches if name not in letter.delivered_to)
            alike.setdefault((letter.origin, letter.kind, names), []).append(letter.id)
    spans: dict[str, list[Span]] = {}
    wanted = {}
    for (origin, _, names), ids in alike.items():
        for span in _spans(ids, min(most or MOST, MOST)):
            spans.setdefault(origin, []).append(span)
            wanted[span.end] = names
    return Sorted(spans=spans, wanted=wanted, left=left)


class Queue(Backlog):
    """Rows of the DLQ in batches that are made already; what was carried before is none of them."""

    def __init__(self, spans: Sequence[Span], notices: Sequence[str] = ()) -> None:
        self._spans = spans
        self._next = {span.end: at + 1 for at, span in enumerate(spans)}
        self._notices = notices

    def take(self, lane: str, start: JSON, limits: Limits) -> Span | None:
        at = self._next.get(start, 0)
        return self._spans[at] if at < len(self._spans) else None

    @property
    def notices(self) -> Sequence[str]:
        return self._notices


def _stays(letter: Letter, lines: Mapping[str, Line]) -> str:
    """Why this row cannot be carried again; nothing if it can."""
    line = lines.get(letter.origin)
    if line is None:
        return f"there is no origin '{letter.origin}' any more"
    if letter.kind is None:
        return "what was read is not kept (dlq.original is false)"
    if letter.kind == UNREAD:
        return "they could not be read; mend the lines and bring them anew, in a file of its own for example"
    if all(name in letter.delivered_to for name in line.branches):
        return "every destination has them already"
    names = [step.name for step in line.common]
    changes = next((at for at, step in enumerate(line.common) if step.stage.changes_rows), None)
    if changes is not None and letter.stage not in names[:changes]:
        return f"they were refused behind '{names[changes]}', which makes other rows of those that were read"
    return ""


def _spans(ids: Sequence[str], most: int) -> Iterator[Span]:
    for first in range(0, len(ids), most):
        own = tuple(ids[first : first + most])
        yield Span(start=None, end=own[-1], parts=own, label=f"{counted(len(own))} of the dead letter queue")
