"""Words, numbers, tables and errors for people, on a terminal or in a notebook."""

from __future__ import annotations

import contextlib
import html
import json
import math
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from origins.batch import JSON, Json


_WIDEST = 110
_KEPT = "\0"
_COMMAND = re.compile(r"(?P<command>\bwherry(?: [a-z]+)+) FILE\b")
_DETOUR = re.compile(r"(?<=/)(?!\.\./)[^/\n]+/\.\./")
"""A folder of a path that is followed by `..`."""


def format_count(number: int, one: str = "row", many: str = "rows") -> str:
    """Return a number with its noun: `1 row`, `1,234 rows`."""
    return f"{number:,} {one if number == 1 else many}"


def format_batches(number: int) -> str:
    """Return a number of batches with its noun."""
    return format_count(number, "batch", "batches")


def format_percent(fared: Mapping[str, JSON]) -> str:
    """Format the share as a percentage. It is 100% only if the share is exactly 1."""
    share = fared["share"]
    if share is None:
        return "-"
    return "100%" if share == 1 else f"{math.floor(share * 10_000) / 100:.2f}%"


def show_moment(at: object) -> str:
    """Format a time in UTC to the second. Empty if no time is given."""
    return str(at or "")[:19].replace("T", " ")


def show_offset(offset: Json) -> str:
    """Describe an offset: the last file that was read, the version of a table, or else the offset as it is stored."""
    if offset is None:
        return "the beginning"
    keys = set(offset) if isinstance(offset, Mapping) else set()
    if keys == {"file", "modified"}:
        modified = datetime.fromtimestamp(int(str(offset["modified"])) / 1000, timezone.utc)  # type: ignore[index,call-overload]
        return f"{offset['file']}, changed {show_moment(modified.isoformat())}"  # type: ignore[index,call-overload]
    if keys == {"version", "table"}:
        return f"version {offset['version']}"  # type: ignore[index,call-overload]
    return json.dumps(offset, ensure_ascii=False)


def name_batch(number: int, lane: str, lanes: Collection[str]) -> str:
    """Name a batch. Its lane is included unless that is the only lane."""
    return f"batch {number}" if set(lanes) <= {lane} else f"batch {number} of lane {lane}"


def show_open_batch(plan: Mapping[str, JSON], lanes: Collection[str], *, under_way: bool = False) -> str:
    """Describe the future of a batch that is not settled. With `under_way`, a run is working."""
    label = f" ({plan['label']})" if plan["label"] else ""
    how = "is open; the next run finishes it first"
    if under_way:
        how = f"is being processed since {show_moment(plan['since'])}"
    if plan.get("owed"):
        how = "is missing in some destinations; the next run delivers it first"
    return f"{name_batch(plan['number'], plan['lane'], lanes)}{label} {how}"


def format_repr(kind: str, name: str, *facts: str) -> str:
    """Return the `repr` of a value with many facts in one line, such as `<Report orders: succeeded, 3 batches>`."""
    return escape_line(f"<{kind} {name}: {', '.join(facts)}>")


def join_some(texts: Sequence[str], most: int = 3) -> str:
    """Return the first of these texts in one line, and how many more there are."""
    return ", ".join(texts[:most]) + (f" and {len(texts) - most:,} more" if len(texts) > most else "")


def shorten(text: str) -> str:
    """Quote a given text for a message: on one line, and at most 60 characters."""
    return repr(text if len(text) <= 60 else text[:59] + "…")


def shorten_paths(text: str) -> str:
    """Return the text with paths below the current directory made relative to it."""
    here = os.getcwd().rstrip(os.sep) + os.sep
    while (shorter := _DETOUR.sub("", text, count=1)) != text:
        text = shorter
    return text.replace(here, "") if len(here) > 1 else text


def with_file(text: str, file: object) -> str:
    """Return the text with the definition's file, quoted for a shell, in each command that has `FILE`."""
    return _COMMAND.sub(lambda match: f"{match['command']} {shlex.quote(str(file))}", text)


