"""gRPC: each operation as a method, with the same checks and the same answers as REST."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

import grpc
import msgspec
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import HealthServicer
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection import ReflectionServicer

from runners.listeners.metrics import Metrics
from runners.model.errors import Refusal
from runners.service.access.guard import Guard
from runners.service.happenings import MOST_WATCHERS
from runners.service.operation import Operation
from runners.service.operations import OPERATIONS
from runners.service.problems import describe_problem
from runners.service.protobuf import SERVICE, Converter, make_file
from runners.service.rest import LARGEST
from runners.service.service import Service

THREADS = 32
"""How many questions are answered at a time. Others wait."""
_REFLECTION_THREADS = 4
_MOST_CALLS = 1_000
"""How many calls may be answered and wait. More are refused."""
_GRACE = 2.0
"""For how many seconds the server lets calls end by themselves when it ends."""
_LAST = 10.0
"""After how many seconds the server leaves calls behind that do not end."""
_HEALTH_EVERY = 0.5
"""After how many seconds a watcher of the health hears of a change."""
_LONGEST = 1_500
"""How many bytes a text may have in the metadata of an answer, which clients limit to 8 KiB in all."""
STATUSES: Mapping[int, grpc.StatusCode] = {
    HTTPStatus.UNPROCESSABLE_ENTITY: grpc.StatusCode.INVALID_ARGUMENT,
    HTTPStatus.CONFLICT: grpc.StatusCode.ABORTED,
    HTTPStatus.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    HTTPStatus.FORBIDDEN: grpc.StatusCode.PERMISSION_DENIED,
    HTTPStatus.UNAUTHORIZED: grpc.StatusCode.UNAUTHENTICATED,
    HTTPStatus.TOO_MANY_REQUESTS: grpc.StatusCode.RESOURCE_EXHAUSTED,
    HTTPStatus.SERVICE_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    HTTPStatus.INTERNAL_SERVER_ERROR: grpc.StatusCode.INTERNAL,
}
"""The status of gRPC by that of HTTP."""


@contextlib.contextmanager
def answer_over_grpc(
    service: Service, guard: Guard, host: str, port: int, tls: tuple[Path, Path] | None = None
) -> Iterator[str]:
    """Answer calls inside the block. Yield the address, such as `127.0.0.1:8401`. Port 0 is a free one.

    Raise `Refusal` if the port cannot be opened. `tls` are the files with the certificate and its key.
    """
    calls = ThreadPoolExecutor(THREADS, thread_name_prefix="wherry-grpc")
    server = grpc.server(
        calls,
        maximum_concurrent_rpcs=_MOST_CALLS,
        options=[("grpc.max_receive_message_length", LARGEST), ("grpc.so_reuseport", 0)],
    )
    pools = {
        each.name: ThreadPoolExecutor(2 * MOST_WATCHERS, thread_name_prefix=f"wherry-grpc-{each.name}")
        for each in OPERATIONS
        if each.waits or each.streams
    }
    reflections = ThreadPoolExecutor(_REFLECTION_THREADS, thread_name_prefix="wherry-grpc-reflection")
    handlers = {each.title: _make_handler(each, service, guard, pools.get(each.name, calls)) for each in OPERATIONS}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])
    server.add_generic_rpc_handlers([_make_reflection(reflections)])
    health = _Health(service.metrics)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    name = f"[{host}]" if ":" in host else host
    opened = _open_port(server, f"{name}:{port}", tls)
    server.start()
    try:
        with health.follow():
            yield f"{name}:{opened}"
    finally:
        health.enter_graceful_shutdown()
        server.stop(_GRACE).wait(_LAST)
        for pool in (calls, reflections, *pools.values()):
            pool.shutdown(wait=False, cancel_futures=True)


def _open_port(server: grpc.Server, address: str, tls: tuple[Path, Path] | None) -> int:
    try:
        if tls is None:
            return int(server.add_insecure_port(address))
        certificate, key = (file.read_bytes() for file in tls)
        return int(server.add_secure_port(address, grpc.ssl_server_credentials([(key, certificate)])))
    except OSError as error:
        raise Refusal(f"The certificate or its key cannot be read: {error}.", hint="Name other files.") from error
    except RuntimeError as error:
        raise Refusal(
            f"The server cannot listen at {address}{' with this certificate and its key' if tls else ''}.",
            hint="Choose another port with --grpc-port, or end the program that uses this port.",
        ) from error


def _make_handler(
    operation: Operation, service: Service, guard: Guard, threads: ThreadPoolExecutor
) -> grpc.RpcMethodHandler:
    """Return the handler of an operation. It takes and gives bytes, so that it can refuse bytes that are no message."""
    converter = Converter(operation)

    def begin(request: bytes, context: grpc.ServicerContext) -> tuple[str, Any, Any]:
        authorization = _read_metadata(context, "authorization")
        caller = guard.admit(authorization)
        ask = converter.read_question(request)
        answer = service.answer(operation, caller, ask, _read_metadata(context, "idempotency-key"))
        return authorization, caller, answer

    def answer_once(request: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            _, _, answer = begin(request, context)
            return converter.write_answer(answer)
        except Exception as error:  # noqa: BLE001 -- the edge of the server: the caller gets the error
            _refuse(context, error)

    def answer_often(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        try:
            authorization, caller, watch = begin(request, context)
            with contextlib.closing(watch):
                if context.add_callback(watch.close):
                    yield from map(converter.write_answer, guard.follow(authorization, caller, watch))
        except Exception as error:  # noqa: BLE001 -- the edge of the server: the caller gets the error
            _refuse(context, error)

    if operation.streams:
        return grpc.unary_stream_rpc_method_handler(_use_threads(answer_often, threads))
    return grpc.unary_unary_rpc_method_handler(_use_threads(answer_once, threads))


def _use_threads(behavior: Callable[..., Any], threads: ThreadPoolExecutor) -> Callable[..., Any]:
    """Return a behavior that gRPC runs on these threads, so that a long call takes none from other calls."""
    placed = partial(behavior)
    placed.experimental_thread_pool = threads  # type: ignore[attr-defined]
    return placed


def _read_metadata(context: grpc.ServicerContext, name: str) -> str:
    """Return the first value that the caller sent under this name. Empty if there is none."""
    return next((value for key, value in context.invocation_metadata() if key == name), "")


def _refuse(context: grpc.ServicerContext, error: Exception) -> NoReturn:
    """End a call with the status of an error. Its problem comes as JSON in the trailing metadata."""
    problem = describe_problem(error)
    detail, hint = _shorten(problem.detail), _shorten(problem.hint)
    shown = json.dumps(msgspec.to_builtins(msgspec.structs.replace(problem, detail=detail, hint=hint)))
    context.set_trailing_metadata((("problem", shown),))
    context.abort(STATUSES.get(problem.status, grpc.StatusCode.UNKNOWN), detail)
    raise AssertionError("gRPC ends the call by an error.")


def _shorten(text: str) -> str:
    """Return as much of a text as metadata can have. gRPC writes a byte that is not ASCII as three."""
    text = text[:_LONGEST].encode(errors="replace").decode()
    while len(quote(text)) > _LONGEST:
        text = text[: len(text) * 9 // 10]
    return text


def _make_reflection(threads: ThreadPoolExecutor) -> grpc.GenericRpcHandler:
    """Return the handler of reflection, by which a client learns the services and their messages."""
    pool = DescriptorPool()
    health, reflection = health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR
    for file in (make_file().SerializeToString(), health.serialized_pb, reflection.serialized_pb):
        pool.AddSerializedFile(file)
    (name,) = reflection.services_by_name.values()
    names = [SERVICE, *(each.full_name for each in (*health.services_by_name.values(), name))]
    handler = grpc.stream_stream_rpc_method_handler(
        _use_threads(ReflectionServicer(names, pool=pool).ServerReflectionInfo, threads),
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(name.full_name, {"ServerReflectionInfo": handler})


class _Health(HealthServicer):  # type: ignore[misc]
    """The health of the server and of its service: serving while runs begin."""

    def __init__(self, metrics: Metrics) -> None:
        super().__init__()
        self._metrics = metrics
        self._shown: bool | None = None
        self._changing = threading.Lock()
        self._show()

    def Check(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802 -- the name in the protocol
        self._show()
        return super().Check(request, context)

    @contextlib.contextmanager
    def follow(self) -> Iterator[None]:
        """Let watchers hear of changes inside the block."""
        ended = threading.Event()

        def follow() -> None:
            while not ended.wait(_HEALTH_EVERY):
                self._show()

        thread = threading.Thread(target=follow, name="wherry-grpc-health", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _show(self) -> None:
        status = health_pb2.HealthCheckResponse.ServingStatus
        with self._changing:
            if self._shown is not self._metrics.ready:
                self._shown = self._metrics.ready
                for name in ("", SERVICE):
                    self.set(name, status.Value("SERVING" if self._shown else "NOT_SERVING"))
