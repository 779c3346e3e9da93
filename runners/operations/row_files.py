"""Files in which a person edits rows: CSV and JSON, with one row for each row of the DLQ.

A row has the columns that it was read with. Before them are its id, its code and the reason of its refusal.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, TextIO

from origins.batch import Json
from origins.names import HIDDEN
from runners.model.errors import Refusal
from runners.model.row_values import (
    BadValue,
    Number,
    make_decoder,
    parse_cell,
    parse_text,
    show_cell,
    show_text,
    write_json,
)
from runners.model.text import escape_line

ID, CODE, MESSAGE, MASKED = (f"{HIDDEN}{name}" for name in ("id", "code", "message", "masked"))
"""The columns before the columns of the row. `MASKED` exists only if values were masked."""
OURS = (ID, CODE, MESSAGE, MASKED)
LONGEST_CELL = 32_767
"""The most characters in a cell of a spreadsheet, which cuts longer text."""
_MOST_NAMED = 5
"""The most problems that an error names."""
_CSV_FIELD = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class EditableRow:
    """A row as a file shows it."""

    id: str
    code: str
    message: str
    values: Mapping[str, Json]
    kinds: Mapping[str, Json]
    """The type of each column, as in Spark's JSON."""


@dataclass(frozen=True, kw_only=True)
class EditedRow:
    """A row from an edited file. `cells` are its columns, as the file's format reads them."""

    number: int
    """The number of the row in the file, as a spreadsheet counts."""
    id: str
    cells: Mapping[str, Any]


class RowFormat(ABC):
    """A file format for rows."""

    @abstractmethod
    def write(self, file: Path, rows: Iterable[EditableRow], columns: Collection[str], masked: bool) -> None:
        """Write the rows. `masked` is set if values are masked."""

    @abstractmethod
    def read(self, file: Path) -> Iterator[EditedRow]:
        """Yield the rows of a file. Raises `Refusal` if the file has another form."""

    @abstractmethod
    def parse(self, cell: Any, kind: Json, original: Json) -> Json:
        """Return the value of a cell, which is not checked yet, or the original if the cell shows it unchanged.

        Raises `BadValue`.
        """


def find_format(file: Path) -> RowFormat:
    """Return the format by the ending of the file's name. Raises `Refusal` for another ending."""
    found = _FORMATS.get(file.suffix.lower())
    if found is None:
        raise Refusal(
            f"Expected a name that ends with {', '.join([*_FORMATS][:-1])} or {[*_FORMATS][-1]}, got {file.name}.",
            hint="A spreadsheet can edit rows.csv.",
        )
    return found


def write_rows(file: Path, rows: Iterable[EditableRow], columns: Collection[str], *, masked: bool = False) -> None:
    """Write a new file for its owner only, either whole or not at all. Raises `Refusal` if the file exists."""
    form = find_format(file)
    part = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    try:
        _refuse_existing(file)
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            form.write(part, rows, columns, masked)
            _refuse_existing(file)
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise Refusal(f"{file} cannot be written: {error.strerror or error}.") from error


def _refuse_existing(file: Path) -> None:
    if file.exists():
        raise Refusal(f"{file} exists, and may hold edited rows.", hint="Remove it, or name another file.")


def read_rows(file: Path) -> Sequence[EditedRow]:
    """Return the rows of an edited file.

    Raises `Refusal` for a file that cannot be read, that has no ids, or whose values were masked.
    """
    form = find_format(file)
    try:
        return list(form.read(file))
    except FileNotFoundError as error:
        raise Refusal(f"There is no file {file}.") from error
    except OSError as error:
        raise Refusal(f"{file} cannot be read: {error.strerror or error}.") from error
    except BadValue as error:
        raise Refusal(f"{file.name}: {error}.") from error


def refuse_rows(what: str, problems: Sequence[str], *, hint: str) -> None:
    """Raises `Refusal` with the first problems, one on each line."""
    more = [f"and {len(problems) - _MOST_NAMED:,} more"] if len(problems) > _MOST_NAMED else []
    listed = "\n  ".join(map(escape_line, [*problems[:_MOST_NAMED], *more]))
    raise Refusal(f"{what}, and nothing was written:\n  {listed}", hint=hint)


