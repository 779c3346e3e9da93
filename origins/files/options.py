"""The options of Spark's readers that a definition may give for files."""

from __future__ import annotations

import codecs
import difflib
import re
from collections.abc import Mapping, Sequence

_TIMES = ("dateFormat", "timestampFormat", "timestampNTZFormat")
FORMATS: Mapping[str, Sequence[str]] = {
    "json": (
        *_TIMES, "timeZone", "locale", "multiLine", "lineSep", "encoding", "primitivesAsString", "prefersDecimal",
        "samplingRatio", "allowComments", "allowUnquotedFieldNames", "allowSingleQuotes", "allowNumericLeadingZeros",
        "allowBackslashEscapingAnyCharacter", "allowUnquotedControlChars", "allowNonNumericNumbers",
        "maxStringLen", "maxNestingDepth", "maxNumLen", "enableDateTimeParsingFallback",
    ),
    "csv": (
        *_TIMES, "header", "sep", "delimiter", "encoding", "quote", "escape", "comment", "multiLine", "lineSep",
        "nullValue", "emptyValue", "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace", "maxColumns",
        "maxCharsPerColumn", "unescapedQuoteHandling", "charToEscapeQuoteEscaping",
    ),
    "parquet": ("datetimeRebaseMode", "int96RebaseMode"),
    "text": ("wholetext", "lineSep"),
}  # fmt: skip
"""The formats, each with the known options of Spark's reader."""

_BAD_LINES = "a line that cannot be read is refused and goes to the DLQ"
_ONE_LIST = "only `path` decides which files are read"
_AS_CAST = "fields of a CSV file get their types as cast would give them"
_TAKEN = {
    "mode": _BAD_LINES,
    "columnnameofcorruptrecord": _BAD_LINES,
    "badrecordspath": _BAD_LINES,
    "ignorecorruptfiles": "it loses rows silently",
    "ignoremissingfiles": "it loses rows silently",
    "pathglobfilter": _ONE_LIST,
    "recursivefilelookup": _ONE_LIST,
    "modifiedbefore": _ONE_LIST,
    "modifiedafter": _ONE_LIST,
    "basepath": _ONE_LIST,
}
TAKEN: Mapping[str, Mapping[str, str]] = {
    **dict.fromkeys(FORMATS, _TAKEN),
    "json": {**_TAKEN, "charset": "`encoding` says how lines are encoded"},
    "csv": {
        **_TAKEN,
        "columnpruning": "the columns in use must not decide whether a line is bad",
        "enforceschema": "columns are matched with the header by name",
        "inferschema": "without a schema all columns of a CSV file are text; the stage cast sets the types",
        "locale": _AS_CAST,
        "timezone": _AS_CAST,
        "nanvalue": _AS_CAST,
        "positiveinf": _AS_CAST,
        "negativeinf": _AS_CAST,
        "enabledatetimeparsingfallback": _AS_CAST,
    },
}
"""The options of each format that a user cannot set, in lower case, each with the reason."""

_DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "csv": {"escape": '"', "maxcolumns": "100000"},
    "json": {"locale": "en-CH", "maxstringlen": str(2**31 - 1), "enabledatetimeparsingfallback": "false"},
}
"""Wherry's defaults. A quote inside quotes is doubled, as in spreadsheets and RFC 4180. With Spark's locale the text
"1,5" would silently be the decimal 15. With Spark's fallback "17" would be the date 1970-01-18. A line with more
than 20,480 fields would fail its batch. A line with a text of more than 20 MB would be refused."""


ENCODINGS = ("UTF-8", "UTF8", "US-ASCII", "ISO-8859-1", "UTF-16", "UTF-16BE", "UTF-16LE", "UTF-32")
"""The encodings that Spark can decode in text, and not only in JSON files."""


def check_options(kind: str, options: Mapping[str, object]) -> None:
    """Raise ValueError for an option that a user cannot set, or that looks like a misspelt known option."""
    known = {name.lower(): name for name in FORMATS[kind]}
    for option in options:
        if (why := TAKEN[kind].get(option.lower())) is not None:
            raise ValueError(f"options: {option!r} cannot be set; {why}")
        close = difflib.get_close_matches(option.lower(), known, 1, 0.8)
        if close and option.lower() not in known:
            raise ValueError(f"options: unknown option {option!r}; did you mean {known[close[0]]!r}?")
        if kind == "json" and option.lower() == "encoding" and str(options[option]).upper() not in ENCODINGS:
            raise ValueError(f"options: encoding: expected one of {', '.join(ENCODINGS)}, got {options[option]!r}")
    lowered = {name.lower(): str(value).lower() for name, value in options.items()}
    encoding = lowered.get("encoding", lowered.get("charset", ""))
    whole = lowered.get("multiline") == "true"
    if kind == "csv" and encoding and not _is_known(encoding):
        raise ValueError(f"options: encoding: expected one of {', '.join(ENCODINGS)}, got {encoding!r}")
    if kind == "csv" and re.match("utf-?(16|32)", encoding) and not whole:
        raise ValueError(
            f"options: expected multiLine: true beside encoding: {encoding}, since lines are split wrongly without it"
        )
    if kind == "json" and encoding in ("utf-16", "utf-32") and not whole:
        raise ValueError(
            f"options: expected multiLine: true beside encoding: {encoding}, for files with one JSON value each; Spark "
            "cannot split lines in it. Convert files with one object a line to UTF-8"
        )


def _is_known(encoding: str) -> bool:
    try:
        codecs.lookup(encoding)
    except LookupError:
        return False
    return True


def complete_options(kind: str, options: Mapping[str, str | float | bool]) -> dict[str, str]:
    """Return the options in Spark's form, with Wherry's defaults. Known options are in lower case."""
    known = {name.lower() for name in FORMATS[kind]}
    lowered = {
        name.lower() if name.lower() in known else name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }
    completed = {**_DEFAULTS.get(kind, {}), **lowered}
    if kind == "json" and not is_whole(completed) and lowered.get("encoding", "utf-8").lower() not in ("utf-8", "utf8"):
        completed.setdefault("linesep", "\n")  # Spark demands it. A carriage return in front is a blank of JSON.
    return completed


def is_whole(options: Mapping[str, str]) -> bool:
    """Return whether a value may span lines: a field of CSV, or the single value of a JSON file."""
    return options.get("multiline", "false").lower() == "true"
