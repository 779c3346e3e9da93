"""A Spark Connect server that refuses what Databricks refuses: a proxy in front of an open server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as Packed
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status
from pyspark.sql.connect.proto import base_pb2

from tests.databricks.limits import SERVERLESS, Limits, Refused, measure_artifacts

_SERVICE = "/spark.connect.SparkConnectService/"
_ANY_SIZE = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
_THREADS = 64
_ERROR = "org.apache.spark.sql.AnalysisException"


@dataclass
class DatabricksProxy:
    """A running proxy. Clients connect to its `address`."""

    target: str
    """The address of the open server, `sc://host:port`."""
    limits: Limits = SERVERLESS
    seconds: float = 0.0
    """How long each call takes at least."""
    statements: list[str] = field(default_factory=list)
    """A line for each plan that a client let the server analyse or run, since the last `forget`.

    It begins with `analyze`, `sql`, `query` or the name of a command.
    """
    refusals: list[str] = field(default_factory=list)
    """The errors that the proxy has answered since the last `forget`."""

    def __enter__(self) -> DatabricksProxy:
        self._sizes: dict[str, int] = {}
        self._channel = grpc.insecure_channel(self.target.removeprefix("sc://").partition("/")[0], _ANY_SIZE)
        self._server = grpc.server(ThreadPoolExecutor(_THREADS, "proxy"), [_Forward(self)], options=_ANY_SIZE)
        self._port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None).wait()
        self._channel.close()

    @property
    def address(self) -> str:
        """Where clients connect to, `sc://host:port`."""
        return f"sc://127.0.0.1:{self._port}"

    def forget(self) -> None:
        """Clear the statements and the refusals."""
        self.statements.clear()
        self.refusals.clear()

    def receive(self, method: str, requests: Sequence[bytes]) -> None:
        """Note the statement of a call. Raise `Refused` if the limits do not allow one of its requests."""
        threading.Event().wait(self.seconds)
        try:
            statements = [self.limits.check(method, each, self._sizes) for each in requests]
        except Refused as refused:
            self.refusals.append(str(refused))
            raise
        self.statements += [each for each in statements if each]
        if method == "AddArtifacts":
            for each in requests:
                self._sizes |= measure_artifacts(base_pb2.AddArtifactsRequest.FromString(each))

    def ask(self, method: str, request: Any, context: grpc.ServicerContext) -> Any:
        """Return what the open server answers."""
        kind = "unary_stream" if method in _STREAMS else "stream_unary" if method == "AddArtifacts" else "unary_unary"
        metadata = [pair for pair in context.invocation_metadata() if pair[0] != "user-agent"]
        return getattr(self._channel, kind)(_SERVICE + method)(request, metadata=metadata)


_STREAMS = ("ExecutePlan", "ReattachExecute")
"""The methods with a stream of answers."""


class _Forward(grpc.GenericRpcHandler):  # type: ignore[misc,unused-ignore]
    """Sends each call to the open server, unless the proxy refuses it."""

    def __init__(self, proxy: DatabricksProxy) -> None:
        self._proxy = proxy

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        method = details.method.removeprefix(_SERVICE)
        if method in _STREAMS:
            return grpc.unary_stream_rpc_method_handler(self._answer(method, self._pass_stream))
        if method == "AddArtifacts":
            return grpc.stream_unary_rpc_method_handler(self._answer(method, self._pass_one))
        return grpc.unary_unary_rpc_method_handler(self._answer(method, self._pass_one))

    def _answer(
        self, method: str, pass_on: Callable[[str, Any, grpc.ServicerContext], Any]
    ) -> Callable[[Any, grpc.ServicerContext], Any]:
        def answer(sent: bytes | Iterator[bytes], context: grpc.ServicerContext) -> Any:
            requests = [sent] if isinstance(sent, bytes) else list(sent)
            try:
                self._proxy.receive(method, requests)
            except Refused as refused:
                context.abort_with_status(rpc_status.to_status(_make_status(refused)))
            return pass_on(method, sent if isinstance(sent, bytes) else iter(requests), context)

        return answer

    def _pass_one(self, method: str, request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return self._proxy.ask(method, request, context)
        except grpc.RpcError as error:
            _pass_error(error, context)

    def _pass_stream(self, method: str, request: Any, context: grpc.ServicerContext) -> Iterator[bytes]:
        answers = self._proxy.ask(method, request, context)
        context.add_callback(answers.cancel)
        try:
            yield from answers
        except grpc.RpcError as error:
            _pass_error(error, context)


def _pass_error(error: Any, context: grpc.ServicerContext) -> None:
    context.set_trailing_metadata(error.trailing_metadata() or ())
    context.abort(error.code(), error.details() or "")


def _make_status(refused: Refused) -> Status:
    metadata = {"classes": f'["{_ERROR}"]', "errorClass": refused.condition, "sqlState": refused.state}
    info = Packed()
    info.Pack(ErrorInfo(reason=_ERROR, domain="org.apache.spark", metadata=metadata))
    return Status(code=grpc.StatusCode.INTERNAL.value[0], message=str(refused), details=[info])
