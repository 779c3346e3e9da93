"""The webhook: which requests it takes, what they begin, and that a request begins nothing twice."""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timezone

import pytest

from runners.model.entry import Entry
from runners.model.errors import Refusal
from runners.schedules.run_marks import SCHEDULE
from runners.service.hooks import AGAIN, LARGEST, SENDER, Starter, read_secret, sign
from runners.service.messages import Task
from runners.service.problems import make_problem
from runners.service.rest import make_app
from runners.service.serving import ServerOptions, answer_over_http
from runners.service.tasks import Doing, TaskFailed, repeat
from runners.state.location import StateLocation
from tests.manual_clock import ManualClock
from tests.runners.service.served import Reply, Served, serve

KEY = b"a secret of 24 bytes at least"
NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
TIMESTAMP = str(int(NOW.timestamp()))
PLACE = "/v1/pipelines/orders/hooks/arrival"


@pytest.fixture
def hooked(served: Served) -> Iterator[Served]:
    """A server that takes webhooks. Its clock stands still."""
    served.service.clock = ManualClock(time=NOW)
    options = ServerOptions(directory=served.folder, port=0)
    with answer_over_http(make_app(served.service, served.guard, KEY), options) as address:
        yield replace(served, address=address)


def send(served: Served, body: bytes = b"{}", place: str = PLACE, headers: Mapping[str, str] = {}) -> Reply:
    """Send a signed request without a token. Headers that are given replace its own."""
    id_, timestamp = headers.get("id", "evt_1"), headers.get("timestamp", TIMESTAMP)
    given = {"id": id_, "timestamp": timestamp, "signature": sign(KEY, id_, timestamp, body), **headers}
    own: Mapping[str, str | None] = {f"webhook-{name}": value for name, value in given.items()}
    return served.ask("POST", place, body, headers={**own, "Authorization": None, "Idempotency-Key": None})


def list_waiting(served: Served) -> Mapping[str, int]:
    """Return how many arrivals wait for a run, by pipeline."""
    return {name: len(files) for name, files in served.service.arrivals.list_waiting().items()}


def test_a_signed_request_lets_a_pipeline_wait_for_a_run(hooked: Served) -> None:
    """The log of changes has it. The body may be anything, because it is not used."""
    reply = send(hooked, b"\xff ../../etc/passwd")
    assert (reply.status, reply.json()) == (202, {"pipeline": "orders"})
    assert list_waiting(hooked) == {"orders": 1}
    assert {line["who"] for line in hooked.read_log()} == {"webhook"}
    assert hooked.read_log()[0]["with"]["reason"].endswith(": evt_1")
    assert "passwd" not in hooked.service.deeds.log.read_text()


def test_a_signature_is_that_of_standard_webhooks() -> None:
    """The secret, the request and the signature are the example of that specification's libraries."""
    key = read_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signed = sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", b'{"test": 2432232314}')
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize(
    "headers",
    [
        {"signature": ""},
        {"signature": "v1,"},
        {"signature": "v1,é"},
        {"signature": sign(b"another secret of 24 bytes or so", "evt_1", TIMESTAMP, b"{}")},
        {"signature": sign(KEY, "evt_2", TIMESTAMP, b"{}")},
        {"signature": sign(KEY, "evt_1", str(int(TIMESTAMP) + 1), b"{}")},
        {"signature": sign(KEY, "evt_1", TIMESTAMP, b"{ }")},
        {"timestamp": str(int(TIMESTAMP) - 301)},
        {"timestamp": str(int(TIMESTAMP) + 301)},
        {"timestamp": "9" * 30},
        {"timestamp": "-1"},
        {"timestamp": ""},
        {"id": "evt.1"},
        {"id": ""},
        {"id": "e" * 201},
    ],
)
def test_a_request_without_a_valid_signature_begins_nothing(hooked: Served, headers: dict[str, str]) -> None:
    """The answer is the same for a pipeline that does not exist."""
    headers = {name: value.encode().decode("latin-1") for name, value in headers.items()}
    reply = send(hooked, headers=headers)
    assert reply.status == 401
    assert send(hooked, place=PLACE.replace("orders", "nowhere"), headers=headers).body == reply.body
    assert list_waiting(hooked) == {}
    assert hooked.read_log() == []


def test_one_of_several_signatures_is_enough(hooked: Served) -> None:
    """So a sender can change its secret. Five minutes of difference are allowed."""
    late = str(int(TIMESTAMP) - 300)
    signatures = f"v1,{base64.b64encode(b'x' * 32).decode()} {sign(KEY, 'evt_1', late, b'{}')}"
    assert send(hooked, headers={"timestamp": late, "signature": signatures}).status == 202


