"""The causes of refused rows: code, stage, column and form of the value, with counts and examples."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Any

from origins.batch import Json
from origins.codec import LEFT_OUT, UNSTORED, decode, encode
from origins.protection import MASK
from origins.secret import cut_text
from runners.model.text import escape_line, format_count

MOST_CAUSES = 1_000
"""How many causes are counted separately. Rows with further causes are counted together."""
MOST_FILES = 1_000
"""How many files of one cause are counted."""
_OTHER = "other"
_NAMED, _VALUE_SHOWN, _MESSAGE_SHOWN, _FORM = 3, 40, 200, 60
_LINES, _FORMS_IN_LINE = 5, 3

_COLUMN = re.compile(r"\bcolumn ([^:;]+): (NULL\b|'.*?'(?= is not |; |, |$)|[^';, ]*\*\*\*)", re.DOTALL)
"""A column and its value, as stages and origins write them into the message of a refusal."""
KEYED = " has no row with "
"""The text in messages of `lookup`."""
_KEY = re.compile(r"(?:(?<= has no row with )|(?<=, ))([^=,]+) = (.*?)(?=, [^=,]+ = |$)", re.DOTALL)
"""A column and its value, as `lookup` writes them into the message of a refusal."""
_LETTERS, _DIGITS = re.compile(r"[^\W\d_]+"), re.compile(r"\d+")
_MIXED = re.compile(r"(?:a9a|9a9)[a9]*")
_REPEATED = re.compile(r"(.{2,4}?)\1{2,}", re.DOTALL)
_SAME = re.compile(r"([^\w\s])\1+")


@dataclass(frozen=True, kw_only=True)
class ParsedMessage:
    """The parts of a refusal's message."""

    columns: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    """The value of each column: in quotes, or NULL."""
    problem: str
    """The message without the values. If the message names no column, the message with each run of digits as 9."""

    @cached_property
    def form(self) -> str:
        """The forms of the values, with commas between them."""
        return ", ".join(map(_find_form_shown, self.values))


def _find_form_shown(value: str) -> str:
    """Return the form of a value as a message shows it: in quotes, NULL, a key of `lookup`, or masked."""
    if value.endswith(MASK):
        return MASK
    quoted = len(value) > 1 and value[0] == value[-1] == "'"
    return find_form(value[1:-1]) if quoted else value if value == "NULL" else find_form(value)


@lru_cache(maxsize=10_000)
def parse_message(message: str) -> ParsedMessage:
    """Return the columns of a message, their values, and what is wrong with them."""
    pattern = _KEY if KEYED in message else _COLUMN
    pairs = pattern.findall(message)
    if not pairs:
        return ParsedMessage(problem=_DIGITS.sub("9", message))
    columns, values = zip(*pairs, strict=True)
    return ParsedMessage(columns=columns, values=values, problem=pattern.sub(lambda match: match[1], message))


def make_pattern(message: str) -> str:
    """Return a pattern, for RE2, of messages that have the same columns and the same problem.

    Its groups are the values, or the digits if the message names no column. Messages whose groups have the same forms
    have the same cause, if the text `KEYED` is in all of them or in none.
    """
    spans = [found.span(2) for found in (_KEY if KEYED in message else _COLUMN).finditer(message)]
    if KEYED in message:
        inside = r"[^=\n]*"
    elif spans:
        inside, spans = "[^']*", [(begin + 1, end - 1) for begin, end in spans if message[begin] == "'"]
    else:
        inside, spans = "[0-9]+", [found.span() for found in re.finditer("[0-9]+", message)]
    pattern, at = "^(?P<none>)", 0
    for number, (begin, end) in enumerate(spans):
        if re.fullmatch(inside, message[begin:end]):
            pattern += f"{re.escape(message[at:begin])}(?P<v{number}>{inside})"
            at = end
    return f"{pattern}{re.escape(message[at:])}$"


