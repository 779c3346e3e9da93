"""How a pipeline is, as its state says, lane by lane and run by run: nothing is started, and no secret is needed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from destinations.dead_letters import count_dead_letters, query_dlq
from destinations.destination import Destination
from origins.batch import JSON
from runners.model.clock import Clock, convert_to_utc
from runners.model.codes import Advice, find_advice
from runners.model.errors import Refusal
from runners.model.pipeline_state import PipelineState, is_aside
from runners.model.spec import PipelineSpec
from runners.model.text import (
    escape_html,
    escape_line,
    format_batches,
    format_count,
    format_repr,
    render_html_table,
    show_moment,
    show_offset,
    show_open_batch,
    table,
)
from runners.operations.offsets import open_plan, show
from runners.running.activity import read_activities
from runners.spark.session import make_own_session, obtain
from runners.state.journal import Journal, list_decided
from runners.state.location import StateLocation, check_pipeline, find_dlq
from runners.state.run_history import KILLED, MOST_BEGUN, WantedRuns
from runners.state.takeover import is_owner_alive, is_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read_status(pipeline: PipelineSpec, file: str = "FILE", *, definition: str = "") -> dict[str, JSON]:
    """`{"pipeline", "state", "owner", "lanes", "open", "dlq", "last_run", "first", "next"}`; `next` is what to type,
    and `first` what has to be changed before. Where several runs share the lanes, `owners` has each of them, with its
    `lanes` and whether it `is_run`. `differs` says that one goes by another definition than the one of which this is
    the hash, and `stopping` why somebody asked the run under way to stop. `activity` is what each long
    run is doing, as of `age` seconds ago."""
    place = StateLocation.of(pipeline)
    journal = place.open_journal(pipeline)
    state = journal.state
    check_pipeline(pipeline, place, state)
    how = describe_state(place, state)
    dlq, spark = find_dlq(pipeline)
    refused = count_dead_letters(dlq, spark)
    waits = _count_waiting(refused, dlq, spark, journal) if refused else refused
    last = find_last_run(state, how)
    coming = _advise_next(how, last, waits)
    shared = any(owner.get("assignment", "single") != "single" for owner in state.owners)
    return {
        "pipeline": pipeline.name,
        "state": how,
        "owner": _describe_owner(state.owner or {}) if how == "running" else None,
        "differs": how == "running" and _has_other_definition(state, definition),
        "stopping": state.stopping if how == "running" else "",
        **({"owners": _describe_owners(state, place)} if shared else {}),
        **({"activity": activity} if (activity := _read_activity(state, place)) and how == "running" else {}),
        "lanes": {
            name: {"offset": lane.offset, "number": lane.committed, "behind": None}
            for name, lane in state.lanes.items()
            if not is_aside(name)
        },
        "open": [open_plan(state, name) for name, lane in state.lanes.items() if lane.open],
        "dlq": {"rows": refused, "unreplayed": waits},
        "last_run": last,
        "first": coming.first,
        "next": coming.command.replace("FILE", shlex.quote(file)),
    }


def _count_waiting(refused: int, dlq: Destination, spark: Callable[[], SparkSession], journal: Journal) -> int:
    """How many of the of the DLQ nobody carried again or discarded."""
    known = list_decided(journal).ids
    if not known:
        return refused
    return sum(row["id"] not in known for row in query_dlq(dlq, spark, "SELECT id FROM {table}"))


def describe_state(place: StateLocation, state: PipelineState) -> str:
    """`never_run`, `running`, `idle`, or how the last run ended."""
    if state.owner is not None:
        return "running" if is_run(state, place, Clock()) else "failed"
    if state.ended is None:
        return "never_run"
    return {"succeeded": "idle"}.get(state.ended["status"], str(state.ended["status"]))


def _has_other_definition(state: PipelineState, definition: str) -> bool:
    """Whether one of those who run it is known to go by another definition."""
    return bool(definition) and any(owner.get("hash", definition) != definition for owner in state.owners)


def _describe_owner(owner: Mapping[str, JSON]) -> dict[str, JSON]:
    return {
        "host": owner.get("host"),
        "process": owner.get("pid"),
        "run": owner.get("run"),
        "since": owner.get("at"),
        "heard": owner.get("heard_at") or None,
    }


def _describe_owners(state: PipelineState, place: StateLocation) -> list[JSON]:
    return [
        {
            **_describe_owner(owner),
            "lanes": list(state.lanes_of(owner["owner"])),
            "lives": is_owner_alive(owner, place, Clock()),
        }
        for owner in state.owners
    ]


def _read_activity(state: PipelineState, place: StateLocation) -> list[JSON]:
    """What the runs under way stored of what they are doing, with its age in seconds."""
    runs = [str(owner.get("run")) for owner in state.owners]
    found = read_activities(place.activity, runs) if place.activity is not None else {}
    now = Clock().now()
    ages = {run: now - convert_to_utc(datetime.fromisoformat(str(facts["at"]))) for run, facts in found.items()}
    return [{**facts, "age": max(0.0, round(ages[run].total_seconds(), 1))} for run, facts in found.items()]


def find_last_run(state: PipelineState, how: str) -> Mapping[str, JSON] | None:
    """How the last run ended; while one is under way nothing."""
    if state.owner is None or how == "running":
        return state.ended if state.owner is None else None
    owner = state.owner
    return {
        "run": owner.get("run"),
        "status": KILLED,
        "reason": f"process {owner.get('pid')} on {owner.get('host')} ended without a report",
        "at": owner.get("heard_at"),
        "batches": None,
        "read": None,
        "error": None,
    }


def _advise_next(how: str, last: Mapping[str, JSON] | None, refused: int | None) -> Advice:
    if how == "running":
        return Advice("wherry status FILE")
    if how == "failed" and last is not None and last.get("error"):
        return find_advice(last["error"]["code"])
    return Advice("wherry dlq show FILE" if how == "idle" and refused else "wherry run FILE")


@dataclass(frozen=True, kw_only=True)
class Lanes:
    """What `wherry offsets show` says."""

    pipeline: str
    lanes: Mapping[str, Mapping[str, JSON]]
    """`{"offset", "number", "epoch", "committed_at"}` of each."""
    open: Sequence[Mapping[str, JSON]]
    """The batches that are planned and not settled."""

    @staticmethod
    def of(pipeline: PipelineSpec) -> Lanes:
        """As the pipeline's state has them."""
        facts = show(pipeline)
        return Lanes(pipeline=pipeline.name, lanes=facts["lanes"], open=facts["open"])

    def json(self) -> dict[str, JSON]:
        """As `--json` prints it."""
        return {"lanes": dict(self.lanes), "open": list(self.open)}

    def __repr__(self) -> str:
        lanes, batches = format_count(len(self.lanes), "lane", "lanes"), format_batches(len(self.open))
        return format_repr("Lanes", self.pipeline, lanes, f"{batches} open")

    def __str__(self) -> str:
        rows = [
            [name, str(lane["number"]), show_moment(lane["committed_at"]), show_offset(lane["offset"])]
            for name, lane in self.lanes.items()
        ]
        if not rows:
            return "No batch was processed yet."
        open_batches = [escape_line(show_open_batch(each)) for each in self.open]
        return "\n".join([table(["lane", "batch", "committed (UTC)", "offset"], rows), *open_batches])

    def _repr_html_(self) -> str:
        rows = [
            [name, str(lane["number"]), str(lane["committed_at"] or ""), json.dumps(lane["offset"], ensure_ascii=False)]
            for name, lane in self.lanes.items()
        ]
        waiting = "".join(
            f"<p>Batch {each['number']} of lane {escape_html(each['lane'])} is open.</p>" for each in self.open
        )
        if not rows:
            return f"<p><b>{escape_html(self.pipeline)}</b> has processed no batch yet.</p>{waiting}"
        return render_html_table(["lane", "batch", "committed at", "offset"], rows) + waiting