def test_a_request_that_comes_again_begins_nothing(hooked: Served) -> None:
    """It gets the same answer, also after the run. A new id is a new arrival."""
    first, again = send(hooked), send(hooked)
    assert (again.status, again.body) == (first.status, first.body)
    assert list_waiting(hooked) == {"orders": 1}
    assert send(hooked, headers={"id": "evt_2"}).status == 202
    assert list_waiting(hooked) == {"orders": 2}
    hooked.service.arrivals.settle(hooked.service.arrivals.list_waiting()["orders"])
    assert send(hooked).status == 202
    assert list_waiting(hooked) == {}


def test_an_arrival_that_cannot_be_noted_can_be_sent_again(hooked: Served) -> None:
    """The sender gets an error meanwhile."""
    folder = hooked.service.arrivals.folder
    folder.write_text("no folder")
    assert send(hooked).status >= 500
    folder.unlink()
    assert send(hooked).status == 202
    assert list_waiting(hooked) == {"orders": 1}


def test_a_settled_arrival_is_forgotten_when_its_request_is_too_old(hooked: Served) -> None:
    """So the folder stays small."""
    arrivals = hooked.service.arrivals
    for number in range(3):
        arrivals.note("orders", f"evt_{number}")
        arrivals.settle(arrivals.list_waiting()["orders"])
    first, *_ = done = sorted((arrivals.folder / "done").iterdir())
    os.utime(first, (0, 0))
    arrivals.settle([])
    assert sorted((arrivals.folder / "done").iterdir()) == done[1:]


def test_a_large_body_is_refused(hooked: Served) -> None:
    """Without a valid time, or without a secret of the server, the body is not even read."""
    large = b"x" * (LARGEST + 1)
    assert send(hooked, large).status == 422
    assert send(hooked, large, headers={"timestamp": "0"}).status == 401


def test_a_pipeline_is_named_by_the_path_only(hooked: Served) -> None:
    """An unknown one is not found, and a server without a secret has no webhook."""
    for name in ("nowhere", "..%2F..%2Forders", "broken"):
        assert send(hooked, place=PLACE.replace("orders", name)).status == 404
    assert list_waiting(hooked) == {}


def test_a_server_without_a_secret_has_no_webhook(served: Served) -> None:
    """A signature with an empty secret does not count."""
    reply = served.ask("POST", PLACE, b"{}", headers={"webhook-signature": sign(b"", "a", TIMESTAMP, b"{}")})
    assert reply.status == 404


@pytest.mark.parametrize("secret", ["short", "whsec_c2hvcnQ=", "whsec_é", "whsec_a"])
def test_a_weak_secret_is_refused(secret: str) -> None:
    """It needs 24 bytes. After `whsec_` comes base64."""
    with pytest.raises(Refusal):
        read_secret(secret)
    assert read_secret(f" {KEY.decode()}\n") == KEY


def make_start(served: Served, ends: Mapping[str, object] | None, begun: list[str]) -> Callable[[str], Task]:
    """Return what begins a task. It ends well, or fails with this code and this report. It notes its pipeline."""

    def start(name: str) -> Task:
        begun.append(name)

        def work(doing: Doing) -> None:
            if ends is not None:
                raise TaskFailed("failed", make_problem(str(ends["code"]), "prepared"), ends.get("report"))
            served.service.arrivals.note("orders", f"evt_{len(begun)}")

        return served.service.tasks.start("start_run", name, SENDER, "a test", work)

    return start


def look(served: Served, starter: Starter) -> Mapping[str, int]:
    """Look, and wait for the runs that begin. Return what waits still."""
    starter.look()
    served.service.tasks.wait(10)
    starter.look()
    return list_waiting(served)


def test_what_arrives_during_a_run_is_followed_by_one_more(served: Served) -> None:
    """A failed run with a report counts."""
    begun: list[str] = []
    starter = Starter(service=served.service, start=make_start(served, None, begun))
    served.service.arrivals.note("orders", "evt")
    starter.look()
    served.service.tasks.wait(10)
    assert list_waiting(served) == {"orders": 2}
    starter.start = make_start(served, {"code": "FAILED", "report": {}}, begun)
    assert look(served, starter) == {}
    assert begun == ["orders"] * 2


@pytest.mark.parametrize("code", ["OWNED", "PAUSED", "FAILED"])
def test_a_run_that_did_not_take_place_is_tried_again_later(served: Served, code: str) -> None:
    """Half a minute passes in between. What arrived waits still."""
    clock = served.service.clock = ManualClock(time=NOW)
    begun: list[str] = []
    starter = Starter(service=served.service, start=make_start(served, {"code": code}, begun))
    served.service.arrivals.note("orders", "evt")
    for _ in range(3):
        assert look(served, starter) == {"orders": 1}
    assert len(begun) == 1
    clock.move(AGAIN)
    assert look(served, starter) == {"orders": 1}
    assert len(begun) == 2


