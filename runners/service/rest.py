"""REST: each operation as a route. The caller, the web site, the size and the rate are checked before it begins."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from importlib import resources
from typing import Any

import anyio
import anyio.to_thread
import msgspec
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from origins.errors import WherryError
from runners.service import hooks
from runners.service.access.guard import Guard
from runners.service.happenings import MOST_WATCHERS, Watch
from runners.service.messages import Happening, Problem, Task
from runners.service.openapi import describe
from runners.service.operation import ENCODER, Ask, Caller, Invalid, Operation
from runners.service.operations import OPERATIONS
from runners.service.problems import describe_problem, make_problem
from runners.service.protobuf import print_proto
from runners.service.service import Service

LARGEST, SLOWEST_BODY = 1 << 20, 10.0
"""How many bytes the body of a request may have, and how many seconds it may take."""
_SCRIPTS = (
    *("api", "changes", "dialogs", "dom", "flow", "live", "map", "overview", "page", "pipeline", "plans"),
    *("previews", "quality", "refused", "rights", "row", "runs", "schedule", "search", "tasks", "timeline", "words"),
)
_PAGE: Mapping[str, tuple[str, str]] = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    **{f"/{name}.js": (f"{name}.js", "text/javascript; charset=utf-8") for name in _SCRIPTS},
}
"""The files of the page by their paths."""
_SAFE: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""The headers of every answer: nothing is loaded from elsewhere, framed, guessed or kept."""


def make_app(service: Service, guard: Guard, hook_key: bytes = b"") -> ASGIApp:
    """Return the application for a server of ASGI."""
    routes = [Route(path, _make_file(name, kind)) for path, (name, kind) in _PAGE.items()]
    routes += [Route("/openapi.json", _make_text(lambda: describe(OPERATIONS), "application/json"))]
    routes += [Route("/wherry.proto", _make_text(print_proto, "text/plain"))]
    routes += [Route("/live", _make_text(lambda: "live\n", "text/plain"))]
    routes += [Route("/ready", _make_readiness(service)), Route("/metrics", _make_metrics(service, guard))]
    routes += [Route(hooks.PATH, _make_hook(service, guard, hook_key), methods=["POST"])]
    routes += [
        Route(operation.path, _Endpoint(service, guard, operation), methods=[operation.method])
        for operation in OPERATIONS
    ]
    return _Gate(Router(routes, redirect_slashes=False), guard)


@dataclass(frozen=True)
class _Gate:
    """Refuses requests from other web sites and for other hosts, and adds the headers of every answer."""

    app: ASGIApp
    guard: Guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        started = False

        async def send_safely(message: Any) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [
                    *message["headers"],
                    *((name.lower().encode(), value.encode()) for name, value in _SAFE.items()),
                ]
            await send(message)

        headers = Headers(scope=scope)
        scope["app"] = self  # then the router raises, instead of answering with a text
        try:
            self.guard.check_source(headers.get("host", ""), headers.get("origin"))
            await self.app(scope, receive, send_safely)
        except Exception as error:  # noqa: BLE001 -- the edge of the server: the caller gets the error
            answer = _answer_http_error(error) if isinstance(error, HTTPException) else _answer_error(error)
            if not started:
                await answer(scope, receive, send_safely)


