"""A proxy in front of an object store. It counts requests, and injects faults into some of them."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import parse_qs, unquote, urlsplit

Kind = Literal["PUT", "COPY", "GET", "HEAD", "LIST", "DELETE", "POST"]
"""The kind of a request. LIST is a GET of a listing, and COPY a PUT that copies an object. DELETE is also a POST that
deletes. Other POSTs begin and complete uploads in parts.
"""

Refusal = Literal["slow_down", "refuse", "collide", "forbid", "distrust", "send_away", "lack", "hide"]
Late = Literal["deny", "refuse_late", "collide_late"]
Effect = Refusal | Late | Literal["reset", "disregard", "lose_answer", "delay", "hold", "hold_answer"]
"""The effect of a fault on a request:

- `slow_down`: it is answered with 503 SlowDown and does nothing.
- `refuse`: it is answered with 412 PreconditionFailed and does nothing.
- `collide`: it is answered with 409 ConditionalRequestConflict and does nothing.
- `forbid`: it is answered with 403 AccessDenied and does nothing.
- `distrust`: it is answered with 403 RequestTimeTooSkewed and does nothing.
- `send_away`: it is answered with 400, as if the bucket were in eu-west-1, and does nothing.
- `lack`: it is answered with 501 NotImplemented and does nothing.
- `hide`: it is answered with 404, if the key was written before.
- `disregard`: it is executed without its conditions.
- `reset`: its connection is reset, and it does nothing.
- `lose_answer`: it is executed; then its connection is reset.
- `deny`: it is executed, and answered with 503 SlowDown.
- `refuse_late`, `collide_late`: it is executed, and answered as by `refuse` or `collide`.
- `delay`: it is executed after some seconds.
- `hold`, `hold_answer`: it is executed, or answered, once the test releases it.
"""

LONGEST = 120.0
"""The longest time in seconds that a request is held."""

REFUSALS: Mapping[Effect | None, tuple[int, str, str]] = {
    "slow_down": (503, "SlowDown", "Please reduce your request rate."),
    "refuse": (412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold"),
    "collide": (
        409,
        "ConditionalRequestConflict",
        "The conditional request cannot succeed due to a conflicting operation",
    ),
    "forbid": (403, "AccessDenied", "Access Denied"),
    "distrust": (
        403,
        "RequestTimeTooSkewed",
        "The difference between the clocks is too large.",
    ),
    "send_away": (400, "AuthorizationHeaderMalformed", "the region 'us-east-1' is wrong; expecting 'eu-west-1'"),
    "lack": (501, "NotImplemented", "A header you provided implies functionality that is not implemented"),
    "hide": (404, "NoSuchKey", "The specified key does not exist."),
}
"""The status, the code and the message of each refusal."""

LATE: Mapping[Effect | None, Refusal] = {"deny": "slow_down", "refuse_late": "refuse", "collide_late": "collide"}
"""The refusal with which a request is answered after it was executed."""

CONDITIONS = {"if-none-match", "if-match"}

HOP = {"connection", "keep-alive", "transfer-encoding", "expect", "content-length", "proxy-connection"}


@dataclass
class Fault:
    """A fault for requests of one kind, or of any kind, whose `bucket/key` matches a pattern."""

    effect: Effect
    kind: Kind | None = None
    key: str = ""
    times: int | None = 1
    """The number of requests, or None for all."""
    skip: int = 0
    """How many requests pass before the fault."""
    seconds: float = 0.0
    hits: int = field(default=0, init=False)
    reached: threading.Event = field(default_factory=threading.Event, init=False)
    """Set once the fault happens."""
    _go: threading.Event = field(default_factory=threading.Event, init=False)
    _seen: int = field(default=0, init=False)

    def let_go(self) -> None:
        """Release the held requests and all later ones."""
        self._go.set()

    def takes(self, request: Request) -> bool:
        """Whether the fault applies to this request. Call this once for each request."""
        if self.kind not in (None, request.kind) or not re.search(self.key, request.key):
            return False
        if self.effect == "hide" and not request.was_written:
            return False
        self._seen += 1
        if self._seen <= self.skip or (self.times is not None and self.hits >= self.times):
            return False
        self.hits += 1
        return True

    def wait(self) -> None:
        """Return when a request with this fault may continue."""
        self.reached.set()
        if self.effect == "delay":
            self._go.wait(self.seconds)
        elif self.effect in ("hold", "hold_answer"):
            self._go.wait(LONGEST)


@dataclass(frozen=True)
class Request:
    """A request as a fault sees it."""

    kind: Kind
    key: str
    """`bucket/key`, or the prefix of a listing."""
    was_written: bool
    headers: dict[str, str]


class FaultProxy:
    """A proxy in front of the store at `upstream`. `clock` returns seconds, by default those of this machine."""

    def __init__(self, upstream: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._upstream, self._clock = urlsplit(upstream), clock
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._requests: list[Request] = []
        self._faults: list[Fault] = []
        self._written: set[str] = set()
        self._away_until = float("-inf")
        self._meanwhile: Effect = "reset"
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._handler = Handler
        self._listen(0)

    def _listen(self, port: int) -> None:
        self._server = _Server(("127.0.0.1", port), self._handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        """The URL for clients."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def count(self) -> dict[str, int]:
        """Return the number of requests of each kind since the last reset, including failed ones."""
        with self._lock:
            return dict(self._counts)

    def list_requests(self) -> list[Request]:
        """Return the requests since the last reset, in order."""
        with self._lock:
            return list(self._requests)

    def reset_counts(self) -> None:
        """Set the counts to zero."""
        with self._lock:
            self._counts.clear()
            self._requests.clear()

    def add(self, fault: Fault) -> Fault:
        """Add a fault. If several faults apply to a request, the first one happens."""
        with self._lock:
            self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """Remove all faults, release held requests, and answer again."""
        with self._lock:
            faults, self._faults, self._away_until = self._faults, [], float("-inf")
        for fault in faults:
            fault.let_go()

    def go_away(self, seconds: float = float("inf"), effect: Effect = "reset") -> None:
        """Apply an effect to every request for this many seconds of the clock, or until `come_back`."""
        with self._lock:
            self._away_until, self._meanwhile = self._clock() + seconds, effect

    def shut(self) -> None:
        """Refuse every connection until `come_back`, and reset open ones."""
        self.go_away()
        self._close()

    def come_back(self) -> None:
        """Answer requests again."""
        with self._lock:
            self._away_until = float("-inf")
        if not self._thread.is_alive():
            self._listen(self._server.server_address[1])

    def stop(self) -> None:
        """Stop the proxy."""
        self.clear()
        self._close()

    def _close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def note(self, method: str, target: str, headers: dict[str, str]) -> tuple[Request, Fault | None]:
        """Count a request, and return it with its fault, if it has one."""
        kind, key = _describe(method, target, headers)
        with self._lock:
            request = Request(kind, key, key in self._written, headers)
            self._counts[kind] += 1
            self._requests.append(request)
            if self._clock() < self._away_until:
                return request, Fault(self._meanwhile)
            return request, next((fault for fault in self._faults if fault.takes(request)), None)

    def note_success(self, request: Request) -> None:
        """Record that a key was written."""
        if request.kind in ("PUT", "COPY", "POST"):
            with self._lock:
                self._written.add(request.key)

    def connect(self) -> http.client.HTTPConnection:
        """Return a new connection to the store."""
        return http.client.HTTPConnection(self._upstream.hostname or "", self._upstream.port, timeout=LONGEST)