def test_a_run_elsewhere_lets_nothing_begin(served: Served) -> None:
    """No task is made until it has ended."""
    clock = served.service.clock = ManualClock(time=NOW)
    begun: list[str] = []
    pipeline = served.service.find("orders").pipeline
    journal = StateLocation.of(pipeline).open_journal(pipeline)
    journal.acquire({"host": "elsewhere", "pipeline": "orders", "run": "another"})
    starter = Starter(service=served.service, start=make_start(served, {"code": "FAILED", "report": {}}, begun))
    served.service.arrivals.note("orders", "evt")
    assert look(served, starter) == {"orders": 1}
    clock.move(AGAIN)
    assert look(served, starter) == {"orders": 1}
    assert begun == []
    journal.record(Entry(kind="release", body={"run": "another", "status": "succeeded"}))
    clock.move(AGAIN)
    assert look(served, starter) == {}
    assert begun == ["orders"]


def test_a_forgotten_task_is_begun_again(served: Served) -> None:
    """What it did is not known, and a run finds only what is new."""
    clock = served.service.clock = ManualClock(time=NOW)
    forgotten = Task(task="x", operation="start_run", pipeline="orders", state="waiting", by="", reason="", began_at="")
    starter, begun = Starter(service=served.service, start=lambda _: forgotten), list[str]()
    served.service.arrivals.note("orders", "evt")
    assert look(served, starter) == {"orders": 1}
    clock.move(AGAIN)
    starter.start = make_start(served, {"code": "FAILED", "report": {}}, begun)
    assert look(served, starter) == {}
    assert begun == ["orders"]


def test_a_broken_definition_keeps_its_arrival(served: Served) -> None:
    """It is mended, and the run begins. Once nothing is broken, a pipeline that is gone waits no longer."""
    begun: list[str] = []
    file = served.folder / "orders.yaml"
    text = file.read_text()
    starter = Starter(service=served.service, start=make_start(served, {"code": "FAILED", "report": {}}, begun))
    served.service.arrivals.note("orders", "evt")
    served.service.arrivals.note("gone", "evt")
    file.write_text("name: orders\n")
    assert look(served, starter) == {"orders": 1, "gone": 1}
    file.write_text(text)
    assert look(served, starter) == {"gone": 1}
    (served.folder / "broken.yaml").unlink()
    assert look(served, starter) == {}
    assert begun == ["orders"]


def test_a_look_that_fails_is_logged_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """So no thread of the server ends in silence."""
    ended, looks = threading.Event(), list[int]()

    def look() -> None:
        looks.append(1)
        if len(looks) == 3:
            ended.set()
        raise OSError("no disk")

    repeat(look, 0.0, ended)
    assert (len(looks), len(caplog.messages)) == (3, 1)


def test_a_run_that_ends_with_its_server_is_begun_again(served: Served) -> None:
    """What arrived before it waits still."""

    def start(name: str) -> Task:
        def work(doing: Doing) -> None:
            raise TaskFailed("stopped", make_problem("STOPPED", "the server ends"))

        return served.service.tasks.start("start_run", name, SENDER, "a test", work)

    starter = Starter(service=served.service, start=start)
    served.service.arrivals.note("orders", "evt")
    starter.look()
    starter.end()
    served.service.tasks.wait(10)
    starter.look()
    assert list_waiting(served) == {"orders": 1}


def test_a_run_that_a_webhook_asks_for_waits_for_its_group(served: Served) -> None:
    """What arrived waits with it."""
    file = served.folder / "orders.yaml"
    file.write_text(file.read_text().replace("runners: 1", "group: warehouse"))
    groups = served.service.tasks.groups
    assert groups.choose(SCHEDULE, [("warehouse", served.service.clock.now())]) == 0
    served.service.arrivals.note("orders", "evt")
    starter = Starter(service=served.service)
    starter.look()
    (task,) = served.service.tasks.list_all("orders")
    assert served.service.tasks.get(task.task, wait=0.2).state == "waiting"
    starter.look()
    assert list_waiting(served) == {"orders": 1}
    groups.leave("warehouse")
    assert served.service.tasks.get(task.task, wait=10).state == "failed"


def test_what_waits_outlives_a_server(served: Served) -> None:
    """The next server of the folder begins the run, which has no Spark here. A pipeline that is gone is settled."""
    (served.folder / "broken.yaml").unlink()
    served.service.arrivals.note("orders", "evt")
    served.service.arrivals.note("a/b", "evt")
    with serve(served.folder) as other:
        starter = Starter(service=other.service)
        starter.look()
        assert [(task["pipeline"], task["by"]) for task in other.get("/v1/tasks")["tasks"]] == [("orders", "webhook")]
        other.service.tasks.wait(10)
        starter.look()
    assert list_waiting(served) == {"orders": 1}
