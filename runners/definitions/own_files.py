"""A definition for files that somebody has already: their format and their types as the first rows look."""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

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


def definition_for(place: Path, directory: Path, name: str) -> str:
    """The definition in `directory` that carries these files, one or a folder of them, to a table of this name.

    Raises `Refusal` where there are none whose format is known by their names.
    """
    files = sorted(_files(place), key=lambda file: file.name)
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
    types = _types(rows)
    cast = f"stages:\n  - cast: {_flow(types)}  # as the first rows look; refuses what does not fit\n" if types else ""
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


def _sample(file: Path, kind: str) -> tuple[Mapping[str, str], list[Mapping[str, object]]]:
    """The reader's options that the file needs, and its first rows."""
    if kind == "parquet":
        return {}, []
    with _opened(file) as lines:
        if kind == "json":
            return {}, list(_objects(itertools.islice(lines, _LOOKED_AT)))
        header = next(lines, "")
        separator = max(",;\t|", key=header.count)
        read = csv.DictReader(itertools.chain([header], lines), delimiter=separator)
        return {} if separator == "," else {"sep": separator}, list(itertools.islice(read, _LOOKED_AT))


def _opened(file: Path) -> IO[str]:
    how = {"encoding": "utf-8-sig", "errors": "replace"}
    return gzip.open(file, "rt", **how) if file.suffix == ".gz" else file.open("r", **how)  # type: ignore[call-overload,no-any-return]


def _objects(lines: Iterable[str]) -> Iterator[Mapping[str, object]]:
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row


def _types(rows: list[Mapping[str, object]]) -> dict[str, str]:
    """The types of the columns whose values are text that looks like something else."""
    names = dict.fromkeys(name for row in rows for name in row if isinstance(name, str) and name)
    found = {name: _type([row.get(name) for row in rows]) for name in names}
    return {name: kind for name, kind in found.items() if kind}


def _type(values: list[object]) -> str:
    given = [value.strip() for value in values if isinstance(value, str) and value.strip()]
    if not given or any(not isinstance(value, str) for value in values if value is not None):
        return ""
    if any(_CODE.fullmatch(value) for value in given):
        return ""
    most = min(max(_MOST_BAD * len(given), _FEW_BAD), _NEVER_BAD * len(given))
    for kind, looks in _TYPES.items():
        if sum(not looks.fullmatch(value) for value in given) <= most:
            return kind
    return ""


def _flow(values: Mapping[str, str]) -> str:
    return f"{{{', '.join(f'{_quoted(name)}: {_quoted(value)}' for name, value in values.items())}}}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("${", "$${")
