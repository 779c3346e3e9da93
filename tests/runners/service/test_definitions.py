"""Definitions over the network: validate, get, put, delete, and a run with parameters or with its own definition."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runners.service.deeds import make_etag
from tests.runners.service.served import DEFINITION, Served, serve, write_pipeline, write_pipelines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS, NEW = "/v1/pipelines/orders/definition", "/v1/pipelines/new/definition"
TEXT = DEFINITION.format(name="new")
WHY = {"reason": "a new feed"}


@pytest.fixture
def open_served(tmp_path: Path) -> Iterator[Served]:
    """A server that takes definitions and a parameter."""
    write_pipelines(tmp_path)
    roots = [str(tmp_path / "landing"), str(tmp_path / "tables")]
    with serve(tmp_path, definition_roots=roots, parameters=["DAY"]) as served:
        yield served


def list_files(served: Served) -> list[str]:
    """Return the names of the files and folders in the folder of the server."""
    return sorted(each.name for each in served.folder.iterdir())


def test_a_definition_is_put_and_used_at_once(open_served: Served) -> None:
    """The next question finds the pipeline, and the answer has the etag of its file."""
    stored = open_served.ask("PUT", NEW, {**WHY, "definition": TEXT + "schedule: {every: 1h}\n"}).json()
    assert (stored["file"], stored["replaced"]) == ("new.yaml", False)
    found = open_served.get(NEW)
    assert (found["definition"], found["etag"]) == (TEXT + "schedule: {every: 1h}\n", stored["etag"])
    assert open_served.get("/v1/pipelines/new")["state"] == "never_run"
    assert "new" in [each["pipeline"] for each in open_served.get("/v1/schedule")["scheduled"]]


def test_a_definition_is_replaced_only_with_its_etag(open_served: Served) -> None:
    """A wrong etag, and none for a file that exists, change nothing."""
    first = open_served.ask("PUT", NEW, {**WHY, "definition": TEXT}).json()["etag"]
    for etag in ("", "0" * 32):
        reply = open_served.ask("PUT", NEW, {**WHY, "definition": TEXT + "#\n", "etag": etag})
        assert (reply.status, reply.json()["code"]) == (409, "CHANGED")
    second = open_served.ask("PUT", NEW, {**WHY, "definition": TEXT + "#\n", "etag": first}).json()
    assert (second["replaced"], second["etag"] == first) == (True, False)
    assert open_served.ask("PUT", NEW, {**WHY, "definition": TEXT, "etag": first}).status == 409
    assert open_served.get(NEW)["definition"] == TEXT + "#\n"


def test_one_of_many_writers_wins(open_served: Served) -> None:
    """The others learn that the file exists, and no part of a file is left."""

    def put(number: int) -> int:
        return open_served.ask("PUT", NEW, {**WHY, "definition": f"{TEXT}# {number}\n"}).status

    with ThreadPoolExecutor(8) as threads:
        statuses = [*threads.map(put, range(8))]
    assert sorted(statuses) == [200, *[409] * 7]
    winner = statuses.index(200)
    assert open_served.get(NEW)["definition"] == f"{TEXT}# {winner}\n"
    assert [name for name in list_files(open_served) if name.startswith(".new")] == []


def test_a_deleted_definition_leaves_its_state(open_served: Served) -> None:
    """A definition of the same name continues where the old one was."""
    etag = open_served.get(ORDERS)["etag"]
    assert open_served.ask("DELETE", ORDERS, {**WHY, "etag": "0"}).status == 409
    assert open_served.ask("DELETE", ORDERS, {**WHY, "etag": etag}).json() == {
        "pipeline": "orders",
        "file": "orders.yaml",
    }
    assert open_served.ask("GET", ORDERS).status == 404
    assert open_served.ask("DELETE", ORDERS, {**WHY, "etag": ""}).status == 404
    open_served.ask("PUT", ORDERS, {**WHY, "definition": DEFINITION.format(name="orders")})
    assert open_served.get("/v1/pipelines/orders/runs/last")["read"] == 2


def test_a_definition_takes_no_state_of_another_pipeline(open_served: Served) -> None:
    """A state that no caller made, and the name of a broken definition, are refused."""
    (open_served.folder / ".wherry" / "new").mkdir()
    for method, path in (("PUT", NEW), ("POST", "/v1/pipelines/new/runs")):
        reply = open_served.ask(method, path, {**WHY, "definition": TEXT})
        assert "no caller made it" in reply.json()["detail"]
    (open_served.folder / ".wherry" / "new").rmdir()
    for name in ("new", "'new' # x", "${DAY}"):
        (open_served.folder / "broken.yaml").write_text(f"name: {name}\norigin: {{nowhere: {{}}}}\n")
        assert "broken.yaml is broken" in open_served.ask("PUT", NEW, {**WHY, "definition": TEXT}).json()["detail"]
    (open_served.folder / "broken.yaml").unlink()
    assert open_served.ask("PUT", NEW, {**WHY, "definition": TEXT}).status == 200
    (open_served.folder / ".wherry" / "new").mkdir()
    etag = open_served.get(NEW)["etag"]
    assert open_served.ask("DELETE", NEW, {**WHY, "etag": etag}).status == 200
    assert open_served.ask("PUT", NEW, {**WHY, "definition": TEXT}).status == 200


def test_a_definition_is_validated_and_not_stored(open_served: Served) -> None:
    """The answer has what it says, or every line that is wrong."""
    before = list_files(open_served)
    said = open_served.ask("POST", NEW, {"definition": TEXT}).json()
    assert said["definition"]["destinations"] == [{"delta": {"path": "tables/new"}, "name": "new"}]
    wrong = open_served.ask("POST", NEW, {"definition": TEXT.replace("window: 0", "window: many")}).json()
    assert (wrong["code"], "line 7" in wrong["detail"]) == ("DEFINITION", True)
    refused = open_served.ask("POST", NEW, {"definition": TEXT + "hooks: []\n"}).json()
    assert (refused["code"], "line 9" in refused["detail"]) == ("DEFINITION", True)
    assert list_files(open_served) == before


def test_a_refused_definition_is_not_in_the_log(open_served: Served) -> None:
    """It may have a secret by mistake. The log has its hash, its caller and the reason."""
    by, text = open_served.add_caller("anna", "admin"), TEXT + "hooks: [{webhook: 'https://x/T0PS3CRET'}]\n"
    assert open_served.ask("PUT", NEW, {**WHY, "definition": text}, by=by).status == 422
    began, ended = open_served.read_log()
    assert (began["who"], began["with"]["definition"], began["with"]["reason"]) == (
        "anna",
        make_etag(text.encode()),
        "a new feed",
    )
    assert "line 9" in ended["refused"]
    assert "T0PS3CRET" not in open_served.service.deeds.log.read_text()


def test_a_definition_that_a_caller_could_not_write_is_not_changed(open_served: Served) -> None:
    """Only a person at the machine may change a definition with a hook, a link, or another file of the pipeline."""
    file = open_served.folder / "orders.yaml"
    file.write_text(file.read_text() + "hooks: [{on: failure, command: notify}]\n")
    etag, text = make_etag(file.read_bytes()), DEFINITION.format(name="orders")
    assert open_served.ask("PUT", ORDERS, {**WHY, "definition": text, "etag": etag}).json()["code"] == "DEFINITION"
    assert open_served.ask("DELETE", ORDERS, {**WHY, "etag": etag}).json()["code"] == "DEFINITION"
    assert "hooks" in file.read_text()
    file.rename(open_served.folder / "first.yaml")
    assert "first.yaml already" in open_served.ask("PUT", ORDERS, {**WHY, "definition": text}).json()["detail"]
    (open_served.folder / "new.yaml").symlink_to("items.yaml")
    assert "no regular file" in open_served.ask("PUT", NEW, {**WHY, "definition": TEXT}).json()["detail"]


def test_a_caller_of_some_pipelines_changes_no_definition(open_served: Served) -> None:
    """A definition could read the data of the others."""
    by = open_served.add_caller("anna", "admin", "orders")
    assert open_served.ask("GET", ORDERS, by=by).status == 200
    for method, body in (("PUT", {"definition": TEXT, **WHY}), ("POST", {"definition": TEXT})):
        assert open_served.ask(method, ORDERS, body, by=by).status == 403
    assert open_served.ask("DELETE", ORDERS, {**WHY, "etag": open_served.get(ORDERS)["etag"]}, by=by).status == 403


def test_a_server_takes_no_definitions_by_default(served: Served) -> None:
    """The answer says how to turn it on. Reading one is possible."""
    for method, body in (("PUT", {"definition": TEXT, **WHY}), ("POST", {"definition": TEXT})):
        assert "--definition-root" in served.ask(method, NEW, body).json()["hint"]
    asked = {**WHY, "definition": TEXT}
    assert "--definition-root" in served.ask("POST", "/v1/pipelines/new/runs", asked).json()["hint"]
    etag = served.get(ORDERS)["etag"]
    assert "--definition-root" in served.ask("DELETE", ORDERS, {**WHY, "etag": etag}).json()["hint"]


def test_a_secret_in_a_file_is_not_shown(tmp_path: Path) -> None:
    """The text has its reference."""
    write_pipeline(tmp_path, "orders", "spark: {conf: {fs.s3a.secret.key: T0PS3CRET}}\n")
    with serve(tmp_path) as served:
        assert "T0PS3CRET" not in served.get(ORDERS)["definition"]


@pytest.mark.parametrize("size", [100_001, 2 << 20, 50 << 20])
def test_a_large_definition_is_refused(open_served: Served, size: int) -> None:
    """Nothing is written, and the server goes on."""
    before, text = list_files(open_served), "#" * size
    try:
        status = open_served.ask("PUT", NEW, {**WHY, "definition": text}).status
    except (BrokenPipeError, ConnectionResetError):
        status = 422  # the server ended the connection before it had everything
    assert (status, list_files(open_served)) == (422, before)
    assert open_served.ask("PUT", NEW, {**WHY, "definition": TEXT}).status == 200


@pytest.mark.parametrize(
    "name", ["..%2f..%2fetc", "a%2fb", "New", "new.yaml", "%00", "new%0d%0aSet-Cookie:%20a=b", "server", "-n"]
)
def test_a_name_forms_no_path_and_no_header(open_served: Served, name: str) -> None:
    """It is refused, and the answer and the log have no line that it made."""
    before = list_files(open_served)
    reply = open_served.ask("PUT", f"/v1/pipelines/{name}/definition", {**WHY, "definition": TEXT})
    assert (reply.status in (404, 422), "set-cookie" in reply.headers, list_files(open_served)) == (True, False, before)
    assert len(open_served.service.deeds.log.read_text().splitlines() if open_served.read_log() else []) in (0, 2)


def test_a_parameter_is_refused_unless_it_is_allowed(open_served: Served) -> None:
    """No task begins."""
    write_pipeline(open_served.folder, "daily", "protect: ['${DAY:-email}']\n")
    for given in ({"HOME": "x"}, {"DAY": "../x"}, {"DAY": "a' or 'b"}):
        reply = open_served.ask("POST", "/v1/pipelines/daily/runs", {**WHY, "parameters": given})
        assert (reply.status, reply.json()["code"]) == (422, "INVALID")
    reply = open_served.ask("POST", "/v1/pipelines/orders/runs", {**WHY, "parameters": {"DAY": "x"}})
    assert "has no ${DAY}" in reply.json()["detail"]
    assert open_served.get("/v1/tasks")["tasks"] == []
    begun = open_served.ask("POST", "/v1/pipelines/daily/runs", {**WHY, "parameters": {"DAY": "phone"}})
    assert begun.status == 202


def test_a_parameter_leads_to_no_link(open_served: Served) -> None:
    """A definition of a run alone and a stored one are checked with it. One with a hook is its owner's."""
    (open_served.folder / "landing" / "out").symlink_to(open_served.folder / ".wherry")
    text = TEXT.replace("landing/new/", "landing/${DAY}/")
    out, fine = ({**WHY, "parameters": {"DAY": day}} for day in ("out", "monday"))
    given = {**out, "definition": text}
    assert open_served.ask("POST", "/v1/pipelines/new/runs", given).json()["code"] == "DEFINITION"
    write_pipeline(open_served.folder, "daily").write_text(text.replace("new", "daily"))
    assert open_served.ask("POST", "/v1/pipelines/daily/runs", out).status == 404  # it is broken without a value
    stored = text.replace("${DAY}", "${DAY:-today}")
    assert open_served.ask("PUT", NEW, {**WHY, "definition": stored}).status == 200
    assert open_served.ask("POST", "/v1/pipelines/new/runs", out).json()["code"] == "DEFINITION"
    assert open_served.ask("POST", "/v1/pipelines/new/runs", fine).status == 202
    (open_served.folder / "new.yaml").write_text(stored + "hooks: [{on: failure, command: notify}]\n")
    assert open_served.ask("POST", "/v1/pipelines/new/runs", out).status == 202


