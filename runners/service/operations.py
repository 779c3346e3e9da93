"""The table of operations. REST, gRPC and their descriptions are made from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args, get_origin, get_type_hints

from runners.service import changing, definitions, planning, reading, searching
from runners.service.operation import Operation, Right


def _make(
    act: Callable[..., Any], method: str, path: str, right: Right = Right.READ, *, waits: bool = False
) -> Operation:
    """Return an operation. Its question and its answer have the types that the function names."""
    hints = get_type_hints(act)
    answer = hints["return"]
    streams = get_origin(answer) is Iterator
    return Operation(
        act=act,
        method=method,
        path=path,
        ask=hints["ask"],
        answer=get_args(answer)[0] if streams else answer,
        right=right,
        waits=waits,
        streams=streams,
    )


_ONE = "/v1/pipelines/{pipeline}"

OPERATIONS: Sequence[Operation] = (
    _make(reading.list_pipelines, "GET", "/v1/pipelines"),
    _make(reading.get_pipeline, "GET", _ONE),
    _make(definitions.get_definition, "GET", f"{_ONE}/definition", Right.ADMIN),
    _make(definitions.validate_definition, "POST", f"{_ONE}/definition", Right.ADMIN),
    _make(definitions.put_definition, "PUT", f"{_ONE}/definition", Right.ADMIN),
    _make(definitions.delete_definition, "DELETE", f"{_ONE}/definition", Right.ADMIN),
    _make(reading.list_runs, "GET", f"{_ONE}/runs"),
    _make(reading.get_run, "GET", f"{_ONE}/runs/{{run}}"),
    _make(changing.start_run, "POST", f"{_ONE}/runs", Right.OPERATE),
    _make(changing.stop_run, "POST", f"{_ONE}/stop", Right.OPERATE),
    _make(changing.resume_pipeline, "POST", f"{_ONE}/resume", Right.OPERATE),
    _make(reading.get_offsets, "GET", f"{_ONE}/offsets"),
    _make(changing.move_offsets, "POST", f"{_ONE}/offsets", Right.ADMIN),
    _make(reading.get_dlq, "GET", f"{_ONE}/dlq"),
    _make(changing.change_dlq, "PUT", f"{_ONE}/dlq", Right.OPERATE),
    _make(reading.list_refused_rows, "GET", f"{_ONE}/dlq/rows", waits=True),
    _make(reading.list_causes, "GET", f"{_ONE}/dlq/causes", waits=True),
    _make(changing.explain_row, "POST", f"{_ONE}/dlq/explain"),
    _make(changing.replay_rows, "POST", f"{_ONE}/dlq/replay", Right.OPERATE),
    _make(changing.discard_rows, "POST", f"{_ONE}/dlq/discard", Right.OPERATE),
    _make(reading.get_quality, "GET", f"{_ONE}/quality"),
    _make(changing.run_audit, "POST", f"{_ONE}/audit"),
    _make(changing.run_repair, "POST", f"{_ONE}/repair", Right.ADMIN),
    _make(changing.run_backfill, "POST", f"{_ONE}/backfill", Right.ADMIN),
    _make(changing.run_redo, "POST", f"{_ONE}/redo", Right.ADMIN),
    _make(changing.hold_schedule, "PUT", f"{_ONE}/schedule", Right.OPERATE),
    _make(reading.get_schedule, "GET", "/v1/schedule"),
    _make(reading.list_tasks, "GET", "/v1/tasks"),
    _make(reading.get_task, "GET", "/v1/tasks/{task}", waits=True),
    _make(changing.cancel_task, "POST", "/v1/tasks/{task}/cancel", Right.OPERATE),
    _make(planning.plan_change, "POST", "/v1/plans"),
    _make(planning.list_plans, "GET", "/v1/plans"),
    _make(planning.get_plan, "GET", "/v1/plans/{plan}"),
    _make(planning.approve_plan, "POST", "/v1/plans/{plan}/approve", Right.OPERATE),
    _make(planning.carry_out_plan, "POST", "/v1/plans/{plan}/do"),
    _make(searching.search, "GET", "/v1/search", waits=True),
    _make(reading.watch_events, "GET", "/v1/events"),
    _make(reading.get_caller, "GET", "/v1/caller"),
    _make(reading.get_readiness, "GET", "/v1/ready"),
)
"""Every operation, in the order of the documentation."""
