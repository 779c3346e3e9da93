"""The changes: the rights that they need, what they do, and what the ledger keeps of them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runners.definitions.definition import load
from runners.model.entry import Entry
from runners.schedules.run_marks import SCHEDULE
from runners.service.operation import Operation, Right
from runners.service.operations import OPERATIONS
from runners.state.location import StateLocation
from tests.runners.service.served import Served, serve, write_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ONE = "/v1/pipelines/orders"
CHANGES = [each for each in OPERATIONS if each.changes]
LACKING = [(each, right) for each, right in itertools.product(CHANGES, Right) if right < each.right]
GIVEN: dict[str, dict[str, Any]] = {
    "move_offsets": {"beginning": True},
    "change_dlq": {"window": 1},
    "explain_row": {"id": "plan/1"},
    "run_redo": {"file": "0.json"},
    "hold_schedule": {"held": True},
    "validate_definition": {"definition": "name: orders"},
    "put_definition": {"definition": "name: orders"},
    "delete_definition": {"etag": "0"},
    "plan_change": {"operation": "stop_run", "arguments": {"pipeline": "orders", "reason": "why"}},
    "approve_plan": {"digest": "0"},
}
"""What an operation needs beside its reason."""


def read_ledger(served: Served, name: str = "orders") -> list[Entry]:
    """Return the entries of the ledger of a pipeline."""
    pipeline = load(served.folder / f"{name}.yaml").pipeline
    return list(StateLocation.of(pipeline).open_ledger(None).read())


def make_body(operation: Operation) -> dict[str, Any]:
    """Return a body that the operation takes."""
    reason = {"reason": "a test"} if "reason" in operation.ask.__struct_fields__ else {}
    return {**reason, **GIVEN.get(operation.name, {})}


@pytest.mark.parametrize(("operation", "right"), LACKING, ids=lambda each: str(getattr(each, "name", each)))
def test_a_caller_with_a_lower_right_changes_nothing(served: Served, operation: Operation, right: Right) -> None:
    """The answer says which right is needed. The log of changes has nothing, because nothing was begun."""
    by = served.add_caller("anna", right.name.lower())  # type: ignore[arg-type]
    path = operation.path.format(pipeline="orders", task="nowhere", plan="none")
    before = len(read_ledger(served))
    reply = served.ask(operation.method, path, make_body(operation), by=by)
    assert (reply.status, reply.json()["code"]) == (403, "FORBIDDEN")
    assert f"the right to {operation.right.name.lower()}" in reply.json()["detail"]
    assert (len(read_ledger(served)), served.read_log()) == (before, [])


@pytest.mark.parametrize("operation", CHANGES, ids=lambda each: str(each.name))
def test_a_caller_with_the_right_is_logged(served: Served, operation: Operation) -> None:
    """The log has the caller, the change and the reason, also if it was not possible."""
    by = served.add_caller("anna", operation.right.name.lower())  # type: ignore[arg-type]
    path = operation.path.format(
        pipeline="items" if operation.name == "hold_schedule" else "orders", task="nowhere", plan="none"
    )
    reply = served.ask(operation.method, path, make_body(operation), by=by)
    began, ended = served.read_log()
    assert reply.status in (200, 202, 404, 409, 422)
    assert (began["who"], began["did"]) == ("anna", operation.name)
    given = {name: value for name, value in make_body(operation).items() if name != "definition"}
    assert {**began["with"], **given} == began["with"]
    assert ("done" in ended) == (reply.status < 300)


def test_the_ledger_has_the_caller_and_the_reason(served: Served) -> None:
    """The user of the machine has another name."""
    by = served.add_caller("anna", "admin")
    before = len(read_ledger(served))
    served.ask("POST", f"{ONE}/offsets", {"reason": "read it again", "beginning": True}, by=by)
    served.ask("POST", f"{ONE}/dlq/discard", {"reason": "they are old"}, by=by)
    bodies = [json.dumps(entry.body) for entry in read_ledger(served)[before:]]
    for reason in ("read it again", "they are old"):
        (body,) = [each for each in bodies if reason in each]
        assert f'"who": "anna", "reason": "{reason}"' in body


def test_a_preview_moves_nothing(served: Served) -> None:
    """It says what the move would do."""
    before = read_ledger(served)
    move = served.ask("POST", f"{ONE}/offsets", {"reason": "look", "back": 1, "preview": True}).json()
    assert (move["moved"], move["lanes"]["0"]["batches"], move["lanes"]["0"]["rows"]) == (False, 1, 2)
    assert read_ledger(served) == before
    moved = served.ask("POST", f"{ONE}/offsets", {"reason": "do it", "back": 1}).json()
    assert moved["moved"]
    assert served.get("/v1/pipelines")["pipelines"][1]["waiting"] == {"files": 1}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"back": 1, "beginning": True},
        {"to": "2026-01-01", "lane": "0"},
        {"lane": "0", "offset": {"file": "../../etc/passwd"}},
        {"lane": "nowhere", "offset": None},
        {"to": "tomorrow"},
        {"back": -1},
        {"back": 10**30},
    ],
)
def test_an_unclear_move_of_offsets_is_refused(served: Served, body: dict[str, Any]) -> None:
    """The ledger stays as it was."""
    before = read_ledger(served)
    assert served.ask("POST", f"{ONE}/offsets", {"reason": "x", **body}).status == 422
    assert read_ledger(served) == before


@pytest.mark.parametrize("within", ["soon", "1e400s", "-1s", "9" * 400 + "s", "٣s"])
def test_a_stop_within_no_time_is_refused(served: Served, within: str) -> None:
    """The answer shows the format."""
    reply = served.ask("POST", f"{ONE}/stop", {"reason": "x", "within": within})
    assert (reply.status, reply.json()["code"]) == (422, "INVALID")


def test_a_pipeline_that_does_not_run_is_not_stopped(served: Served) -> None:
    """That is an answer and no error."""
    assert not served.ask("POST", f"{ONE}/stop", {"reason": "x", "within": "30s"}).json()["asked"]
    assert not served.ask("POST", f"{ONE}/resume", {"reason": "x"}).json()["resumed"]
    assert served.ask("PUT", f"{ONE}/dlq", {"reason": "x", "window": 5}).status == 422
    assert served.ask("PUT", f"{ONE}/dlq", {"reason": "x"}).json()["code"] == "INVALID"


def test_rows_are_discarded_if_they_are_those_that_were_shown(served: Served) -> None:
    """If more wait now, nothing is discarded. A discarded row is not discarded again."""
    body = {"reason": "they are old", "expected": 1}
    assert served.ask("POST", f"{ONE}/dlq/discard", body).json()["code"] == "REFUSED"
    assert served.ask("POST", f"{ONE}/dlq/discard", {**body, "expected": 2}).json()["discarded"] == 2
    assert served.ask("POST", f"{ONE}/dlq/discard", {**body, "expected": 2}).json()["discarded"] == 0


def test_a_schedule_is_held_and_goes_on(served: Served) -> None:
    """A pipeline without a schedule has nothing to hold, and the refusal names no other pipeline."""
    path = "/v1/pipelines/items/schedule"
    assert served.ask("PUT", path, {"reason": "holidays", "held": True}).json() == {"pipeline": "items", "held": True}
    assert served.get("/v1/pipelines")["pipelines"][0]["held"] == "holidays"
    served.ask("PUT", path, {"reason": "back", "held": False})
    assert served.get("/v1/pipelines")["pipelines"][0]["held"] is None
    refused = served.ask("PUT", f"{ONE}/schedule", {"reason": "x", "held": True})
    assert (refused.status, b"items" in refused.body) == (422, False)


def test_a_task_fails_with_the_reason(served: Served) -> None:
    """This server has no Spark. The list has the task, with its caller and its reason."""
    task = served.ask("POST", f"{ONE}/runs", {"reason": "the file came late"}, by=served.add_caller("anna", "operate"))
    assert task.status == 202
    ended = served.get(f"/v1/tasks/{task.json()['task']}?wait=10")
    assert (ended["state"], ended["problem"]["detail"]) == ("failed", "This server has no Spark.")
    (listed,) = served.get("/v1/tasks?pipeline=orders")["tasks"]
    assert (listed["by"], listed["reason"], listed["operation"]) == ("anna", "the file came late", "start_run")
    assert served.get("/v1/tasks?pipeline=items") == {"tasks": []}


def test_a_backfill_is_planned_without_spark(served: Served) -> None:
    """The task has the plan. A range without a batch is refused at once."""
    body = {"reason": "look", "preview": True, "again": True}
    task = served.ask("POST", f"{ONE}/backfill", body).json()["task"]
    assert served.get(f"/v1/tasks/{task}?wait=10")["result"]["lanes"]["0"]["rows"] == 2
    for bounds in (
        {"start": "5"},
        {"end": "0"},
        {"start": "9" * 5_000},
        {"start": "²"},
        {"only": "nowhere"},
        {"lane": "x"},
    ):
        assert served.ask("POST", f"{ONE}/backfill", {**body, **bounds}).status == 422, bounds


RUNS = {"start_run": {}, "replay_rows": {}, "run_backfill": {}, "run_redo": {"file": "0.json"}}
"""The operations that carry rows."""


@pytest.mark.parametrize("operation", RUNS)
def test_what_carries_rows_waits_for_the_group_of_its_pipeline(served: Served, operation: str) -> None:
    """An audit does not wait. There is no Spark here, so that each task fails once it begins."""
    file = served.folder / "orders.yaml"
    file.write_text(file.read_text().replace("runners: 1", "group: warehouse"))
    groups, tasks = served.service.tasks.groups, served.service.tasks
    assert groups.choose(SCHEDULE, [("warehouse", served.service.clock.now())]) == 0
    asked = next(each for each in CHANGES if each.name == operation)
    body = {"reason": "a test", **RUNS[operation]}
    task = served.ask(asked.method, asked.path.format(pipeline="orders"), body).json()["task"]
    audit = served.ask("POST", f"{ONE}/audit", {}).json()["task"]
    assert tasks.get(audit, wait=10).state == "failed"
    assert (tasks.get(task).state, tasks.get(task).doing) == ("waiting", "waiting for its group warehouse")
    groups.leave("warehouse")
    assert tasks.get(task, wait=10).state == "failed"


def test_an_ended_task_is_not_cancelled(served: Served) -> None:
    """It stays as it ended."""
    task = served.ask("POST", f"{ONE}/audit", {}).json()["task"]
    ended = served.get(f"/v1/tasks/{task}?wait=10")
    assert served.ask("POST", f"/v1/tasks/{task}/cancel", {"reason": "x"}).json() == ended


def wait_for(served: Served, path: str, body: dict[str, Any], by: str = "owner") -> dict[str, Any]:
    """Begin a task, and return it as it ended."""
    begun = served.ask("POST", f"{ONE}{path}", body, by=by)
    assert begun.status == 202, begun
    for _ in range(20):
        task: dict[str, Any] = served.get(f"/v1/tasks/{begun.json()['task']}?wait=15")
        if task["ended_at"]:
            return task
    raise AssertionError(task)


@pytest.mark.spark
def test_tasks_with_spark_have_their_results(spark: SparkSession, tmp_path: Path) -> None:
    """A run reports, a refused row is explained, a replay is tried, and an audit finds everything in its place."""
    write_pipeline(tmp_path, "orders", "stages: [require: {positive: amount > 0}]\n", rows={1: 10, 2: -1})
    with serve(tmp_path, spark=True) as served:
        by = served.add_caller("anna", "operate")
        run = wait_for(served, "/runs", {"reason": "the file came"}, by)
        assert (run["state"], run["result"]["read"], run["result"]["nacked"]) == ("succeeded", 2, 1)
        assert served.get(f"{ONE}/runs/last")["run"] == run["run"]
        (row,) = served.get(f"{ONE}/dlq/rows")["rows"]
        explained = wait_for(served, "/dlq/explain", {"id": row["id"]})
        assert (explained["state"], row["id"] in json.dumps(explained["result"])) == ("succeeded", True)
        tried = wait_for(served, "/dlq/replay", {"reason": "try", "preview": True}, by)
        assert tried["state"] == "succeeded", tried
        replayed = wait_for(served, "/dlq/replay", {"reason": "again"}, by)
        assert (replayed["state"], replayed["result"]["nacked"]) == ("succeeded", 1)
        audit = wait_for(served, "/audit", {})
        assert (audit["state"], audit["result"]["problems"]) == ("succeeded", [])
        missing = wait_for(served, "/dlq/explain", {"id": "'; DROP TABLE x; --\\"})
        assert (missing["state"], missing["problem"]["code"]) == ("failed", "REFUSED")
