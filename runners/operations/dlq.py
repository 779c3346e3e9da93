"""The refused rows of a pipeline: causes, discard, the merge of the fallback, and the settings of the DLQ."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, TypeAlias

from destinations.dead_letters import format_moment, read_dead_letters, trace_replays
from destinations.destination import Destination
from destinations.dlq import FALLBACK, Dlq
from origins.batch import JSON, Batch, Span
from origins.codec import JsonForm, encode, named
from origins.lazy import SparkSession, pa, pc
from origins.protection import Protection
from runners.definitions.definition import Definition
from runners.model.causes import KEYED, MOST_FILES, PLACE, CauseCounter, drop_file, make_pattern
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
    replaced = pa.array([each for table in again for each in table["replays"].to_pylist()], pa.string())
    done = pa.array(decided.ids, pa.string())
    causes: dict[_CauseKey, _CauseCount] = {}
    patterns: dict[str, bool] = {}
    for table in choice.stream_rows(dlq, spark, ", ".join(_COUNTED)):
        rows = _prepare_rows(table, replaced, done)
        newest = {row["key"]: row for row in _count_by_cause(rows)}
        for row in newest.values():
            causes.setdefault(_name_cause(row), _CauseCount()).add(row)
        for row in _count_alike(rows, patterns):
            cause, (message, sample, part) = _name_cause(newest[row["key"]]), row["rank_min"].rsplit("\0", 2)
            shown = protection.mask_message(drop_file(message, [part]))
            refusal, count = dict(zip(_BY, cause, strict=True)) | {"message": shown}, row["count_all"]
            waiting, files = count if row["waits"] else 0, [part, *row["parts"]]
            causes[cause].counter.add(refusal, count, files, sample, waiting=waiting, rank=message)
    for each in causes.values():
        mask_causes(dlq, spark, each.counter, protection)
    examples = read_examples(dlq, spark, [each.example for each in causes.values()], protection)
    found = [each.describe(key, examples[each.example]) for key, each in causes.items()]
    return sorted(found, key=lambda cause: (-cause["waiting"], -cause["rows"], str(cause["code"])))


_BY = ("code", "stage", "destination")
_PLACE = ("nacked_at", "lane", "number", "position", "id")
"""The columns that order refused rows."""
_COUNTED = (*_BY, *_PLACE, "message", "part")
_CauseKey: TypeAlias = tuple[str, str, str | None]
_LATER = 1 << 60
"""More microseconds than any time has."""
_MOST_MISSES, _LONGEST, _MOST_VALUES = 10, 10_000, 50
"""How many patterns may find less than a hundredth of the rows, and how long the message of a pattern may be.

