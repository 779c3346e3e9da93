"""The refused rows of a pipeline: why they were refused, how they are discarded, and the settings of its DLQ."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from destinations.dead_letters import format_moment, read_dead_letters
from destinations.destination import Destination
from destinations.dlq import Dlq
from origins.batch import JSON, Batch, Span
from origins.protection import Protection
from runners.model.causes import CauseCounter
from runners.model.clock import Clock
from runners.model.entry import Entry
from runners.model.errors import Owned, Refusal
from runners.model.nack_window import apply_config
from runners.model.pipeline_state import REPLAY, PipelineState, is_replay
from runners.model.planned_batch import PlannedBatch
from runners.model.spec import PipelineSpec
from runners.model.text import format_count
from runners.operations.pipeline_access import open_state, sign
from runners.running.choice import Choice, Letter, mask_causes, read_examples
from runners.running.replay import MOST
from runners.state.journal import DISCARDS, DecidedLetters, Journal, list_decided
from runners.state.ledger import Conflict
from runners.state.location import StateLocation, find_dlq
from runners.state.takeover import is_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def list_dead_letters(
    pipeline: PipelineSpec,
    limit: int | None = None,
    *,
    choice: Choice = Choice(),
    reveal: bool = False,
    waiting: bool = False,
) -> list[dict[str, JSON]]:
    """Refused rows, as `Pipeline.dead_letters` says."""
    decided = list_decided(StateLocation.of(pipeline).open_journal(pipeline))
    dlq, spark = find_dlq(pipeline)
    ids: set[str] | None = None
    if limit and (waiting or not choice.chooses_all):
        ids = {*choice.list_newest(dlq, spark, limit, but=decided.ids if waiting else frozenset())}
    elif waiting or not choice.chooses_all:
        ids = {each.id for each in choice.select_letters(dlq, spark, decided.ids if waiting else ())}
    rows = read_dead_letters(dlq, spark, limit=limit, ids=ids, replayed=decided.replayed, discarded=decided.discarded)
    return rows if reveal else [pipeline.protection.mask_nack(row) for row in rows]


def summarise(pipeline: PipelineSpec, choice: Choice = Choice()) -> list[dict[str, JSON]]:
    """The causes of the chosen rows as `summarise_causes` gives them; the values of protected columns are masked."""
    decided = list_decided(StateLocation.of(pipeline).open_journal(pipeline))
    return summarise_causes(*find_dlq(pipeline), decided, choice, pipeline.protection)


def summarise_causes(
    dlq: Destination,
    spark: Callable[[], SparkSession],
    decided: DecidedLetters,
    choice: Choice = Choice(),
    protection: Protection = Protection(),
) -> list[dict[str, JSON]]:
    """The causes, those of most waiting rows first; the example is the newest row that waits, or the newest of all.
    `forms` groups the rows of a cause by column and form of the value. A row that a replay refused again counts once,
    as it was refused last.
    """
    letters = choice.list_letters(dlq, spark)
    replaced = {letter.replays for letter in letters}
    causes: dict[tuple[JSON, ...], dict[str, JSON]] = {}
    counters: dict[tuple[JSON, ...], CauseCounter] = {}
    for letter in (each for each in letters if each.id not in replaced):
        where = {"code": letter.code, "stage": letter.stage, "destination": letter.destination}
        key = tuple(where.values())
        cause = causes.setdefault(key, {**where, "rows": 0, "waiting": 0, "first": None})
        waits = letter.id not in decided
        cause.update(
            rows=cause["rows"] + 1,
            waiting=cause["waiting"] + waits,
            first=cause["first"] or format_moment(letter.nacked_at),
            last=format_moment(letter.nacked_at),
        )
        if waits or not cause["waiting"]:
            cause["example"] = letter.id
        message = protection.mask_message(letter.message)
        counter = counters.setdefault(key, CauseCounter())
        counter.add({**where, "message": message}, files=[letter.part], sample=letter.id, waiting=int(waits))
    for counter in counters.values():
        mask_causes(dlq, spark, counter, protection)
    examples = read_examples(dlq, spark, [cause["example"] for cause in causes.values()], protection)
    for key, cause in causes.items():
        example = examples[cause["example"]]
        cause["example"] = {name: example[name] for name in ("id", "message", "row", "stage")}
        cause["forms"] = counters[key].count().json()
    return sorted(causes.values(), key=lambda cause: (-cause["waiting"], -cause["rows"], cause["code"]))


def discard(pipeline: PipelineSpec, choice: Choice, *, reason: str, expected: int | None = None) -> int:
    """Settle the rows as discarded, with the user and the reason; how many there were.

    May be called while the pipeline is run, but not while its DLQ is carried again. With `expected`, the number of
    rows that somebody was told of, nothing is done where there are more now.
    """
    if not reason.strip():
        raise Refusal("A discard needs a reason, which the ledger keeps.", hint='--reason "…"')
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
    """The ledger, and the rows that are meant and wait. Raises `Owned` while the DLQ is carried again."""
    place, journal = open_state(pipeline)
    state = journal.state
    replaying = bool((state.owner or {}).get("replay")) and is_run(state, place, Clock())
    if replaying or any(is_replay(plan.batch.lane) for plan in state.open_plans):
        raise Owned(
            f"Nothing was discarded: a replay of the DLQ of {pipeline.name} is under way.",
            hint="Wait for the end of the replay. If it died, run the pipeline once to finish its open batches.",
        )
    return journal, choice.select_letters(*find_dlq(pipeline), list_decided(journal))


def _make_entries(
    pipeline: PipelineSpec, state: PipelineState, letters: Sequence[Letter], reason: str
) -> Iterator[Entry]:
    """For each origin batches that go to no destination, planned and settled at once."""
    for origin in dict.fromkeys(letter.origin for letter in letters):
        ids = [letter.id for letter in letters if letter.origin == origin]
        lane = f"{REPLAY}{origin}"
        for number, first in enumerate(range(0, len(ids), MOST), state.get_lane(lane).number + 1):
            own = tuple(ids[first : first + MOST])
            plan = PlannedBatch(batch=_make_batch(pipeline, origin, number, own), destinations=(), straight=True)
            counts = {"read": len(own), "nacked": 0, "branches": {}, "stages": [], "delivered": {}, "balanced": True}
            body = {
                "offset": own[-1],
                "counts": {**counts, "discarded": len(own), DISCARDS: sign(reason)},
                "window": state.get_lane(lane).window.json(),
                "clean": state.get_lane(lane).clean,
                "owed": [],
            }
            name = plan.batch.plan
            yield Entry(kind="plan", lane=lane, plan=name, epoch=state.epoch, body=plan.json())
            yield Entry(kind="settle", lane=lane, plan=name, epoch=state.epoch, body=body)


def _make_batch(pipeline: PipelineSpec, origin: str, number: int, ids: tuple[str, ...]) -> Batch:
    return Batch(
        pipeline=pipeline.name,
        run="",
        origin=origin,
        lane=f"{REPLAY}{origin}",
        number=number,
        plan=uuid.uuid4().hex,
        span=Span(start=None, end=ids[-1], parts=ids, label=f"{format_count(len(ids))} discarded"),
        schema="",
        time=datetime.now(timezone.utc),
    )


def read_settings(pipeline: PipelineSpec) -> dict[str, JSON]:
    """The settings that the next batch goes by, and which of them were changed since the run began."""
    state = open_state(pipeline)[1].state
    return {**_list_settings(apply_config(pipeline.dlq, state.config)), "changed": sorted(state.config)}


def change_settings(pipeline: PipelineSpec, settings: Mapping[str, str], *, reason: str) -> dict[str, JSON]:
    """Change settings of the run that is under way; what they are now.

    The run hears of it at its next entry in the ledger, and judges the next batch by it; the run after it goes by its
    definition again. A setting is `window`, `threshold`, or `limits.CODE`, which an empty value takes away.

    Raises `Refusal` where nobody runs the pipeline, and for a setting that cannot be.
    """
    if not reason.strip():
        raise Refusal("A change of settings needs a reason, which the ledger keeps.", hint='--reason "…"')
    while True:
        journal = open_state(pipeline)[1]
        state = journal.state
        if state.owner is None:
            raise Refusal(
                f"{pipeline.name} is not running, so there are no settings of a run to change.",
                hint="To make it permanent, set `dlq:` in the definition. For one run:  wherry run FILE --set "
                "dlq.window=0",
            )
        now = _put_in(apply_config(pipeline.dlq, state.config), settings)
        body = {
            "dlq": {name: _list_settings(now)[name] for name in {name.partition(".")[0] for name in settings}},
            **sign(reason),
        }
        try:
            journal.ledger.append([Entry(kind="config", epoch=state.epoch, body=body)], after=state.seq)
        except Conflict:
            continue
        return _list_settings(now)


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
            raise Refusal(f"There is no setting '{name}'; there are: window, threshold, limits.CODE.")
    try:
        return dataclasses.replace(dlq, window=numbers["window"], threshold=numbers["threshold"], limits=limits)
    except ValueError as error:
        raise Refusal(f"The setting was refused: {error}.") from error


def _list_settings(dlq: Dlq) -> dict[str, JSON]:
    return {"window": dlq.window, "threshold": dlq.threshold, "limits": dict(dlq.limits)}
