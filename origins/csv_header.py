"""The first line of a CSV file: which columns it has, and in which order."""

from __future__ import annotations

import bz2
import csv
import gzip
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from origins.changes import Changes, SchemaChanged, ways_on
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
_NACKS = (("missing", "nack"), ("extra", "nack"), ("extra", "evolve"))
"""The policies by which all lines of a file are refused; what evolves is in the schema before the file is read."""
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
    except PermissionError as error:
        raise OriginError(
            f"{path} cannot be read: {error.strerror}.",
            hint="Give this user the right to read it, or move it out of the path.",
        ) from error
    except (OSError, EOFError, LookupError, csv.Error) as error:
        raise OriginError(
            f"The header of {path} cannot be read: {error}",
            hint="Put a whole file in its place, or move it out of the path.",
        ) from error


@dataclass(frozen=True)
class Header:
    """The columns of a CSV file in its order, as the schema names them."""

    columns: tuple[str, ...]
    """Those that the schema has not stand under names of ours."""
    _others: tuple[tuple[str, str], ...] = ()
    wrong: str = ""
    """Why every line of the file is refused; empty if none is for that."""

    @property
    def others(self) -> Mapping[str, str]:
        """What the file itself calls the columns that stand under names of ours."""
        return dict(self._others)


def in_order(
    found: Sequence[str], columns: Sequence[str], path: str, changes: Changes, besides: Collection[str] = ()
) -> Header:
    """The header of a file in which these names were found, in its order. Columns that are `besides` are not extra.

    Raises `SchemaChanged` where the policy is to stop, and where a column is there twice.
    """
    keys = [name.strip().lower() for name in found]
    wanted = {name.lower(): name for name in columns}
    known = wanted.keys() | {name.lower() for name in besides}
    extra = [name for name, key in zip(found, keys, strict=True) if key not in known]
    twice = [name for name in columns if keys.count(name.lower()) > 1]
    differs = {"missing": [name for name in columns if name.lower() not in keys], "extra": extra}
    said = {"missing": "has no column {}", "extra": "has the column {}, which the schema has not"}
    told = {kind: said[kind].format(", ".join(names)) for kind, names in differs.items() if names}
    stopping = [kind for kind in told if getattr(changes, kind) == "stop"]
    stops = [told[kind] for kind in stopping]
    if twice:
        stops.append(f"has the column {', '.join(twice)} more than once")
    if stops:
        raise SchemaChanged(
            f"{path} {' and '.join(stops)}. Its header is: {', '.join(found)}",
            hint="Correct the file, or move it out of the path."
            if twice
            else f"Correct the file, move it out of the path, or {ways_on(stopping)}.",
        )
    nacks = [told[kind] for kind in told if (kind, getattr(changes, kind)) in _NACKS]
    ours = {index: f"{HIDDEN}other_{index}" for index, key in enumerate(keys) if key not in wanted}
    others = {ours[index]: name for index, name in enumerate(found) if index in ours and keys[index] not in known}
    return Header(
        tuple(ours.get(index) or wanted[key] for index, key in enumerate(keys)),
        tuple(
            (name, real if list(others.values()).count(real) == 1 else f"{real} ({name.removeprefix(HIDDEN)})")
            for name, real in others.items()
        ),
        f"the file {' and '.join(nacks)}" if nacks else "",
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
