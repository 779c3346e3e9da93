"""The pipelines of a server, with the methods that commands call: `wherry --server` does what it says there."""

from __future__ import annotations

import contextlib
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec

from origins.batch import JSON, Batch, Span
from origins.codec import UNSTORED, decode, encode
from runners.definitions.pipeline_graph import PipelineGraph
from runners.model.errors import Owned, Refusal, check_reason
from runners.model.events import (
    BatchCancelled,
    BatchPlanned,
    BatchResumed,
    BatchSettled,
    Event,
    Listener,
    RunEnded,
    RunStarted,
    RunStopping,
)
from runners.model.planned_batch import SettledCounts
from runners.model.run_report import Report
from runners.operations.audit.finding import Audit
from runners.operations.explain_row import RefusedRow, TriedRow
from runners.operations.fix_preview import FixPreview
from runners.operations.notebook_tables import CauseList, PipelineStatus, RefusedRowList, RunList
from runners.operations.offsets import Lanes, OffsetMove
from runners.operations.redo import RedoPreview
from runners.operations.repair import RepairPlan, RepairResult
from runners.running.backfill import Backfill
from runners.running.choice import Choice, Letter
from runners.running.compatibility import OperatorOverrides
from runners.running.replay import Replay, ReplayPlan
from runners.running.stop import stop_on_signals
from runners.service.client import Client, ServerProblem
from runners.service.messages import Happening, Task

MOST = 1_000
"""How many rows or runs a server lists at once."""
_BY_COMMAND = "by a command"
"""The reason in the log of the server for what needs none here."""
_TICK, _PATIENCE = 1.0, 5.0
"""The seconds between two looks at a task that signals can stop, and how long its start waits for the events."""


@dataclass(frozen=True)
class RemoteFolder:
    """The pipelines of a server."""

    client: Client

    @staticmethod
    def open(address: str, token: str) -> RemoteFolder:
        """Return the pipelines of the server at this address. Raise `Refusal` for a wrong address or token.

        No error has the token or what the address has beside a host and a port, because a token may be in there.
        """
        try:
            place = urlsplit(address)
            rest = (place.username, place.password, place.path.strip("/"), place.query, place.fragment)
            good = place.scheme in ("http", "https") and bool(place.hostname) and place.port != 0 and not any(rest)
        except ValueError:
            good = False
        if not good:
            raise Refusal(
                "The address of a server is a scheme, a host and a port, such as http://127.0.0.1:8400.",
                hint="Correct --server or WHERRY_SERVER. The token belongs into WHERRY_TOKEN.",
            )
        if not token:
            raise Refusal("A server wants a token.", hint="Set WHERRY_TOKEN. Another user could see an argument.")
        if not (token.isascii() and token.isprintable() and " " not in token):
            raise Refusal("WHERRY_TOKEN is not a token: it has a space or a special character.")
        return RemoteFolder(Client(f"{place.scheme}://{place.netloc}", token))

    def open_pipeline(self, name: str) -> RemotePipeline:
        """Return a pipeline. Nothing is asked yet."""
        return RemotePipeline(name=name, client=self.client)

    def find_only(self, typed: str) -> str:
        """Return the only pipeline of the server. Raise `Refusal` with the command to type if there is another."""
        names = [each.pipeline for each in self.client.list_pipelines().pipelines]
        if len(names) == 1:
            return str(names[0])
        listed = ", ".join(names[:10]) + (" and more" if len(names) > 10 else "")
        hint = f"Name one:  {typed} {names[0]}" if names else ""
        raise Refusal(f"The server has {len(names)} pipelines{f': {listed}' if names else ''}.", hint=hint)

    def describe_pipelines(self, select: Sequence[str]) -> tuple[list[dict[str, JSON]], Mapping[str, str]]:
        """Return the facts of the selected pipelines, and what is wrong with the other files."""
        listed = self.client.list_pipelines()
        facts = {each.pipeline: _leave_out(each, "refused", "held", "due") for each in listed.pipelines}
        graph = PipelineGraph({name: each["after"] for name, each in facts.items()})
        return [facts[name] for name in graph.sort(graph.select(select))], listed.broken

    def plan_schedule(self) -> dict[str, JSON]:
        """Return what the scheduler of the server does, as `schedule_plan.plan` does for a folder."""
        schedule = self.client.get_schedule()
        scheduled = [{**_leave_out(each, "due", "more", "held"), "paused": each.held} for each in schedule.scheduled]
        scheduled.sort(key=lambda each: each["next"][0] if each["next"] else "~")
        return {"scheduled": scheduled, "by_hand": schedule.files, "broken": schedule.broken}

    def hold_schedule(self, pipeline: str, why: str | None) -> None:
        """Let no run of a pipeline begin, for this reason. With None, let runs begin again."""
        self.client.hold_schedule(pipeline=pipeline, held=why is not None, reason=why or _BY_COMMAND)


