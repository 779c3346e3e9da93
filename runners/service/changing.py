"""The operations that change something. Each takes a reason, and the server logs its caller."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from runners.model.errors import Refusal
from runners.model.events import Event, RunStarted
from runners.model.run_report import Report
from runners.operations import dlq
from runners.pipeline import Pipeline
from runners.running.backfill import Backfill, Bound, parse_bound
from runners.running.replay import Replay
from runners.schedules.schedule_plan import pause
from runners.schedules.scheduling import make_carrier
from runners.service import messages
from runners.service.definitions import load_given
from runners.service.operation import ENCODER, Caller, Invalid
from runners.service.problems import make_problem
from runners.service.reading import read_choice, read_moment
from runners.service.service import Service, to_answer
from runners.service.tasks import Doing, TaskFailed


def start_run(service: Service, caller: Caller, ask: messages.StartRun) -> messages.Task:
    """Begin a run of a pipeline. The answer is a task, whose result is the report of the run."""
    if ask.definition:
        definition = load_given(service, caller, ask)
    else:
        definition = service.load_to_run(ask.pipeline, ask.parameters)

    def work(doing: Doing) -> Any:
        doing.say("waiting for Spark" if not service.spark.is_open else "running")
        spark = service.spark.open()
        doing.say("running")
        listeners = [*service.make_listeners(definition.pipeline), _note_run(doing)]
        carried = make_carrier(spark, lambda _: listeners)(definition, doing.keep_stop)
        report = None if carried.report is None else carried.report.json()
        if carried.status == "succeeded":
            return report
        code = {"owned": "OWNED", "stopped": "STOPPED"}.get(carried.status, "FAILED")
        if carried.report is not None and carried.report.error is not None:
            code = carried.report.error.code
        state = "stopped" if carried.status == "stopped" else "failed"
        raise TaskFailed(state, make_problem(code, carried.message), report)

    return service.start_task("start_run", caller, ask, work, definition.pipeline.run_options.group)


def _note_run(doing: Doing) -> Callable[[Event], None]:
    def listener(event: Event) -> None:
        if isinstance(event, RunStarted):
            doing.note_run(event.run)

    return listener


def stop_run(service: Service, caller: Caller, ask: messages.StopRun) -> messages.Stopped:
    """Ask the run of a pipeline to stop, in any process. Batches in flight finish, or not with `force`."""
    try:
        asked = service.open_pipeline(ask.pipeline).stop(ask.reason, force=ask.force, within=ask.within)
    except ValueError as error:
        raise Invalid(f"within: {error}.") from error
    return messages.Stopped(pipeline=ask.pipeline, asked=asked)


def resume_pipeline(service: Service, caller: Caller, ask: messages.ResumePipeline) -> messages.Resumed:
    """Let runs begin again, after a limit of the DLQ paused the pipeline."""
    return messages.Resumed(
        pipeline=ask.pipeline, resumed=service.open_pipeline(ask.pipeline).resume(reason=ask.reason)
    )


def cancel_task(service: Service, caller: Caller, ask: messages.CancelTask) -> messages.Task:
    """Cancel a task. A waiting task does not begin, and a run finishes its batches in flight."""
    service.tasks.get(ask.task, caller)
    return service.tasks.cancel(ask.task, ask.reason)


def move_offsets(service: Service, caller: Caller, ask: messages.MoveOffsets) -> messages.OffsetMove:
    """Move the offsets of a pipeline that does not run, or say with `preview` what that would do."""
    pipeline = service.open_pipeline(ask.pipeline)
    ways = [bool(ask.lane), ask.back > 0, bool(ask.to), ask.beginning]
    if sum(ways) != 1:
        raise Invalid("Give one of: lane with offset, back, to, beginning.")
    move = pipeline.offsets.plan(
        lane=ask.lane or None,
        offset=ask.offset,
        batches=ask.back or None,
        to=read_moment(ask.to, "to"),
        beginning=ask.beginning,
    )
    if ask.expected is not None and msgspec.json.decode(ENCODER.encode(move.json()["lanes"])) != ask.expected:
        raise Refusal(
            "Nothing was moved: the offsets have changed in the meantime.",
            hint="See the offsets again, then decide:  wherry offsets FILE",
        )
    moved = bool(move.lanes) and not ask.preview
    if moved:
        pipeline.offsets.move(move, reason=ask.reason)
    return to_answer(messages.OffsetMove, {**move.json(), "moved": moved})  # type: ignore[no-any-return]


def change_dlq(service: Service, caller: Caller, ask: messages.ChangeDlq) -> messages.DlqSettings:
    """Change the limits of the DLQ of the active run, from its next batch to its end."""
    wanted = {"window": ask.window, "threshold": ask.threshold, "limits.rows": ask.rows}
    given = {name: str(value) for name, value in wanted.items() if value is not None}
    if not given:
        raise Invalid("Give one of: window, threshold, rows.")
    settings = service.open_pipeline(ask.pipeline).refused.change_limits(given, reason=ask.reason)
    return to_answer(messages.DlqSettings, settings)  # type: ignore[no-any-return]


def discard_rows(service: Service, caller: Caller, ask: messages.DiscardRows) -> messages.Discarded:
    """Close refused rows, so that no replay takes them. They stay in the DLQ until `dlq.retain` is over."""
    pipeline, choice = service.find(ask.pipeline).pipeline, read_choice(ask)
    if ask.preview:
        letters = dlq.choose_letters(pipeline, choice)[1]
        return messages.Discarded(discarded=0, found=len(letters), digest=dlq.make_digest(letters))
    done = dlq.discard(pipeline, choice, reason=ask.reason, expected=ask.expected, digest=ask.expected_digest)
    return messages.Discarded(discarded=done)


def explain_row(service: Service, caller: Caller, ask: messages.ExplainRow) -> messages.Task:
    """Explain one refused row, and try it with the stages of today. The answer is a task, and nothing is written."""

    def try_row(pipeline: Pipeline, doing: Doing) -> Any:
        row = pipeline.refused.explain(ask.id)
        return row.json(row.try_again())

    return _start_on_spark(service, caller, ask, "explain_row", try_row, "trying the row")


def replay_rows(service: Service, caller: Caller, ask: messages.ReplayRows) -> messages.Task:
    """Process refused rows again, or only try them with `preview`. The answer is a task."""
    replay = Replay(choice=read_choice(ask), reason=ask.reason)
    if ask.plan:
        looked = service.open_pipeline(ask.pipeline)
        return service.start_task("replay_rows", caller, ask, lambda _: looked.refused.plan_replay(replay).json())
    if ask.preview:
        return _start_on_spark(
            service,
            caller,
            ask,
            "replay_rows",
            lambda pipeline, doing: pipeline.refused.preview_replay(replay, say=doing.say).json(),
        )
    return _start_work(service, caller, ask, "replay_rows", lambda pipeline: partial(pipeline.replay, replay))


def run_audit(service: Service, caller: Caller, ask: messages.RunAudit) -> messages.Task:
    """Prove from the destinations and the DLQ that each row is where it should be. The answer is a task."""
    return _start_on_spark(
        service, caller, ask, "run_audit", lambda pipeline, _: pipeline.audit().json(), "reading the destinations"
    )


def run_repair(service: Service, caller: Caller, ask: messages.RunRepair) -> messages.Task:
    """Repair what an audit finds, where no guess is needed. The answer is a task."""

    def repair(pipeline: Pipeline, doing: Doing) -> Any:
        if ask.preview:
            return pipeline.plan_repair().json()
        return pipeline.repair(reason=ask.reason, accept=ask.accept).json()

    return _start_on_spark(
        service, caller, ask, "run_repair", repair, "reading the destinations" if ask.preview else "repairing"
    )


def run_backfill(service: Service, caller: Caller, ask: messages.RunBackfill) -> messages.Task:
    """Deliver old batches to destinations that lack them. The answer is a task."""
    past = Backfill(
        start=_read_bound(ask.start, "start"),
        end=_read_bound(ask.end, "end"),
        only=ask.only or None,
        lane=ask.lane or None,
        again=ask.again,
        reason=ask.reason,
    )
    if ask.preview:
        plan = service.open_pipeline(ask.pipeline).plan_backfill(past)
        return service.start_task("run_backfill", caller, ask, lambda _: plan.json())
    return _start_work(service, caller, ask, "run_backfill", lambda pipeline: partial(pipeline.backfill, past))


def run_redo(service: Service, caller: Caller, ask: messages.RunRedo) -> messages.Task:
    """Read an edited file again, and replace its old rows. The answer is a task."""
    if ask.preview:
        return _start_on_spark(
            service,
            caller,
            ask,
            "run_redo",
            lambda pipeline, doing: pipeline.preview_redo(ask.file, say=doing.say).json(),
        )
    return _start_work(
        service, caller, ask, "run_redo", lambda pipeline: partial(pipeline.redo, ask.file, reason=ask.reason)
    )


def _start_on_spark(
    service: Service,
    caller: Caller,
    ask: Any,
    operation: str,
    act: Callable[[Pipeline, Doing], Any],
    what: str = "",
    *,
    runs: bool = False,
) -> messages.Task:
    """Start a task that needs Spark. `act` gets the pipeline with its secrets, and returns the result of the task.

    With `runs`, it waits for the group of the pipeline.
    """
    pipeline = Pipeline.of(service.load_to_run(ask.pipeline).pipeline)

    def work(doing: Doing) -> Any:
        doing.say(what)
        service.spark.open()
        return act(pipeline, doing)

    return service.start_task(operation, caller, ask, work, pipeline.run_options.group if runs else None)


def _start_work(
    service: Service,
    caller: Caller,
    ask: Any,
    operation: str,
    make_carry: Callable[[Pipeline], Callable[..., Report]],
) -> messages.Task:
    """Start a task that carries old or refused rows. Its result is a report."""

    def carry(pipeline: Pipeline, doing: Doing) -> Any:
        def stop(reason: str, force: bool) -> None:
            pipeline.stop(reason, force=force)

        doing.say("running")
        doing.keep_stop(stop)
        listeners = [*service.make_listeners(pipeline), _note_run(doing)]
        report = make_carry(pipeline)(check=False, listeners=listeners).mask(pipeline.secrets)
        if report.error is not None:
            problem = make_problem(report.error.code, report.error.message, hint=report.error.hint)
            raise TaskFailed("failed", problem, report.json())
        if report.status == "stopped":
            raise TaskFailed("stopped", make_problem("STOPPED", f"It was stopped: {report.reason}"), report.json())
        return report.json()

    return _start_on_spark(service, caller, ask, operation, carry, "waiting for Spark", runs=True)


def _read_bound(text: str, name: str) -> Bound | None:
    try:
        return parse_bound(text, last=name == "end") if text else None
    except (ValueError, OverflowError) as error:
        raise Invalid(f"{name}: expected a number or a moment such as 2026-01-31T06:00.") from error


def hold_schedule(service: Service, caller: Caller, ask: messages.HoldSchedule) -> messages.Held:
    """Let the schedule begin no run of a pipeline, or let it begin runs again."""
    if service.find(ask.pipeline).pipeline.schedule is None:
        raise Invalid(f"{ask.pipeline} has no schedule, so nothing of it is held.")
    pause(service.folder, ask.pipeline, ask.reason if ask.held else None, service.clock.now())
    return messages.Held(pipeline=ask.pipeline, held=ask.held)
