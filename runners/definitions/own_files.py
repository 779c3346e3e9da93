"""A definition for files that somebody has already: their format and their types as the first rows look."""

from __future__ import annotations

import codecs
import csv
import gzip
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from origins.names import quoted
from runners.errors import Refusal

_FORMATS = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
_LOOKED_AT = 200
_MOST_BAD, _FEW_BAD, _NEVER_BAD = 0.1, 2, 0.25
"""A column has a type if no larger share of its values is of another, or so few of them, and never so large a share:
those are what the type is there to refuse."""
_CODE = re.compile(r"[+-]?0\d+")
"""A number that begins with 0 is a code, as `007` is; no number has them."""
_TYPES = {
    "bigint": re.compile(r"[+-]?\d{1,18}"),
    "decimal(18,2)": re.compile(r"[+-]?\d{1,16}(\.\d{1,2})?"),
    "double": re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"),
    "date": re.compile(r"\d{4}-\d\d-\d\d"),
    "timestamp": re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?"),
}

_WRITTEN_OTHERWISE = {
    "decimal(18,2)": (
        re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d+)(,\d{1,2})?"),
        "replace(regexp_replace({}, '[.](?=[0-9]{{3}}(?![0-9]))', ''), ',', '.')",
    ),
    "date": (
        re.compile(r"\d\d\.\d\d\.\d{4}"),
        "regexp_replace({}, '^([0-9]{{2}})[.]([0-9]{{2}})[.]([0-9]{{4}})$', '$3-$2-$1')",
    ),
}
"""`1.234,56` and `31.01.2026`, and how they are put so that a cast takes them; anything else stays for it to refuse."""
_LOOKS = [
    *((kind, looks, "") for kind, looks in _TYPES.items()),
    *((kind, looks, put) for kind, (looks, put) in _WRITTEN_OTHERWISE.items()),
]
_BYTES = 1 << 20
"""So much of a file shows whether it is UTF-8."""
_LATIN = "ISO-8859-1"


def definition_for(place: Path, directory: Path, name: str) -> str:
    """The definition in `directory` that carries these files, one or a folder of them, to a table of this name.

    Raises `Refusal` where there are none whose format is known by their names.
    """
    try:
        files = sorted(_files(place), key=lambda file: file.name)
    except OSError as error:
        raise Refusal(f"{place} cannot be read: {error.strerror}.") from error
    if not files:
        known = ", ".join(_FORMATS)
        raise Refusal(f"{place}: expected a file, or a folder of files, with a name that ends with one of {known}.")
    suffix, kind = _suffix(files[0]), _FORMATS[_suffix(files[0])]
    packed = ".gz" if files[0].suffix == ".gz" else ""
    path = os.path.relpath(place / f"*{suffix}{packed}" if place.is_dir() else place, directory)
    try:
        options, rows = _sample(files[0], kind)
    except (OSError, ValueError) as error:
        raise Refusal(f"{files[0]} cannot be read as {kind}: {error}.") from error
    types, written = _types(rows)
    put = f"  - with_columns: {_flow(written)}  # from 1.234,56 and 31.01.2026\n" if written else ""
    cast = (
        f"stages:\n{put}  - cast: {_flow(types)}  # as the first rows look; refuses what does not fit\n"
        if types
        else ""
    )
    return (
        f"name: {name}\n"
        "origin:\n"
        "  files:\n"
        f"    path: {_quoted(path)}  # columns are found out at the first run, and kept\n"
        f"    format: {kind}\n"
        f"{f'    options: {_flow(options)}' + chr(10) if options else ''}"
        f"{cast}"
        "destinations:\n"
        f"  - delta: {{path: tables/{name}}}\n"
        "dlq: {window: 1000, threshold: 100}  # stops when 100 of the last 1000 rows were refused\n"
    )


def _files(place: Path) -> Iterator[Path]:
    for file in place.iterdir() if place.is_dir() else [place]:
        if file.is_file() and not file.name.startswith(("_", ".")) and _suffix(file) in _FORMATS:
            yield file


def _suffix(file: Path) -> str:
    return Path(file.stem if file.suffix == ".gz" else file.name).suffix


def _sample(file: Path, kind: str) -> tuple[Mapping[str, str], Sequence[Mapping[str, object]]]:
    """The reader's options that the file needs, and its first rows."""
    if kind == "parquet":
        return {}, []
    if kind == "json":
        with _opened(file) as lines:
            return {}, list(_objects(itertools.islice(lines, _LOOKED_AT)))
    encoding = {} if _is_utf8(_start(file)) else {"encoding": _LATIN}
    with _opened(file, **encoding) as lines:
        header = next(lines, "")
        separator = max(",;\t|", key=header.count)
        read = csv.DictReader(itertools.chain([header], lines), delimiter=separator)
        rows = list(itertools.islice(read, _LOOKED_AT))
    return {**({} if separator == "," else {"sep": separator}), **encoding}, rows


def _opened(file: Path, encoding: str = "utf-8-sig") -> IO[str]:
    how = {"encoding": encoding, "errors": "replace"}
    return gzip.open(file, "rt", **how) if file.suffix == ".gz" else file.open("r", **how)  # type: ignore[call-overload,no-any-return]


def _start(file: Path) -> bytes:
    with gzip.open(file, "rb") if file.suffix == ".gz" else file.open("rb") as stream:
        return stream.read(_BYTES)


def _is_utf8(start: bytes) -> bool:
    """Whether a file that begins so is meant to be UTF-8, also with bytes in it that are none."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return any("\x7f" < char < "\ud800" for char in start.decode("utf-8", errors="surrogateescape"))
    return True


def _objects(lines: Iterable[str]) -> Iterator[Mapping[str, object]]:
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row


def _types(rows: Sequence[Mapping[str, object]]) -> tuple[dict[str, str], dict[str, str]]:
    """The types of the columns whose values are text that looks like something else, and for those whose values a cast
    does not take as they are written, the expressions that put them so."""
    names = dict.fromkeys(name for row in rows for name in row if isinstance(name, str) and name)
    found = {name: _type([row.get(name) for row in rows]) for name in names}
    types = {name: kind for name, (kind, _) in found.items() if kind}
    return types, {name: put.format(quoted(name)) for name, (_, put) in found.items() if put}


def _type(values: list[object]) -> tuple[str, str]:
    given = [value.strip() for value in values if isinstance(value, str) and value.strip()]
    if not given or any(not isinstance(value, str) for value in values if value is not None):
        return "", ""
    if any(_CODE.fullmatch(value) for value in given):
        return "", ""
    most = min(max(_MOST_BAD * len(given), _FEW_BAD), _NEVER_BAD * len(given))
    for kind, looks, put in _LOOKS:
        if sum(not looks.fullmatch(value) for value in given) <= most:
            return kind, put
    return "", ""


def _flow(values: Mapping[str, str]) -> str:
    return f"{{{', '.join(f'{_quoted(name)}: {_quoted(value)}' for name, value in values.items())}}}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("${", "$${")