@dataclass(frozen=True, kw_only=True)
class _AskedMove(OffsetMove):
    """The plan for a move of offsets, and the question that the server answered with it."""

    asked: Mapping[str, Any] = field(metadata=UNSTORED)


@dataclass(frozen=True, kw_only=True)
class _TriedElsewhere(RefusedRow):
    """A refused row that the server has tried."""

    tried: TriedRow

    def try_again(self) -> TriedRow:
        return self.tried


@dataclass(frozen=True, kw_only=True)
class _OfServer:
    """A pipeline of a server, or a part of it: what asks the server."""

    name: str
    client: Client

    def _ask(self, operation: str, **fields: Any) -> Any:
        """Return the answer of the server. Raise `Owned` if another run has the pipeline."""
        check_reason(fields.get("reason", "read"), "This change")
        given = {name: value for name, value in fields.items() if value is not None}
        try:
            return getattr(self.client, operation)(pipeline=self.name, **given)
        except ServerProblem as error:
            raise _translate(error) from None

    def _work(self, operation: str, say: Callable[[str], None] = lambda _: None, **fields: Any) -> Any:
        """Let the server do a task, and return its result. `say` gets what it does."""
        return self._wait(self._ask(operation, **fields), say).result

    def _wait(self, task: Task, say: Callable[[str], None] = lambda _: None) -> Task:
        try:
            return self.client.wait(task, say)
        except ServerProblem as error:
            raise _translate(error) from None