A pattern with more values is slower than reading each message.
"""


def _name_cause(row: Mapping[str, Any]) -> _CauseKey:
    return row["code"], row["stage"], row["destination"]


def _prepare_rows(table: pa.Table, replaced: pa.Array, done: pa.Array) -> pa.Table:
    """Return the rows that no replay refused again, with a number for their cause, and whether they wait."""
    kinds = {name: pa.string() for name in _COUNTED} | {"number": pa.int64(), "position": pa.int64()}
    table = table.cast(pa.schema({**kinds, "nacked_at": pa.timestamp("us", "UTC")}))
    if len(replaced):
        table = table.filter(pc.invert(pc.is_in(table["id"], replaced)))
    key = pa.repeat(0, table.num_rows)
    for name in _BY:
        values = table[name].combine_chunks().dictionary_encode("encode")
        key = pc.add(pc.multiply(key, len(values.dictionary)), values.indices.cast(pa.int64()))
    waits = pc.invert(pc.is_in(table["id"], done)) if len(done) else pa.repeat(1, table.num_rows)
    kinds["nacked_at"] = pa.int64()
    filled = {
        name: pc.fill_null(table[name].cast(kinds[name]), "" if kinds[name] == pa.string() else 0)
        for name in (*_PLACE, "message", "part")
    }
    return pa.table({**{name: table[name] for name in _BY}, **filled, "key": key, "waits": waits.cast(pa.int64())})


def _count_by_cause(rows: pa.Table) -> list[dict[str, Any]]:
    """Return the newest waiting row of each cause, or the newest row, with counts and times of all rows."""
    newest = rows.append_column("when", pc.add(pc.multiply(rows["waits"], _LATER), rows["nacked_at"]))
    for name in ("when", *_PLACE):
        most = newest.select(["key", name]).group_by("key").aggregate([(name, "max")])
        of_cause = most[f"{name}_max"].take(pc.index_in(newest["key"], most["key"]))
        newest = newest.filter(pc.equal(newest[name], of_cause))
    counts = [([], "count_all"), ("waits", "sum"), ("nacked_at", "min"), ("nacked_at", "max")]
    counted = rows.select(["key", "waits", "nacked_at"]).group_by("key").aggregate(counts)
    return newest.join(counted, "key").to_pylist()  # type: ignore[no-any-return]


def _count_alike(rows: pa.Table, patterns: dict[str, bool]) -> Iterator[dict[str, Any]]:
    """Yield how many rows of a cause have the same form, their files, and the first message with its id and its file.

    A pattern of one message finds the messages like it, and is kept for more rows. Rows that few patterns find are
    counted message by message.
    """
    rank = pc.binary_join_element_wise(rows["message"], rows["id"], rows["part"], "\0")
    texts = _drop_files(rows.select(["key", "waits", "message", "part"]).append_column("rank", rank))
    rows = texts.append_column("keyed", pc.match_substring(texts["text"], KEYED))
    untried, misses = [*patterns], 0
    while rows.num_rows and misses < _MOST_MISSES:
        if not untried:
            text = rows["text"][0].as_py()
            untried = [make_pattern(text)]
            if len(text) > _LONGEST or untried[0].count("(?P<v") > _MOST_VALUES:
                break
            patterns[untried[0]] = KEYED in text
        pattern = untried.pop(0)
        found = pc.extract_regex(rows["text"], pattern)
        fits = pc.and_(found.is_valid(), pc.equal(rows["keyed"], patterns[pattern]))
        if pc.sum(fits).as_py() * 100 < rows.num_rows:
            misses += 1
            del patterns[pattern]
        yield from _count_by_form(rows.filter(fits), _blur(found.filter(fits)))
        rows = rows.filter(pc.invert(fits))
    yield from _count_by_form(rows, rows["text"])


def _drop_files(rows: pa.Table) -> pa.Table:
    """Return the rows with the column `text`, the message as `drop_file` leaves it."""
    may = pc.equal(pc.utf8_slice_codeunits(rows["message"], 0, 1), pc.utf8_slice_codeunits(rows["part"], 0, 1))
    if not pc.any(may).as_py():
        return rows.append_column("text", rows["message"])
    plain, told = rows.filter(pc.invert(may)), rows.filter(may)
    found, lengths = [plain.append_column("text", plain["message"])], pc.utf8_length(told["part"])
    for length in pc.unique(lengths).to_pylist():
        piece = told.filter(pc.equal(lengths, length))
        rest = pc.utf8_slice_codeunits(piece["message"], length)
        drops = pc.equal(pc.utf8_slice_codeunits(piece["message"], 0, length), piece["part"])
        drops = pc.and_(drops, pc.match_substring_regex(rest, f"^{PLACE}"))
        text = pc.if_else(drops, pc.replace_substring_regex(rest, f"^{PLACE}", ""), piece["message"])
        found.append(piece.append_column("text", text))
    return pa.concat_tables(found).combine_chunks()


def _blur(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values of each message as one text, in which values of the same form are alike."""
    fields = [pc.struct_field(values, [at]) for at in range(values.type.num_fields)]
    fields = [pc.replace_substring_regex(each, "^NULL$", "\x01") for each in fields]  # `lookup` quotes no value
    letters = pc.replace_substring_regex(pc.binary_join_element_wise(*fields, "\0"), "[A-Za-z]+", "a")
    return pc.replace_substring_regex(letters, "[0-9]+", "9")


def _count_by_form(rows: pa.Table, form: pa.ChunkedArray) -> Iterator[dict[str, Any]]:
    counts = [([], "count_all"), ("rank", "min"), ("part", "distinct")]
    counted = rows.append_column("form", form).group_by(["key", "waits", "form"]).aggregate(counts)
    parts = pc.list_slice(counted["part_distinct"], 0, MOST_FILES)
    yield from counted.drop_columns("part_distinct").append_column("parts", parts).to_pylist()


@dataclass
class _CauseCount:
    """The rows of one cause that were counted so far."""

    counter: CauseCounter = field(default_factory=CauseCounter)
    rows: int = 0
    waiting: int = 0
    first: int = 0
    newest: tuple[Any, ...] = (0, 0, "", 0, 0, "")
    """The newest row: whether it waits, and its place with its id."""
    last: int = 0

    @property
    def example(self) -> str:
        return str(self.newest[-1])

    def add(self, row: Mapping[str, Any]) -> None:
        """Add rows, of which this one is the newest."""
        self.first = row["nacked_at_min"] if not self.rows else min(self.first, row["nacked_at_min"])
        self.last = max(self.last, row["nacked_at_max"])
        self.rows += row["count_all"]
        self.waiting += row["waits_sum"]
        self.newest = max(self.newest, (row["waits"], *(row[name] for name in _PLACE)))

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


def discard(
    pipeline: PipelineSpec, choice: Choice, *, reason: str, expected: int | None = None, digest: str = ""
) -> int:
    """Settle the rows as discarded, with the user and the reason. Return how many rows there were.

    It may be called during a run, but not during a replay. With `expected`, the number of rows that a person was shown,
    nothing is discarded if more rows wait now. With `digest`, that of these rows, nothing is discarded if others wait.
    """
    check_reason(reason, "A discard")
    while True:
        journal, letters = choose_letters(pipeline, choice)
        if expected is not None and len(letters) > expected:
            raise Refusal(
                f"Nothing was discarded: expected {format_count(expected)}, found {format_count(len(letters))} now.",
                hint="See the rows again:  wherry dlq show FILE",
            )
        if digest and digest != make_digest(letters):
            raise Refusal(
                f"Nothing was discarded: other rows wait now than were shown, {format_count(len(letters))} in all.",
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


def make_digest(letters: Sequence[Letter]) -> str:
    """Return the hash of the ids of these rows. Their order does not count."""
    return hashlib.sha256(json.dumps(sorted(each.id for each in letters)).encode()).hexdigest()


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
