"""REST and gRPC answer the same: every operation is asked both ways, and random messages are answered or refused."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from msgspec import inspect

from runners.service.deeds import make_etag
from runners.service.grpc_server import STATUSES
from runners.service.operation import Operation
from runners.service.operations import OPERATIONS
from tests.runners.service.grpc_calls import OWN, GrpcServed, make_folder, serve, write_question
from tests.scenarios.conftest import no_spark  # noqa: F401
from tests.scenarios.test_without_spark import PLAIN

pytestmark = pytest.mark.usefixtures("no_spark")
ORDERS, COPIES, NONE = ({"pipeline": name} for name in ("orders", "copies", "none"))
WHY = {**ORDERS, "reason": "a test"}
NEW = """
name: new
origin: {files: {path: "in/*.json", format: json, schema: "id long"}}
destinations: [delta: {path: out}]
"""
ETAG = make_etag(PLAIN.replace("orders", "copies").encode())
READING: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "list_pipelines": [{}],
    "get_pipeline": [ORDERS, COPIES, NONE, {"pipeline": "é% ?"}],
    "list_runs": [
        ORDERS,
        COPIES,
        {**ORDERS, "limit": 1, "status": "succeeded", "since": "2026-01-01T00:00"},
        {**ORDERS, "limit": 0},
        {**ORDERS, "limit": 1_001},
        {**ORDERS, "status": "odd"},
        {**ORDERS, "since": "yesterday"},
    ],
    "get_run": [{**ORDERS, "run": "last"}, {**COPIES, "run": "last"}, {**ORDERS, "run": "zzz"}],
    "get_definition": [ORDERS, COPIES, NONE],
    "get_offsets": [ORDERS, COPIES, NONE],
    "get_dlq": [ORDERS, COPIES, NONE],
    "list_refused_rows": [
        ORDERS,
        {**ORDERS, "code": "CAST", "stage": "orders", "file": "1.*", "contains": "é", "limit": 3, "waiting": True},
        {**ORDERS, "ids": ["a", "b"]},
        {**ORDERS, "ids": ["plan/1"], "code": "PARSE"},
        {**ORDERS, "until": "2026-02-30"},
    ],
    "list_causes": [ORDERS, NONE, {**ORDERS, "ids": ["a"]}],
    "get_quality": [ORDERS, {**ORDERS, "limit": 3}, {**ORDERS, "limit": -1}],
    "list_plans": [{}],
    "get_plan": [{"plan": "none"}],
    "get_schedule": [{}, {"days": 31}, {"days": 32}],
    "list_tasks": [{}, ORDERS, NONE],
    "get_task": [{"task": "none"}, {"task": "TASK"}, {"task": "TASK", "wait": 0.5}, {"task": "TASK", "wait": 31.0}],
    "search": [{}, {"text": 'é " x', "kind": "row", "limit": 3}, NONE, {"cursor": "x"}, {"until": "yesterday"}],
    "get_caller": [{}],
    "get_readiness": [{}],
}
"""What is asked of each operation that only looks. TASK stands for a task that has ended."""
CHANGING: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "start_run": [
        WHY,
        {**WHY, "pipeline": "copies"},
        {**WHY, "pipeline": "none"},
        {**WHY, "reason": " "},
        {**WHY, "parameters": {"DAY": "today"}},
        {**WHY, "definition": NEW},
        {**WHY, "pipeline": "new", "definition": NEW, "parameters": {"DAY": "today"}},
    ],
    "validate_definition": [{**ORDERS, "definition": NEW}, {"pipeline": "new", "definition": NEW}, ORDERS],
    "put_definition": [
        {**WHY, "pipeline": "new", "definition": NEW},
        {**WHY, "pipeline": "new", "definition": NEW},
        {**WHY, "definition": NEW, "etag": "0"},
        {**WHY, "pipeline": "New", "definition": NEW},
    ],
    "delete_definition": [{**WHY, "etag": "0"}, {**WHY, "pipeline": "copies", "etag": ETAG}, WHY],
    "stop_run": [WHY, {**WHY, "force": True, "within": "30s"}, {**WHY, "within": "soon"}],
    "resume_pipeline": [WHY, {**WHY, "reason": "x" * 1_001}],
    "move_offsets": [
        {**WHY, "back": 1, "preview": True},
        {**WHY, "back": 1},
        {**WHY, "to": "2026-01-31T06:00", "preview": True},
        {**WHY, "beginning": True},
        {**WHY, "lane": "0", "offset": {"file": "1.json", "modified": 2**70}},
        {**WHY, "lane": "0", "back": 1},
        {**WHY, "back": -1},
        WHY,
    ],
    "change_dlq": [{**WHY, "window": 5, "threshold": 0, "rows": ""}, {**WHY, "window": -1}, WHY],
    "explain_row": [{**ORDERS, "id": "plan/1"}, {**ORDERS, "id": "none"}, ORDERS],
    "replay_rows": [WHY, {**WHY, "preview": True, "code": "CAST"}, {**WHY, "ids": ["none"]}],
    "discard_rows": [
        {**WHY, "ids": ["plan/2"], "expected": 1},
        WHY,
        {**WHY, "expected": 0},
        {**WHY, "expected": 3},
        {**WHY, "expected_digest": "0"},
        {**WHY, "ids": ["none"]},
    ],
    "run_audit": [ORDERS, COPIES, NONE],
    "run_repair": [WHY, {**WHY, "accept": ["none"]}],
    "run_backfill": [
        WHY,
        {**WHY, "preview": True, "start": "1", "end": "2", "again": True},
        {**WHY, "only": "none"},
        {**WHY, "start": "soon"},
    ],
    "run_redo": [{**WHY, "file": "1.json"}, {**WHY, "file": "none.json"}, WHY],
    "hold_schedule": [{**WHY, "held": True}, {**WHY, "held": False}, WHY, {**WHY, "pipeline": "none", "held": True}],
    "plan_change": [{"operation": "stop_run", "arguments": WHY}, {"operation": "odd", "arguments": [1, None]}],
    "approve_plan": [{"plan": "none", "digest": "0"}],
    "carry_out_plan": [{"plan": "none"}],
    "cancel_task": [{"task": "TASK", "reason": "a test"}, {"task": "none", "reason": "a test"}, {"task": "TASK"}],
}
"""What is asked of each operation that changes something."""
NEVER = {"change_dlq", "plan_change", "approve_plan", "carry_out_plan"}
"""What the owner cannot do here: it takes a run that works, or an agent."""
STREAMING = {"watch_events"}
"""Operations whose answers are compared where streams are tested."""
_ITS_OWN = re.compile(r"\b[0-9a-f]{32}\b|\b\d{4}-\d\d-\d\d[T ][\d:.]+(\+00:00|Z)?|\d{13}\b")
"""Ids and moments, which differ from server to server."""
_SPENT = re.compile(r'"(spent|seconds|snapshot)": (\{[^}]*\}|[^,}]+)')


def test_every_operation_is_asked() -> None:
    """A new operation needs its questions here."""
    assert {*READING} == {each.name for each in OPERATIONS if not each.changes} - STREAMING
    assert {*CHANGING} == {each.name for each in OPERATIONS if each.changes}


def run_task(served: GrpcServed, name: str = "run_audit", question: Mapping[str, Any] = ORDERS) -> str:
    """Return the id of a task that has ended."""
    status, task = served.ask(name, question)
    assert status == grpc.StatusCode.OK
    served.service.tasks.wait(60.0)
    return str(task["task"])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrpcServed]:
    """Provide a server that no test changes."""
    with serve(make_folder(tmp_path_factory.mktemp("served"))) as made:
        yield made


@pytest.mark.parametrize("name", sorted(READING))
def test_a_question_gets_the_same_answer_both_ways(served: GrpcServed, name: str) -> None:
    """The answers are equal in every value, and refusals in every word."""
    task = run_task(served)
    for question in READING[name]:
        asked = {each: task if value == "TASK" else value for each, value in question.items()}
        over_grpc, over_rest = served.ask(name, asked), served.ask_rest(name, asked)
        if name == "get_schedule" and over_grpc[0] == grpc.StatusCode.OK:
            del over_grpc[1]["now"], over_rest[1]["now"]
        assert over_grpc == over_rest


@pytest.mark.parametrize("name", sorted(CHANGING))
def test_a_change_gets_the_same_answer_both_ways(tmp_path: Path, name: str) -> None:
    """Two equal folders are changed, each one way. Tasks end alike too."""
    with serve(make_folder(tmp_path / "one")) as one, serve(make_folder(tmp_path / "other")) as other:
        tasks = [run_task(each) for each in (one, other)]
        statuses = set()
        for question in CHANGING[name]:
            asked, asked_too = (
                {each: task if value == "TASK" else value for each, value in question.items()} for task in tasks
            )
            over_grpc, over_rest = one.ask(name, asked), other.ask_rest(name, asked_too)
            statuses.add(over_grpc[0])
            ended, ended_too = (list_ended(each) for each in (one, other))
            assert make_alike(one, over_grpc) == make_alike(other, over_rest)
            assert make_alike(one, ended) == make_alike(other, ended_too)
    assert grpc.StatusCode.INTERNAL not in statuses
    assert grpc.StatusCode.OK in statuses or name in NEVER


def list_ended(served: GrpcServed) -> Any:
    """Return all tasks with their results, once they have ended."""
    served.service.tasks.wait(60.0)
    _, listed = served.ask("list_tasks", {})
    return [served.ask("get_task", {"task": each["task"]}) for each in listed["tasks"]]


def make_alike(served: GrpcServed, said: Any) -> str:
    """Return an answer as a text, without ids and times and the path of the folder."""
    text = json.dumps(said, default=str).replace(str(served.folder), "FOLDER")
    return _ITS_OWN.sub("ITS OWN", _SPENT.sub("", text))


ALLOWED = {grpc.StatusCode.OK, *STATUSES.values()} - {grpc.StatusCode.INTERNAL}
"""With what a call may end."""
TEXTS = (
    *(
        "orders",
        "copies",
        "none",
        "",
        "a test",
        "TASK",
        "last",
        "1",
        "-1",
        "2026-01-31T06:00",
        "é",
        "a\0b",
        "x" * 5_000,
    ),
    *(
        "../orders",
        "{",
        "[]",
        "null",
        "%",
        "*",
        "[",
        "\\",
        "'",
        "\n",
        "5% pause",
        "30s",
        "1.json",
        "\U0001f600",
        "9" * 30,
    ),
    *("9999-12-31T23:59", "0001-01-01T00:00+14:00", "10000000000000s", "1e999", "NaN"),
)
NUMBERS = (0, 1, 2, 7, 20, 31, 1_000, -1, 2**31, 2**63 - 1, -(2**63))


def draw_value(dice: random.Random, kind: inspect.Type) -> Any:
    """Return a value of a field, which may be wrong."""
    if isinstance(kind, inspect.UnionType):
        return draw_value(dice, kind.types[0])
    if isinstance(kind, inspect.ListType):
        return [dice.choice(TEXTS) for _ in range(dice.randrange(4))]
    if isinstance(kind, inspect.DictType):
        return {dice.choice(TEXTS): dice.choice(TEXTS) for _ in range(dice.randrange(3))}
    if isinstance(kind, inspect.AnyType):
        return dice.choice([None, {}, [], 1, 2**70, "a", {"file": "1.json", "modified": 1}])
    if isinstance(kind, inspect.BoolType):
        return dice.random() < 0.5
    if isinstance(kind, inspect.IntType):
        return dice.choice(NUMBERS)
    if isinstance(kind, inspect.FloatType):
        return dice.choice([0.0, 0.01, -1.0, 1e300, float("inf"), float("nan")])
    return dice.choice(TEXTS)


def draw_message(dice: random.Random, operation: Operation) -> bytes:
    """Return the bytes of a question: a sound one, one with random values, a damaged one, or any bytes."""
    described = inspect.type_info(operation.ask)
    assert isinstance(described, inspect.StructType)
    sound = {"pipeline": "orders", "reason": "a test", "task": "TASK"}
    question = {}
    for each in described.fields:
        if each.encode_name in sound and dice.random() < 0.8:
            question[each.encode_name] = sound[each.encode_name]
        elif dice.random() < 0.4:
            question[each.encode_name] = draw_value(dice, each.type)
    data = bytearray(write_question(operation, question))
    if dice.random() < 0.2:
        for _ in range(dice.randrange(1, 4)):
            place = dice.randrange(len(data) + 1)
            data[place : place + dice.randrange(3)] = dice.randbytes(dice.randrange(3))
    return bytes(data) if dice.random() < 0.95 else dice.randbytes(dice.randrange(60))


def read_folder(served: GrpcServed) -> Mapping[str, str]:
    """Return what every file of the folder has but locks, and every change that the log has."""
    own = served.folder / ".wherry/server"
    files = [
        file
        for file in sorted(served.folder.rglob("*"))
        if file.is_file() and file.name != "lock" and own not in file.parents
    ]
    log = served.service.deeds.log
    lines = log.read_text().splitlines() if log.exists() else []
    done = [line for line in lines if json.loads(line).get("done")]
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files} | {"done": "\n".join(done)}


def send_random(served: GrpcServed, dice: random.Random, count: int) -> Mapping[grpc.StatusCode, int]:
    """Send random messages, one after another. Return how many ended with each status."""
    statuses: Counter[grpc.StatusCode] = Counter()
    before = read_folder(served)
    for _ in range(count):
        operation = dice.choice([each for each in OPERATIONS if not each.streams])
        data = draw_message(dice, operation)
        key, token = (dice.choices([given, other], [9, 1])[0] for given, other in ((None, ""), (OWN, "wherry_other")))
        try:
            served.send(operation.title, data, key, token)
            status = grpc.StatusCode.OK
        except grpc.RpcError as error:
            status = error.code()
        assert status in ALLOWED, (operation.name, data)
        served.service.tasks.wait(60.0)
        after = read_folder(served)
        assert after == before or (status == grpc.StatusCode.OK and operation.changes), (operation.name, data)
        before = after
        statuses[status] += 1
    return statuses


@pytest.mark.parametrize(
    ("seed", "count"), [(0, 400), *(pytest.param(seed, 2_000, marks=pytest.mark.long) for seed in range(1, 6))]
)
def test_a_refused_message_changes_nothing(tmp_path: Path, seed: int, count: int) -> None:
    """Random messages are answered or refused, in time, and without an error that the server does not expect."""
    with serve(make_folder(tmp_path)) as served:
        statuses = send_random(served, random.Random(seed), count)
        assert served.ask("get_pipeline", ORDERS)[0] == grpc.StatusCode.OK
    assert {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND} <= statuses.keys()
