"""Refused rows that a person corrects in a file: their export, and the file as a fix."""

from __future__ import annotations

import base64
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

from destinations.dead_letters import narrow_to_ids, stream_dlq
from destinations.destination import Destination
from origins.batch import Json
from origins.batch_rows import to_python_rows
from origins.codec import UNSTORED, JsonForm
from origins.lazy import SparkSession
from origins.nack import RAW
from origins.protection import MASK, Protection
from runners.model.errors import Refusal
from runners.model.row_values import (
    BadValue,
    Number,
    is_exact,
    is_text,
    keep_if_same,
    match_name,
    parse_edited,
    parse_row,
    show_kind,
    write_json,
)
from runners.model.spec import PipelineSpec
from runners.model.text import format_count
from runners.operations.pipeline_access import open_state
from runners.operations.row_files import (
    LONGEST_CELL,
    OURS,
    EditableRow,
    EditedRow,
    find_format,
    read_rows,
    refuse_rows,
    write_rows,
)
from runners.running.choice import OLDEST_FIRST, Choice
from runners.running.fix import Fix, GivenRows
from runners.running.replay import NOT_KEPT, NOT_READ, Replay
from runners.state.journal import list_decided
from runners.state.location import find_dlq

MOST_CORRECTED = 100_000
"""The most rows in one correction. The ledger keeps the id of each, and this process reads them all."""
_EXACT = 2**53
"""A float is not exact for every whole number beyond this."""
CellParser: TypeAlias = Callable[[Any, Json, Json], Json]
"""Returns the value of a cell from the cell, the type of its column and the original value. Raises `BadValue`."""
_ASKED = "id, stage, code, message, `row`, original, original_schema"


@dataclass(frozen=True, kw_only=True)
class Correctable:
    """An entry of the DLQ that a person may correct."""

    id: str
    code: str
    message: str
    values: Mapping[str, Json] = field(repr=False)
    """The row as it was read."""
    kinds: Mapping[str, Json]
    masked: Mapping[str, Json] = field(repr=False)
    """The row without the values of protected columns."""
    masked_message: str = ""
    protected: frozenset[str] = frozenset()
    """The columns that may have protected values."""
    why_not: str = ""
    """Why it cannot be corrected."""

    @staticmethod
    def of(row: Mapping[str, Any], protection: Protection) -> Correctable:
        """Return the entry from the columns of the DLQ."""
        original, schema = row["original"], row["original_schema"]
        why = NOT_KEPT if original is None else NOT_READ if schema == RAW else ""
        values = parse_row(original) if not why else {}
        kinds = {each["name"]: each["type"] for each in parse_row(schema)["fields"]} if not why else {}
        nack = {"stage": row["stage"], "message": row["message"] or "", "row": parse_row(row["row"] or "null")}
        shown = protection.mask_nack({**nack, "original": values})
        return Correctable(
            id=row["id"],
            code=row["code"] or "",
            message=row["message"] or "",
            values={name: values.get(name) for name in kinds},
            kinds=kinds,
            masked=_keep_numbers(shown["original"], {name: values.get(name) for name in kinds}),
            masked_message=str(shown["message"]),
            protected=frozenset(filter(protection.covers, kinds)),
            why_not=why,
        )

    def show(self, *, reveal: bool) -> EditableRow:
        """Return the entry as a file shows it."""
        return EditableRow(
            id=self.id,
            code=self.code,
            message=self.message if reveal else self.masked_message,
            values=self.values if reveal else self.masked,
            kinds=self.kinds,
        )

    def correct(self, row: EditedRow, parse: CellParser) -> str | None:
        """Return the corrected row as JSON of the DLQ, or None if nothing was changed.

        A missing column stays unchanged. Raises `BadValue`, with the column, for an impossible value.
        """
        if self.why_not:
            raise BadValue(f"it cannot be replayed: {self.why_not}")
        found = dict(self.values)
        names, spelled = list(self.kinds), dict[str, str]()
        for given, cell in row.cells.items():
            if given in OURS:
                continue
            name = match_name(str(given), names)
            if name is None:
                if cell is None or cell == "":
                    continue  # the file has this column because of rows that were read with other columns
                raise BadValue(f"column {given}: this row was read without it")
            if name in spelled:
                raise BadValue(f"column {given} and column {spelled[name]} are the same")
            spelled[name] = str(given)
            try:
                kind = self.kinds[name]
                found[name] = keep_if_same(parse(cell, kind, self.values[name]), self.values[name], kind)
            except BadValue as error:
                why = f"the value is not a {show_kind(self.kinds[name])}" if name in self.protected else str(error)
                raise BadValue(f"column {name}: {why}") from error
            self._refuse_mask(name, found[name])
        if write_json(found) == write_json(dict(self.values)):
            return None
        return write_json(found)

    def _refuse_mask(self, name: str, value: Json) -> None:
        """Raises `BadValue` if a mask would replace the value that it hides."""
        own, masked = write_json(self.values[name]), write_json(self.masked[name])
        new = write_json(value)
        copied = own != masked and new == masked
        if new != own and (copied or (name in self.protected and MASK in new and MASK not in own)):
            raise BadValue(f"column {name}: it has the mask of a protected value, not a value")


