"""The first line of a CSV file: which columns it has, and in which order."""

from __future__ import annotations

import bz2
import csv
import gzip
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

from origins.csv_quotes import encoding_of
from origins.errors import OriginError
from origins.listing import Place, literally
from origins.names import HIDDEN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OPENERS: Mapping[str, Callable[..., IO[Any]]] = {".gz": gzip.open, ".bz2": bz2.open}
_READ_BY_SPARK = (".zst", ".snappy", ".lz4", ".deflate", ".xz")
PACKED = (*_OPENERS, *_READ_BY_SPARK)
"""How the names of files end that are packed."""
_PREAMBLE = 100
"""So many lines before the header may be empty or comments."""


def header_of(spark: SparkSession, place: Place, name: str, options: Mapping[str, str]) -> tuple[str, ...]:
    """The names in a file's first line; none when it is empty. A Spark job only where this machine cannot read it."""
    encoding = encoding_of(options)
    path = place.full(name)
    try:
        if place.local and not name.endswith(_READ_BY_SPARK):
            line = _first_line(path.removeprefix("file:"), encoding, options.get("comment", ""))
        else:
            line = _first_line_by_spark(spark, path, encoding, options.get("comment", ""))
        return _names(line, options)
    except UnicodeDecodeError as error:
        raise OriginError(
            f"The header of {path} is no text in {encoding.removesuffix('-sig').upper()}: {error.reason}.",
            hint="Say what it is with options: {encoding: …}, or move the file out of the path.",
        ) from error
    except (OSError, EOFError, LookupError, csv.Error) as error:
        raise OriginError(
            f"The header of {path} cannot be read: {error}",
            hint="Put a whole file in its place, or move it out of the path.",
        ) from error


def in_order(
    header: Sequence[str], columns: Sequence[str], path: str, exact: bool, besides: Collection[str] = ()
) -> tuple[str, ...]:
    """The columns as the header has them, in its order; others stand there under names of ours. With `exact` there
    may be no others but those that are `besides`."""
    found = [name.strip().lower() for name in header]
    wanted = {name.lower(): name for name in columns}
    missing = [name for name in columns if found.count(name.lower()) == 0]
    twice = [name for name in columns if found.count(name.lower()) > 1]
    known = wanted.keys() | {name.lower() for name in besides}
    other = [name for name, key in zip(header, found, strict=True) if key not in known]
    if missing:
        problem = f"has no column {', '.join(missing)}"
    elif twice:
        problem = f"has the column {', '.join(twice)} more than once"
    elif other and exact:
        problem = f"has the column {', '.join(other)}, which the files before it had not"
    else:
        return tuple(wanted.get(key, f"{HIDDEN}other_{index}") for index, key in enumerate(found))
    raise OriginError(
        f"{path} {problem}. Its header is: {', '.join(header)}",
        hint="Correct the file or move it out of the path, or give the origin a schema that fits all files.",
    )


def _first_line(path: str, encoding: str, comment: str) -> str:
    opener = next((opener for ending, opener in _OPENERS.items() if path.endswith(ending)), open)
    if encoding.startswith(("utf-16", "utf-32", "utf_16", "utf_32", "utf16", "utf32")):
        with opener(path, "rt", encoding=encoding) as file:
            return next((line for line in file if _says_something(line, comment)), "")
    with opener(path, "rb") as file:
        lines = (line.decode(encoding) for ended in file for line in ended.replace(b"\r", b"\n").split(b"\n"))
        return next((line for line in lines if _says_something(line, comment)), "")


def _first_line_by_spark(spark: SparkSession, path: str, encoding: str, comment: str) -> str:
    from pyspark.sql import functions as F

    lines = spark.read.text(literally(path))
    of_the_file = lines.where("_metadata.file_block_start = 0").select(F.col("value").cast("binary"))
    told = (bytes(row[0]).decode(encoding) for row in of_the_file.limit(_PREAMBLE).collect())
    return next((line for line in told if _says_something(line, comment)), "")


def _says_something(line: str, comment: str) -> bool:
    return bool(line.strip()) and not (comment and line.startswith(comment))


def _names(line: str, options: Mapping[str, str]) -> tuple[str, ...]:
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