@dataclass(frozen=True, kw_only=True)
class RemotePipeline(_OfServer):
    """A pipeline of a server. A method promises what the method of `Pipeline` with this name promises.

    What a server has no operation for is not here: a command refuses it before it calls anything.
    """

    @property
    def secrets(self) -> Mapping[str, str]:
        """What no error may show, with its reference."""
        return {self.client.token: "WHERRY_TOKEN"}

    def run(
        self,
        *,
        check: bool = True,
        follow: bool = False,
        listeners: Sequence[Listener] = (),
        take_over: str = "",
        ruling: OperatorOverrides | None = None,
    ) -> Report:
        """Process the waiting rows. The server has no `follow`, `take_over` and ruling."""
        reason = (ruling.reason if ruling else "") or _BY_COMMAND
        return self._carry(listeners, "start_run", reason=reason)

    def backfill(self, backfill: Backfill, *, check: bool = True, listeners: Sequence[Listener] = ()) -> Report:
        """Process old batches again."""
        return self._carry(listeners, "run_backfill", **_write_backfill(backfill))

    def plan_backfill(self, backfill: Backfill) -> OffsetMove:
        """Return what a backfill would process again."""
        return decode(OffsetMove, self._work("run_backfill", **_write_backfill(backfill), preview=True))

    def redo(self, file: str, *, reason: str = "", check: bool = True, listeners: Sequence[Listener] = ()) -> Report:
        """Read an edited file again."""
        return self._carry(listeners, "run_redo", file=file, reason=reason or _BY_COMMAND)

    def preview_redo(self, file: str, *, say: Callable[[str], None] = lambda _: None) -> RedoPreview:
        """Return what a redo of the file would do."""
        return RedoPreview.of(self._work("run_redo", say, file=file, reason=_BY_COMMAND, preview=True))

    def replay(self, replay: Replay, *, check: bool = True, listeners: Sequence[Listener] = ()) -> Report:
        """Process refused rows again, without a fix."""
        return self._carry(listeners, "replay_rows", **_write_choice(replay.choice), reason=replay.reason)

    def stop(self, reason: str = "asked to stop", *, force: bool = False, within: str = "") -> bool:
        """Ask the run of the pipeline to stop."""
        return bool(self._ask("stop_run", reason=reason, force=force, within=within).asked)

    def resume(self, *, reason: str) -> bool:
        """Let runs begin again after a pause."""
        return bool(self._ask("resume_pipeline", reason=reason).resumed)

    def status(self) -> PipelineStatus:
        """Return the status of the pipeline."""
        answer = self._ask("get_pipeline")
        facts = _leave_out(answer, "hash", "definition", "file", *(["owners"] if answer.owners is None else []))
        return PipelineStatus({**facts, "next": answer.next.replace(shlex.quote(answer.file), "FILE")})

    @property
    def refused(self) -> RemoteRefusedRows:
        """The rows that the pipeline refused."""
        return RemoteRefusedRows(name=self.name, client=self.client)

    @property
    def offsets(self) -> RemoteOffsets:
        """How far each lane has been read."""
        return RemoteOffsets(name=self.name, client=self.client)

    @property
    def history(self) -> RemoteHistory:
        """The runs of the pipeline, and what they reported."""
        return RemoteHistory(name=self.name, client=self.client)

    def audit(self) -> Audit:
        """Return whether every row is where it should be."""
        return decode(Audit, self._work("run_audit"))

    def plan_repair(self) -> RepairPlan:
        """Return what there is to repair."""
        return decode(RepairPlan, self._work("run_repair", reason=_BY_COMMAND, preview=True))

    def repair(self, *, reason: str, accept: Sequence[str] = ()) -> RepairResult:
        """Repair what needs no guess."""
        return decode(RepairResult, self._work("run_repair", reason=reason, accept=[*accept]))

    def _carry(self, listeners: Sequence[Listener], operation: str, **fields: Any) -> Report:
        """Let the server run the pipeline, and return the report.

        Listeners get what happens meanwhile. The first signal lets open batches finish, and the second cancels them.
        """
        signals, cancelled, forced = _Signals(), False, False
        with self._listen(listeners), stop_on_signals(signals):
            task: Task = self._ask(operation, **fields)
            while task.ended_at is None:
                if signals.asked_to_stop and not cancelled:
                    self.client.cancel_task(task=task.task, reason=signals.asked_to_stop)
                    cancelled = True
                if signals.forced and not forced:
                    self._ask("stop_run", reason=signals.asked_to_stop, force=True)
                    forced = True
                task = self.client.get_task(task=task.task, wait=_TICK)
        if task.result is not None:
            return Report.of(task.result)
        if task.state == "stopped":
            reason = task.problem.detail if task.problem else task.doing
            return Report(pipeline=self.name, run="", status="stopped", reason=reason)
        self._wait(task)
        raise AssertionError

    @contextlib.contextmanager
    def _listen(self, listeners: Sequence[Listener]) -> Iterator[None]:
        """Pass on what happens to the pipeline on the server, from the beginning of this block to its end."""
        ready, over = threading.Event(), threading.Event()

        def follow() -> None:
            with contextlib.suppress(Exception), contextlib.closing(self.client.watch(self.name)) as happenings:  # type: ignore[type-var]
                for happening in happenings:
                    ready.set()
                    if over.is_set():
                        break
                    event = read_event(happening)
                    for listener in listeners if event else ():
                        listener(event)  # type: ignore[arg-type]
            ready.set()

        if listeners:
            threading.Thread(target=follow, name="wherry-events", daemon=True).start()
            ready.wait(_PATIENCE)
        try:
            yield
        finally:
            over.set()


