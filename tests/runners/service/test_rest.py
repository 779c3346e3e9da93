"""REST under attack: each request is answered or refused, and no caller can keep the others from their answers."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from runners.service.happenings import MOST_OF_ONE, MOST_WATCHERS
from runners.service.operation import Caller, Right
from runners.service.rest import LARGEST, SLOWEST_BODY
from runners.service.serving import PATIENCE
from tests.runners.service.served import Served

DISCARD = "/v1/pipelines/orders/dlq/discard"
OWNER = Caller(name="owner", right=Right.ADMIN)


@contextlib.contextmanager
def open_socket(served: Served, sent: bytes = b"") -> Iterator[socket.socket]:
    """Connect to the server and send these bytes, without waiting for an answer."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as opened:
        with contextlib.suppress(ConnectionError):  # the server may close it before it has everything
            opened.sendall(sent)
        yield opened


def write_request(served: Served, method: str, path: str, *headers: str, by: str = "owner") -> bytes:
    """Return the beginning of a request, without the empty line at its end."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {served.tokens[by]}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n"


def read_all(opened: socket.socket) -> bytes:
    """Return what comes until the server closes the connection."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := opened.recv(65_536):
            parts.append(part)
    return b"".join(parts)


@contextlib.contextmanager
def open_stream(served: Served, by: str = "owner") -> Iterator[http.client.HTTPResponse]:
    """Watch what happens."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=20)
    try:
        connection.request("GET", "/v1/events", headers={"Authorization": f"Bearer {served.tokens[by]}"})
        yield connection.getresponse()
    finally:
        connection.close()


def test_every_answer_has_the_safe_headers(served: Served) -> None:
    """A browser loads nothing else for it, frames it nowhere, and keeps it nowhere. This holds for refusals too."""
    asked: list[tuple[str, dict[str, str | None]]] = [
        ("/v1/pipelines", {}),
        ("/live", {}),
        ("/nowhere", {}),
        ("/v1/pipelines", {"Authorization": None}),
        ("/v1/pipelines", {"Host": "evil.example"}),
    ]
    for path, headers in asked:
        found = served.ask("GET", path, headers=headers).headers
        assert "default-src 'none'" in found["content-security-policy"]
        assert "frame-ancestors 'none'" in found["content-security-policy"]
        assert (found["x-content-type-options"], found["cache-control"]) == ("nosniff", "no-store")
        assert not [name for name in found if name.startswith("access-control")]
        assert "server" not in found


def test_without_a_token_nothing_is_shown(served: Served) -> None:
    """Whether a pipeline exists is not shown either. Only probes, the page and the description need no token."""
    for path in (
        "/v1/pipelines",
        "/v1/pipelines/orders",
        "/v1/pipelines/nowhere",
        "/v1/events",
        "/v1/tasks",
        "/metrics",
    ):
        reply = served.ask("GET", path, headers={"Authorization": None})
        assert (reply.status, reply.json()["code"], reply.headers["www-authenticate"]) == (
            401,
            "UNAUTHENTICATED",
            "Bearer",
        )
    assert [
        served.ask("GET", path, headers={"Authorization": None}).status for path in ("/live", "/", "/openapi.json")
    ] == [
        200,
        200,
        200,
    ]


def test_a_token_in_the_address_does_not_count(served: Served) -> None:
    """Addresses end in histories and logs."""
    path = f"/v1/tasks?token={served.tokens['owner']}"
    assert served.ask("GET", path, headers={"Authorization": None}).status == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example", "Origin": "http://evil.example"},
        {"Host": "evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
    ],
)
def test_another_web_site_changes_nothing(served: Served, headers: dict[str, str | None]) -> None:
    """This holds even with a token and a key."""
    reply = served.ask("POST", DISCARD, {"reason": "evil"}, headers=headers)
    assert (reply.status, reply.json()["code"]) == (403, "FORBIDDEN")
    assert served.read_log() == []


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/json", ""]
)
def test_a_form_of_a_browser_is_no_change(served: Served, kind: str) -> None:
    """A browser sends such a body without asking the server before."""
    reply = served.ask("POST", DISCARD, {"reason": "a form"}, headers={"Content-Type": kind})
    assert (reply.status, reply.json()["code"]) == (422, "INVALID")
    assert served.read_log() == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b'{"reason": ""}',
        b'{"reason": "  "}',
        b'{"reason": "x", "surprise": 1}',
        b'{"reason": "x", "pipeline": "items"}',
        b'{"reason": 1}',
        b'{"reason": "\\ud800"}',
        b'{"reason": "\xff"}',
        b'{"reason": "x", "ids": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"reason": "x", "expected": -1}',
        b'{"reason": "x", "expected": 1e999}',
        json.dumps({"reason": "x" * 1_001}).encode(),
        json.dumps({"reason": "x", "contains": "x" * 1_001}).encode(),
        json.dumps({"reason": "x", "file": "*" * 1_001}).encode(),
    ],
)
def test_a_wrong_body_changes_nothing(served: Served, body: bytes) -> None:
    """The answer says what is wrong, as a problem."""
    reply = served.ask("POST", DISCARD, body)
    assert (reply.status, reply.headers["content-type"]) == (422, "application/problem+json")
    assert served.read_log() == []


def test_a_text_with_any_letters_is_kept_as_it_is(served: Served) -> None:
    """A NUL and the separators of lines are letters of a reason."""
    reason = "a\0b\r\nc\u2028d\x1b[2J"
    assert served.ask("POST", DISCARD, {"reason": reason, "contains": "nowhere\0"}).json()["discarded"] == 0
    assert served.read_log()[0]["with"]["reason"] == reason


def test_a_large_body_is_refused_before_it_is_read(served: Served) -> None:
    """It has 50 MB. Nothing is kept of it, and the next request is answered."""
    began = write_request(
        served, "POST", DISCARD, "Content-Type: application/json", "Content-Length: 50000000", "Idempotency-Key: k"
    )
    with open_socket(served, began + b"\r\n") as opened:
        with contextlib.suppress(ConnectionError):
            for _ in range(50):
                opened.sendall(b"x" * 1_000_000)
        assert opened.recv(100).startswith(b"HTTP/1.1 422")
    assert served.ask("POST", DISCARD, b"x" * (LARGEST + 1)).status == 422
    assert served.read_log() == []
    assert served.get("/v1/tasks") == {"tasks": []}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/pipelines/orders/runs?limit=1&limit=2", 422),
        ("/v1/pipelines/orders/runs?pipeline=items", 422),
        ("/v1/pipelines/orders/runs?surprise=1", 422),
        ("/v1/pipelines/orders/runs?limit=0", 422),
        ("/v1/pipelines/orders/runs?limit=1001", 422),
        ("/v1/pipelines/orders/runs?limit=%EF%BC%91", 422),
        ("/v1/pipelines/orders/runs?since=yesterday", 422),
        ("/v1/pipelines/orders/runs?since=0001-01-01T00:00%2B10:00", 422),
        ("/v1/pipelines/orders/runs?since=1677-01-01", 422),
        ("/v1/pipelines/orders/dlq/rows?until=9999-12-31T23:59-10:00", 422),
        ("/v1/tasks/nowhere?wait=nan", 422),
        ("/v1/tasks/nowhere?wait=31", 422),
        ("/v1/pipelines/orders/runs/%25", 404),
        ("/v1/pipelines/orders/runs/%27%20OR%20true", 404),
        ("/v1/pipelines/../pipelines/orders", 404),
        ("/v1/pipelines/..%2Forders", 404),
        ("/v1/pipelines/%2e%2e", 404),
        ("/v1/pipelines/orders%00", 404),
        ("/v1/pipelines/%ff%fe", 404),
        ("/v1/pipelines/orders/", 404),
        ("//v1/pipelines", 404),
        ("/page/../serving.py", 404),
        ("/%2e%2e/serving.py", 404),
    ],
)
def test_a_wrong_address_is_answered_with_a_problem(served: Served, path: str, status: int) -> None:
    """It leads nowhere, in no encoding."""
    reply = served.ask("GET", path)
    assert (reply.status, reply.json()["status"]) == (status, status)


@pytest.mark.parametrize(
    "query",
    [
        "code=%27%20OR%20true--",
        "stage=%7Btable%7D",
        "contains=%25",
        "contains=_",
        "file=.%2B",
        "file=%5CQ*%5CE%00",
        "file=%28%3F%3Aa%2B%29%2B%24",
        "contains=%C3%A4%27%22%5C",
    ],
)
def test_a_condition_on_refused_rows_is_only_a_text(served: Served, query: str) -> None:
    """None of these is in a row, and none of them is a pattern or SQL."""
    for path in ("rows", "causes"):
        (found,) = served.get(f"/v1/pipelines/orders/dlq/{path}?{query}").values()
        assert found == []


@pytest.mark.parametrize("id_", ["%27%20OR%20true--", "plan/1%5C", "%00", "plan/1%27%20OR%20%271%27=%271"])
def test_an_id_is_only_a_text(served: Served, id_: str) -> None:
    """An id that no row has is refused."""
    reply = served.ask("GET", f"/v1/pipelines/orders/dlq/rows?ids={id_}")
    assert (reply.status, reply.json()["code"]) == (422, "REFUSED")


@pytest.mark.parametrize(
    ("method", "allowed"), [("DELETE", "GET, HEAD"), ("OPTIONS", "GET, HEAD"), ("TRACE", "GET, HEAD")]
)
def test_another_method_is_refused(served: Served, method: str, allowed: str) -> None:
    """The answer says which ones there are."""
    reply = served.ask(method, "/v1/pipelines")
    assert reply.status == 405
    assert sorted(reply.headers["allow"].split(", ")) == allowed.split(", ")


def test_a_repeated_change_is_done_once(served: Served) -> None:
    """Many at the same moment, and one later, get the answer of the first or learn that it has not ended."""
    body, found = {"reason": "they are old", "ids": ["plan/1"]}, []
    at_once = threading.Barrier(8)

    def send() -> None:
        at_once.wait(10)
        found.append(served.ask("POST", DISCARD, body, key="k"))

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    found.append(served.ask("POST", DISCARD, body, key="k"))
    assert {(each.status, each.json().get("code", "")) for each in found} <= {(200, ""), (409, "KEY_TAKEN")}
    assert {each.json()["discarded"] for each in found if each.status == 200} == {1}
    assert found[-1].status == 200
    assert served.ask("POST", DISCARD, {"reason": "another"}, key="k").status == 409
    assert len([line for line in served.read_log() if "with" in line]) == 1


def test_a_change_without_a_key_is_refused(served: Served) -> None:
    """A header with letters that no key has is none."""
    for key in ("", "a b", "k" * 201, "\xe9"):
        assert served.ask("POST", DISCARD, {"reason": "x"}, key=key).json()["code"] == "INVALID"
    assert served.read_log() == []


def test_a_stream_has_what_happens(served: Served) -> None:
    """Each event is a line of JSON, with any letters."""
    with open_stream(served) as stream:
        assert stream.getheader("content-type", "").startswith("text/event-stream")
        assert stream.readline() == b"event: watching\n"
        assert json.loads(stream.readline().removeprefix(b"data: "))["event"] == "watching"
        assert stream.readline() == b"\n"
        served.ask("PUT", "/v1/pipelines/items/schedule", {"reason": "a\n\ndata: b", "held": True})
        served.service.happenings._pass_on("noted", "orders", {"text": "a\r\n\r\nevent: b\u2028"})
        assert stream.readline() == b"event: noted\n"
        assert json.loads(stream.readline().removeprefix(b"data: "))["facts"] == {"text": "a\r\n\r\nevent: b\u2028"}
        assert stream.readline() == b"\n"


def test_a_caller_has_only_so_many_streams_and_the_others_have_answers(served: Served) -> None:
    """One more is refused, and its connection is closed. A stream that ends makes room."""
    served.add_caller("anna", "read")
    with contextlib.ExitStack() as streams:
        opened = [streams.enter_context(open_stream(served)) for _ in range(MOST_OF_ONE)]
        assert {each.status for each in opened} == {200}
        with open_stream(served) as refused:
            assert (refused.status, refused.getheader("connection")) == (429, "close")
        with open_stream(served, by="anna") as other:
            assert other.status == 200
        assert served.get("/v1/pipelines/orders")["pipeline"] == "orders"
    wait_for_room(served)


def wait_for_room(served: Served) -> None:
    """Wait until the owner may open a stream."""
    for _ in range(500):
        with open_stream(served) as stream:
            if stream.status == 200:
                return
        time.sleep(0.02)
    raise AssertionError("the streams did not end")


def test_a_reader_that_leaves_at_once_takes_no_stream_with_it(served: Served) -> None:
    """It leaves before the first event, more often than there are streams."""
    request = write_request(served, "GET", "/v1/events") + b"\r\n"
    for _ in range(3 * MOST_OF_ONE):
        with open_socket(served, request):
            pass
    wait_for_room(served)


def test_a_reader_that_never_reads_delays_nothing(served: Served) -> None:
    """More happens than all buffers take. Runs do not wait, and other readers get all of it."""
    with open_socket(served, write_request(served, "GET", "/v1/events") + b"\r\n"), open_stream(served) as other:
        other.readline()
        facts, began = {"text": "x" * 10_000}, time.monotonic()
        for _ in range(3_000):
            served.service.happenings._pass_on("noted", "orders", facts)
        assert time.monotonic() - began < 5
        assert served.get("/v1/tasks") == {"tasks": []}
        events = {other.readline() for _ in range(300)}
    assert b"event: noted\n" in events or b"event: missed\n" in events


def test_waiting_for_tasks_delays_no_other_question(served: Served) -> None:
    """There are more of them than the server has threads for other questions."""
    gate = threading.Event()
    task = served.service.tasks.start("run_audit", "orders", OWNER, "", lambda _: gate.wait(30)).task
    request = write_request(served, "GET", f"/v1/tasks/{task}?wait=20") + b"\r\n"
    with contextlib.ExitStack() as opened:
        for _ in range(80):
            opened.enter_context(open_socket(served, request))
        began = time.monotonic()
        assert served.get("/v1/tasks")["tasks"][0]["state"] == "working"
        assert time.monotonic() - began < 5
        gate.set()


@pytest.mark.long
def test_a_caller_that_sends_slowly_is_left(served: Served) -> None:
    """It sends a header or a body letter by letter, or nothing at all. Others are answered meanwhile."""
    head = write_request(
        served, "POST", DISCARD, "Content-Type: application/json", "Content-Length: 50", "Idempotency-Key: k"
    )
    began, ended, answers = time.monotonic(), [], []

    def trickle(start: bytes, drop: bytes) -> None:
        with open_socket(served, start) as opened:
            opened.settimeout(0.5)
            for _ in range(100):
                with contextlib.suppress(OSError):
                    opened.sendall(drop)
                try:
                    answers.append(opened.recv(100))
                    break
                except TimeoutError:
                    continue
                except OSError:
                    break
            ended.append(time.monotonic() - began)

    starts = [(b"", b""), (b"GET / HTTP/1.1\r\n", b"X: y\r\n"), (b"GET /", b"a"), (head + b"\r\n", b"x")]
    threads = [threading.Thread(target=trickle, args=each) for each in starts]
    for thread in threads:
        thread.start()
    assert served.get("/v1/tasks") == {"tasks": []}
    for thread in threads:
        thread.join(60)
    assert len(ended) == 4
    assert max(ended) < 2 * max(PATIENCE, SLOWEST_BODY) + 5
    assert [each for each in answers if each and not each.startswith((b"HTTP/1.1 422", b"HTTP/1.1 400"))] == []
    assert served.read_log() == []


@pytest.mark.long
def test_ten_thousand_streams_leave_room_for_questions(served: Served) -> None:
    """Two hundred of them are open, and each other one is refused."""
    names = [served.add_caller(f"caller{number}", "read") for number in range(20)]
    requests = [write_request(served, "GET", "/v1/events", by=name) + b"\r\n" for name in names]
    opened, answers, slowest = [], [], 0.0
    with contextlib.ExitStack() as streams:
        for number in range(10_000):
            stream = streams.enter_context(open_socket(served, requests[number % 20]))
            answers.append(stream.recv(12))
            if not answers[-1].endswith(b"200"):
                stream.close()
            else:
                opened.append(stream)
            if number % 500 == 0:
                began = time.monotonic()
                served.get("/v1/tasks")
                slowest = max(slowest, time.monotonic() - began)
    assert len(opened) == MOST_WATCHERS
    assert answers.count(b"HTTP/1.1 429") == 10_000 - MOST_WATCHERS
    assert slowest < 1.0


@pytest.mark.parametrize(
    "sent",
    [
        b"\0" * 100,
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: " + b"y" * 1_000_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\n\r\nGET /live HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_no_request_is_not_answered_like_one(served: Served, sent: bytes) -> None:
    """The connection is closed, and the next caller is answered."""
    with open_socket(served, sent) as opened:
        with contextlib.suppress(OSError):  # the server may have closed it
            opened.shutdown(socket.SHUT_WR)
        answer = read_all(opened)
    assert answer[:12] in (b"", b"HTTP/1.1 400", b"HTTP/1.1 403", b"HTTP/1.1 405")
    assert b"live\n" not in answer
    assert served.ask("GET", "/live").body == b"live\n"


def test_two_hosts_in_a_request_are_refused(served: Served) -> None:
    """A proxy may have checked the other one."""
    with open_socket(served, b"GET /live HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n") as opened:
        assert opened.recv(12) == b"HTTP/1.1 400"


def test_metrics_are_for_callers_of_all_pipelines(served: Served) -> None:
    """They name every pipeline."""
    served.add_caller("anna", "read")
    served.add_caller("sam", "admin", "orders")
    assert served.ask("GET", "/metrics", by="anna").headers["content-type"].startswith("text/plain; version=0.0.4")
    assert served.ask("GET", "/metrics", by="sam").status == 403
