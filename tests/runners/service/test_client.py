"""The client for Python: each operation is a method, a lost request is sent again, and a task is waited for."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from runners.model.errors import Refusal
from runners.service.client import Client, ServerProblem, Unreachable
from runners.service.operations import OPERATIONS
from tests.runners.service.served import Served

WHY = "a test"


@pytest.fixture
def client(served: Served) -> Client:
    """A client with every right."""
    return Client(served.address, served.tokens["owner"])


@pytest.fixture
def busy(served: Served) -> Iterator[threading.Event]:
    """Something to set, so that the tasks that keep the server busy end."""
    ends = threading.Event()
    yield ends
    ends.set()


def test_each_operation_is_a_method_with_its_documentation(client: Client) -> None:
    """A stream is watched instead."""
    for operation in OPERATIONS:
        if not operation.streams:
            assert getattr(client, operation.name).__doc__ == operation.act.__doc__
    with pytest.raises(AttributeError, match="no operation 'delete_everything'"):
        client.delete_everything(pipeline="orders")


def test_an_answer_has_its_type(client: Client) -> None:
    """A list in a question and a condition reach the server."""
    assert [each.status for each in client.list_runs(pipeline="orders", limit=1).runs] == ["succeeded"]
    rows = client.list_refused_rows(pipeline="orders", ids=["plan/1", "plan/2"], waiting=True).rows
    assert [row.id for row in rows] == ["plan/1", "plan/2"]


def test_a_refusal_has_its_code_and_what_to_do(client: Client) -> None:
    """The whole problem is there too."""
    with pytest.raises(ServerProblem, match="no pipeline") as caught:
        client.get_pipeline(pipeline="nowhere")
    assert (caught.value.code, caught.value.problem.status) == ("NOT_FOUND", 404)


def test_a_change_with_the_same_key_is_done_once(client: Client, served: Served) -> None:
    """Without a key, each call is a new change."""
    first, second = (client.discard_rows(pipeline="orders", ids=["plan/1"], reason=WHY, key="one") for _ in range(2))
    assert first == second
    assert [line["key"] for line in served.read_log() if "with" in line] == ["one"]
    assert client.discard_rows(pipeline="orders", ids=["plan/1"], reason=WHY).discarded == 0


def test_a_request_without_an_answer_is_sent_again_with_its_key() -> None:
    """A server that closes three connections cannot be reached."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        keys: list[bytes] = []

        def close_all() -> None:
            for _ in range(3):
                connection, _ = listening.accept()
                with connection:
                    lines = connection.recv(1 << 16).split(b"\r\n")
                    keys.extend(line for line in lines if line.startswith(b"Idempotency-Key"))

        listening.settimeout(60)
        thread = threading.Thread(target=close_all)
        thread.start()
        client = Client(f"http://127.0.0.1:{listening.getsockname()[1]}", "token")
        with pytest.raises(Unreachable, match="cannot be reached"):
            client.start_run(pipeline="orders", reason=WHY)
        thread.join()
    assert len(keys) == 3
    assert len(set(keys)) == 1


def test_a_task_is_waited_for(client: Client, served: Served) -> None:
    """The last answer has the result. A look at the plan of a replay needs no Spark."""
    task = client.replay_rows(pipeline="orders", reason=WHY, plan=True)
    assert client.wait(task).state == "succeeded"


def test_a_task_that_fails_is_a_problem(client: Client) -> None:
    """This server has no Spark."""
    with pytest.raises(ServerProblem):
        client.wait(client.run_audit(pipeline="orders"))


def test_a_task_that_was_cancelled_before_it_began_is_refused(
    client: Client, served: Served, busy: threading.Event
) -> None:
    """It did nothing, so there is no result."""
    caller = served.guard.tokens.recognise(served.tokens["owner"])
    for _ in range(2):
        served.service.tasks.start("run_audit", "orders", caller, WHY, lambda _: busy.wait(60))
    task = client.run_audit(pipeline="orders")
    client.cancel_task(task=task.task, reason="no longer needed")
    with pytest.raises(Refusal, match="no longer needed"):
        client.wait(task)


def test_what_happens_is_watched(client: Client, served: Served) -> None:
    """The first happening shows that the watch has begun."""
    happenings = client.watch("orders")
    assert next(happenings).event == "watching"
    served.service.happenings.end()
    assert list(happenings) == []


def test_a_client_shows_no_token(client: Client, served: Served) -> None:
    """Its text has only the address."""
    assert served.tokens["owner"] not in f"{client!r} {client}"