def _keep_numbers(masked: Any, values: Any) -> Any:
    """Return the masked row, in which a number that is not masked is still a number."""
    if isinstance(values, Mapping) and isinstance(masked, Mapping):
        return {name: _keep_numbers(masked.get(name), each) for name, each in values.items()}
    if isinstance(values, list) and isinstance(masked, list):
        return [_keep_numbers(*pair) for pair in zip(masked, values, strict=True)]
    return values if masked == values else masked


def read_correctable(
    dlq: Destination, spark: Callable[[], SparkSession], ids: Sequence[str], protection: Protection
) -> Mapping[str, Correctable]:
    """Return the entries with these ids that the DLQ has."""
    if not ids:
        return {}
    wanted = frozenset(ids)
    tables = stream_dlq(dlq, spark, f"SELECT {_ASKED} FROM {{table}} WHERE {narrow_to_ids(ids)}")
    rows = (row for table in tables for row in to_python_rows(table))
    return {row["id"]: Correctable.of(row, protection) for row in rows if row["id"] in wanted}


@dataclass(frozen=True, kw_only=True)
class ExportedRows(JsonForm):
    """What an export wrote."""

    file: Path
    rows: int
    left: Mapping[str, int]
    """How many chosen rows cannot be corrected, by reason."""
    masked: bool
    """Whether values are masked, so that no replay takes the file."""
    long: int
    """How many values are longer than a cell of a spreadsheet can be."""

    def json(self) -> dict[str, Any]:
        """Return the form that `--json` prints."""
        return {**super().json(), "file": str(self.file) if self.rows else None}


def export_rows(pipeline: PipelineSpec, file: Path, choice: Choice, *, reveal: bool) -> ExportedRows:
    """Write the chosen waiting rows into a file, as `PipelineRefusedRows.export` describes.

    It writes no file if no row can be corrected.
    """
    find_format(file)
    journal, (dlq, spark) = open_state(pipeline)[1], find_dlq(pipeline)
    decided, protection = list_decided(journal), pipeline.protection
    left: Counter[str] = Counter()
    columns: dict[str, None] = {}
    for row in choice.list_rows(dlq, spark, "id, original_schema, original IS NOT NULL AS kept"):
        if row["id"] not in decided:
            if not row["kept"] or row["original_schema"] == RAW:
                left[NOT_READ if row["kept"] else NOT_KEPT] += 1
                continue
            columns |= dict.fromkeys(each["name"] for each in parse_row(row["original_schema"])["fields"])
    counts: Counter[str] = Counter()

    def list_rows() -> Iterator[EditableRow]:
        for row in choice.list_rows(dlq, spark, _ASKED, then=OLDEST_FIRST):
            entry = Correctable.of(row, protection) if row["id"] not in decided else None
            if entry is not None and not entry.why_not and columns.keys() >= entry.kinds.keys():
                counts["rows"] += 1
                counts["long"] += sum(len(str(value)) > LONGEST_CELL for value in entry.values.values())
                yield entry.show(reveal=reveal)

    masked = bool(protection) and not reveal
    if columns:
        write_rows(file, list_rows(), columns, masked=masked)
    return ExportedRows(file=file, rows=counts["rows"], left=dict(left), masked=masked, long=counts["long"])


@dataclass(frozen=True, kw_only=True)
class CorrectedRows(JsonForm):
    """The rows that a person edited, compared with the entries of the DLQ. Nothing is written yet."""

    file: str
    rows: GivenRows = field(metadata=UNSTORED)
    """The rows that a replay uses in place of the entries."""
    changed: int
    """How many rows differ from what was read."""
    unchanged: int
    replayed: int
    """How many of the rows were replayed before."""
    discarded: int
    duplicated: int
    """How many rows are in the file twice, with the same values."""

    def make_replay(self, *, reason: str, give_up: bool = False) -> Replay:
        """Return the replay that delivers these rows. Raises `Refusal` without a reason."""
        fix = Fix(rows=self.rows, file=self.file)
        return Replay(choice=Choice(ids=tuple(sorted(self.rows.texts))), reason=reason, fix=fix, give_up=give_up)


def correct_from_file(pipeline: PipelineSpec, file: Path, *, unchanged: bool = False) -> CorrectedRows:
    """Read the rows of an edited file. Raises `Refusal` as `correct_rows` does, and if the file cannot be read."""
    return correct_rows(pipeline, read_rows(file), find_format(file).parse, file, unchanged=unchanged)