def format_sections(named: Iterable[tuple[str, Sequence[str]]], *, least: int = 0) -> str:
    """Format headings in a column with sentences beside them. The headings' column is at least `least` wide."""
    rows = [
        (heading if at == 0 else "", sentence) for heading, sentences in named for at, sentence in enumerate(sentences)
    ]
    width = max([least, *(len(heading) for heading, _ in rows)]) + 2
    return "\n".join(
        _wrap_text(sentence, paint(heading, "bold") + " " * (width - len(heading)), " " * width)
        for heading, sentence in rows
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a table with a heading. The last column may be long."""
    rows = [[escape_line(cell) for cell in row] for row in rows]
    columns = [pad_column(column) for column in zip(*([head, *rows]), strict=True)]
    indent = " " * sum(measure_width(column[0]) + 2 for column in columns[:-1])
    lines = []
    for at, row in enumerate([head, *rows]):
        cells = [column[at] for column in columns[:-1]]
        first = "".join(f"{paint_word(cell) if at else cell}  " for cell in cells)
        line = _wrap_text(row[-1], first, indent).rstrip()
        lines.append(line if at else paint(line, "bold"))
    return "\n".join(lines)


def pad_column(cells: Sequence[str]) -> list[str]:
    """Return the cells padded with blanks to the same width."""
    widths = [measure_width(cell) for cell in cells]
    return [cell + " " * (max(widths) - width) for cell, width in zip(cells, widths, strict=True)]


def measure_width(text: str) -> int:
    """Return how many columns of a terminal the text takes.

    A wide letter takes two, and a combining mark takes none.
    """
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def fit_text(text: str, width: int) -> str:
    """Return the text cut to so many columns of a terminal. A longer text ends with `…`."""
    if measure_width(text) <= width:
        return text
    from rich.cells import chop_cells

    return f"{chop_cells(text, width - 1)[0] if width > 1 else ''}…"


def _wrap_text(text: str, first: str, indent: str) -> str:
    """Wrap the text at the terminal's width. A command after a colon and two spaces stays in one line."""
    width = min(shutil.get_terminal_size((100, 24)).columns, _WIDEST)
    room = max(width - len(indent), 30)
    words, colon, command = escape_controls(text).partition(":  ")
    whole = words + colon + command.replace(" ", _KEPT)
    lines = textwrap.wrap(whole, room, break_long_words=False, break_on_hyphens=False) or [""]
    return "\n".join([first + lines[0], *(indent + line for line in lines[1:])]).replace(_KEPT, " ")


def escape_html(value: object) -> str:
    """Return the text of the value as HTML, with special characters escaped."""
    return html.escape(escape_controls(str(value)))


def render_text(text: str) -> str:
    """Return a text for a terminal as HTML for a notebook, with its lines as they are."""
    return f"<pre>{escape_html(text)}</pre>"


_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escape_controls(text: str) -> str:
    """Escape characters that move a cursor, change colours or change the direction of writing.

    Line breaks and tabs stay. JSON remains equivalent JSON.
    """
    return _CONTROLS.sub(lambda match: match.group() if match.group() in "\n\t" else _escape(match.group()), text)


def escape_line(text: str) -> str:
    """Escape the same characters, and also line breaks and tabs, so that no line can be forged."""
    return _CONTROLS.sub(lambda match: _escape(match.group()), text)


def _escape(control: str) -> str:
    return _SHORT.get(control) or f"\\u{ord(control):04x}"


_WORKER = "An exception was thrown from the Python worker"
"""The beginning of Spark's report of an error in a Python function.

The error that the function raised is at the end.
"""
_UNREADABLE = re.compile(r"\[FAILED_READ_FILE\.\w+\] Encountered error while reading file (\S+?)\.(?:\s|$)")
"""Spark's words for a file that it cannot read. The reason follows as the cause."""
_AWAY = re.compile(r'^\s*status = StatusCode\.(?P<status>\w+)\n\s*details = "(?P<details>[^"\n]+)"', re.MULTILINE)
"""The lines in which a Connect client reports that its server does not answer. Other lines surround them."""


def summarise_error(error: BaseException) -> str:
    """Summarise an error in one line, in the words of its cause, without Java's stack.

    If Spark cannot read a file, the line begins with the file.
    """
    from stages.bisection import FAILS

    if isinstance(error, (ArithmeticError, AttributeError, LookupError, TypeError)):
        return f"{type(error).__name__}: {error}"
    away = _AWAY.search(str(error))
    if away:
        return f"{away['status']}: {away['details']}"
    lines = [line for line in str(error).splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling "):
        lines = [lines[1].removeprefix(": "), *lines[2:]]
    if _WORKER in str(error):
        return next((line for line in reversed(lines) if re.match(r"[A-Za-z_][\w.]*: ", line)), lines[-1])
    causes = [line for line in lines if line.startswith("Caused by: ")]
    words = (causes or lines or [type(error).__name__])[-1 if causes else 0]
    words = re.sub(r"^Caused by: ", "", words.strip())
    words = re.sub(r"^(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): ", "", words)
    words = words.replace(f"[USER_RAISED_EXCEPTION] {FAILS}", "[USER_RAISED_EXCEPTION] ")
    words = re.sub(r"\s*SQLSTATE: \w+.*$", "", words)
    file = _UNREADABLE.search(str(error))
    return words if file is None or file[1] in words else f"Spark cannot read {file[1]}: {words}"


_CODES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33}
_LOOKS = {
    **dict.fromkeys(("succeeded", "ok", "balances"), "green"),
    **dict.fromkeys(("failed", "killed", "problem"), "red"),
    **dict.fromkeys(("refused", "stopped", "skipped"), "yellow"),
    "filtered": "dim",
}
"""The colours of words that report a result."""
_colored = [False]


@contextlib.contextmanager
def choose_colors(words: Sequence[str]) -> Iterator[None]:
    """Colour what the command of these words prints on a terminal, unless colours are unwanted.

    They are unwanted with `NO_COLOR`, on a terminal without colours, and with an option for JSON. A stream that is not
    a terminal gets none, because `click.echo` strips them.
    """
    watched = any(stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr))
    for_json = not {"--json", "--log-format=json"}.isdisjoint(words) or ("--log-format", "json") in pairwise(words)
    unwanted = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or for_json
    _colored[0] = watched and not unwanted
    try:
        yield
    finally:
        _colored[0] = False


