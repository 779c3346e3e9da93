"""The proxy forwards requests without a fault, and applies faults to others."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from tests.manual_clock import ManualClock
from tests.stores.fault_proxy import Effect, Fault, FaultProxy, start_proxy
from tests.stores.s3 import KEY, S3

Ask = Callable[..., tuple[int, bytes]]
SIGNED = {"authorization": f"AWS {KEY}:signature"}
"""A header with a key. moto requires one, but does not check signatures."""


def make_ask(endpoint: str, bucket: str) -> Ask:
    """Return a function that sends one request, without retries."""

    def ask(method: str, key: str = "", body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(urlsplit(endpoint).netloc, timeout=60)
        named = {**SIGNED, **{name.replace("_", "-"): value for name, value in headers.items()}}
        try:
            connection.request(method, f"/{bucket}{key}", body, named)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    return ask


@pytest.fixture
def ask(s3: S3) -> Ask:
    return make_ask(s3.endpoint, s3.bucket)


@pytest.fixture
def look(s3: S3) -> Ask:
    """Send a request directly to the store."""
    return make_ask(s3.behind, s3.bucket)


def test_only_one_of_several_conditional_writes_succeeds(ask: Ask) -> None:
    """They go through the proxy at the same time."""
    with ThreadPoolExecutor(8) as pool:
        said = [[pool.submit(ask, "PUT", f"/{key}", b"x", if_none_match="*") for _ in range(8)] for key in range(10)]
    assert [sorted(each.result()[0] for each in tried) for tried in said] == [[200, *[412] * 7]] * 10


def test_requests_are_counted_by_kind(s3: S3, ask: Ask) -> None:
    """A listing is a GET, and a copy is a PUT. Both are counted separately."""
    ask("PUT", "/a", b"x")
    ask("PUT", "/b", None, x_amz_copy_source=f"{s3.bucket}/a")
    ask("GET", "/b")
    ask("HEAD", "/b")
    ask("GET", "?list-type=2&prefix=a")
    ask("DELETE", "/a")
    ask("POST", "?delete", b"<Delete><Object><Key>b</Key></Object></Delete>")
    ask("POST", "/c?uploads", b"")
    assert s3.proxy.count() == {"PUT": 1, "COPY": 1, "GET": 1, "HEAD": 1, "LIST": 1, "DELETE": 2, "POST": 1}
    keys = [request.key.removeprefix(s3.bucket) for request in s3.proxy.list_requests()]
    assert keys == ["/a", "/b", "/b", "/b", "/a", "/a", "", "/c"]
    s3.proxy.reset_counts()
    assert (s3.proxy.count(), s3.proxy.list_requests()) == ({}, [])


@pytest.mark.parametrize(
    ("effect", "status", "code"), [("slow_down", 503, b"SlowDown"), ("refuse", 412, b"PreconditionFailed")]
)
def test_a_refused_request_has_no_effect(s3: S3, ask: Ask, look: Ask, effect: Effect, status: int, code: bytes) -> None:
    """Its answer is like the store's answer in such a case."""
    fault = s3.proxy.add(Fault(effect, "PUT", "/a$"))
    said, text = ask("PUT", "/a", b"x")
    assert (said, code in text, fault.hits, look("GET", "/a")[0]) == (status, True, 1, 404)
    assert ask("PUT", "/a", b"x")[0] == 200


@pytest.mark.parametrize(("effect", "landed"), [("reset", 404), ("lose_answer", 200)])
def test_a_reset_connection_does_not_show_whether_the_write_succeeded(
    s3: S3, ask: Ask, look: Ask, effect: Effect, landed: int
) -> None:
    """With `lose_answer` the store has the key, with `reset` it does not."""
    s3.proxy.add(Fault(effect, "PUT"))
    with pytest.raises(ConnectionResetError):
        ask("PUT", "/a", b"x")
    assert look("GET", "/a")[0] == landed


def test_a_denied_request_was_executed(s3: S3, ask: Ask, look: Ask) -> None:
    """A client that tries again finds the key that it wrote."""
    s3.proxy.add(Fault("deny", "PUT"))
    said = [ask("PUT", "/a", b"x", if_none_match="*")[0] for _ in range(2)]
    assert (said, look("GET", "/a")) == ([503, 412], (200, b"x"))


def test_a_disregarded_condition_protects_nothing(s3: S3, ask: Ask, look: Ask) -> None:
    """The second writer replaces the content of the first."""
    s3.proxy.add(Fault("disregard", "PUT", times=None))
    said = [ask("PUT", "/a", body, if_none_match="*")[0] for body in (b"x", b"y")]
    assert (said, look("GET", "/a")) == ([200, 200], (200, b"y"))


def test_a_written_key_is_hidden_for_some_requests(s3: S3, ask: Ask) -> None:
    """A key that was not written is missing anyway, and does not count."""
    fault = s3.proxy.add(Fault("hide", key="/a$", times=2))
    assert ask("GET", "/a")[0] == 404
    ask("PUT", "/a", b"x")
    assert [ask("GET", "/a")[0], ask("HEAD", "/a")[0], ask("GET", "/a")[0]] == [404, 404, 200]
    assert fault.hits == 2


def test_a_fault_applies_only_to_matching_requests(s3: S3, ask: Ask) -> None:
    """It depends on kind and key. Some requests pass before it, and a limited number has it."""
    s3.proxy.add(Fault("slow_down", "PUT", r"_log/\d+\.json$", times=2, skip=1))
    names = ["a", "_log/0.json", "_log/x.json", "_log/1.json", "_log/2.json", "_log/3.json"]
    assert [ask("PUT", f"/{name}", b"x")[0] for name in names] == [200, 200, 200, 503, 503, 200]


@pytest.mark.parametrize(("effect", "before"), [("hold", 404), ("hold_answer", 200)])
def test_a_request_is_held_until_it_is_released(s3: S3, ask: Ask, look: Ask, effect: Effect, before: int) -> None:
    """`hold` holds it before the store has it, and `hold_answer` before the client has the answer."""
    fault = s3.proxy.add(Fault(effect, "PUT"))
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(ask, "PUT", "/a", b"x")
        assert fault.reached.wait(60)
        assert (look("GET", "/a")[0], held.done()) == (before, False)
        fault.let_go()
        assert held.result(60)[0] == 200
    assert look("GET", "/a")[0] == 200


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def proxy(s3_server: str, clock: ManualClock) -> Iterator[FaultProxy]:
    with start_proxy(s3_server, clock.elapsed) as proxy:
        yield proxy


def test_a_store_is_away_for_seconds_of_the_given_clock(proxy: FaultProxy, clock: ManualClock) -> None:
    """The proxy resets and counts all requests."""
    ask = make_ask(proxy.endpoint, "bucket-of-nobody")
    proxy.go_away(5)
    with pytest.raises(ConnectionResetError):
        ask("GET", "/a")
    clock.move(4.9)
    with pytest.raises(ConnectionResetError):
        ask("GET", "/a")
    clock.move(0.2)
    assert ask("GET", "/a")[0] == 404
    assert proxy.count() == {"GET": 3}


def test_a_store_is_away_until_come_back_is_called(proxy: FaultProxy, clock: ManualClock) -> None:
    """The time does not matter."""
    ask = make_ask(proxy.endpoint, "bucket-of-nobody")
    proxy.go_away()
    clock.move(1e6)
    with pytest.raises(ConnectionResetError):
        ask("GET", "/a")
    proxy.come_back()
    assert ask("GET", "/a")[0] == 404