class _Endpoint:
    """One operation as a route."""

    def __init__(self, service: Service, guard: Guard, operation: Operation) -> None:
        self._service, self._guard, self._operation = service, guard, operation
        self._threads = anyio.CapacityLimiter(2 * MOST_WATCHERS) if operation.waits or operation.streams else None
        """The threads of an operation whose answer may take long."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._answer(Request(scope, receive))
        try:
            await response(scope, receive, send)
        finally:
            if isinstance(response, _Stream):
                response.watch.close()

    async def _answer(self, request: Request) -> Response:
        operation = self._operation
        try:
            authorization = request.headers.get("authorization", "")
            caller = await anyio.to_thread.run_sync(self._guard.admit, authorization)
            ask = _read_question(operation, request, await _read_body(request) if operation.changes else b"")
            key = request.headers.get("idempotency-key", "")
            answer = await anyio.to_thread.run_sync(
                self._service.answer, operation, caller, ask, key, limiter=self._threads
            )
        except ClientDisconnect:
            return Response(status_code=HTTPStatus.BAD_REQUEST)
        except Exception as error:  # noqa: BLE001 -- the edge of the server: the caller gets the error
            return _answer_error(error)
        if operation.streams:
            assert self._threads is not None
            return _Stream(answer, self._guard.follow(authorization, caller, answer), self._threads)
        status = HTTPStatus.ACCEPTED if operation.changes and operation.answer is Task else HTTPStatus.OK
        return Response(ENCODER.encode(answer), status, media_type="application/json")


async def _read_body(request: Request, most: int = LARGEST) -> bytes:
    """Return the body of a request. Raise `Invalid` as soon as it is too large or too late."""
    parts, size = [], 0
    with anyio.move_on_after(SLOWEST_BODY):
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise Invalid(f"A request may have {most:,} bytes.")
            parts.append(part)
        return b"".join(parts)
    raise Invalid(f"The body of a request must come within {SLOWEST_BODY:.0f} seconds.")


def _read_question(operation: Operation, request: Request, body: bytes) -> Ask:
    """Return what the caller asks, from the path, and from the query or the body. Raise `Invalid` if it is wrong."""
    if operation.changes:
        given = _read_fields(request, body)
    else:
        given = {}
        for name, value in request.query_params.multi_items():
            given.setdefault(name, []).append(value)
        several = {field.encode_name for field in msgspec.structs.fields(operation.ask) if _is_list(field.type)}
        for name, values in given.items():
            if name not in several and len(values) > 1:
                raise Invalid(f"{_quote(name)} is given {len(values)} times.")
        given = {name: values if name in several else values[0] for name, values in given.items()}
    twice = request.path_params.keys() & given.keys()
    if twice:
        raise Invalid(f"{min(twice)} is in the path, so it is not given again.")
    try:
        return msgspec.convert({**given, **request.path_params}, operation.ask, strict=operation.changes)
    except msgspec.ValidationError as error:
        raise Invalid(f"{error}.") from error


def _read_fields(request: Request, body: bytes) -> dict[str, Any]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if body and kind != "application/json":
        raise Invalid("The body of a request is JSON.", hint="Send the header Content-Type: application/json.")
    try:
        given = msgspec.json.decode(body or b"{}")
    except (msgspec.DecodeError, RecursionError) as error:
        raise Invalid(f"The body is not JSON: {error}.") from error
    if not isinstance(given, dict):
        raise Invalid("The body of a request is a JSON object.")
    return given


def _is_list(kind: Any) -> bool:
    return getattr(kind, "__origin__", None) is list


def _quote(text: str) -> str:
    return json.dumps(text[:100])


class _Stream(StreamingResponse):
    """What happens, as events that a server sends. It ends when the reader loses its token."""

    def __init__(self, watch: Watch, happenings: Iterator[Happening], threads: anyio.CapacityLimiter) -> None:
        super().__init__(self._send_events(threads), media_type="text/event-stream")
        self.watch, self._happenings = watch, happenings

    async def _send_events(self, threads: anyio.CapacityLimiter) -> AsyncIterator[bytes]:
        take = partial(next, self._happenings, None)
        with contextlib.suppress(WherryError):  # the caller lost its token
            while happening := await anyio.to_thread.run_sync(take, abandon_on_cancel=True, limiter=threads):
                yield b"event: " + happening.event.encode() + b"\ndata: " + ENCODER.encode(happening) + b"\n\n"


def _answer_error(error: BaseException) -> Response:
    return _answer_problem(describe_problem(error))


def _answer_problem(problem: Problem) -> Response:
    headers = {"WWW-Authenticate": "Bearer"} if problem.status == HTTPStatus.UNAUTHORIZED else {}
    if problem.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS):
        headers["Connection"] = "close"
    body = ENCODER.encode(problem)
    return Response(body, problem.status, headers=headers, media_type="application/problem+json")


def _answer_http_error(error: HTTPException) -> Response:
    status = HTTPStatus(error.status_code)
    response = _answer_problem(make_problem(status.name, f"{status.description or status.phrase}.", status))
    response.headers.update(error.headers or {})
    return response


Answering = Callable[[Request], Awaitable[Response]]


def _make_file(name: str, kind: str) -> Answering:
    async def answer(request: Request) -> Response:
        body = (resources.files("runners.service") / "page" / name).read_bytes()
        return Response(body, media_type=kind)

    return answer


def _make_text(make: Callable[[], str | bytes], kind: str) -> Answering:
    async def answer(request: Request) -> Response:
        return Response(make(), media_type=kind)

    return answer


def _make_readiness(service: Service) -> Answering:
    async def answer(request: Request) -> Response:
        status, text = service.metrics.readiness()
        return Response(text, status, media_type="text/plain")

    return answer


def _make_metrics(service: Service, guard: Guard) -> Answering:
    def make(authorization: str) -> Response:
        try:
            caller: Caller = guard.admit(authorization)
            guard.check_sees_all(caller)
        except Exception as error:  # noqa: BLE001 -- the edge of the server: the caller gets the error
            return _answer_error(error)
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def answer(request: Request) -> Response:
        return await anyio.to_thread.run_sync(make, request.headers.get("authorization", ""))

    return answer


def _make_hook(service: Service, guard: Guard, key: bytes) -> Answering:
    async def answer(request: Request) -> Response:
        names = ("webhook-id", "webhook-timestamp", "webhook-signature")
        try:
            signature = hooks.Signature(*(request.headers.get(name, "") for name in names))
            hooks.check_headers(key, signature, service.clock)
            body = await _read_body(request, hooks.LARGEST)
            pipeline = request.path_params["pipeline"]
            taken = await anyio.to_thread.run_sync(hooks.take_in, service, guard, key, pipeline, signature, body)
        except ClientDisconnect:
            return Response(status_code=HTTPStatus.BAD_REQUEST)
        except Exception as error:  # noqa: BLE001 -- the edge of the server: the caller gets the error
            return _answer_error(error)
        return Response(ENCODER.encode(taken), HTTPStatus.ACCEPTED, media_type="application/json")

    return answer
