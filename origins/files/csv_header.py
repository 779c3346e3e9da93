"""The first line of a CSV file: its columns and their order; and quotes and bytes in the file that break lines.

A quote may be opened on a line and not closed there, and bytes may not be text. Spark's parser silently closes such a
quote at the end of the line, or with `multiLine` at the end of the file. The value is then cut, or contains all later
lines. Bytes that are not text become question marks. Small files of this machine, and larger ones without a quote, are
checked without Spark.
"""

from __future__ import annotations

import bz2
import contextlib
import csv
import gzip
import io
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from origins.errors import OriginError
from origins.files.changes import Changes
from origins.files.file_systems import SMALL, ReadableFile, escape_pattern, is_moderate, is_small, read_pieces
from origins.files.listing import PACKED, FilePattern
from origins.files.options import is_whole
from origins.lazy import F, SparkSession
from origins.names import HIDDEN, quote_text

OPENERS: Mapping[str, Callable[..., IO[Any]]] = {".gz": gzip.open, ".bz2": bz2.open}
"""The endings of packed files that this process can read without Spark."""
_PREAMBLE = 100
"""The number of empty lines and comments that may precede the header."""


def read_header(spark: SparkSession, place: FilePattern, name: str, options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names in a file's first line; none if it is empty.

    A Spark job runs only if this process cannot read the file.
    """
    encoding = get_encoding(options)
    path = place.join_path(name)
    try:
        if place.is_read_here and (name.endswith((*OPENERS,)) or not name.endswith(PACKED)):
            line = _read_first_line(place.find_file(name), encoding, options.get("comment", ""))
        else:
            line = _read_first_line_by_spark(spark, path, encoding, options.get("comment", ""))
        return _split_names(line, options)
    except UnicodeDecodeError as error:
        raise OriginError(
            f"The header of {path} is not text in {encoding.removesuffix('-sig').upper()}: {error.reason}.",
            hint="Set its encoding with `options: {encoding: …}`, or move the file out of the path.",
        ) from error
    except PermissionError as error:
        raise OriginError(
            f"{path} cannot be read: {error.strerror}.",
            hint="Give this user the right to read it, or move it out of the path.",
        ) from error
    except (OSError, EOFError, LookupError, csv.Error) as error:
        raise OriginError(
            f"The header of {path} cannot be read: {error}",
            hint="Replace it with a whole file, or move it out of the path.",
        ) from error


@dataclass(frozen=True)
class Header:
    """The columns of a CSV file, in the file's order and with the schema's names."""

    columns: tuple[str, ...]
    """The columns that the schema does not have, under Wherry's names, each with the file's name."""
    _others: tuple[tuple[str, str], ...] = ()
    wrong: str = ""
    """Why every line of the file is refused; empty if the header gives no reason."""

    @property
    def others(self) -> Mapping[str, str]:
        """Return the file's names of the columns that have Wherry's names."""
        return dict(self._others)


def match_header(
    found: Sequence[str], columns: Sequence[str], path: str, changes: Changes, besides: Collection[str] = ()
) -> Header:
    """Return the header of a file with these names, in its order. Columns in `besides` are not extra.

    Raise `SchemaChanged` if the policy is to stop, or if a column occurs twice.
    """
    keys = [name.strip().lower() for name in found]
    wanted = {name.lower(): name for name in columns}
    known = wanted.keys() | {name.lower() for name in besides}
    extra = [name for name, key in zip(found, keys, strict=True) if key not in known]
    twice = [name for name in columns if keys.count(name.lower()) > 1]
    missing = [name for name in columns if name.lower() not in keys]
    differences = {"missing": missing, "extra": extra, "twice": twice}
    wrong = changes.judge_file(path, differences, fix="Correct", note=f" Its header is: {', '.join(found)}")
    ours = {index: f"{HIDDEN}other_{index}" for index, key in enumerate(keys) if key not in wanted}
    others = {ours[index]: name for index, name in enumerate(found) if index in ours and keys[index] not in known}
    return Header(
        tuple(ours.get(index) or wanted[key] for index, key in enumerate(keys)),
        tuple(
            (name, real if list(others.values()).count(real) == 1 else f"{real} ({name.removeprefix(HIDDEN)})")
            for name, real in others.items()
        ),
        wrong,
    )


def _read_first_line(file: ReadableFile, encoding: str, comment: str) -> str:
    unpack = next((opener for ending, opener in OPENERS.items() if file.name.endswith(ending)), None)
    with file.open("rb") as packed, unpack(packed) if unpack else contextlib.nullcontext(packed) as opened:
        if encoding.startswith(("utf-16", "utf-32", "utf_16", "utf_32", "utf16", "utf32")):
            text = io.TextIOWrapper(opened, encoding=encoding)
            return next((line for line in text if _has_content(line, comment)), "")
        lines = (line.decode(encoding) for ended in opened for line in ended.replace(b"\r", b"\n").split(b"\n"))
        return next((line for line in lines if _has_content(line, comment)), "")


def _read_first_line_by_spark(spark: SparkSession, path: str, encoding: str, comment: str) -> str:
    lines = spark.read.text(escape_pattern(path))
    of_the_file = lines.where("_metadata.file_block_start = 0").select(F.col("value").cast("binary"))
    texts = (bytes(row[0]).decode(encoding) for row in of_the_file.limit(_PREAMBLE).collect())
    return next((line for line in texts if _has_content(line, comment)), "")


def _has_content(line: str, comment: str) -> bool:
    return bool(line.strip()) and not (comment and line.startswith(comment))


def _split_names(line: str, options: Mapping[str, str]) -> tuple[str, ...]:
    line = line.rstrip("\r\n")
    separator = options.get("sep", options.get("delimiter", ",")).replace("\\t", "\t")
    if not line:
        return ()
    if len(separator) > 1:
        return tuple(line.split(separator))
    quote = options.get("quote", '"')
    escape = options.get("escape", '"')
    reader = csv.reader(
        [line],
        delimiter=separator,
        quotechar=quote or None,
        quoting=csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
        doublequote=escape == quote,
        escapechar=escape if escape and escape != quote else None,
    )
    return tuple(next(reader))


_LARGE = 16 << 20
OPEN = "a quote is opened and never closed; with options: {multiLine: true} a quoted field may span lines"
NO_TEXT = "some bytes are not valid in UTF-8, or in the given encoding; set it with options: {encoding: …}"


def get_encoding(options: Mapping[str, str]) -> str:
    """Return Python's name of the encoding. A byte order mark is not part of the text."""
    encoding = options.get("encoding", options.get("charset", "utf-8")).lower()
    return "utf-8-sig" if encoding in ("utf-8", "utf8") else encoding


def are_quotes_closed(files: Sequence[ReadableFile], options: Mapping[str, str]) -> bool:
    """Return whether every quote in these files is closed and every byte is text. Large files are not checked.

    It is false if that is unknown.
    """
    try:
        if not is_moderate(files):
            return False
        small = is_small(files)
        contents = read_pieces(files, get_encoding(options))
        quote = options.get("quote", '"')
        return all(not (quote and quote in text) or (small and _is_clean(text, options)) for text in contents)
    except (ValueError, LookupError, OSError):
        return False


def find_open_quotes(files: Sequence[ReadableFile], options: Mapping[str, str]) -> list[ReadableFile]:
    """Return the files in which a quote is opened and not closed before the end.

    A large file with an even number of quotes counts as closed, because it would take too long to check each quote.
    """
    quote = options.get("quote", '"').encode(get_encoding(options).removesuffix("-sig"))
    if not quote:
        return []
    looked = [file for file in files if file.stat().st_size <= _LARGE or _count(file, quote) % 2]
    return [
        file
        for file in looked
        if leaves_quote_open(file.read_bytes().decode(get_encoding(options), "replace"), options)
    ]


def is_open(line: str, options: Mapping[str, str]) -> str:
    """Return SQL that is true for a line on which a quote is opened and not closed. It is never NULL."""
    quote = options.get("quote", '"')
    if not quote:
        return "false"
    pattern = _pattern(options).replace(r"\Z", r"\z")  # Java's syntax
    return f"(contains({line}, {quote_text(quote)}) and {line} rlike {quote_text(pattern)})"


def count_fields_sql(line: str, options: Mapping[str, str]) -> str:
    """Return SQL for the number of fields of a line on which every quote is closed."""
    opened, quote, plain, ends = _fields(options)
    field = f"{opened}{quote}(?:(?!{ends}).)*+|{plain}" if quote else f"(?:(?!{ends}).)*+"
    pattern = quote_text(rf"\G(?s:(?:{field}){ends})")
    return f"size(regexp_extract_all({line}, {pattern}, 0)) + 1"


def is_no_text(line: str, options: Mapping[str, str]) -> str:
    return f"not is_valid_utf8({line})" if get_encoding(options) == "utf-8-sig" else "false"


def is_other_text(options: Mapping[str, str]) -> bool:
    """Return whether bytes that are not text show only as question marks in the text that was read."""
    return get_encoding(options) != "utf-8-sig"


def was_no_text(value: str) -> str:
    """Return SQL that is true for text with question marks in place of such bytes."""
    return f"coalesce(contains({value}, '\ufffd'), false)"


def _count(file: ReadableFile, what: bytes) -> int:
    found = 0
    with file.open("rb") as opened:
        while content := opened.read(SMALL):
            found += content.count(what)
    return found


def _is_clean(content: str, options: Mapping[str, str]) -> bool:
    quote = options.get("quote", '"')
    lines = [content] if is_whole(options) else re.split(r"\r\n|\r|\n", content)
    return not any(quote in line and leaves_quote_open(line, options) for line in lines)


def leaves_quote_open(content: str, options: Mapping[str, str]) -> bool:
    pattern = _pattern(options)
    return re.search(pattern if sys.version_info >= (3, 11) else spell_atomic(pattern), content) is not None


def spell_atomic(pattern: str) -> str:
    """Return a pattern that matches the same without `*+` and `++`, which Python 3.10 does not have."""
    parts: list[str] = []
    begins: list[int] = []
    atom = 0
    for number, piece in enumerate(re.findall(r"\\.|\[\^?(?:\\.|[^\]\\])*\]|[*+]\+|.", pattern, re.DOTALL)):
        if piece in ("*+", "++"):
            repeated = "".join(parts[atom:]) + piece[0]
            parts[atom:] = [f"(?=(?P<a{number}>{repeated}))(?P=a{number})"]
            continue
        atom = begins.pop() if piece == ")" else len(parts)
        if piece == "(":
            begins.append(len(parts))
        parts.append(piece)
    return "".join(parts)


def _pattern(options: Mapping[str, str]) -> str:
    """Return a pattern for a line, or a whole file, whose last field begins with a quote and does not end with one."""
    opened, quote, plain, ends = _fields(options)
    comment = re.escape(options.get("comment", ""))
    start = f"(?!{comment})" if comment and not is_whole(options) else ""
    return rf"\A{start}(?s:(?:(?:{opened}{quote}(?:(?!{ends}).)*+|{plain}){ends})*+{opened}\Z)"


def _fields(options: Mapping[str, str]) -> tuple[str, str, str, str]:
    """Return four patterns: a quoted field without its last quote, that quote, a plain field, and a field's end."""
    quote, escape = (re.escape(options.get(name, '"')) for name in ("quote", "escape"))
    separator = re.escape(options.get("sep", options.get("delimiter", ",")).replace("\\t", "\t"))
    ends = rf"(?:{separator}|[\r\n])" if is_whole(options) else separator
    blank = "[ \t]*+" if options.get("ignoreleadingwhitespace") == "true" else ""
    inside = f"[^{quote}]++" if escape in (quote, "") else f"[^{quote}{escape}]++|{escape}."
    doubled = f"|{quote}{quote}" if escape == quote else ""
    plain = f"(?!{blank}{quote})(?:(?!{ends})(?s:.))*+"
    return f"{blank}{quote}(?:{inside}{doubled})*+", quote, plain, ends