def test_a_parameter_needs_no_default_in_a_definition_of_a_run_alone(open_served: Served) -> None:
    """It is checked with the value that it gets."""
    asked = {**WHY, "definition": TEXT + "protect: ['${DAY}']\n"}
    assert "missing" in open_served.ask("POST", "/v1/pipelines/new/runs", asked).json()["detail"]
    begun = open_served.ask("POST", "/v1/pipelines/new/runs", {**asked, "parameters": {"DAY": "phone"}})
    assert begun.status == 202


def test_a_parameter_changes_no_name(open_served: Served) -> None:
    """A run with it would be one of another pipeline."""
    (open_served.folder / "daily.yaml").write_text(TEXT.replace("name: new", "name: daily_${DAY:-a}"))
    by = open_served.add_caller("anna", "operate", "daily_a")
    asked = {**WHY, "parameters": {"DAY": "b"}}
    assert "that of daily_b" in open_served.ask("POST", "/v1/pipelines/daily_a/runs", asked, by=by).json()["detail"]
    assert open_served.ask("POST", "/v1/pipelines/daily_a/runs", WHY, by=by).status == 202


def test_a_definition_of_a_run_alone_needs_the_right_to_admin(open_served: Served) -> None:
    """It also needs a name of its own."""
    by = open_served.add_caller("anna", "operate")
    asked = {**WHY, "definition": TEXT}
    assert open_served.ask("POST", "/v1/pipelines/new/runs", asked, by=by).status == 403
    own = {**WHY, "definition": DEFINITION.format(name="orders")}
    assert open_served.ask("POST", "/v1/pipelines/orders/runs", own).json()["code"] == "REFUSED"
    assert open_served.ask("POST", "/v1/pipelines/new/runs", asked).status == 202
    assert "new.yaml" not in list_files(open_served)


