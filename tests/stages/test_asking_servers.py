"""An async function that asks a real, failing server on this machine about each row."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from stages.python_call import ConnectionErrorInFunction, nack
from tests.stages.python.test_protocol import answer_rows, list_refused


class Server(ThreadingHTTPServer):
    """Answers `/score/4` with 2.0, `/score/13` with 500, `/busy/…` with 503, and `/slow/…` once it is closed."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.lock = threading.Lock()
        self.together = threading.Barrier(4, timeout=20)
        self.at_work = self.most = 0
        self.closed = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Answers(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        """Answer, and count the requests at the same time."""
        _, what, number = self.path.split("/")
        with self.server.lock:
            self.server.at_work += 1
            self.server.most = max(self.server.most, self.server.at_work)
        if what == "together":
            self.server.together.wait()
        if what == "slow":
            self.server.closed.wait()
        with self.server.lock:
            self.server.at_work -= 1
        status = 503 if what == "busy" else 500 if number == "13" else 200
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(int(number) / 2).encode())

    def log_message(self, *_: object) -> None:
        """Do nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    """A server for the test."""
    made = Server()
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.closed.set()
    made.shutdown()
    thread.join()
    made.server_close()


def make_asking(url: str) -> Any:
    """Return a function that asks for the score of each row."""

    def fetched(number: int) -> float:
        with urllib.request.urlopen(f"{url}/{number}", timeout=20) as answer:  # noqa: S310 -- it is our own
            return float(json.load(answer))

    async def score(row: dict[str, Any]) -> Any:
        try:
            return {"score": await asyncio.to_thread(fetched, row["id"])}
        except urllib.error.HTTPError as error:
            if error.code == 500:
                return nack(f"the server has no score for {row['id']}", code="NO_SCORE")
            raise

    return score


def test_only_a_row_whose_request_fails_is_refused(server: Server) -> None:
    """Rows keep their order, independent of the order of the answers."""
    found = answer_rows(make_asking(f"{server.url}/score"), 20)
    assert [row[2] for at, row in enumerate(found) if at != 13] == [at / 2 for at in range(20) if at != 13]
    assert list_refused(found) == {13: "NO_SCORE"}


def test_a_limited_number_of_rows_is_asked_for_at_a_time(server: Server) -> None:
    """The server answers only once four requests have arrived, and never gets a fifth one before."""
    assert len(answer_rows(make_asking(f"{server.url}/together"), 12)) == 12
    assert server.most == 4


def test_a_busy_server_fails_the_batch(server: Server) -> None:
    """The error is temporary, and no row is refused."""
    with pytest.raises(ConnectionErrorInFunction, match="HTTP Error 503"):
        answer_rows(make_asking(f"{server.url}/busy"), 3)


def test_a_server_that_is_down_fails_the_batch(server: Server) -> None:
    """No server listens at the address."""
    with pytest.raises(ConnectionErrorInFunction, match="Connection refused"):
        answer_rows(make_asking("http://127.0.0.1:1"), 3)


def test_a_row_without_an_answer_in_time_is_refused_alone() -> None:
    """The limit is for each row."""

    async def score(row: dict[str, Any]) -> Any:
        if row["id"] == 2:
            await asyncio.Event().wait()
        return {"score": 1.0}

    found = answer_rows(score, 8, timeout=0.5)
    assert found[2] == ("nack", "RAISED", "f did not return within 0.5 s")
    assert len(list_refused(found)) == 1


def test_a_row_for_which_the_function_raises_is_refused_alone() -> None:
    """Other rows are asked about only once."""
    asked: list[int] = []

    async def score(row: dict[str, Any]) -> Any:
        asked.append(row["id"])
        if row["id"] == 2:
            raise ValueError("unlucky")
        return {"score": float(asked.count(row["id"]))}

    found = answer_rows(score, 5)
    assert found[2] == ("nack", "RAISED", "f raised ValueError: unlucky")
    assert [row[2] for at, row in enumerate(found) if at != 2] == [1.0] * 4
