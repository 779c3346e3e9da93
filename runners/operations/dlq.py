"""The refused rows of a pipeline: causes, discard, the merge of the fallback, and the settings of the DLQ."""

from __future__ import annotations

import dataclasses
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, TypeAlias

from destinations.dead_letters import format_moment, read_dead_letters, trace_replays
from destinations.destination import Destination
from destinations.dlq import FALLBACK, Dlq
from origins.batch import JSON, Batch, Span
from origins.codec import JsonForm, encode, named
from origins.lazy import SparkSession, pa
from origins.protection import Protection
from runners.definitions.definition import Definition
from runners.model.causes import CauseCounter
from runners.model.clock import Clock
from runners.model.entry import DestinationBody, Entry, PauseBody
from runners.model.errors import Owned, Refusal, check_reason
from runners.model.nack_window import apply_config
from runners.model.pipeline_state import REPLAY, PipelineState, is_replay
from runners.model.planned_batch import PlannedBatch, SettleBody, SettledCounts
from runners.model.run_report import PipelineFailed
from runners.model.spec import PipelineSpec
from runners.model.text import format_count
from runners.operations.pipeline_access import append_entry, open_state, sign
from runners.running.choice import Choice, Letter, mask_causes, read_examples
from runners.running.merge_fallback import FallbackMerge
from runners.running.replay import MOST
from runners.running.run import PipelineRun
from runners.state.journal import DecidedLetters, Journal, list_decided
from runners.state.ledger import Conflict
from runners.state.location import StateLocation, find_dlq
from runners.state.ownership import is_run


def list_dead_letters(
    pipeline: PipelineSpec,
    limit: int | None = None,
    *,
    choice: Choice = Choice(),
    reveal: bool = False,
    waiting: bool = False,
) -> list[dict[str, JSON]]:
    """Return refused rows, as `PipelineRefusedRows.list` describes."""
    decided = list_decided(StateLocation.of(pipeline).open_journal(pipeline))
    dlq, spark = find_dlq(pipeline)
    ids: set[str] | None = None
    if limit and (waiting or not choice.chooses_all):
        ids = {*choice.list_newest(dlq, spark, limit, but=decided.ids if waiting else frozenset())}
    elif waiting or not choice.chooses_all:
        ids = {each.id for each in choice.select_letters(dlq, spark, decided.ids if waiting else ())}
    rows = read_dead_letters(dlq, spark, limit=limit, ids=ids, replayed=decided.replayed, discarded=decided.discarded)
    earlier = trace_replays(dlq, spark, rows)
    rows = [{**row, "first": next(iter(earlier[row["id"]]), None)} for row in rows]
    return rows if reveal else [pipeline.protection.mask_nack(row) for row in rows]


def summarise(pipeline: PipelineSpec, choice: Choice = Choice()) -> list[dict[str, JSON]]:
    """Return the causes of the chosen rows, as `summarise_causes` does. Values of protected columns are masked."""
    decided = list_decided(StateLocation.of(pipeline).open_journal(pipeline))
    return summarise_causes(*find_dlq(pipeline), decided, choice, pipeline.protection)


def summarise_causes(
    dlq: Destination,
    spark: Callable[[], SparkSession],
    decided: DecidedLetters,
    choice: Choice = Choice(),
    protection: Protection = Protection(),
) -> list[dict[str, JSON]]:
    """Return the causes, those with the most waiting rows first.

    The example is the newest waiting row, or the newest row if none waits. `forms` groups the rows of a cause by column
    and form of the value. A row that a replay refused again counts once, with its last refusal.
    """
    again = choice.stream_rows(dlq, spark, "id, replays", where="replays IS NOT NULL")
    replaced = frozenset(each for table in again for each in table["replays"].to_pylist())
    done = decided.ids
    causes: dict[_CauseKey, _CauseCount] = {}
    for table in choice.stream_rows(dlq, spark, ", ".join(_COUNTED)):
        columns = _list_columns(table, _COUNTED)
        rows = [row for row in zip(*columns, strict=True) if row[0] not in replaced]
        for row in rows:
            key, waits = row[1:4], row[0] not in done
            cause = causes.get(key) or causes.setdefault(key, _CauseCount())
            cause.add(row[4:8], row[0], waits=waits)
        alike = Counter((*row[1:4], *row[8:], row[0] not in done) for row in rows)
        samples = {(*row[1:4], *row[8:], row[0] not in done): row[0] for row in rows}
        for group, count in alike.items():
            *where, message, part, waits = group
            refusal = dict(zip(_BY, where, strict=True)) | {"message": protection.mask_message(message or "")}
            causes[group[:3]].counter.add(
                refusal, count, [part], samples[group], waiting=count if waits else 0, rank=message or ""
            )
    for each in causes.values():
        mask_causes(dlq, spark, each.counter, protection)
    examples = read_examples(dlq, spark, [each.example for each in causes.values()], protection)
    found = [each.describe(key, examples[each.example]) for key, each in causes.items()]
    return sorted(found, key=lambda cause: (-cause["waiting"], -cause["rows"], str(cause["code"])))