@pytest.mark.spark
def test_a_run_keeps_the_definition_that_it_began_with(spark: SparkSession, tmp_path: Path) -> None:
    """A run has its hash, also if it came with the run or with a parameter. The state is that of its name."""
    (tmp_path / "landing/new").mkdir(parents=True)
    (tmp_path / "landing/new/1.json").write_text(json.dumps({"id": 1, "amount": 2}) + "\n")
    roots = [str(tmp_path / "landing"), str(tmp_path / "tables")]
    text = TEXT + "stages: [with_columns: {day: \"'${DAY:-today}'\"}]\n"
    with serve(tmp_path, spark=True, definition_roots=roots, parameters=["DAY"]) as served:
        asked = {**WHY, "definition": text, "parameters": {"DAY": "monday"}}
        ended = wait_for(served, served.ask("POST", "/v1/pipelines/new/runs", asked).json()["task"])
        assert (ended["state"], ended["result"]["read"]) == ("succeeded", 1)
        assert spark.read.format("delta").load(str(tmp_path / "tables/new")).first()["day"] == "monday"  # type: ignore[index]
        served.ask("PUT", NEW, {**WHY, "definition": text})
        ran, stored = served.get("/v1/pipelines/new/runs/last"), served.get("/v1/pipelines/new")
        assert (ran["run"], ran["definition"] == stored["hash"]) == (ended["run"], False)
        again = wait_for(served, served.ask("POST", "/v1/pipelines/new/runs", WHY).json()["task"])
        assert (again["state"], again["result"]["read"]) == ("succeeded", 0)
        assert served.get("/v1/pipelines/new/runs/last")["definition"] == stored["hash"]


def wait_for(served: Served, task: str) -> dict[str, Any]:
    """Return a task as it ended."""
    for _ in range(20):
        found: dict[str, Any] = served.get(f"/v1/tasks/{task}?wait=15")
        if found["ended_at"]:
            return found
    raise AssertionError(found)
