"""The server: where it listens, what it refuses to begin with, and how it ends."""

from __future__ import annotations

import socket
import subprocess
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from runners.model.clock import Clock
from runners.model.errors import Refusal
from runners.model.schedule_events import Broken, ScheduleEvent
from runners.service.operation import Caller, Right
from runners.service.rest import make_app
from runners.service.serving import Server, ServerOptions, answer_over_http, make_scheduler, make_service
from tests.runners.service.served import SCHEDULED, serve, write_pipeline
from tests.small_disk import SmallDisk

OWNER = Caller(name="owner", right=Right.ADMIN)


@pytest.fixture
def server(tmp_path: Path) -> Server:
    """A server of an empty folder that does not listen yet."""
    return Server.open(ServerOptions(directory=tmp_path, port=0, grpc_port=0))


def fetch(url: str) -> int:
    """Return the status of the answer."""
    try:
        with urllib.request.urlopen(url, timeout=10) as reply:  # noqa: S310 -- the server's own address
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_server_answers_until_it_ends(server: Server) -> None:
    """It is ready while runs begin. After its end nothing listens at its port."""
    with server.listen() as address:
        assert fetch(f"{address}/ready") == 503
        thread = threading.Thread(target=server.run)
        thread.start()
        for _ in range(500):
            if fetch(f"{address}/ready") == 200:
                break
        assert fetch(f"{address}/ready") == 200
        server.stop("asked to end")
        assert fetch(f"{address}/ready") == 503
        thread.join(20)
        assert not thread.is_alive()
    with pytest.raises(OSError, match="refused"):
        fetch(address)


def test_a_stop_before_the_server_runs_ends_it_at_once(server: Server) -> None:
    """A signal may come that early."""
    server.stop("signal SIGTERM")
    server.run()
    with pytest.raises(Refusal, match="The server ends"):
        server.service.tasks.start("run_audit", "orders", OWNER, "", lambda _: None)


def test_a_stop_reaches_the_tasks(server: Server) -> None:
    """Those that work are asked to stop. The server waits for their end."""
    began, asked = threading.Event(), threading.Event()
    stops: list[tuple[str, bool]] = []

    def stop(reason: str, force: bool) -> None:
        stops.append((reason, force))
        asked.set()

    def work(doing: object) -> None:
        doing.keep_stop(stop)  # type: ignore[attr-defined]
        began.set()
        assert asked.wait(20)

    task = server.service.tasks.start("start_run", "orders", OWNER, "", work)
    assert began.wait(10)
    thread = threading.Thread(target=server.run)
    thread.start()
    server.stop("signal SIGTERM")
    server.stop("signal SIGTERM", force=True)
    thread.join(20)
    assert server.service.tasks.get(task.task).state == "succeeded"
    assert stops[0] == ("signal SIGTERM", False)


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    """The refusal names it. This holds while the other one only listens, too."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        server = Server.open(ServerOptions(directory=tmp_path, port=port, grpc_port=0))
        with pytest.raises(Refusal, match=f"127.0.0.1:{port}"), server.listen():
            pass


@pytest.mark.parametrize("host", ["nowhere.invalid", "256.0.0.1", "é" * 100])
def test_a_host_that_is_not_here_is_refused(tmp_path: Path, host: str) -> None:
    """A name that cannot be a name is refused too."""
    server = Server.open(ServerOptions(directory=tmp_path, port=0, grpc_port=0, host=host))
    with pytest.raises(Refusal, match="cannot listen"), server.listen():
        pass


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    key, made = folder / "key.pem", folder / "cert.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    subprocess.run([*words, "-keyout", str(key), "-out", str(made)], check=True, capture_output=True)
    return made, key


def test_a_server_with_a_certificate_answers_over_tls(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    """Without TLS it answers nothing."""
    server = Server.open(ServerOptions(directory=tmp_path, port=0, grpc_port=0, tls=certificate))
    with server.listen() as address:
        assert address.startswith("https://")
        found = subprocess.run(["curl", "-sk", f"{address}/live"], check=True, capture_output=True)
        assert found.stdout == b"live\n"
        with pytest.raises((OSError, ConnectionError)):
            fetch(f"{address.replace('https', 'http')}/live")


def test_a_certificate_that_cannot_be_used_is_refused(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    """The server does not begin without it."""
    (tmp_path / "no.pem").write_text("no certificate")
    for tls in ((tmp_path / "no.pem", certificate[1]), (certificate[0], tmp_path / "missing.pem")):
        server = Server.open(ServerOptions(directory=tmp_path, port=0, grpc_port=0, tls=tls))
        with pytest.raises(Refusal, match="certificate"), server.listen():
            pass


def test_a_folder_that_is_missing_or_read_only_is_refused(tmp_path: Path, small_disk: SmallDisk) -> None:
    """The server has to note what it begins."""
    small_disk.read_only()
    for folder in (tmp_path / "missing", small_disk.folder):
        with pytest.raises(Refusal):
            Server.open(ServerOptions(directory=folder))


def test_two_servers_share_a_folder(tmp_path: Path) -> None:
    """A change by one is seen by the other, and a key counts at both. Each has its own token."""
    write_pipeline(tmp_path, "items", SCHEDULED)
    with serve(tmp_path) as one, serve(tmp_path) as two:
        by = one.add_caller("anna", "operate")
        two.tokens[by] = one.tokens[by]
        body, path = {"reason": "holidays", "held": True}, "/v1/pipelines/items/schedule"
        first = one.ask("PUT", path, body, by=by, key="k")
        again = two.ask("PUT", path, body, by=by, key="k")
        assert (first.status, again.status, first.body) == (200, 200, again.body)
        assert two.ask("PUT", path, {**body, "held": False}, by=by, key="k").status == 409
        assert two.get("/v1/pipelines")["pipelines"][0]["held"] == "holidays"
        assert len(two.read_log()) == 2
        two.tokens["other"] = one.tokens["owner"]
        assert two.ask("GET", "/v1/pipelines", by="other").status == 401


def test_the_schedule_has_the_secrets_that_the_server_was_given(tmp_path: Path) -> None:
    """Without them a definition is broken for it, as it is for `wherry schedule`."""
    conf = "spark: {conf: {spark.hadoop.fs.s3a.secret.key: '${secret:LAKE}'}}\n"
    write_pipeline(tmp_path, "items", SCHEDULED + conf)
    heard: list[ScheduleEvent] = []
    for secrets in ({}, {"LAKE": "hunter2-of-the-lake"}):
        options = ServerOptions(directory=tmp_path, secrets=secrets)
        scheduler = make_scheduler(make_service(options, Clock()), options, Clock(), [heard.append])
        scheduler.open()
    assert [each.file for each in heard if isinstance(each, Broken)] == ["items.yaml"]
    assert scheduler.active["items"].pipeline.spark.conf["spark.hadoop.fs.s3a.secret.key"] == "hunter2-of-the-lake"


def test_a_server_that_breaks_shows_nothing_of_it(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """An unexpected error is a problem with a number, and the log has it."""

    def fail() -> tuple[int, str]:
        raise ZeroDivisionError("at /secret/place")

    server.service.metrics.readiness = fail  # type: ignore[method-assign]
    with answer_over_http(make_app(server.service, server.guard), server.options) as address:
        with pytest.raises(urllib.error.HTTPError) as failed:
            urllib.request.urlopen(f"{address}/ready", timeout=10)  # noqa: S310 -- the server's own address
        body = failed.value.read()
    assert failed.value.code == 500
    assert b"UNEXPECTED" in body
    assert b"secret" not in body
    assert "ZeroDivisionError" in caplog.text
