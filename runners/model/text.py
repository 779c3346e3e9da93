"""Words, numbers, tables and errors as a person reads them, on a terminal or in a notebook."""

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
"""A folder of a path, and the way out of it again."""
_COLORS = {"refused": "#b00020", "filtered": "#777777", "failed": "#b00020"}


def format_count(number: int, one: str = "row", many: str = "rows") -> str:
    """So many of something: `1 row`, `1,234 rows`."""
    return f"{number:,} {one if number == 1 else many}"


def format_batches(number: int) -> str:
    """So many batches."""
    return format_count(number, "batch", "batches")


def format_percent(fared: Mapping[str, JSON]) -> str:
    """The share as a person reads it; never 100% unless it is all."""
    share = fared["share"]
    if share is None:
        return "-"
    return "100%" if share == 1 else f"{math.floor(share * 10_000) / 100:.2f}%"


def show_moment(at: object) -> str:
    """A time in UTC to the second; nothing for none."""
    return str(at or "")[:19].replace("T", " ")


def show_offset(offset: Json) -> str:
    """Where a lane is: the last file that was read, or the version of a table; another offset as it is stored."""
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
    """A batch; with its lane, unless that is the only one."""
    return f"batch {number}" if set(lanes) <= {lane} else f"batch {number} of lane {lane}"


def show_open_batch(plan: Mapping[str, JSON], lanes: Collection[str], *, under_way: bool = False) -> str:
    """What becomes of a batch that is not settled; with `under_way` a run is at work."""
    label = f" ({plan['label']})" if plan["label"] else ""
    how = "is being processed" if under_way else "is open; the next run finishes it first"
    if plan.get("owed"):
        how = "is missing in some destinations; the next run delivers it first"
    return f"{name_batch(plan['number'], plan['lane'], lanes)}{label} {how}"


def describe_thread(thread: Mapping[str, JSON]) -> str:
    """What a thread of a run is doing, as its activity has it."""
    batches = ", ".join(f"batch {each['number']} of lane {each['lane']}" for each in thread["batches"][:3])
    more = f" and {len(thread['batches']) - 3} more" if len(thread["batches"]) > 3 else ""
    rows = f", {format_count(thread['rows'])}" if thread["rows"] is not None else ""
    place = f"; at {thread['place']}" if thread["place"] else ""
    return f"{thread['doing']} for {thread['seconds']:,.0f} s: {batches}{more}{rows}{place}"


def describe_work(work: Mapping[str, JSON]) -> str:
    """What Spark has to do for a run."""
    jobs, tasks = format_count(work["jobs"], "job", "jobs"), format_count(work["tasks"], "task", "tasks")
    return f"Spark has {jobs} and {tasks} active; {work['done']:,} tasks are done, {work['left']:,} wait"


def format_repr(kind: str, name: str, *facts: str) -> str:
    """What Python shows of a value with many facts: one line, such as `<Report orders: succeeded, 3 batches>`."""
    return escape_line(f"<{kind} {name}: {', '.join(facts)}>")


def shorten(text: str) -> str:
    """What was given, as it is quoted in a message: on one line, and not for ever."""
    return repr(text if len(text) <= 60 else text[:59] + "…")


def shorten_paths(text: str) -> str:
    """The text with paths beneath the current directory as they would be typed."""
    here = os.getcwd().rstrip(os.sep) + os.sep
    while (shorter := _DETOUR.sub("", text, count=1)) != text:
        text = shorter
    return text.replace(here, "") if len(here) > 1 else text


def with_file(text: str, file: object) -> str:
    """The text with the definition's file in each command that has `FILE` there, as a shell takes it."""
    return _COMMAND.sub(lambda match: f"{match['command']} {shlex.quote(str(file))}", text)