@dataclass(frozen=True, kw_only=True)
class RemoteRefusedRows(_OfServer):
    """The refused rows. A method promises what the method of `PipelineRefusedRows` with this name promises."""

    def list(
        self, limit: int | None = None, *, choice: Choice | None = None, reveal: bool = False, waiting: bool = False
    ) -> RefusedRowList:
        """Return refused rows. Raise `Refusal` if there may be more than a server lists."""
        _check_limit(limit, "rows")
        asked = _write_choice(choice or Choice())
        rows = self._ask("list_refused_rows", **asked, limit=limit or MOST, waiting=waiting).rows
        if limit is None:
            _check_limit(len(rows) + 1, "rows")
        return RefusedRowList(_leave_out(each) for each in rows)

    def causes(self, choice: Choice | None = None) -> CauseList:
        """Return the causes of refused rows."""
        answer = self._ask("list_causes", **_write_choice(choice or Choice()))
        return CauseList(_leave_out(each) for each in answer.causes)

    def explain(self, letter: str, *, reveal: bool = False) -> RefusedRow:
        """Return a refused row, which the server has tried."""
        facts = self._work("explain_row", id=letter)
        others = ("position", "values", "alike", "earlier", *(each.name for each in fields(TriedRow)))
        return _TriedElsewhere(
            pipeline=self.name,
            letter={name: value for name, value in facts.items() if name not in others},
            choice=Letter(id=facts["id"], origin="", stage=""),
            alike=facts["alike"],
            earlier=facts["earlier"],
            tried=decode(TriedRow, {**facts, "why_not": facts["why_not"] or ""}),
        )

    def count_waiting(self, choice: Choice | None = None) -> int:
        """Return how many of the chosen rows wait."""
        asked = _write_choice(choice or Choice())
        return int(self._ask("discard_rows", **asked, reason=_BY_COMMAND, preview=True).found)

    def discard(self, choice: Choice | None = None, *, reason: str, expected: int | None = None) -> int:
        """Discard refused rows."""
        asked = _write_choice(choice or Choice())
        return int(self._ask("discard_rows", **asked, reason=reason, expected=expected).discarded)

    def plan_replay(self, replay: Replay) -> ReplayPlan:
        """Return how many rows a replay would process."""
        asked = {**_write_choice(replay.choice), "reason": replay.reason}
        return decode(ReplayPlan, self._work("replay_rows", **asked, plan=True))

    def preview_replay(self, replay: Replay, *, say: Callable[[str], None] = lambda _: None) -> FixPreview:
        """Return what would become of the rows of a replay."""
        asked = {**_write_choice(replay.choice), "reason": replay.reason}
        return FixPreview.of(self._work("replay_rows", say, **asked, preview=True))

    def limits(self) -> Mapping[str, JSON]:
        """Return the limits of the DLQ for the next batch."""
        return _leave_out(self._ask("get_dlq"))

    def change_limits(self, settings: Mapping[str, str], *, reason: str) -> Mapping[str, JSON]:
        """Change limits of the DLQ of the active run."""
        asked: dict[str, Any] = {}
        for name, text in settings.items():
            if name not in ("window", "threshold", "limits.rows"):
                raise Refusal(f"There is no setting '{name}'; there are: window, threshold, limits.rows.")
            if name != "limits.rows" and not text.isdecimal():
                raise Refusal(f"{name}: expected a whole number, got {text!r}.")
            asked[name.removeprefix("limits.")] = text if name == "limits.rows" else int(text)
        return _leave_out(self._ask("change_dlq", **asked, reason=reason), "changed")


@dataclass(frozen=True, kw_only=True)
class RemoteOffsets(_OfServer):
    """The offsets. A method promises what the method of `PipelineOffsets` with this name promises."""

    def read(self) -> Lanes:
        """Return the progress of every lane."""
        answer = self._ask("get_offsets")
        return Lanes(pipeline=answer.pipeline, lanes=answer.lanes, open=answer.open)

    def plan(
        self,
        *,
        lane: str | None = None,
        offset: JSON = None,
        batches: int | None = None,
        to: datetime | None = None,
        beginning: bool = False,
    ) -> OffsetMove:
        """Return what a move of offsets would do."""
        asked = {"lane": lane, "offset": offset, "back": batches, "to": _write_moment(to), "beginning": beginning}
        answer = self._ask("move_offsets", **asked, reason=_BY_COMMAND, preview=True)
        move = decode(OffsetMove, _leave_out(answer))
        return _AskedMove(lanes=move.lanes, destinations=move.destinations, asked=asked)

    def move(self, plan: OffsetMove, *, reason: str) -> None:
        """Move the offsets, if the move would still do what it was planned to."""
        assert isinstance(plan, _AskedMove)
        self._ask("move_offsets", **plan.asked, reason=reason, expected=encode(plan.lanes))