def correct_from_values(
    pipeline: PipelineSpec, values: Mapping[str, Mapping[str, Any]], *, unchanged: bool = False
) -> CorrectedRows:
    """Correct rows by the ids of their entries. Each has the columns to set, as Python values."""
    edited = [EditedRow(number=number, id=id_, cells=row) for number, (id_, row) in enumerate(values.items(), 1)]
    return correct_rows(pipeline, edited, _parse_python, None, unchanged=unchanged)


def _parse_python(value: Any, kind: Json, _original: Json = None) -> Json:
    """Return a Python value as JSON of the DLQ.

    A column of whole numbers also takes a float, a map takes a list of pairs, and a nested column takes its JSON.
    """
    if isinstance(kind, Mapping) or kind == "variant":
        return parse_edited(value) if isinstance(value, str) else _parse_nested(value, kind)
    if is_exact(kind) and isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return Number(int(value))
    return _to_json(value)


def _parse_nested(value: Any, kind: Any) -> Json:
    shape = kind["type"] if isinstance(kind, Mapping) else ""
    if shape == "struct" and isinstance(value, Mapping):
        kinds = {each["name"]: each["type"] for each in kind["fields"]}
        return {str(name): _parse_python(each, kinds.get(name, "string")) for name, each in value.items()}
    if shape == "array" and isinstance(value, list | tuple):
        return [_parse_python(each, kind["elementType"]) for each in value]
    if shape == "map" and isinstance(value, Mapping | list | tuple):
        pairs = value.items() if isinstance(value, Mapping) else value
        entries = [(_parse_python(key, kind["keyType"]), _parse_python(each, kind["valueType"])) for key, each in pairs]
        if is_text(kind["keyType"]):
            return {str(key): each for key, each in entries}
        return [{"key": key, "value": each} for key, each in entries]
    return _to_json(value)


def _to_json(value: Any) -> Json:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        words = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return Number(repr(value)) if math.isfinite(value) else words
    if isinstance(value, int):
        return Number(value)
    if isinstance(value, Decimal):
        return Number(f"{value:f}")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list):
        return [_to_json(each) for each in value]
    if isinstance(value, Mapping):
        return {str(name): _to_json(each) for name, each in value.items()}
    return str(value)


def correct_rows(
    pipeline: PipelineSpec,
    edited: Sequence[EditedRow],
    parse: CellParser,
    file: Path | None,
    *,
    unchanged: bool = False,
) -> CorrectedRows:
    """Compare the edited rows with the DLQ. With `unchanged`, rows that were not edited count too.

    Raises `Refusal` with all problems: an unknown id, a value that its column cannot have, and an id that occurs twice
    with different values.
    """
    journal, (dlq, spark) = open_state(pipeline)[1], find_dlq(pipeline)
    decided = list_decided(journal)
    found = read_correctable(dlq, spark, list({row.id for row in edited if row.id}), pipeline.protection)
    problems: list[str] = []
    texts: dict[str, str | None] = {}
    seen: dict[str, int] = {}
    duplicated = 0
    for row in edited:
        entry = found.get(row.id)
        try:
            if entry is None:
                raise BadValue(f"the DLQ has no row {row.id}" if row.id else "it has no id")
            text = entry.correct(row, parse)
        except BadValue as error:
            problems.append(f"row {row.number}, {error}")
            continue
        if row.id in seen and texts[row.id] != text:
            problems.append(f"row {row.number}, it has the id of row {seen[row.id]}, and other values")
        duplicated += row.id in seen
        seen.setdefault(row.id, row.number)
        texts.setdefault(row.id, text)
    name = file.name if file else "These rows"
    if problems:
        hint = "Correct these rows in the file. A row of another pipeline does not belong there."
        refuse_rows(f"{name} was not taken", problems, hint=hint)
    originals = {id_: write_json(dict(found[id_].values)) for id_, text in texts.items() if text is None and unchanged}
    kept = {id_: text for id_, text in texts.items() if text is not None} | originals
    if len(kept) > MOST_CORRECTED:
        raise Refusal(
            f"{name} changes {format_count(len(kept))}; Wherry takes at most {MOST_CORRECTED:,} at once.",
            hint="Split the file, and replay with its parts one after the other.",
        )
    return CorrectedRows(
        file=str(file.absolute()) if file else "",
        rows=GivenRows.of(kept) if kept else GivenRows(),
        changed=sum(text is not None for text in texts.values()),
        unchanged=sum(text is None for text in texts.values()),
        replayed=len(texts.keys() & decided.replayed),
        discarded=len(texts.keys() & decided.discarded),
        duplicated=duplicated,
    )