_BY = ("code", "stage", "destination")
_COUNTED = ("id", *_BY, "nacked_at", "lane", "number", "position", "message", "part")
_CauseKey: TypeAlias = tuple[str, str, str | None]
_Place: TypeAlias = tuple[int, str, int, int]
"""The key that orders refused rows: the time, the lane, the number of the batch and the position in it."""


def _list_columns(table: pa.Table, names: Sequence[str]) -> list[list[Any]]:
    """Return the values of these columns. A time becomes its microseconds since 1970."""
    found = []
    for column in map(table.column, names):
        if pa.types.is_timestamp(column.type):
            column = pa.chunked_array([chunk.view(pa.int64()) for chunk in column.chunks], pa.int64())
        found.append(column.to_pylist())
    return found


@dataclass
class _CauseCount:
    """The rows of one cause that were counted so far."""

    counter: CauseCounter = field(default_factory=CauseCounter)
    rows: int = 0
    waiting: int = 0
    first: int = 0
    newest: tuple[bool, _Place, str] = (False, (0, "", 0, 0), "")
    """The newest row: whether it waits, its place and its id."""
    last: int = 0

    @property
    def example(self) -> str:
        return self.newest[2]

    def add(self, place: _Place, id_: str, *, waits: bool) -> None:
        moment = place[0]
        self.first = moment if not self.rows else min(self.first, moment)
        self.last = max(self.last, moment)
        self.rows += 1
        self.waiting += waits
        self.newest = max(self.newest, (waits, place, id_))

    def describe(self, key: _CauseKey, example: Mapping[str, JSON]) -> dict[str, JSON]:
        return {
            **dict(zip(_BY, key, strict=True)),
            "rows": self.rows,
            "waiting": self.waiting,
            "first": format_moment(_parse_micros(self.first)),
            "last": format_moment(_parse_micros(self.last)),
            "example": {name: example[name] for name in ("id", "message", "row", "stage")},
            "forms": self.counter.count().json(),
        }


def _parse_micros(micros: int) -> datetime:
    return datetime.fromtimestamp(0, timezone.utc) + timedelta(microseconds=micros)


def discard(pipeline: PipelineSpec, choice: Choice, *, reason: str, expected: int | None = None) -> int:
    """Settle the rows as discarded, with the user and the reason. Return how many rows there were.

    It may be called during a run, but not during a replay. With `expected`, the number of rows that a person was shown,
    nothing is discarded if more rows wait now.
    """
    check_reason(reason, "A discard")
    while True:
        journal, letters = choose_letters(pipeline, choice)
        if expected is not None and len(letters) > expected:
            raise Refusal(
                f"Nothing was discarded: expected {format_count(expected)}, found {format_count(len(letters))} now.",
                hint="See the rows again:  wherry dlq show FILE",
            )
        if not letters:
            return 0
        entries = list(_make_entries(pipeline, journal.state, letters, reason))
        try:
            journal.ledger.append(entries, after=journal.state.seq)
        except Conflict:
            continue
        return len(letters)


def choose_letters(pipeline: PipelineSpec, choice: Choice) -> tuple[Journal, list[Letter]]:
    """Return the ledger, and the chosen rows that wait. Raises `Owned` during a replay."""
    place, journal = open_state(pipeline)
    state = journal.state
    replaying = bool(state.owner and state.owner.replay) and is_run(state, place, Clock())
    if replaying or any(is_replay(plan.batch.lane) for plan in state.open_plans):
        raise Owned(
            f"Nothing was discarded: a replay of the DLQ of {pipeline.name} is under way.",
            hint="Wait for the end of the replay. If it died, run the pipeline once to finish its open batches.",
        )
    return journal, choice.select_letters(*find_dlq(pipeline), list_decided(journal))


def _make_entries(
    pipeline: PipelineSpec, state: PipelineState, letters: Sequence[Letter], reason: str
) -> Iterator[Entry]:
    """Yield for each origin batches without a destination, each planned and settled at once."""
    for origin in dict.fromkeys(letter.origin for letter in letters):
        ids = [letter.id for letter in letters if letter.origin == origin]
        lane = f"{REPLAY}{origin}"
        for number, first in enumerate(range(0, len(ids), MOST), state.get_lane(lane).number + 1):
            own = tuple(ids[first : first + MOST])
            batch = Batch(
                pipeline=pipeline.name,
                run="",
                origin=origin,
                lane=lane,
                number=number,
                plan=uuid.uuid4().hex,
                span=Span(start=None, end=own[-1], parts=own, label=f"{format_count(len(own))} discarded"),
                schema="",
                time=datetime.now(timezone.utc),
            )
            plan = PlannedBatch(batch=batch, destinations=(), straight=True)
            body = SettleBody(
                offset=own[-1],
                counts=SettledCounts(read=len(own), discarded=len(own), discards=sign(reason)),
                window=state.get_lane(lane).window,
                clean=state.get_lane(lane).clean,
                owed=(),
            )
            name = plan.batch.plan
            yield Entry(kind="plan", lane=lane, plan=name, epoch=state.epoch, body=encode(plan))
            yield Entry(kind="settle", lane=lane, plan=name, epoch=state.epoch, body=encode(body))


