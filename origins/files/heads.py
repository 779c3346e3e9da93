"""The head of a file, without Spark: its columns, some of its rows, and the reader options that it needs.

The heads of a few files also show which columns a written schema leaves out.
"""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from origins.errors import OriginError
from origins.files.csv_header import OPENERS, get_encoding, leaves_quote_open, read_header
from origins.files.file_systems import File
from origins.files.listing import PACKED, FilePattern
from origins.lazy import SparkSession, pa, pq
from origins.store_access import StoreError

LATIN = "ISO-8859-1"
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_SEPARATORS = "\t;|,"
"""The separators, in the order of preference if several fit equally. A comma is the most frequent inside fields."""
_LINES, _FEW = 50, 12
"""The number of lines that show the separator, and of rows that show the header. A quoted value has at most `_LINES`
lines."""
_VALUE = re.compile(r"[+-]?(\d+([.,]\d+)*)|\d{4}-\d\d-\d\d([T ].*)?|\d\d?[./]\d\d?[./]\d{4}")
_YEAR = re.compile(r"(19|20)\d\d")


@dataclass(frozen=True, kw_only=True)
class Head:
    """The facts that the first bytes of a file show."""

    columns: tuple[str, ...] = ()
    rows: Sequence[Mapping[str, Any]] = ()
    """An even selection of the readable rows, by the names of their columns."""
    options: Mapping[str, str | bool] = field(default_factory=dict)
    """The options that the reader needs. For CSV they do not include `multiLine`: see `breaks`."""
    lines: int = 0
    """The number of lines that were examined."""
    bad_lines: int = 0
    """The number of lines that are not rows."""
    breaks: int = 0
    """The number of CSV rows with a line break inside quotes."""
    doubled: Mapping[str, int] = field(default_factory=dict)
    """For each key that a JSON object has twice, the number of lines with it."""
    types: Mapping[str, str] = field(default_factory=dict)
    """The column types of parquet, which stores them."""
    has_mark: bool = False
    """Whether the file begins with a byte order mark."""
    is_plain: bool = True
    """Whether all bytes are ASCII, so that UTF-8 and ISO-8859-1 read them alike."""


class UnreadableError(ValueError):
    """No options let Spark read the file. The message completes a sentence about the file."""


def read_start(file: Path, most: int) -> bytes:
    """Return the first bytes of a file, unpacked. Raise `OSError` or `EOFError` if it cannot be read."""
    with OPENERS.get(file.suffix, open)(file, "rb") as stream:
        return bytes(stream.read(most))


def look_at(file: Path, kind: str, most: int, rows: int) -> Head:
    """Return the head of a file of this format, from its first bytes, with at most this number of rows.

    Raise `UnreadableError` if Spark cannot read such files, and `OSError`, `EOFError` or `ValueError` if this file
    cannot be read.
    """
    if kind == "parquet":
        found = pq.read_schema(file)
        return Head(columns=tuple(found.names), types={column.name: str(column.type) for column in found})
    start = read_start(file, most)
    encoding = _find_encoding(start)
    text = start.decode("utf-8-sig" if encoding == "UTF-8" else encoding, errors="replace")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    is_cut = len(start) == most
    if is_cut and len(lines) > 1:
        lines.pop()
    read = _look_at_csv if kind == "csv" else look_at_json
    options: dict[str, str | bool] = {} if encoding == "UTF-8" else {"encoding": encoding}
    lines = [line for line in lines if line.strip()]
    if encoding.startswith("UTF-16") and (kind == "csv" or len(lines) < 2):
        options["multiLine"] = True
    head = read(lines, rows, options, is_cut)
    if kind == "json" and encoding == "UTF-16" and "multiLine" not in head.options:
        raise UnreadableError("is UTF-16 with one object a line; convert it to UTF-8")
    return replace(
        head,
        has_mark=start.startswith((codecs.BOM_UTF8, *_WIDE)),
        is_plain=encoding == "UTF-8" and start.removeprefix(codecs.BOM_UTF8).isascii(),
    )


def _find_encoding(start: bytes) -> str:
    """Return the encoding of a file. UTF-8 is returned even if a few bytes are invalid in it."""
    if start.startswith(_WIDE):
        return "UTF-16"
    if start[1:4:2] == b"\0\0":
        return "UTF-16LE"
    if start[0:3:2] == b"\0\0":
        return "UTF-16BE"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        mixed = any("\x7f" < char < "\ud800" for char in start.decode("utf-8", errors="surrogateescape"))
        return "UTF-8" if mixed else LATIN
    return "UTF-8"