@dataclass(frozen=True, kw_only=True)
class RemoteHistory(_OfServer):
    """The runs. A method promises what the method of `PipelineHistory` with this name promises."""

    def list(
        self,
        *,
        status: str = "",
        since: datetime | None = None,
        limit: int = 20,
        archived: bool = False,
    ) -> RunList:
        """Return the newest runs."""
        _check_limit(limit, "runs")
        listed = self._ask("list_runs", status=status, since=_write_moment(since), limit=limit)
        return RunList(_leave_out(each, "report") for each in listed.runs)

    def find(self, run: str) -> Mapping[str, JSON]:
        """Return a run with its report."""
        return _leave_out(self._ask("get_run", run=run))

    def quality(self, limit: int = 8) -> Sequence[Mapping[str, JSON]]:
        """Return each rule with its results in the newest runs."""
        _check_limit(limit, "runs")
        rules: Sequence[Mapping[str, JSON]] = self._ask("get_quality", limit=limit).rules
        return rules


class _Signals:
    """What signals asked for. A signal handler only notes it."""

    def __init__(self) -> None:
        self.asked_to_stop, self.forced = "", False

    def request_stop(self, reason: str, *, force: bool = False) -> None:
        self.asked_to_stop, self.forced = self.asked_to_stop or reason, self.forced or force


def read_event(happening: Happening) -> Event | None:
    """Return the event of a run that happened on a server, as far as a command shows it. None for anything else."""
    facts = happening.facts or {}
    if happening.event == "run_started":
        return RunStarted(pipeline=facts["pipeline"], run=facts["run"])
    if happening.event == "run_stopping":
        return RunStopping(reason=facts["reason"])
    if happening.event == "run_ended":
        return RunEnded(status=facts["status"], reason=facts["reason"])
    if happening.event not in ("batch_planned", "batch_resumed", "batch_cancelled", "batch_settled"):
        return None
    batch = Batch(
        pipeline=facts["pipeline"],
        origin="",
        lane=facts["lane"],
        number=facts["number"],
        plan=facts["batch"],
        run=facts["run"],
        span=Span(start=None, end=None, label=facts["of"]),
        schema="",
        time=datetime.fromisoformat(happening.at),
    )
    if happening.event == "batch_settled":
        counts = SettledCounts(read=facts["read"], nacked=facts["nacked"], delivered=facts["delivered"])
        return BatchSettled(batch=batch, counts=counts, owed=tuple(facts["owed"]), seconds=facts["seconds"])
    if happening.event == "batch_cancelled":
        return BatchCancelled(batch=batch)
    return BatchPlanned(batch=batch) if happening.event == "batch_planned" else BatchResumed(batch=batch)


def _translate(error: ServerProblem) -> Owned | ServerProblem:
    return Owned(error.message, hint=error.hint) if error.code == Owned.code else error


def _leave_out(answer: msgspec.Struct, *names: str) -> dict[str, JSON]:
    """Return an answer as commands print it, without these fields."""
    return {name: value for name, value in msgspec.to_builtins(answer).items() if name not in names}


def _check_limit(limit: int | None, what: str) -> None:
    if limit is not None and limit > MOST:
        raise Refusal(f"A server lists at most {MOST:,} {what}.", hint=f"Add  --limit {MOST}  or choose fewer {what}.")


def _write_moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _write_choice(choice: Choice) -> dict[str, Any]:
    return {
        "ids": [*choice.ids],
        "code": choice.code,
        "stage": choice.stage,
        "file": choice.file,
        "contains": choice.text,
        "since": _write_moment(choice.since),
        "until": _write_moment(choice.until),
    }


def _write_backfill(backfill: Backfill) -> dict[str, Any]:
    start, end = (
        bound.isoformat() if isinstance(bound, datetime) else None if bound is None else str(bound)
        for bound in (backfill.start, backfill.end)
    )
    return {
        "start": start,
        "end": end,
        "only": backfill.only,
        "lane": backfill.lane,
        "again": backfill.again,
        "reason": backfill.reason,
    }
