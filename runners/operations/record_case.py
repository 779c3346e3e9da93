"""`wherry run --record`: a case for `wherry test` from the batches of a run, with masked rows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import timezone
from typing import Any

from origins.batch import JSON, Batch
from origins.errors import OriginError
from origins.origin import Origin
from origins.protection import MASK, Protection
from origins.quick_dataclass import dataclass
from runners.definitions.definition import Definition
from runners.model.causes import parse_message
from runners.model.error_kinds import classify
from runners.model.errors import Refusal
from runners.model.events import BatchCancelled, BatchDecided, BatchPlanned, BatchResumed, Event
from runners.model.masking import without
from runners.model.pipeline_state import is_aside
from runners.model.text import format_count
from runners.operations.batch_trial import BatchTrial, TracedRow, isolate_if_needed, make_isolator
from runners.operations.case_trial import CaseTrial
from runners.operations.cases import Case, CaseOutcome, compare
from runners.operations.trial import TrialRun
from runners.spark.own_session import put_settings_back
from runners.ways.batch_source import list_columns, strip_lane_prefix
from runners.ways.bisect_rows import RowErrorIsolator
from runners.ways.stage_chain import StageChain

MOST_BATCHES = 10
"""The most batches of a run that are read again."""
MOST_ALIKE = 25
"""The most rows of a batch with the same code, or the same way through the stages, that are considered."""
LONGEST_ROW = 8 << 10
"""The most characters of a row in a case."""


class BatchCollector:
    """A listener that keeps some batches of a run, those with refused rows first."""

    def __init__(self) -> None:
        self._first: dict[str, Batch] = {}
        self._refusing: dict[str, Batch] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, BatchPlanned | BatchResumed):
            self._keep(self._first, event.batch)
        elif isinstance(event, BatchCancelled) or (isinstance(event, BatchDecided) and event.nacked):
            self._keep(self._refusing, event.batch)

    @staticmethod
    def _keep(batches: dict[str, Batch], batch: Batch) -> None:
        if len(batches) < MOST_BATCHES and not is_aside(batch.lane):
            batches[batch.plan] = batch

    @property
    def batches(self) -> Sequence[Batch]:
        """The batches from which a case is made. A batch that was planned again counts once."""
        every = {**self._refusing, **self._first}
        spans = {(batch.lane, json.dumps([batch.span.start, batch.span.parts])): batch for batch in every.values()}
        return list(spans.values())[:MOST_BATCHES]


@dataclass(frozen=True, kw_only=True)
class Fate:
    """The outcome of a row, as far as a case can show it."""

    outcome: str
    """`wanted`, `filtered` for all destinations, `rejected`, or `changed` by a stage that makes other rows from it."""
    stage: str = ""
    """The stage that refused the row."""
    code: str = ""
    destinations: tuple[str, ...] = ()
    """The destinations that get the row."""

    @staticmethod
    def of_row(row: TracedRow) -> Fate:
        if row.outcome == "rejected":
            return Fate(outcome=row.outcome, stage=row.stage, code=row.code or "")
        return Fate(outcome=row.outcome, destinations=tuple(row.destinations))

    @staticmethod
    def of_case(outcome: CaseOutcome) -> Fate:
        """Return the fate from a case with one row, if no stage makes other rows from it."""
        if outcome.refused:
            row = outcome.refused[0]
            return Fate(outcome="rejected", stage=str(row["stage"]), code=str(row["code"]))
        wanted = tuple(name for name, rows in outcome.delivered.items() if rows)
        return Fate(outcome="wanted" if wanted else "filtered", destinations=wanted)


@dataclass(frozen=True, kw_only=True)
class RecordedRow:
    """A row of the run."""

    row: Mapping[str, JSON]
    """The row as it was read."""
    fate: Fate
    kind: object = None
    """A key that is equal for rows with the same cause or the same way through the stages. One of them is enough."""

    @staticmethod
    def of(as_read: Mapping[str, JSON], traced: TracedRow) -> RecordedRow:
        parsed, fate = parse_message(traced.message or ""), Fate.of_row(traced)
        kind = (fate, traced.stage, tuple(sorted(traced.filtered_for.items())), parsed.problem, parsed.form)
        return RecordedRow(row=as_read, fate=fate, kind=kind)


@dataclass(frozen=True, kw_only=True)
class Recording:
    """The result of a recording."""

    cases: Sequence[Case]
    """One case for each origin with recorded rows."""
    notices: Sequence[str] = ()
    """Notices about rows that were left out."""


def choose_rows(seen: Sequence[RecordedRow], most: int) -> list[RecordedRow]:
    """Return at most this many rows in their order: the first row of every kind, then the second rows, and so on.

    Refused rows are chosen first, and then delivered rows.
    """
    kinds: dict[object, list[int]] = {}
    for at, each in enumerate(seen):
        kinds.setdefault(each.kind, []).append(at)
    queues = sorted(kinds.values(), key=lambda places: _URGENCY.get(seen[places[0]].fate.outcome, 1))
    turns = [
        places[turn] for turn in range(max(map(len, queues), default=0)) for places in queues if turn < len(places)
    ]
    return [seen[at] for at in sorted(turns[:most])]


_URGENCY = {"rejected": 0, "filtered": 2}
"""The order in which rows are chosen. Outcomes that are not listed have the order 1."""


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


@put_settings_back()
def record_cases(definition: Definition, batches: Sequence[Batch], *, most: int) -> Recording:
    """Make a case for each origin of these batches, with at most this many rows. Writes nothing."""
    trial = TrialRun.open(definition)
    cases, notices = [], []
    for origin in definition.pipeline.every_origin:
        name = origin.name or "origin"
        own = [batch for batch in batches if batch.origin == name]
        recorder = CaseRecorder(trial=trial, origin=origin)
        case = recorder.record(own, most) if own else None
        notices += recorder.notices
        cases += [case] if case else []
    return Recording(cases=cases, notices=notices)


@dataclass(kw_only=True)
class CaseRecorder:
    """Makes a case from batches of one origin."""

    trial: TrialRun
    origin: Origin
    notices: list[str] = field(default_factory=list)

    def record(self, batches: Sequence[Batch], most: int) -> Case | None:
        """Return the case, or None if a case can have none of the rows."""
        pipeline = self.trial.definition.pipeline
        newest = max(batches, key=lambda batch: batch.time)
        same = [batch for batch in batches if batch.schema == newest.schema]
        if len(same) < len(batches):
            self.notices.append("The case leaves out batches whose columns differ from the newest batch.")
        chain = self.trial.make_chain(self.origin, newest.schema)
        found = [each for batch in same for each in self._see(chain, batch)]
        seen = [each for each in found if each.fate.stage != "origin" and len(json.dumps(each.row)) <= LONGEST_ROW]
        if len(seen) < len(found):
            self.notices.append(
                f"The case leaves out rows that could not be read, and rows of more than {LONGEST_ROW:,} characters."
            )
        kinds = len({each.kind for each in seen})
        if kinds > most:
            self.notices.append(f"The rows differ in {kinds} ways, so {most} rows do not show all of them.")
        schema = json.loads(newest.schema)
        chosen = [
            replace(each, row=mask_row(each.row, schema, pipeline.protection, pipeline.secrets))
            for each in choose_rows(seen, most)
        ]
        at = newest.time.astimezone(timezone.utc).replace(microsecond=0)
        several = len(pipeline.every_origin) > 1
        place = f"{self.origin.name}, " if several else ""
        case = Case(
            name=f"{place}recorded {at:%Y-%m-%d %H:%M:%S}",
            rows=[{}],
            at=at.isoformat(),
            origin=str(self.origin.name) if several else "",
            delivered=0,
        )
        return self._expect(case, chosen)

    def _see(self, chain: StageChain, batch: Batch) -> Iterator[RecordedRow]:
        """Yield some rows of each kind from a batch, with their outcomes."""
        own, spark = strip_lane_prefix(batch), self.trial.spark
        pins, order = chain.pins(spark), self.origin.parts(own)

        def try_batch(isolator: RowErrorIsolator | None) -> BatchTrial:
            sample = BatchTrial(chain=chain, pins=pins, order=order, most=MOST_ALIKE, isolator=isolator)
            frame = self.origin.fetch(spark, [own], places=True).frame()
            sample.of(batch, frame, list_columns(batch))
            return sample

        try:
            sample = isolate_if_needed(try_batch, lambda: make_isolator(spark, chain, pins, order))
        except Exception as error:
            if not (isinstance(error, OriginError) or classify(error).is_file_gone):
                raise
            self.notices.append(
                f"Batch {batch.number} of lane {batch.lane} cannot be read again: {self.trial.mask_error(error)}"
            )
            return
        column = sample.sections[0].notes[0].column
        for found, traced in zip(sample.sections[0].found, sample.trace_rows(), strict=True):
            yield RecordedRow.of(json.loads(found[column]), traced)

    def _expect(self, case: Case, chosen: Sequence[RecordedRow]) -> Case | None:
        """Return the case with these rows and the outcome of the stages, or None if no row is left.

        Rows that the stages treat differently than in the run are left out.
        """
        trial = CaseTrial(self.trial.definition, self.trial.spark)
        single = [replace(case, name=str(number), rows=[each.row]) for number, each in enumerate(chosen)]
        kept, outcomes = list(chosen), list[CaseOutcome]()
        if len(list(trial.group(single))) == 1 and all(each.fate.outcome != "changed" for each in chosen):
            alone = {one.name: outcome for one, outcome in _run_each(trial, single)}
            same = {
                number: alone[str(number)]
                for number, each in enumerate(chosen)
                if str(number) in alone and Fate.of_case(alone[str(number)]) == each.fate
            }
            kept, outcomes = [chosen[number] for number in same], list(same.values())
        if len(kept) < len(chosen):
            left = len(chosen) - len(kept)
            self.notices.append(
                f"{format_count(left)} {'is' if left == 1 else 'are'} left out: with masked values, or without the "
                "tables, the stages treat them differently than in the run."
            )
        if not kept:
            return None
        case = replace(case, rows=[each.row for each in kept])
        ((_, second),) = trial.run([case])
        first = _merge(outcomes, second.failures) if outcomes else trial.run([case])[0][1]
        pipeline = self.trial.definition.pipeline
        recorded = expect_outcome(case, first, second, pipeline.protection, pipeline.secrets)
        problems = compare(recorded, second).problems
        if problems:
            raise Refusal(f"No case was recorded, because its rows give another result each time: {problems[0]}")
        return recorded


def _run_each(trial: CaseTrial, cases: Sequence[Case]) -> Iterator[tuple[Case, CaseOutcome]]:
    """Yield the outcome of each case, without cases whose rows do not fit the origin's columns."""
    try:
        yield from trial.run(cases)
    except Refusal:
        half = len(cases) // 2
        for some in (cases[:half], cases[half:]) if half else ():
            yield from _run_each(trial, some)


def _merge(outcomes: Sequence[CaseOutcome], failures: Sequence[str]) -> CaseOutcome:
    """Combine the outcomes of all these rows, none of which depends on another row."""
    names = list(outcomes[0].delivered)
    return CaseOutcome(
        delivered={name: [row for each in outcomes for row in each.delivered[name]] for name in names},
        columns=outcomes[0].columns,
        filtered=sum(each.filtered for each in outcomes),
        refused=[row for each in outcomes for row in each.refused],
        failures=failures,
    )


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