def find_form(value: str) -> str:
    """Return the form of a value. Values of the same form are probably wrong for the same reason.

    Each run of digits becomes a 9, and each run of letters an a. A mix that changes between both more than once becomes
    an x.
    """
    form = _DIGITS.sub("9", _LETTERS.sub("a", value))
    form = _SAME.sub(r"\1", re.sub(r"\s+", " ", _MIXED.sub("x", form)))
    form = _REPEATED.sub(r"\1\1", form)
    return form if len(form) <= _FORM else form[:_FORM] + "…"


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Rows that were refused for the same reason."""

    code: str
    stage: str
    destination: str | None = None
    column: str = ""
    """The column, or several with commas between them. Empty if the message names no column."""
    problem: str = ""
    """What is wrong, without the value."""
    form: str = ""
    """The form of the value."""
    rows: int = 0
    files: int = 0
    """How many files have such rows. Counting ends at `MOST_FILES`."""
    first_files: Sequence[str] = ()
    """Some of these files."""
    example: str = ""
    """A value of such a row, as its message quotes it. If the message names no column, the whole message."""
    sample: str = field(default="", metadata=UNSTORED)
    """The id of the row with this example, if it is known."""
    waiting: int | None = field(default=None, metadata=LEFT_OUT)
    """How many of the rows wait in the DLQ, if that is known."""

    def put_message(self, message: str) -> Cause:
        """Return the cause with the column, the problem and the example of this message."""
        parsed = parse_message(message)
        shown = ", ".join(map(_cut_value, parsed.values)) if parsed.values else cut_text(message, _MESSAGE_SHOWN)
        column = ", ".join(parsed.columns)
        return replace(self, column=column, problem=parsed.problem, example=escape_line(shown))


@dataclass(frozen=True, kw_only=True)
class Causes:
    """The causes of some refused rows, the most frequent first."""

    found: tuple[Cause, ...] = ()
    others: int = 0
    """How many rows have causes beyond the limit."""

    def json(self) -> list[dict[str, Any]]:
        """Return the causes as `--json` prints them. Rows of other causes are an entry with the code `other`."""
        rest = [Cause(code=_OTHER, stage="", rows=self.others)] if self.others else []
        return [encode(cause) for cause in (*self.found, *rest)]

    @staticmethod
    def of(printed: Json) -> Causes:
        """Make the causes from what `json` returns."""
        causes = decode(tuple[Cause, ...], printed)
        found = tuple(cause for cause in causes if cause.code != _OTHER)
        return Causes(found=found, others=sum(cause.rows for cause in causes if cause.code == _OTHER))

    def keep_first(self, most: int) -> Causes:
        """Return at most this many causes. The rows of the remaining causes are only counted."""
        return Causes(found=self.found[:most], others=self.others + sum(cause.rows for cause in self.found[most:]))

    def describe(self, *, placed: bool = True) -> list[str]:
        """Return a line for each problem, for a person. With `placed`, the line begins with the code and the stage."""
        problems = [*self._list_problems()]
        lines = [f"{where}: {line}" if placed else line for where, line, _ in problems[:_LINES]]
        left = sum(rows for *_, rows in problems[_LINES:]) + self.others
        return [*lines, *([f"other causes: {format_count(left)}"] if left else [])]

    def _list_problems(self) -> Iterator[tuple[str, str, int]]:
        def by(cause: Cause) -> tuple[str, str, str, str]:
            return cause.code, cause.stage, cause.destination or "", cause.problem

        alike = [list(causes) for _, causes in groupby(sorted(self.found, key=by), by)]
        for causes in sorted(alike, key=_count_urgency, reverse=True):
            first, rows = causes[0], sum(cause.rows for cause in causes)
            where = f"{first.code}, {first.stage}" + (f" for {first.destination}" if first.destination else "")
            yield escape_line(where), _describe_alike(causes), rows


def _count_urgency(causes: Sequence[Cause]) -> tuple[int, int]:
    """Return how many rows of the causes wait, and how many rows they have."""
    return sum(cause.waiting or 0 for cause in causes), sum(cause.rows for cause in causes)


def _describe_alike(causes: Sequence[Cause]) -> str:
    """Describe one problem with the forms of the values that have it."""
    causes = sorted(causes, key=lambda cause: _count_urgency([cause]), reverse=True)
    first = causes[0]
    if not first.column:
        return f"{first.example}: {format_count(first.rows)}{_name_files(first)}{_format_waiting(first)}"
    forms = [
        f"{format_count(cause.rows) if at == 0 else f'{cause.rows:,}'} like {cause.example}{_name_files(cause)}"
        + _format_waiting(cause)
        for at, cause in enumerate(causes[:_FORMS_IN_LINE])
    ]
    left = sum(cause.rows for cause in causes[_FORMS_IN_LINE:])
    problem = escape_line(cut_text(first.problem, _MESSAGE_SHOWN))
    return f"{problem}: {'; '.join([*forms, *([format_count(left, 'other', 'others')] if left else [])])}"


def _name_files(cause: Cause) -> str:
    if cause.files == 1:
        return f" in {escape_line(find_file_name(cause.first_files[0]))}"
    more = " or more" if cause.files == MOST_FILES else ""
    kinds = {_name_kind(part) for part in cause.first_files}
    what = {"partition": "partitions", "": "batches"}.get(kinds.pop(), "files") if len(kinds) == 1 else "files"
    return f" in {cause.files:,}{more} {what}" if cause.files else ""


def _format_waiting(cause: Cause) -> str:
    """Return how many of the rows wait, or an empty text if all of them do or the number is not known."""
    if cause.waiting is None or cause.waiting == cause.rows:
        return ""
    return f" ({cause.waiting:,} {'waits' if cause.waiting == 1 else 'wait'})" if cause.waiting else " (none wait)"


def find_file_name(part: str) -> str:
    """Return the last segment of a file's path, a whole partition with its topic, or a version of a table."""
    return part.rstrip("/").rpartition("/")[2] if _name_kind(part) == "file" else part