def format_sections(named: Iterable[tuple[str, Sequence[str]]], *, least: int = 0) -> str:
    """Headings in a column of their own, at least so wide, with sentences beside them."""
    rows = [
        (heading if at == 0 else "", sentence) for heading, sentences in named for at, sentence in enumerate(sentences)
    ]
    width = max([least, *(len(heading) for heading, _ in rows)]) + 2
    return "\n".join(
        _wrap_text(sentence, paint(heading, "bold") + " " * (width - len(heading)), " " * width)
        for heading, sentence in rows
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with a heading; the last column may be long."""
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
    """The cells with blanks behind them, all equally wide."""
    widths = [measure_width(cell) for cell in cells]
    return [cell + " " * (max(widths) - width) for cell, width in zip(cells, widths, strict=True)]


def measure_width(text: str) -> int:
    """How many columns of a terminal the text takes: two for a wide letter, none for a mark on the one before."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def fit_text(text: str, width: int) -> str:
    """The text in so many columns of a terminal; a longer text ends with `…`."""
    if measure_width(text) <= width:
        return text
    from rich.cells import chop_cells

    return f"{chop_cells(text, width - 1)[0] if width > 1 else ''}…"


def _wrap_text(text: str, first: str, indent: str) -> str:
    """The text in lines of the terminal's width; a command behind a colon and two spaces stays in one line."""
    width = min(shutil.get_terminal_size((100, 24)).columns, _WIDEST)
    room = max(width - len(indent), 30)
    words, colon, command = escape_controls(text).partition(":  ")
    whole = words + colon + command.replace(" ", _KEPT)
    lines = textwrap.wrap(whole, room, break_long_words=False, break_on_hyphens=False) or [""]
    return "\n".join([first + lines[0], *(indent + line for line in lines[1:])]).replace(_KEPT, " ")


def render_html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in plain HTML that any notebook takes; what became of a row has its colour in the first column."""
    titles = "".join(f"<th>{escape_html(title)}</th>" for title in head)
    cells = [[_color(cell) if at == 0 else escape_html(cell) for at, cell in enumerate(row)] for row in rows]
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in cells)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody></table>"


def _color(word: str) -> str:
    color = _COLORS.get(word)
    return f'<span style="color: {color}">{escape_html(word)}</span>' if color else escape_html(word)


def escape_html(value: str) -> str:
    """The text as HTML, with special characters escaped."""
    return html.escape(escape_controls(value))


_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escape_controls(text: str) -> str:
    """The text with escapes in the place of what moves a cursor, changes colours or turns the direction of writing.
    Line breaks and tabs stay. JSON stays the same JSON."""
    return _CONTROLS.sub(lambda match: match.group() if match.group() in "\n\t" else _escape(match.group()), text)


def escape_line(text: str) -> str:
    """The same, and no line break and no tab either, so that no line can be forged."""
    return _CONTROLS.sub(lambda match: _escape(match.group()), text)


def _escape(control: str) -> str:
    return _SHORT.get(control) or f"\\u{ord(control):04x}"


_WORKER = "An exception was thrown from the Python worker"
"""How Spark begins to tell of an error in a Python function; what the function raised stands at the end."""
_AWAY = re.compile(r'^\s*status = StatusCode\.(?P<status>\w+)\n\s*details = "(?P<details>[^"\n]+)"', re.MULTILINE)
"""How a Connect client tells that its server does not answer: among other lines."""


def summarise_error(error: BaseException) -> str:
    """An error in one line, in the words of its cause, without Java's stack."""
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
    return re.sub(r"\s*SQLSTATE: \w+.*$", "", words)


_CODES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33}
_LOOKS = {
    **dict.fromkeys(("succeeded", "ok", "balances"), "green"),
    **dict.fromkeys(("failed", "killed", "problem"), "red"),
    **dict.fromkeys(("refused", "stopped", "skipped"), "yellow"),
    "filtered": "dim",
}
"""The words that say how something went."""
_colored = [False]


@contextlib.contextmanager
def choose_colors(words: Sequence[str]) -> Iterator[None]:
    """Colour what the command of these words prints on a terminal, unless colours are unwanted.

    `NO_COLOR`, a terminal without colours and an option for JSON say that they are. A stream that is no terminal gets
    none: `click.echo` strips them.
    """
    watched = any(stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr))
    unwanted = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or _asks_for_json(words)
    _colored[0] = watched and not unwanted
    try:
        yield
    finally:
        _colored[0] = False


def _asks_for_json(words: Sequence[str]) -> bool:
    return not {"--json", "--log-format=json"}.isdisjoint(words) or ("--log-format", "json") in pairwise(words)


def paint(text: str, look: str) -> str:
    """The text in bold, dim, red, green or yellow; as it is where there are no colours."""
    return f"\x1b[{_CODES[look]}m{text}\x1b[0m" if _colored[0] and text and look else text


def paint_word(word: str) -> str:
    """The text in the colour of what its first word says; any other text as it is."""
    return paint(word, _LOOKS.get(word.partition(" ")[0], ""))


def paint_hint(line: str) -> str:
    """A line that says what to type: its words recede, and its command stands out."""
    words, colon, typed = line.partition(":  ")
    return paint(words + colon, "dim") + typed


def paint_error(message: str, *, refusal: bool = False) -> str:
    """An error of which the first words, up to a colon, have its colour."""
    first, line_break, rest = message.partition("\n")
    words, colon, more = first.partition(": ")
    return paint(words, "yellow" if refusal else "red") + colon + more + line_break + rest


_NARROWEST = 12
"""A value is not cut below so many columns of the terminal; before that, the last columns of the table are hidden."""
_GAP = "  "


@dataclass(frozen=True, kw_only=True)
class ShownRow:
    """A row of data, and what stands beside it."""

    row: JSON
    lead: str = ""
    """What stands in front of it: what became of it."""
    note: str = ""
    """What stands below it: why it is shown."""
    source: str = ""
    """Where it comes from."""


def format_rows(rows: Sequence[ShownRow], *, wide: bool = False) -> list[str]:
    """The lines of a table of the rows, with columns in the order in which they are first seen.

    Long values are cut, and columns for which there is no room are counted in the heading. With `wide` nothing is cut
    and no column is hidden.
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
    """The widths of the first columns, as many as fit into the room. The widest are cut first, all equally."""
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
    """The value as it is read best: a text that would be mistaken for something else stands in quotes."""
    if name not in row:
        return ""
    value = row[name]
    plain = isinstance(value, str) and value == value.strip() and value not in ("", "null")
    return escape_line(value if plain else json.dumps(value, ensure_ascii=False))


def find_version() -> str:
    """The installed version, or that of the source tree we run from."""
    import importlib.metadata

    try:
        return importlib.metadata.version("wherry")
    except importlib.metadata.PackageNotFoundError:
        project = Path(__file__).parents[2] / "pyproject.toml"
        text = project.read_text(encoding="utf-8") if project.exists() else ""
        match = re.search(r'^version = "(.+)"$', text, re.MULTILINE)
        return match.group(1) if match else "unknown"
