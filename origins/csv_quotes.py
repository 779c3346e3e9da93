"""Quotes that are opened on a line of CSV and not closed there, and bytes that are no text.

Spark's parser closes such a quote where the line ends, or with `multiLine` where the file ends, without a word: half a
value, or all the lines behind it in one. Bytes that are no text become question marks. Small files on this machine, and
larger ones without a quote, are looked at without Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from origins.look import SMALL, is_moderate, is_small, pieces
from origins.names import text

_LARGE = 16 << 20
OPEN = "a quote is opened that is not closed; with options: {multiLine: true} a field in quotes may go over lines"
NO_TEXT = "some bytes are no text in UTF-8, or in the encoding that is given; options: {encoding: …} says what they are"


def is_whole(options: Mapping[str, str]) -> bool:
    """Whether a field may go over lines."""
    return options.get("multiline", "false").lower() == "true"


def encoding_of(options: Mapping[str, str]) -> str:
    """As Python knows it; a byte order mark is none of the text."""
    encoding = options.get("encoding", options.get("charset", "utf-8")).lower()
    return "utf-8-sig" if encoding in ("utf-8", "utf8") else encoding


def none_is_open(files: Sequence[Path], options: Mapping[str, str]) -> bool:
    """Whether a look at these files shows that every quote is closed and every byte is text; it does not look at
    large ones."""
    try:
        if not is_moderate(files):
            return False
        small = is_small(files)
        contents = pieces(files, encoding_of(options))
        return all(_has_no_quote(content, options) or (small and _is_clean(content, options)) for content in contents)
    except (ValueError, LookupError, OSError):
        return False


def opens(files: Sequence[Path], options: Mapping[str, str]) -> list[Path]:
    """Those of the files in which a quote is opened and not closed before the end.

    In a large file with an even number of quotes none is: to follow every one of them takes too long there.
    """
    quote = options.get("quote", '"').encode(encoding_of(options).removesuffix("-sig"))
    if not quote:
        return []
    looked = [file for file in files if file.stat().st_size <= _LARGE or _count(file, quote) % 2]
    return [file for file in looked if _is_open(file.read_bytes().decode(encoding_of(options), "replace"), options)]


def is_open(line: str, options: Mapping[str, str]) -> str:
    """SQL that is true for a line on which a quote is opened and not closed. It is never NULL."""
    quote = options.get("quote", '"')
    if not quote:
        return "false"
    pattern = _pattern(options).replace(r"\Z", r"\z")  # as Java has it
    return f"(contains({line}, {text(quote)}) and {line} rlike {text(pattern)})"


def fields_of(line: str, options: Mapping[str, str]) -> str:
    """SQL for how many fields a line has, of which no quote is left open."""
    opened, quote, plain, ends = _fields(options)
    field = f"{opened}{quote}(?:(?!{ends}).)*+|{plain}" if quote else f"(?:(?!{ends}).)*+"
    pattern = text(rf"\G(?s:(?:{field}){ends})")
    return f"size(regexp_extract_all({line}, {pattern}, 0)) + 1"


def is_no_text(line: str, options: Mapping[str, str]) -> str:
    """SQL that is true for a line, as it lies in the file, with bytes that are no text."""
    return f"not is_valid_utf8({line})" if encoding_of(options) == "utf-8-sig" else "false"


def is_other_text(options: Mapping[str, str]) -> bool:
    """Whether bytes that are no text show only by the question marks that are read in their place."""
    return encoding_of(options) != "utf-8-sig"


def was_no_text(value: str, options: Mapping[str, str]) -> str:
    """SQL that is true for text in which question marks stand for such bytes."""
    return f"coalesce(contains({value}, '\ufffd'), false)"


def _count(file: Path, what: bytes) -> int:
    found = 0
    with file.open("rb") as opened:
        while content := opened.read(SMALL):
            found += content.count(what)
    return found


def _has_no_quote(content: str, options: Mapping[str, str]) -> bool:
    quote = options.get("quote", '"')
    return not quote or quote not in content


def _is_clean(content: str, options: Mapping[str, str]) -> bool:
    quote = options.get("quote", '"')
    lines = [content] if is_whole(options) else re.split(r"\r\n|\r|\n", content)
    return not any(quote in line and _is_open(line, options) for line in lines)


def _is_open(content: str, options: Mapping[str, str]) -> bool:
    return re.search(_pattern(options), content) is not None


def _pattern(options: Mapping[str, str]) -> str:
    """What fits a line, or a whole file, of which the last field begins with a quote and does not end with one."""
    opened, quote, plain, ends = _fields(options)
    comment = re.escape(options.get("comment", ""))
    start = f"(?!{comment})" if comment and not is_whole(options) else ""
    return rf"\A{start}(?s:(?:(?:{opened}{quote}(?:(?!{ends}).)*+|{plain}){ends})*+{opened}\Z)"


def _fields(options: Mapping[str, str]) -> tuple[str, str, str, str]:
    """What fits a field in quotes but for the last of them, that one, a field without, and what ends a field."""
    quote, escape = (re.escape(options.get(name, '"')) for name in ("quote", "escape"))
    separator = re.escape(options.get("sep", options.get("delimiter", ",")).replace("\\t", "\t"))
    ends = rf"(?:{separator}|[\r\n])" if is_whole(options) else separator
    blank = "[ \t]*+" if options.get("ignoreleadingwhitespace") == "true" else ""
    inside = f"[^{quote}]++" if escape in (quote, "") else f"[^{quote}{escape}]++|{escape}."
    doubled = f"|{quote}{quote}" if escape == quote else ""
    plain = f"(?!{blank}{quote})(?:(?!{ends})(?s:.))*+"
    return f"{blank}{quote}(?:{inside}{doubled})*+", quote, plain, ends