def list_runs(
    pipeline: PipelineSpec,
    *,
    status: str = "",
    since: datetime | None = None,
    run: str = "",
    limit: int = 20,
    report: bool = False,
    archived: bool = False,
) -> list[dict[str, JSON]]:
    """The newest runs, the newest first. Raises `Refusal` where no run history is kept."""
    place = StateLocation.of(pipeline)

    def spark() -> SparkSession:
        return make_own_session(obtain(pipeline.spark))

    history = place.open_history(pipeline, spark)
    if history is None:
        raise Refusal(f"{pipeline.name} keeps no run history: run.history is 0s.")
    begun = history.list_runs(WantedRuns(status="running", limit=MOST_BEGUN, archived=archived))
    known: Mapping[str, str] = {}
    if begun:  # the ledger is read behind them, so that a run that begins meanwhile is not taken for a dead one
        known = find_fates(begun, place.open_journal(pipeline).state, place)
    return history.list_runs(
        WantedRuns(status=status, since=since, run=run, limit=limit, report=report, archived=archived, fates=known)
    )


def find_fates(begun: Sequence[Mapping[str, JSON]], state: PipelineState, place: StateLocation) -> Mapping[str, str]:
    """How these runs went, of which only the beginning is kept: as the ledger says it of the last one that ended; and
    whoever does not own the pipeline any more, or is dead, or has said nothing for a whole lease, was killed."""
    alive = {owner["run"] for owner in state.owners if is_owner_alive(owner, place, Clock())}
    known = {state.ended["run"]: state.ended["status"]} if state.ended and "run" in state.ended else {}
    return {each["run"]: known.get(each["run"], KILLED) for each in begun if each["run"] not in alive}