@contextlib.contextmanager
def start_proxy(upstream: str, clock: Callable[[], float] = time.monotonic) -> Iterator[FaultProxy]:
    """Start a proxy in front of this store, and stop it afterwards."""
    proxy = FaultProxy(upstream, clock)
    try:
        yield proxy
    finally:
        proxy.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that have disconnected."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    owner: FaultProxy
    _store: http.client.HTTPConnection | None = None

    def _answer(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self._read_body(headers)
        request, fault = self.owner.note(self.command, self.path, headers)
        if fault is not None and fault.effect != "hold_answer":
            fault.wait()
        effect = None if fault is None else fault.effect
        if effect in REFUSALS:
            self._refuse(*REFUSALS[effect])
        elif effect == "reset":
            self._reset()
        else:
            status, answer, content = self._ask_store(body, CONDITIONS if effect == "disregard" else set())
            if status < 300:
                self.owner.note_success(request)
            if fault is not None and effect == "hold_answer":
                fault.wait()
            if effect == "lose_answer":
                self._reset()
            elif effect in LATE:
                self._refuse(*REFUSALS[LATE[effect]])
            else:
                self._pass_on(status, answer, content)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = do_PATCH = _answer  # noqa: N815

    def _read_body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(headers.get("content-length", 0)))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            """A trailer says nothing that the store needs."""
        return b"".join(parts)

    def _ask_store(self, body: bytes, without: Collection[str]) -> tuple[int, list[tuple[str, str]], bytes]:
        if self._store is None:
            self._store = self.owner.connect()
        self._store.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in HOP and name.lower() not in without:
                self._store.putheader(name, value)
        self._store.putheader("Content-Length", str(len(body)))
        self._store.endheaders(body)
        answer = self._store.getresponse()
        content = answer.read()
        return answer.status, answer.getheaders(), content

    def _pass_on(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in HOP:
                self.send_header(name, value)
        length = next((value for name, value in headers if name.lower() == "content-length"), str(len(content)))
        if status not in (204, 304):
            self.send_header("Content-Length", length if self.command == "HEAD" else str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _refuse(self, status: int, code: str, message: str) -> None:
        text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
        content = b"" if self.command == "HEAD" else text
        self._pass_on(status, [("Content-Type", "application/xml"), ("x-amz-request-id", "fault")], content)

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def finish(self) -> None:
        if self._store is not None:
            self._store.close()
        with contextlib.suppress(OSError, ValueError):
            super().finish()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing. A test reads the counts of the proxy."""


def _describe(method: str, target: str, headers: dict[str, str]) -> tuple[Kind, str]:
    """Return the kind of a request, and its `bucket/key`."""
    url = urlsplit(target)
    asked = parse_qs(url.query, keep_blank_values=True)
    key = unquote(url.path).strip("/")
    if method == "GET" and (
        "list-type" in asked or asked.get("comp") == ["list"] or "versions" in asked or "/" not in key
    ):
        return "LIST", "/".join(filter(None, [key, *asked.get("prefix", [])]))
    if method == "POST" and "delete" in asked:
        return "DELETE", key
    if method == "PUT" and "x-amz-copy-source" in headers and "uploadId" not in asked:
        return "COPY", key
    known: dict[str, Kind] = {"GET": "GET", "PUT": "PUT", "HEAD": "HEAD", "DELETE": "DELETE"}
    return known.get(method, "POST"), key