@dataclass(frozen=True, kw_only=True)
class MergedFallback(JsonForm):
    """The refused rows that came from the fallback into the DLQ."""

    rows: int = field(default=0, metadata=named("merged"))
    batches: int = 0
    waiting: int = 0
    """How many rows still wait in the fallback, because the merge was stopped."""


def merge_fallback(definition: Definition) -> MergedFallback:
    """Move all refused rows that wait in the fallback into the DLQ, each once. A repeated merge adds nothing.

    The merge finishes open batches first, as the next run would. Raises `Refusal` if the definition has no fallback,
    `Owned` while the pipeline runs, and `PipelineFailed` if the DLQ or the fallback cannot be used. Batches that were
    merged before an error stay merged.
    """
    pipeline, state = definition.pipeline, open_state(definition.pipeline)[1].state
    if not state.fallen:
        return MergedFallback()
    merge = FallbackMerge(source=_find_source(pipeline, state))
    report = PipelineRun(pipeline=pipeline, text=definition.text, hash=definition.hash, work=merge).carry()
    if report.error is not None:
        raise PipelineFailed(report)
    waiting = sum(open_state(pipeline)[1].state.fallen.values())
    return MergedFallback(rows=merge.rows, batches=merge.batches, waiting=waiting)


def _find_source(pipeline: PipelineSpec, state: PipelineState) -> Destination:
    """Return the fallback. Raises `Refusal` if the definition has none."""
    if pipeline.dlq.fallback is not None:
        return pipeline.dlq.fallback
    place = state.opened.destinations.get(FALLBACK, DestinationBody(place="the fallback")).place
    rows = format_count(sum(state.fallen.values()), "refused row waits", "refused rows wait")
    raise Refusal(
        f"{rows} in {place}, but the definition has no fallback.",
        hint="Put `on_failure: fallback` and `fallback:` back under `dlq:`, and merge again.",
    )


def read_settings(pipeline: PipelineSpec) -> dict[str, JSON]:
    """Return the settings for the next batch, and which of them were changed since the run began."""
    state = open_state(pipeline)[1].state
    return {**_list_settings(apply_config(pipeline.dlq, state.config)), "changed": sorted(encode(state.config))}


def change_settings(pipeline: PipelineSpec, settings: Mapping[str, str], *, reason: str) -> dict[str, JSON]:
    """Change settings of the active run. Return the new settings.

    The run sees them at its next entry in the ledger and uses them for the next batch. The run after it uses its
    definition again. A setting is `window`, `threshold`, or `limits.rows`, which an empty value removes.

    Raises `Refusal` if no run is active, and for an impossible setting.
    """
    check_reason(reason, "A change of settings")
    now: dict[str, JSON] = {}

    def decide(state: PipelineState) -> Entry:
        if state.owner is None:
            raise Refusal(
                f"{pipeline.name} is not running, so there are no settings of a run to change.",
                hint="To make it permanent, set `dlq:` in the definition. For one run:  wherry run FILE --set "
                "dlq.window=0",
            )
        now.update(_list_settings(_put_in(apply_config(pipeline.dlq, state.config), settings)))
        body = {"dlq": {name: now[name] for name in {name.partition(".")[0] for name in settings}}, **sign(reason)}
        return Entry(kind="config", epoch=state.epoch, body=body)

    append_entry(pipeline, decide)
    return now


def _put_in(dlq: Dlq, settings: Mapping[str, str]) -> Dlq:
    limits = dict(dlq.limits)
    numbers = {"window": dlq.window, "threshold": dlq.threshold}
    for name, value in settings.items():
        if name.startswith("limits.") and value:
            limits[name.removeprefix("limits.")] = value
        elif name.startswith("limits."):
            limits.pop(name.removeprefix("limits."), None)
        elif name in numbers:
            if not value.isdecimal():
                raise Refusal(f"{name}: expected a whole number, got {value!r}.")
            numbers[name] = int(value)
        else:
            raise Refusal(f"There is no setting '{name}'; there are: window, threshold, limits.rows.")
    try:
        return dataclasses.replace(dlq, window=numbers["window"], threshold=numbers["threshold"], limits=limits)
    except ValueError as error:
        raise Refusal(f"The setting was refused: {error}.") from error


def _list_settings(dlq: Dlq) -> dict[str, JSON]:
    return {"window": dlq.window, "threshold": dlq.threshold, "limits": dict(dlq.limits)}


def resume(pipeline: PipelineSpec, *, reason: str) -> PauseBody | None:
    """Let runs begin again after a limit paused the pipeline. Return the pause that ended, or None.

    Raises `Refusal` without a reason.
    """
    if not reason.strip():
        raise Refusal("Nothing was resumed: the ledger keeps a reason for it.", hint='Add --reason "…".')
    body = sign(reason)
    return append_entry(
        pipeline, lambda state: Entry(kind="resume", epoch=state.epoch, body=body) if state.paused is not None else None
    ).paused
