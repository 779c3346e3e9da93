"""The table of operations. REST, gRPC and their descriptions are made from it."""

from __future__ import annotations

from collections.abc import Sequence

from runners.service import changing, messages, reading
from runners.service.operation import Operation, Right

_ONE = "/v1/pipelines/{pipeline}"

OPERATIONS: Sequence[Operation] = (
    Operation(
        act=reading.list_pipelines,
        method="GET",
        path="/v1/pipelines",
        ask=messages.ListPipelines,
        answer=messages.PipelineList,
    ),
    Operation(
        act=reading.get_pipeline, method="GET", path=_ONE, ask=messages.GetPipeline, answer=messages.PipelineStatus
    ),
    Operation(act=reading.list_runs, method="GET", path=f"{_ONE}/runs", ask=messages.ListRuns, answer=messages.RunList),
    Operation(act=reading.get_run, method="GET", path=f"{_ONE}/runs/{{run}}", ask=messages.GetRun, answer=messages.Run),
    Operation(
        act=changing.start_run,
        method="POST",
        path=f"{_ONE}/runs",
        ask=messages.StartRun,
        answer=messages.Task,
        right=Right.OPERATE,
    ),
    Operation(
        act=changing.stop_run,
        method="POST",
        path=f"{_ONE}/stop",
        ask=messages.StopRun,
        answer=messages.Stopped,
        right=Right.OPERATE,
    ),
    Operation(
        act=changing.resume_pipeline,
        method="POST",
        path=f"{_ONE}/resume",
        ask=messages.ResumePipeline,
        answer=messages.Resumed,
        right=Right.OPERATE,
    ),
    Operation(
        act=reading.get_offsets,
        method="GET",
        path=f"{_ONE}/offsets",
        ask=messages.GetOffsets,
        answer=messages.LaneList,
    ),
    Operation(
        act=changing.move_offsets,
        method="POST",
        path=f"{_ONE}/offsets",
        ask=messages.MoveOffsets,
        answer=messages.OffsetMove,
        right=Right.ADMIN,
    ),
    Operation(act=reading.get_dlq, method="GET", path=f"{_ONE}/dlq", ask=messages.GetDlq, answer=messages.DlqSettings),
    Operation(
        act=changing.change_dlq,
        method="PUT",
        path=f"{_ONE}/dlq",
        ask=messages.ChangeDlq,
        answer=messages.DlqSettings,
        right=Right.OPERATE,
    ),
    Operation(
        act=reading.list_refused_rows,
        method="GET",
        path=f"{_ONE}/dlq/rows",
        ask=messages.ListRefusedRows,
        answer=messages.RefusedRowList,
        waits=True,
    ),
    Operation(
        act=reading.list_causes,
        method="GET",
        path=f"{_ONE}/dlq/causes",
        ask=messages.ListCauses,
        answer=messages.CauseList,
        waits=True,
    ),
    Operation(
        act=changing.explain_row,
        method="POST",
        path=f"{_ONE}/dlq/explain",
        ask=messages.ExplainRow,
        answer=messages.Task,
    ),
    Operation(
        act=changing.replay_rows,
        method="POST",
        path=f"{_ONE}/dlq/replay",
        ask=messages.ReplayRows,
        answer=messages.Task,
        right=Right.OPERATE,
    ),
    Operation(
        act=changing.discard_rows,
        method="POST",
        path=f"{_ONE}/dlq/discard",
        ask=messages.DiscardRows,
        answer=messages.Discarded,
        right=Right.OPERATE,
    ),
    Operation(
        act=reading.get_quality,
        method="GET",
        path=f"{_ONE}/quality",
        ask=messages.GetQuality,
        answer=messages.Quality,
    ),
    Operation(act=changing.run_audit, method="POST", path=f"{_ONE}/audit", ask=messages.RunAudit, answer=messages.Task),
    Operation(
        act=changing.run_repair,
        method="POST",
        path=f"{_ONE}/repair",
        ask=messages.RunRepair,
        answer=messages.Task,
        right=Right.ADMIN,
    ),
    Operation(
        act=changing.run_backfill,
        method="POST",
        path=f"{_ONE}/backfill",
        ask=messages.RunBackfill,
        answer=messages.Task,
        right=Right.ADMIN,
    ),
    Operation(
        act=changing.run_redo,
        method="POST",
        path=f"{_ONE}/redo",
        ask=messages.RunRedo,
        answer=messages.Task,
        right=Right.ADMIN,
    ),
    Operation(
        act=changing.hold_schedule,
        method="PUT",
        path=f"{_ONE}/schedule",
        ask=messages.HoldSchedule,
        answer=messages.Held,
        right=Right.OPERATE,
    ),
    Operation(
        act=reading.get_schedule, method="GET", path="/v1/schedule", ask=messages.GetSchedule, answer=messages.Schedule
    ),
    Operation(act=reading.list_tasks, method="GET", path="/v1/tasks", ask=messages.ListTasks, answer=messages.TaskList),
    Operation(
        act=reading.get_task,
        method="GET",
        path="/v1/tasks/{task}",
        ask=messages.GetTask,
        answer=messages.Task,
        waits=True,
    ),
    Operation(
        act=changing.cancel_task,
        method="POST",
        path="/v1/tasks/{task}/cancel",
        ask=messages.CancelTask,
        answer=messages.Task,
        right=Right.OPERATE,
    ),
    Operation(
        act=reading.watch_events,
        method="GET",
        path="/v1/events",
        ask=messages.WatchEvents,
        answer=messages.Happening,
        streams=True,
    ),
    Operation(
        act=reading.get_readiness,
        method="GET",
        path="/v1/ready",
        ask=messages.GetReadiness,
        answer=messages.Readiness,
    ),
)
"""Every operation, in the order of the documentation."""
