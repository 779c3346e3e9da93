"""`wherry preview --save-case`: a case for `wherry test` from the rows of a preview, with masked rows."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timezone
from pathlib import Path
from typing import Any

from origins.batch import JSON, Batch
from origins.origin import Origin
from origins.protection import MASK, Protection
from runners.definitions.definition import Definition
from runners.model.errors import Refusal
from runners.model.masking import without
from runners.operations.cases import Case, CaseOutcome, compare, extend_cases
from runners.operations.preview import Preview
from runners.operations.run_cases import CaseRunner
from runners.operations.tracer import Tracer
from runners.spark.own_session import put_settings_back
from stages.rows import REFUSED_BY_ORIGIN


@put_settings_back()
def preview_and_save(definition: Definition, file: Path, **how: Any) -> tuple[Preview, int]:
    """Return the preview, and the number of rows that the file of cases has got from it: one case for each batch.

    A case has the example rows that could be read. It expects what the stages make of these rows once they are masked.
    """
    tracer = Tracer.open(definition)
    traced = list(tracer.trace_next(**how))
    cases = [
        _make_case(tracer, origin, batch, readable)
        for origin, batch, found in traced
        if (readable := [row.as_read for row in found.list_rows() if row.state != REFUSED_BY_ORIGIN])
    ]
    if cases:
        extend_cases(file, cases, "Saved by `wherry preview`. Protected values are masked.")
    return Preview.of(definition.pipeline, traced), sum(len(case.rows) for case in cases)


def _make_case(tracer: Tracer, origin: Origin, batch: Batch, rows: Sequence[str]) -> Case:
    pipeline, schema = tracer.definition.pipeline, json.loads(batch.schema)
    masked = [mask_row(json.loads(each), schema, pipeline.protection, pipeline.secrets) for each in rows]
    at = batch.time.astimezone(timezone.utc).replace(microsecond=0)
    several = len(pipeline.every_origin) > 1
    case = Case(
        name=f"{f'{origin.name}, ' if several else ''}previewed {at:%Y-%m-%d %H:%M:%S}",
        rows=masked,
        at=at.isoformat(),
        origin=str(origin.name) if several else "",
        delivered=0,
    )
    cases = CaseRunner(tracer.definition, tracer.spark)
    ((_, first),), ((_, second),) = cases.run([case]), cases.run([case])
    saved = expect_outcome(case, first, second, pipeline.protection, pipeline.secrets)
    if problems := compare(saved, second).problems:
        raise Refusal(f"No case was saved, because its rows give another result each time: {problems[0]}")
    return saved


def mask_row(
    row: Mapping[str, JSON], schema: Mapping[str, JSON], protection: Protection, secrets: Mapping[str, str]
) -> Mapping[str, JSON]:
    """Return the row without protected values and secrets.

    A masked number, day or time gets another value of its type, so that the row still fits its columns.
    """
    shown: Mapping[str, JSON] = without(secrets, protection.mask_row(row))
    types = {each["name"]: each["type"] for each in schema["fields"]}
    return {name: _fit(value, row[name], types.get(name, "string")) for name, value in shown.items()}


_STAND_INS: Mapping[str, JSON] = {
    "boolean": False,
    "date": "2000-01-01",
    "timestamp": "2000-01-01T00:00:00Z",
    "timestamp_ntz": "2000-01-01T00:00:00",
    **dict.fromkeys(("byte", "short", "integer", "long", "float", "double"), 1),
}
"""The values that replace masked values, by type."""
_ADDRESS = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_DOMAIN = "@example.org"


def _fit(shown: JSON, value: JSON, kind: JSON) -> JSON:
    """Return the masked value in its type. A mail address stays a mail address, because stages split addresses."""
    if shown == value or shown is None:
        return shown
    if kind == "string":
        return f"{shown}{_DOMAIN}" if shown == f"{str(value)[:1]}{MASK}" and _ADDRESS.fullmatch(str(value)) else shown
    if isinstance(kind, Mapping) and kind["type"] == "struct" and isinstance(shown, Mapping):
        types = {each["name"]: each["type"] for each in kind["fields"]}
        return {name: _fit(inner, value[name], types.get(name, "string")) for name, inner in shown.items()}
    if isinstance(kind, Mapping) and kind["type"] == "array" and isinstance(shown, list):
        return [_fit(inner, was, kind["elementType"]) for inner, was in zip(shown, value, strict=True)]
    if str(kind).startswith("decimal"):
        return 1
    return _STAND_INS.get(kind) if isinstance(kind, str) else None


def expect_outcome(
    case: Case,
    first: CaseOutcome,
    second: CaseOutcome,
    protection: Protection = Protection(),
    secrets: Mapping[str, str] = {},
) -> Case:
    """Return the case that expects what both outcomes have in common.

    Protected values and secrets are left out. A lookup or an expression may bring some that no row of the case has.
    """

    stand_ins = {text.lower() for text in protection.list_texts(*case.rows)}

    def show(row: Mapping[str, Any]) -> Mapping[str, JSON]:
        masked: Mapping[str, JSON] = without(secrets, protection.mask_row(row))
        return {name: value for name, value in row.items() if masked[name] == value or str(value).lower() in stand_ins}

    def show_refused(row: Mapping[str, Any]) -> Mapping[str, JSON]:
        message = without(secrets, protection.mask_nack(row)["message"])
        kept = {name: value for name, value in row.items() if name != "message" or message == value}
        return {**kept, "row": show(row["row"])}

    delivered: Any = {
        name: [show(row) for row in _keep_common(rows, second.delivered[name])]
        for name, rows in first.delivered.items()
    }
    return replace(
        case,
        delivered=delivered if len(delivered) > 1 else next(iter(delivered.values())),
        filtered=first.filtered,
        refused=_keep_common(
            [show_refused(row) for row in first.refused], [show_refused(row) for row in second.refused]
        ),
        fails=bool(first.failures),
    )


def _keep_common(rows: Sequence[Mapping[str, Any]], again: Sequence[Mapping[str, Any]]) -> list[Mapping[str, JSON]]:
    """Return the rows without columns that differ between the two times, or that a text file cannot store."""
    names = dict.fromkeys(name for row in rows for name in row)
    same = [name for name in names if _list_values(rows, name) == _list_values(again, name)]
    kept = [name for name in same if not any("\\u0000" in value for value in _list_values(rows, name))]
    return [{name: row[name] for name in kept if name in row} for row in rows]


def _list_values(rows: Sequence[Mapping[str, Any]], name: str) -> list[str]:
    return sorted(json.dumps(row.get(name), sort_keys=True) for row in rows)