def pick_evenly(items: Sequence[Any], most: int) -> Sequence[Any]:
    """Return all items, or this number of them at equal distances."""
    return items if len(items) <= most else [items[at * len(items) // most] for at in range(most)]


def _look_at_csv(lines: Sequence[str], most: int, options: dict[str, str | bool], is_cut: bool) -> Head:
    separator = _find_separator(lines[:_LINES])
    records, breaks, broken = _split_records(lines, separator, is_cut)
    if not records:
        return Head()
    first, *rows = records
    if separator != ",":
        options["sep"] = separator
    if not _is_header(first, pick_evenly(rows, _FEW)):
        options["header"] = False
        first, rows = [f"_c{index}" for index in range(len(first))], records
    columns = tuple(name.strip() for name in first)
    good = [row for row in rows if len(row) == len(columns)]
    return Head(
        columns=columns,
        rows=[dict(zip(columns, row, strict=True)) for row in pick_evenly(good, most)],
        options=options,
        lines=len(rows) + broken,
        bad_lines=len(rows) - len(good) + broken,
        breaks=breaks,
    )


def _find_separator(lines: Sequence[str]) -> str:
    """Return the separator by which most lines have the same number of fields, more than one."""

    def count_alike(separator: str) -> tuple[int, int]:
        counts = [len(row) for row in _parse(lines, separator)]
        if not counts or counts[0] < 2:
            return 0, 0
        return round(4 * counts.count(counts[0]) / len(counts)), counts[0]

    found = {separator: count_alike(separator) for separator in _SEPARATORS}
    best = max(_SEPARATORS, key=lambda separator: found[separator])
    return best if found[best][1] else ","


def _parse(lines: Sequence[str], separator: str) -> list[list[str]]:
    try:
        return [row for row in csv.reader(lines, delimiter=separator) if row]
    except csv.Error:
        return [next(csv.reader([line.replace("\0", "")[:100_000]], delimiter=separator), []) for line in lines]


def _split_records(lines: Sequence[str], separator: str, is_cut: bool) -> tuple[list[list[str]], int, int]:
    """Return the rows and two counts: rows with a line break inside quotes, and lines with an open quote."""
    if not any(line.count('"') % 2 for line in lines):
        rows = _parse(lines, separator)
        if len(rows) == len(lines):
            return rows, 0, 0
    options = {"sep": separator, "multiline": "true"}
    records: list[list[str]] = []
    breaks = broken = at = 0
    while at < len(lines):
        end = at + 1
        if '"' in lines[at] and leaves_quote_open(lines[at], options):
            end = _find_close(lines, at, options)
            if not end and is_cut and at + _LINES > len(lines):
                break
            row = _parse(["\n".join(lines[at:end])], separator) if end else []
            is_row = bool(row) and len(row[0]) == (len(records[0]) if records else len(row[0]))
            if not is_row:
                broken, at = broken + 1, at + 1
                continue
            breaks += 1
        records += _parse(["\n".join(lines[at:end])], separator)
        at = end
    return records, breaks, broken


def _find_close(lines: Sequence[str], at: int, options: Mapping[str, str]) -> int:
    """Return the index after the line that closes the quote which is open on this line.

    It is 0 if none of the next lines closes the quote, or if text follows the closing quote.
    """
    for end in range(at + 1, min(at + _LINES, len(lines))):
        if '"' in lines[end] and not leaves_quote_open("\n".join(lines[at : end + 1]), options):
            try:
                [*csv.reader(["\n".join(lines[at : end + 1])], delimiter=options["sep"], strict=True)]
            except csv.Error:
                return 0
            return end + 1
    return 0


def _is_header(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row has names: no numbers or dates where the other rows have them.

    A year may be a name.
    """

    def is_value(text: str) -> bool:
        return bool(_VALUE.fullmatch(text.strip()))

    filled = [[is_value(row[at]) for row in rows if row[at : at + 1] and row[at].strip()] for at in range(len(first))]
    typed = [at for at, found in enumerate(filled) if found and 2 * sum(found) > len(found)]
    values = [at for at in typed if is_value(first[at]) and not _YEAR.fullmatch(first[at].strip())]
    return 2 * len(values) <= len(typed)


def look_at_json(lines: Sequence[str], most: int, options: dict[str, str | bool], is_cut: bool) -> Head:
    """Return the head of a JSON file with these first lines, and add the options that it needs."""
    doubled = Counter[str]()
    whole = _is_whole(lines)
    if whole:
        options["multiLine"] = True
        found: list[dict[str, Any] | None] = list(_split_objects("\n".join(lines), doubled, most))
    else:
        found = [_parse_object(line, doubled) for line in pick_evenly(lines, most)]
    rows = [row for row in found if row is not None]
    return Head(
        columns=tuple(dict.fromkeys(name for row in rows for name in row)),
        rows=rows,
        options=options,
        lines=len(found),
        bad_lines=len(found) - len(rows),
        doubled=doubled,
    )


def _is_whole(lines: Sequence[str]) -> bool:
    """Return whether the file is one value over several lines, or an array: its first line is not an object."""
    if not lines or _parse_object(lines[0], Counter()) is not None:
        return False
    if lines[0].lstrip().startswith("["):
        return True
    return lines[0].strip() == "{" or next(_split_objects("\n".join(lines), Counter(), 1), None) is not None


def _split_objects(text: str, doubled: Counter[str], most: int) -> Iterator[dict[str, Any]]:
    """Yield the objects at the beginning of a text: one object, or the complete objects of an array."""
    keys: set[str] = set()
    decoder = json.JSONDecoder(object_pairs_hook=lambda pairs: _keep_doubled(pairs, keys))
    at = len(text) - len(text.lstrip().removeprefix("["))
    for _ in range(most):
        at += len(text[at : at + 1_000]) - len(text[at : at + 1_000].lstrip(" \t\n,"))
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        doubled.update(keys)
        keys.clear()
        if isinstance(value, dict):
            yield value


def _parse_object(line: str, doubled: Counter[str]) -> dict[str, Any] | None:
    keys: set[str] = set()
    try:
        value = json.loads(line, object_pairs_hook=lambda pairs: _keep_doubled(pairs, keys))
    except (ValueError, RecursionError):
        return None
    doubled.update(keys)
    return value if isinstance(value, dict) else None


def _keep_doubled(pairs: list[tuple[str, Any]], keys: set[str]) -> dict[str, Any]:
    """Return the object, with the last value of each key. Keys that differ only in case are the same."""
    found = dict(pairs)
    if len(found) < len(pairs) or len({key.lower() for key in found}) < len(found):
        lowered = [key.lower() for key, _ in pairs]
        keys.update(key for key in found if lowered.count(key.lower()) > 1)
    return found


_HEAD, _OBJECTS = 64 << 10, 20
"""How many bytes and objects of a JSON file are looked at."""
_MOST_FILES = 3
"""How many files of this machine are looked at. In a store only the newest one is, since each is a request."""


def list_left_out(
    place: FilePattern, files: Sequence[File], kind: str, options: Mapping[str, str], known: Collection[str]
) -> list[str]:
    """Return the columns of a few of these files, the newest last, that are not `known`. Case does not matter.

    A file that cannot be read has none: a run reports it.
    """
    if not place.is_read_here:
        return []
    some = [*files[:1], *files[1:][1 - _MOST_FILES :]] if place.local else files[-1:]
    ours, found = {name.lower() for name in known}, dict[str, str]()
    for file in some:
        try:
            place.look_at(file)
            columns = _list_columns(place, file.name, kind, options)
        except (OriginError, StoreError, OSError, EOFError, LookupError, ValueError, pa.ArrowException):
            continue
        for column in map(str.strip, columns):
            if column and column.lower() not in ours:
                found.setdefault(column.lower(), column)
    return list(found.values())


def _list_columns(place: FilePattern, name: str, kind: str, options: Mapping[str, str]) -> Sequence[str]:
    if name.endswith(PACKED) and not name.endswith((*OPENERS,)):
        return ()
    if kind == "csv":
        has_header = options.get("header", "true") == "true"
        return read_header(cast("SparkSession", None), place, name, options) or () if has_header else ()
    file = place.find_file(name)
    with file.open("rb") as packed:
        if kind == "parquet":
            return cast("list[str]", pq.read_schema(packed).names)
        opener = OPENERS.get(Path(name).suffix)
        start = bytes((opener(packed) if opener else packed).read(_HEAD))
    lines = start.decode(get_encoding(options), "replace").split("\n", _OBJECTS)  # the last one is the rest
    return look_at_json([line for line in lines if line.strip()], _OBJECTS, {}, is_cut=True).columns