def name_part(part: str, *, whole: bool = False) -> str:
    """Return the name of the rows' source: `file orders.json`, `partition orders/0` or `version 7`.

    With `whole`, a file has its path.
    """
    return f"{_name_kind(part)} {part if whole else find_file_name(part)}".lstrip()


def _name_kind(part: str) -> str:
    """Return `file` or `partition`; empty for versions of a table, which say what they are."""
    if _VERSIONS.fullmatch(part):
        return ""
    return "partition" if _PARTITION.fullmatch(part) else "file"


_PARTITION = re.compile(r"[A-Za-z0-9._-]+/\d+")
"""How Kafka names a partition of a topic, like `orders/0`."""
_VERSIONS = re.compile(r"((changes of )?versions? \d+( to \d+)?|the table as of version \d+)")
"""How the origin `delta` names the rows of a batch."""


def _cut_value(value: str) -> str:
    if len(value) <= _VALUE_SHOWN:
        return value
    return f"{value[:_VALUE_SHOWN]}…{value[-1] if value[0] == value[-1] else ''}"


@dataclass
class CauseCounter:
    """Counts refused rows by cause, in bounded memory."""

    most: int = MOST_CAUSES
    others: int = 0
    _found: dict[tuple[str, str, str | None, str, str], _Group] = field(default_factory=dict)

    def add(
        self,
        refusal: Mapping[str, object],
        rows: int = 1,
        files: Iterable[str | None] = (),
        sample: str = "",
        waiting: int | None = None,
        rank: str = "",
    ) -> None:
        """Count rows with this code, stage, destination and message. The values in the message are masked already.

        Two messages that differ only in the file at the front have the same cause. The example of a cause is the
        message with the lowest `rank`, and the first of these.
        """
        named = [file for file in files if file]
        message = drop_file(str(refusal["message"]), named)
        parsed = parse_message(message)
        code, stage, destination = str(refusal["code"]), str(refusal["stage"]), refusal.get("destination")
        assert destination is None or isinstance(destination, str)
        key = code, stage, destination, parsed.problem, parsed.form
        group = self._found.get(key)
        if group is None and len(self._found) >= self.most:
            self.others += rows
            return
        if group is None or rank < group.rank:
            cause = Cause(code=code, stage=stage, destination=destination, form=parsed.form, sample=sample)
            group = self._found.setdefault(key, _Group(cause))
            group.cause, group.rank = cause.put_message(message), rank
        group.add(rows, named, waiting)

    def put_messages(self, messages: Mapping[str, str]) -> None:
        """Replace the counted messages by these, which are given by the ids of the samples.

        A cause shows no message if its sample is not given here. Causes that are then alike become one cause.
        """
        groups, self._found = [*self._found.values()], {}
        for group in groups:
            cause = group.cause.put_message(drop_file(messages.get(group.cause.sample, MASK), group.files))
            key = cause.code, cause.stage, cause.destination, cause.problem, cause.form
            self._found.setdefault(key, _Group(cause)).add(group.rows, group.files, group.waiting)

    def count(self, *, of: int = 0) -> Causes:
        """Return what was counted so far. `of` is the number of all rows.

        Rows that were not counted have other causes.
        """
        counted = [
            replace(
                group.cause,
                rows=group.rows,
                files=len(group.files),
                first_files=tuple(sorted(group.files)[:_NAMED]),
                waiting=group.waiting,
            )
            for group in self._found.values()
        ]
        others = max(self.others, of - sum(cause.rows for cause in counted))
        return Causes(found=tuple(sorted(counted, key=lambda cause: -cause.rows)), others=others)


def drop_file(message: str, files: Iterable[str]) -> str:
    """Return the message without the file, or the partition and offset, that an origin wrote in front."""
    places = (_OFFSET.match(message, len(file)) for file in files if message.startswith(file))
    return next((message[place.end() :] for place in places if place), message)


PLACE = r"(?: offset \d+)?: "
"""A pattern of what an origin writes between the file and the message."""
_OFFSET = re.compile(PLACE)


@dataclass
class _Group:
    cause: Cause
    rank: str = ""
    rows: int = 0
    files: dict[str, None] = field(default_factory=dict)
    waiting: int | None = None

    def add(self, rows: int, files: Iterable[str], waiting: int | None) -> None:
        self.rows += rows
        if waiting is not None:
            self.waiting = (self.waiting or 0) + waiting
        for file in files:
            if len(self.files) < MOST_FILES:
                self.files.setdefault(file)
