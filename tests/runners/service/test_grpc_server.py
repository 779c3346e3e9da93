"""gRPC: tokens and rights, what a refusal shows, streams, reflection, health and TLS."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import repeat, starmap
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from runners.model.errors import Refusal
from runners.model.schedule_events import Mended
from runners.service.access.guard import RECOGNISE_EVERY
from runners.service.grpc_server import THREADS, answer_over_grpc
from runners.service.happenings import MOST_OF_ONE, MOST_WATCHERS
from runners.service.operation import Caller, Right
from runners.service.protobuf import SERVICE, print_proto
from runners.service.rest import LARGEST
from tests.runners.service.grpc_calls import (
    BY_NAME,
    GrpcServed,
    make_folder,
    open_channel,
    read_answer,
    read_problem,
    serve,
    write_question,
)

ORDERS = {"pipeline": "orders"}
OWNER = Caller(name="owner", right=Right.ADMIN)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrpcServed]:
    """Provide a server that no test changes."""
    with serve(make_folder(tmp_path_factory.mktemp("served"))) as made:
        yield made


@pytest.fixture
def own(tmp_path: Path) -> Iterator[GrpcServed]:
    """Provide a server that one test may change."""
    with serve(make_folder(tmp_path)) as made:
        yield made


def read_happening(data: bytes) -> Any:
    """Return a happening of a stream, without its moment."""
    return {**read_answer(BY_NAME["watch_events"], data), "at": None}


@pytest.mark.parametrize("token", ["", "wherry_other", "wherry_own wherry_own"])
def test_a_caller_without_a_known_token_is_refused(served: GrpcServed, token: str) -> None:
    """Streams too need a token."""
    metadata = [("authorization", f"Bearer {token}")]
    for call in (served.channel.unary_unary(f"/{SERVICE}/ListPipelines"), served.watch(token)):
        with pytest.raises(grpc.RpcError) as refused:
            _ = call(b"", metadata=metadata) if callable(call) else next(call)
        assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
        assert read_problem(refused.value)["code"] == "UNAUTHENTICATED"


def test_a_caller_without_the_right_is_refused(own: GrpcServed) -> None:
    """A token for one pipeline does not show others, and one to read changes nothing."""
    token = own.guard.tokens.add("anna", "read", pipelines=["orders"])
    started = own.ask("start_run", {**ORDERS, "reason": "a test"}, token=token)
    hidden = own.ask("get_pipeline", {"pipeline": "copies"}, token=token)
    assert [each[0] for each in (started, hidden)] == [grpc.StatusCode.PERMISSION_DENIED] * 2
    status, listed = own.ask("list_pipelines", {}, token=token)
    assert (status, [each["pipeline"] for each in listed["pipelines"]]) == (grpc.StatusCode.OK, ["orders"])


def test_too_many_calls_are_refused(own: GrpcServed) -> None:
    """The clock of the guard stands still."""
    ask = own.channel.unary_unary(f"/{SERVICE}/GetReadiness")
    with pytest.raises(grpc.RpcError) as refused:
        list(starmap(ask, repeat((b"", 60, own.list_metadata()), 500)))
    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert read_problem(refused.value)["code"] == "TOO_MUCH"


def test_a_change_without_a_key_is_refused(own: GrpcServed) -> None:
    """Nothing is begun."""
    status, problem = own.ask("start_run", {**ORDERS, "reason": "a test"}, key="")
    assert (status, problem["code"]) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID")
    assert own.ask("list_tasks", {}) == (grpc.StatusCode.OK, {"tasks": []})


def test_a_repeated_change_gets_the_first_answer(own: GrpcServed) -> None:
    """The key counts over REST too. Another change with this key is refused."""
    question = {**ORDERS, "reason": "a test"}
    first = own.ask("run_repair", question, key="one")
    assert first[0] == grpc.StatusCode.OK
    assert own.ask("run_repair", question, key="one") == first
    assert own.ask_rest("run_repair", question, key="one") == first
    status, problem = own.ask("run_repair", {**ORDERS, "reason": "another"}, key="one")
    assert (status, problem["code"]) == (grpc.StatusCode.ABORTED, "KEY_TAKEN")


def test_a_refusal_shows_its_message_and_its_problem(served: GrpcServed) -> None:
    """REST gives the same problem."""
    with pytest.raises(grpc.RpcError) as refused:
        served.send("GetPipeline", write_question(BY_NAME["get_pipeline"], {"pipeline": "none"}))
    problem = read_problem(refused.value)
    assert refused.value.code() == grpc.StatusCode.NOT_FOUND
    assert refused.value.details() == problem["detail"] == "There is no pipeline of this name."
    assert served.ask_rest("get_pipeline", {"pipeline": "none"}) == (grpc.StatusCode.NOT_FOUND, problem)


@pytest.mark.parametrize("letter", ["x", "é", "漢", "😀", "%", '"', "\n", "\0"])
def test_a_refusal_with_a_long_text_arrives(served: GrpcServed, letter: str) -> None:
    """The metadata of gRPC has little space, and only ASCII. The beginning of the text is enough."""
    status, problem = served.ask("list_refused_rows", {**ORDERS, "ids": [letter * 1_000]})
    assert (status, problem["code"]) == (grpc.StatusCode.INVALID_ARGUMENT, "REFUSED")
    assert letter * 50 in problem["detail"]


def test_a_request_that_is_too_large_is_refused(served: GrpcServed) -> None:
    """The limit is that of REST. It counts for what a compressed request expands to."""
    for given in ({}, {"compression": grpc.Compression.Gzip}):
        with pytest.raises(grpc.RpcError) as refused:
            served.send("ListTasks", write_question(BY_NAME["list_tasks"], {"pipeline": "x" * LARGEST}), **given)
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert served.ask("list_tasks", {"pipeline": "x" * (LARGEST - 100)})[0] == grpc.StatusCode.OK


def test_a_method_that_does_not_exist_is_refused(served: GrpcServed) -> None:
    """A client may be newer than the server."""
    with pytest.raises(grpc.RpcError) as refused:
        served.send("PaintPipeline", b"")
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_every_watcher_is_shown_what_happens(own: GrpcServed) -> None:
    """A watcher over REST is shown the same."""
    watch = own.watch(pipeline="orders")
    with own.open_rest("/v1/events?pipeline=orders", headers=own.list_metadata()) as events:
        over_grpc = (read_answer(BY_NAME["watch_events"], each) for each in watch)
        over_rest = (json.loads(line.removeprefix(b"data: ")) for line in events if line.startswith(b"data: "))
        assert [next(each)["event"] for each in (over_grpc, over_rest)] == ["watching"] * 2
        assert own.ask("start_run", {**ORDERS, "reason": "a test"})[0] == grpc.StatusCode.OK
        shown, shown_too = (
            list(iter(partial(take_before, "run_ended", each), None)) for each in (over_grpc, over_rest)
        )
    watch.cancel()
    assert shown == shown_too
    assert [each["pipeline"] for each in shown if each["event"] == "batch_settled"] == ["orders"]


def take_before(event: str, happenings: Iterator[Any]) -> Any:
    """Return the next happening, or None if it is this event. It comes before ten seconds are quiet."""
    happening = next(happenings)
    assert happening["event"] != "still_here"
    return None if happening["event"] == event else happening


def test_watchers_take_no_thread_from_other_calls(own: GrpcServed) -> None:
    """As many watch as may. One more is refused, and can watch when the others have gone."""
    tokens = [own.guard.tokens.add(f"anna {number}", "read") for number in range(MOST_WATCHERS // MOST_OF_ONE)]
    watches = [own.watch(token) for token in tokens for _ in range(MOST_OF_ONE)]
    assert {read_happening(next(each))["event"] for each in watches} == {"watching"}
    assert own.ask("get_readiness", {})[0] == grpc.StatusCode.OK
    with pytest.raises(grpc.RpcError) as refused:
        next(own.watch())
    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    for each in watches:
        each.cancel()
    assert next(filter(None, (try_to_watch(own) for _ in range(200))))["event"] == "watching"


def try_to_watch(served: GrpcServed) -> Any:
    """Return the first happening of a new stream, or None after a moment if too many watch."""
    with contextlib.suppress(grpc.RpcError):
        return read_happening(next(served.watch()))
    time.sleep(0.05)
    return None


def test_callers_that_wait_take_no_thread_from_other_calls(own: GrpcServed) -> None:
    """They wait for the end of a task, which waits for a slow run."""
    goes_on = threading.Event()
    task = own.service.tasks.start("run_audit", "orders", OWNER, "", lambda _: goes_on.wait(60))
    data = write_question(BY_NAME["get_task"], {"task": task.task, "wait": 30.0})
    wait = own.channel.unary_unary(f"/{SERVICE}/GetTask")
    own.clock.move(10.0)
    waiting = [wait.future(data, metadata=own.list_metadata(), timeout=60) for _ in range(2 * THREADS)]
    assert own.ask("get_readiness", {})[0] == grpc.StatusCode.OK
    goes_on.set()
    assert {read_answer(BY_NAME["get_task"], each.result())["state"] for each in waiting} == {"succeeded"}


@pytest.mark.parametrize("change", ["removed", "expired", "replaced", "changed"])
def test_a_stream_ends_with_its_token(own: GrpcServed, change: str) -> None:
    """The next happening is not shown. This holds over REST too."""
    tokens = own.guard.tokens
    token = tokens.add("anna", "read", lasts=3_600.0)
    changes: dict[str, Callable[[], object]] = {
        "removed": lambda: tokens.remove("anna"),
        "expired": lambda: own.clock.move(3_600.0),
        "replaced": lambda: tokens.add("anna", "read"),
        "changed": lambda: tokens.file.write_text(tokens.file.read_text().replace('"read"', '"operate"')),
    }
    watch = own.watch(token)
    with own.open_rest("/v1/events", headers=own.list_metadata(token=token)) as events:
        shown = [read_happening(next(watch))["event"], events.readline(), events.readline(), events.readline()]
        assert shown[:2] == ["watching", b"event: watching\n"]
        changes[change]()
        own.clock.move(RECOGNISE_EVERY)
        own.service.happenings(Mended(file="orders.yaml"))
        with pytest.raises(grpc.RpcError) as refused:
            next(watch)
        assert events.read() == b""
    assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
    assert read_problem(refused.value)["code"] == "UNAUTHENTICATED"


def test_a_stream_whose_token_stays_goes_on(own: GrpcServed) -> None:
    """The token is looked up again, and is the same."""
    watch = own.watch(own.guard.tokens.add("anna", "read"))
    assert read_happening(next(watch))["event"] == "watching"
    own.clock.move(RECOGNISE_EVERY)
    own.service.happenings(Mended(file="orders.yaml"))
    assert read_happening(next(watch))["event"] == "mended"
    watch.cancel()


def test_the_end_of_the_server_ends_streams(tmp_path: Path) -> None:
    """They end without an error."""
    with serve(make_folder(tmp_path)) as served:
        watch = served.watch()
        assert read_happening(next(watch))["event"] == "watching"
        served.service.happenings.end()
        assert list(watch) == []


def test_the_health_follows_the_readiness(own: GrpcServed) -> None:
    """A watcher is shown each change. It needs no token."""
    status = health_pb2.HealthCheckResponse.ServingStatus
    stub = health_pb2_grpc.HealthStub(own.channel)
    watch = stub.Watch(health_pb2.HealthCheckRequest(service=SERVICE), timeout=60)
    for ready, expected in ((False, "NOT_SERVING"), (True, "SERVING"), (False, "NOT_SERVING")):
        own.service.metrics.ready = ready
        for service in ("", SERVICE):
            checked = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=60)
            assert status.Name(checked.status) == expected
        assert status.Name(next(watch).status) == expected
    with pytest.raises(grpc.RpcError) as refused:
        stub.Check(health_pb2.HealthCheckRequest(service="other"), timeout=60)
    assert refused.value.code() == grpc.StatusCode.NOT_FOUND
    watch.cancel()


def test_a_watcher_of_the_health_is_shown_a_change_without_a_check(own: GrpcServed) -> None:
    """The server looks at its readiness by itself."""
    watch = health_pb2_grpc.HealthStub(own.channel).Watch(health_pb2.HealthCheckRequest(), timeout=60)
    first = next(watch).status
    own.service.metrics.ready = True
    assert (first, next(watch).status) == (health_pb2.HealthCheckResponse.NOT_SERVING, 1)
    watch.cancel()


def ask_reflection(served: GrpcServed, **question: Any) -> Any:
    """Return what reflection answers."""
    stub = reflection_pb2_grpc.ServerReflectionStub(served.channel)
    return next(stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(**question)]), timeout=60))


def test_a_client_that_knows_nothing_can_ask(served: GrpcServed) -> None:
    """Reflection shows the services, and the messages of a method."""
    listed = ask_reflection(served, list_services="").list_services_response.service
    assert [each.name for each in listed] == [
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
        "wherry.v1.Wherry",
    ]
    pool = DescriptorPool()
    for file in ask_reflection(
        served, file_containing_symbol=listed[2].name
    ).file_descriptor_response.file_descriptor_proto:
        pool.Add(FileDescriptorProto.FromString(file))
    method = pool.FindServiceByName(listed[2].name).FindMethodByName("GetPipeline")
    question = GetMessageClass(method.input_type)(pipeline="orders")
    answer = served.channel.unary_unary(
        f"/{listed[2].name}/{method.name}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )(question, metadata=served.list_metadata(), timeout=60)
    assert (answer.pipeline, answer.state, json.loads(answer.definition)["name"]) == ("orders", "idle", "orders")


def test_open_reflections_take_no_thread_from_other_calls(served: GrpcServed) -> None:
    """Reflection needs no token, so it must not keep callers from asking."""
    stub = reflection_pb2_grpc.ServerReflectionStub(served.channel)
    goes_on = threading.Event()

    def ask_and_stay() -> Iterator[Any]:
        yield reflection_pb2.ServerReflectionRequest(list_services="")
        goes_on.wait(60)

    open_ones = [stub.ServerReflectionInfo(ask_and_stay(), timeout=60) for _ in range(2 * THREADS)]
    assert served.ask("get_readiness", {})[0] == grpc.StatusCode.OK
    goes_on.set()
    assert [len(list(each)) for each in open_ones] == [1] * len(open_ones)


def test_rest_serves_the_published_file(served: GrpcServed) -> None:
    """It needs no token."""
    with served.open_rest("/wherry.proto") as response:
        assert response.read().decode() == print_proto()


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Return the files of a new certificate for the loopback, and of its key."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    began = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=1)
    names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(began)
        .not_valid_after(began + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, secret = serialization.Encoding.PEM, serialization.NoEncryption()
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(certificate.public_bytes(pem))
    files[1].write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, secret))
    return files


def test_a_server_with_a_certificate_answers_over_tls(tmp_path: Path) -> None:
    """A client without TLS gets no answer."""
    tls = make_certificate(tmp_path)
    with serve(make_folder(tmp_path / "folder"), tls) as served:
        assert served.ask("get_readiness", {})[0] == grpc.StatusCode.OK
        with open_channel(served.address, None) as plain, pytest.raises(grpc.RpcError) as refused:
            plain.unary_unary(f"/{SERVICE}/GetReadiness")(b"", metadata=served.list_metadata(), timeout=60)
    assert refused.value.code() == grpc.StatusCode.UNAVAILABLE


def test_a_port_in_use_is_refused(own: GrpcServed) -> None:
    """Two servers never share a port."""
    port = int(own.address.rpartition(":")[2])
    with pytest.raises(Refusal, match=f"cannot listen at 127.0.0.1:{port}"):
        start_second(own, port)


def test_a_certificate_that_is_none_is_refused(own: GrpcServed, tmp_path: Path) -> None:
    """The message names the files."""
    (tmp_path / "key.pem").write_text("no key")
    with pytest.raises(Refusal, match="certificate"):
        start_second(own, 0, (tmp_path / "key.pem", tmp_path / "key.pem"))
    with pytest.raises(Refusal, match="certificate"):
        start_second(own, 0, (tmp_path / "none.pem", tmp_path / "key.pem"))


def start_second(served: GrpcServed, port: int, tls: tuple[Path, Path] | None = None) -> None:
    """Start a second server of the same folder, and end it."""
    with answer_over_grpc(served.service, served.guard, "127.0.0.1", port, tls):
        pass


def test_the_command_prints_where_it_answers(tmp_path: Path) -> None:
    """It ends on a signal, also while a caller watches."""
    words = ["serve", str(make_folder(tmp_path)), "--port", "0", "--grpc-port", "0", "--json"]
    command = [sys.executable, "-c", "from runners.command_line.cli import main; main()", *words]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            said = json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")
            metadata = [("authorization", f"Bearer {said['token']}")]
            with grpc.insecure_channel(said["grpc"]) as channel:
                watch = channel.unary_stream(f"/{SERVICE}/WatchEvents")(b"", metadata=metadata, timeout=60)
                assert read_happening(next(watch))["event"] == "watching"
                process.send_signal(signal.SIGTERM)
                assert [read_happening(each)["event"] for each in watch] != []
            assert process.wait(60) == 0
        finally:
            process.kill()