def check_header(names: Sequence[str], file: Path) -> None:
    """Raises `Refusal` if a file has no ids, a column twice, or masked values."""
    if ID not in names:
        raise Refusal(
            f"{file.name} has no column {ID}, so Wherry cannot tell to which refused row each of its rows belongs. "
            f"Its columns are: {', '.join(names[:10]) or 'none'}.",
            hint="Edit a file that `wherry dlq export FILE --to rows.csv` wrote, and keep that column.",
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Refusal(f"{file.name} has the column {twice[0]} twice.", hint="Remove one of the two.")
    if MASKED in names:
        raise Refusal(
            f"{file.name} was exported with masked values, which must not take the place of real ones.",
            hint="Export the rows with their values:  wherry dlq export FILE --to rows.csv --reveal",
        )


def _read_text(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refusal(
            f"{file.name} is not text in UTF-8: byte {error.start + 1:,} has no meaning there.",
            hint="In a spreadsheet, save it as “CSV UTF-8”.",
        ) from error


def _list_ours(row: EditableRow, *, masked: bool) -> dict[str, str]:
    ours = {ID: row.id, CODE: row.code, MESSAGE: row.message}
    return {**ours, MASKED: "yes"} if masked else ours


class CsvFormat(RowFormat):
    """CSV in UTF-8 with a byte order mark, by which a spreadsheet recognises UTF-8.

    An empty cell is NULL, and a cell with `""` is empty text.
    """

    def write(self, file: Path, rows: Iterable[EditableRow], columns: Collection[str], masked: bool) -> None:
        with file.open("w", encoding="utf-8-sig", newline="") as target:
            writer = csv.writer(target)
            ours = OURS if masked else OURS[:-1]
            writer.writerow([*ours, *map(show_text, columns)])
            for row in rows:
                cells = {name: show_cell(value, row.kinds[name]) for name, value in row.values.items()}
                own_cells = [show_text(each) if each else "" for each in _list_ours(row, masked=masked).values()]
                writer.writerow([*own_cells, *(cells.get(name, "") for name in columns)])

    def read(self, file: Path) -> Iterator[EditedRow]:
        text = _read_text(file)
        limit = csv.field_size_limit(_CSV_FIELD)
        try:
            yield from self._parse(StringIO(text, newline=""), file, _find_delimiter(text))
        except csv.Error as error:
            raise Refusal(f"{file.name} is not CSV: {error}.") from error
        finally:
            csv.field_size_limit(limit)

    def _parse(self, text: TextIO, file: Path, delimiter: str) -> Iterator[EditedRow]:
        lines = csv.reader(text, delimiter=delimiter, strict=True)
        header = next(lines, [])
        while header and not header[-1]:
            header.pop()
        names = [parse_text(name) for name in header]
        check_header(names, file)
        if "" in names:
            raise Refusal(f"{file.name} has a column without a name, number {names.index('') + 1}.")
        for number, cells in enumerate(lines, 2):
            if not any(cells):
                continue
            beyond = [cell for cell in cells[len(names) :] if cell]
            if beyond or len(cells) < len(names):
                raise Refusal(
                    f"Row {number} of {file.name} has {len(cells)} cells, but its header has {len(names)}.",
                    hint="A text with a comma or a line break stands in quotes.",
                )
            found = dict(zip(names, cells, strict=False))
            yield EditedRow(number=number, id=found[ID].strip(), cells=found)

    def parse(self, cell: Any, kind: Json, original: Json) -> Json:
        shown = show_cell(original, kind)
        if cell == shown:
            return original
        if len(shown) > len(cell) >= LONGEST_CELL and shown.startswith(cell):
            raise BadValue(
                f"a spreadsheet has cut this value of {len(shown):,} characters; export the row to a .json file"
            )
        return parse_cell(cell, kind)


def _find_delimiter(text: str) -> str:
    """Return the character between the names of the header. Spreadsheets of some countries write a semicolon."""
    for delimiter in (",", ";", "\t"):
        with contextlib.suppress(csv.Error, StopIteration):
            if ID in next(csv.reader(StringIO(text, newline=""), delimiter=delimiter)):
                return delimiter
    return ","


class JsonFormat(RowFormat):
    """A list of objects, one on each line. It also reads objects without a list around them."""

    def write(self, file: Path, rows: Iterable[EditableRow], columns: Collection[str], masked: bool) -> None:
        with file.open("w", encoding="utf-8") as target:
            target.write("[")
            for number, row in enumerate(rows):
                target.write(",\n" if number else "\n")
                target.write(write_json({**_list_ours(row, masked=masked), **row.values}))
            target.write("\n]\n")

    def read(self, file: Path) -> Iterator[EditedRow]:
        for number, row in enumerate(_split_objects(_read_text(file), file), 1):
            if not isinstance(row, Mapping):
                raise Refusal(f"Row {number} of {file.name} is not an object: {write_json(row)[:60]}.")
            names = [str(name) for name in row]
            check_header(names, file)
            id_ = row[ID]
            if not isinstance(id_, str) or isinstance(id_, Number):
                raise Refusal(
                    f"Row {number} of {file.name}: {ID} is {write_json(id_)[:60]}, not the id of a refused row."
                )
            yield EditedRow(number=number, id=id_.strip(), cells=row)

    def parse(self, cell: Any, kind: Json, original: Json) -> Json:
        return cell  # type: ignore[no-any-return]


def _split_objects(text: str, file: Path) -> Iterator[Json]:
    """Yield the elements of a list, or values that follow one another."""
    decoder, at = make_decoder(), 0
    try:
        while (at := len(text) - len(text[at:].lstrip())) < len(text):
            value, at = decoder.raw_decode(text, at)
            yield from value if isinstance(value, list) else [value]
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise Refusal(f"{file.name} is not JSON: {error.msg}, at {where}.") from error
    except RecursionError as error:
        raise Refusal(f"{file.name} is not JSON that can be read: it is too deep.") from error


_FORMATS: Mapping[str, RowFormat] = {".csv": CsvFormat(), ".json": JsonFormat()}