def paint(text: str, look: str) -> str:
    """Return the text in bold, dim, red, green or yellow. Return it unchanged if colours are off."""
    return f"\x1b[{_CODES[look]}m{text}\x1b[0m" if _colored[0] and text and look else text


def paint_word(word: str) -> str:
    """Return the text in the colour of its first word. A first word without a colour leaves it unchanged."""
    return paint(word, _LOOKS.get(word.partition(" ")[0], ""))


def paint_hint(line: str) -> str:
    """Format a line with something to type: its words are dim, and its command is not."""
    words, colon, typed = line.partition(":  ")
    return paint(words + colon, "dim") + typed


def paint_error(message: str, *, refusal: bool = False) -> str:
    """Colour the first words of an error, up to a colon."""
    first, line_break, rest = message.partition("\n")
    words, colon, more = first.partition(": ")
    return paint(words, "yellow" if refusal else "red") + colon + more + line_break + rest


_NARROWEST = 12
"""The fewest columns of the terminal that a value is cut to. Before that, the table's last columns are hidden."""
_GAP = "  "


@dataclass(frozen=True, kw_only=True)
class ShownRow:
    """A row of data with the texts around it."""

    row: JSON
    lead: str = ""
    """The text in front of the row: what happened to it."""
    note: str = ""
    """The text below the row: why it is shown."""
    source: str = ""
    """Where the row comes from."""


def format_rows(rows: Sequence[ShownRow], *, wide: bool = False) -> list[str]:
    """Return the lines of a table of the rows, with columns in the order in which they first occur.

    Long values are cut. Columns without room are hidden, and the heading counts them. With `wide`, nothing is cut or
    hidden.
    """
    if not rows:
        return []
    fields = [each.row if isinstance(each.row, Mapping) else {"": each.row} for each in rows]
    names = list(dict.fromkeys(name for row in fields for name in row)) or [""]
    cells = [[_format_cell(row, name) for name in names] for row in fields]
    columns = [[escape_line(name), *column] for name, column in zip(names, zip(*cells, strict=True), strict=True)]
    leads = pad_column(["", *(escape_line(each.lead) for each in rows)])
    indent = _GAP + (leads[0] + _GAP if leads[0] else "")
    room = shutil.get_terminal_size((100, 24)).columns - len(indent)
    natural = [max(map(measure_width, column)) for column in columns]
    widths = natural if wide else _fit_widths(natural, room)
    missing = len(columns) - len(widths)
    hidden = f"{_GAP}+{format_count(missing, 'column', 'columns')}" if missing else ""
    fitted = [
        pad_column([fit_text(cell, width) for cell in column]) for column, width in zip(columns, widths, strict=False)
    ]
    head, *lines = [_GAP.join(cells) for cells in zip(*fitted, strict=True)]
    shown = [indent + paint((head + hidden).rstrip(), "bold")] if head.strip() else []
    for lead, line, each in zip(leads[1:], lines, rows, strict=True):
        shown.append((_GAP + (paint_word(lead) + _GAP if lead else "") + line).rstrip())
        note = escape_line(each.note)
        notes = [note] if wide and note else textwrap.wrap(note, max(room - len(_GAP), 30))
        shown += [indent + _GAP + paint(part, "yellow") for part in notes]
        shown += [indent + _GAP + paint_hint(escape_line(each.source))] if each.source else []
    return shown


def _fit_widths(natural: Sequence[int], room: int) -> list[int]:
    """Return the widths of the first columns, as many as fit. The widest columns are cut first, to the same width."""
    shown = len(natural)
    while shown > 1 and _sum_widths([min(width, _NARROWEST) for width in natural[:shown]], shown < len(natural)) > room:
        shown -= 1
    kept = natural[:shown]
    limit = min(max(kept), max(room, 1))
    while limit > 1 and _sum_widths([min(width, limit) for width in kept], shown < len(natural)) > room:
        limit -= 1
    return [min(width, limit) for width in kept]


def _sum_widths(widths: Sequence[int], hides: bool) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1) + (len(f"{_GAP}+99 columns") if hides else 0)


def _format_cell(row: Mapping[str, JSON], name: str) -> str:
    """Format a value for reading. A text that could be mistaken for another value is put in quotes."""
    if name not in row:
        return ""
    value = row[name]
    plain = isinstance(value, str) and value == value.strip() and value not in ("", "null")
    return escape_line(value if plain else json.dumps(value, ensure_ascii=False))


def find_version() -> str:
    """Return the installed version, or the version of the source tree that runs."""
    import importlib.metadata

    try:
        return importlib.metadata.version("wherry")
    except importlib.metadata.PackageNotFoundError:
        project = Path(__file__).parents[2] / "pyproject.toml"
        text = project.read_text(encoding="utf-8") if project.exists() else ""
        match = re.search(r'^version = "(.+)"$', text, re.MULTILINE)
        return match.group(1) if match else "unknown"
