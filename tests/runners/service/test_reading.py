"""The questions: what a caller sees of its pipelines, and that it sees nothing of others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from origins.lazy import SparkSession
from runners.model.errors import Refusal
from runners.pipeline import Pipeline
from runners.service.access.tokens import RightName
from runners.service.operation import Caller, Right
from runners.service.operations import OPERATIONS
from tests.runners.service.served import SCHEDULED, Served, serve, write_pipeline, write_refused

AFTER = """
name: prices
origin: {delta: {path: tables/orders}}
destinations: [{delta: {path: tables/prices}}]
schedule: {after: items}
"""
LOOKS = (
    *("/v1/pipelines", "/v1/schedule", "/v1/tasks", "/v1/ready"),
    *(
        f"/v1/pipelines/prices{rest}"
        for rest in ("", "/runs", "/offsets", "/dlq", "/dlq/rows", "/dlq/causes", "/quality")
    ),
)
SECRET = "hunter2-of-the-lake"  # noqa: S105 -- it must not come out


def test_the_list_shows_the_state_of_each_pipeline(served: Served) -> None:
    """It says what runs, what waits, what was refused, and which files cannot be used."""
    found = served.get("/v1/pipelines")
    items, orders = found["pipelines"]
    assert (items["pipeline"], items["state"], items["waiting"], items["schedule"]) == (
        "items",
        "never_run",
        {"files": 1},
        "every 1h",
    )
    assert (orders["state"], orders["waiting"], orders["refused"], orders["due"]) == ("idle", {"files": 0}, 2, None)
    assert orders["last_run"]["read"] == 2
    assert list(found["broken"]) == ["broken.yaml"]


def test_a_pipeline_shows_its_state_and_its_definition(served: Served) -> None:
    """The next step is a command that names the file."""
    found = served.get("/v1/pipelines/orders")
    assert (found["state"], found["dlq"]["unreplayed"], found["lanes"]["0"]["number"]) == ("idle", 2, 1)
    assert found["definition"]["name"] == "orders"
    assert found["next"].endswith("orders.yaml --waiting")


def test_runs_are_listed_and_shown(served: Served) -> None:
    """A run is found by its id, by the beginning of it, and as the last one."""
    (listed,) = served.get("/v1/pipelines/orders/runs?status=succeeded&limit=5")["runs"]
    assert (listed["read"], listed["report"]) == (2, None)
    for text in (listed["run"], listed["run"][:6], "last"):
        assert served.get(f"/v1/pipelines/orders/runs/{text}")["report"]["read"] == 2
    assert served.get("/v1/pipelines/orders/runs?status=failed") == {"runs": [], "cursor": ""}
    assert served.ask("GET", "/v1/pipelines/items/runs/last").status == 404


def test_refused_rows_are_listed_and_counted(served: Served) -> None:
    """All conditions count."""
    rows = "/v1/pipelines/orders/dlq/rows"
    assert [each["id"] for each in served.get(rows)["rows"]] == ["plan/1", "plan/2"]
    for query in (
        "ids=plan/2",
        "file=2.json",
        "contains=X2",
        "limit=1",
        "since=2026-01-01T00:00:02",
        "code=PARSE&file=2.*",
    ):
        assert [each["id"] for each in served.get(f"{rows}?{query}")["rows"]] == ["plan/2"], query
    (cause,) = served.get("/v1/pipelines/orders/dlq/causes")["causes"]
    assert (cause["code"], cause["rows"], cause["waiting"]) == ("PARSE", 2, 2)
    assert served.ask("POST", "/v1/pipelines/orders/dlq/discard", {"reason": "old", "ids": ["plan/1"]}).status == 200
    assert [each["id"] for each in served.get(f"{rows}?waiting=true")["rows"]] == ["plan/2"]
    assert [each["waiting"] for each in served.get("/v1/pipelines/orders/dlq/causes")["causes"]] == [1]
    assert [each["discarded"] for each in served.get(rows)["rows"]] == [True, False]


@pytest.mark.parametrize("right", ["read", "operate", "admin"])
def test_a_caller_learns_what_its_token_allows(served: Served, right: RightName) -> None:
    """It sees its name, its right, and the right of each operation that needs more than to read."""
    found = served.get("/v1/caller", by=served.add_caller("anna", right))
    assert (found["caller"], found["right"]) == ("anna", right)
    needed = {each.name: each.right.name.lower() for each in OPERATIONS if each.right > Right.READ}
    assert found["needs"] == needed


def test_the_schedule_shows_when_runs_begin(served: Served) -> None:
    """A pipeline that is held has no moments, and a reason. One without a schedule is run by hand."""
    found = served.get("/v1/schedule?days=1")
    assert [each["pipeline"] for each in found["scheduled"]] == ["items"]
    assert (len(found["scheduled"][0]["due"]), found["by_hand"]) == (24, ["orders"])
    served.ask("PUT", "/v1/pipelines/items/schedule", {"reason": "holidays", "held": True})
    (held,) = served.get("/v1/schedule")["scheduled"]
    assert (held["due"], held["held"]) == ([], "holidays")
    assert served.get("/v1/pipelines")["pipelines"][0]["held"] == "holidays"


def test_a_caller_sees_nothing_of_other_pipelines(served: Served) -> None:
    """No question shows one by name. What its own definition names is its own."""
    (served.folder / "prices.yaml").write_text(AFTER)
    served.add_caller("sam", "admin", "prices")
    served.ask("POST", "/v1/pipelines/orders/runs", {"reason": "a run of another pipeline"})
    assert served.get("/v1/pipelines")["pipelines"][2]["after"] == ["orders"]
    for path in LOOKS:
        text = served.ask("GET", path, by="sam").body.decode()
        for own in ("tables/orders", "after each run of items", '"after":"items"'):
            text = text.replace(own, "")
        assert [name for name in ("orders", "items", "broken.yaml") if name in text] == [], path
    assert [each["after"] for each in served.get("/v1/pipelines", by="sam")["pipelines"]] == [[]]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/pipelines/orders"),
        ("GET", "/v1/pipelines/orders/dlq/rows"),
        ("GET", "/v1/tasks?pipeline=orders"),
        ("GET", "/v1/events?pipeline=orders"),
        ("POST", "/v1/pipelines/orders/runs"),
        ("POST", "/v1/pipelines/orders/dlq/discard"),
        ("PUT", "/v1/pipelines/items/schedule"),
    ],
)
def test_a_hidden_pipeline_is_like_a_missing_one(served: Served, method: str, path: str) -> None:
    """The answer is the same, apart from the name."""
    served.add_caller("sam", "admin", "prices")
    body = None if method == "GET" else {"reason": "why not", **({"held": True} if method == "PUT" else {})}
    hidden = served.ask(method, path, body, by="sam")
    missing = served.ask(method, path.replace("orders", "nowhere").replace("items", "nowhere"), body, by="sam")
    assert hidden.status == 403
    assert hidden.body == missing.body
    assert served.read_log() == []


def test_a_task_of_another_pipeline_cannot_be_seen_or_cancelled(served: Served) -> None:
    """The answer is that of a task that never was."""
    served.add_caller("sam", "admin", "items")
    task = served.ask("POST", "/v1/pipelines/orders/audit", {}).json()["task"]
    for name in (task, "nowhere"):
        for reply in (
            served.ask("GET", f"/v1/tasks/{name}", by="sam"),
            served.ask("POST", f"/v1/tasks/{name}/cancel", {"reason": "x"}, by="sam"),
        ):
            assert (reply.status, reply.json()["detail"]) == (
                404,
                "There is no such task. A server forgets its tasks when it ends.",
            )
    assert served.get("/v1/tasks", by="sam") == {"tasks": []}


def test_no_answer_has_a_secret(tmp_path: Path) -> None:
    """A definition has it in settings of Spark, and another one where it must not be. The log of changes has none."""
    conf = "spark: {conf: {spark.hadoop.fs.s3a.secret.key: '${secret:LAKE}'}}\n"
    file = write_pipeline(tmp_path, "orders", SCHEDULED + conf, rows={1: 1})
    text = file.read_text()
    (tmp_path / "odd.yaml").write_text(text.replace("name: orders", "name: odd").replace("json,", "${secret:LAKE},"))
    Pipeline.load(file, secrets={"LAKE": SECRET}).run()
    write_refused(tmp_path, "orders", 1)
    one = "/v1/pipelines/orders"

    def fail() -> SparkSession:
        raise Refusal(f"Spark cannot reach the lake with the key {SECRET}.", hint=SECRET)

    with serve(tmp_path, secrets={"LAKE": SECRET}) as served:
        served.service.spark.open = fail  # type: ignore[method-assign]
        stream = served.service.happenings.watch(Caller(name="x", right=Right.READ))
        bodies = [served.ask("GET", path.replace("prices", "orders")).body for path in LOOKS]
        bodies += [served.ask("GET", path).body for path in (f"{one}/runs/last", "/metrics", "/openapi.json")]
        for path, more in (
            ("/runs", {}),
            ("/offsets", {"beginning": True, "preview": True}),
            ("/dlq/discard", {"file": "nowhere"}),
            ("/backfill", {"preview": True, "again": True}),
            ("/redo", {"file": "0.json"}),
            ("/repair", {}),
        ):
            bodies.append(served.ask("POST", f"{one}{path}", {"reason": "look", **more}).body)
        for task in served.get("/v1/tasks")["tasks"]:
            bodies.append(served.ask("GET", f"/v1/tasks/{task['task']}?wait=10").body)
        bodies.append(served.service.deeds.log.read_bytes())
        stream.close()
        bodies.append(json.dumps([each.facts for each in stream]).encode())
    assert len(bodies) > 25
    assert [body for body in bodies if SECRET.encode() in body] == []
    assert any(b"secret:LAKE" in body for body in bodies)


def test_a_definition_that_changes_is_seen_by_the_next_question(served: Served) -> None:
    """A definition that breaks is in the list of broken files. A file that is removed is gone."""
    file = served.folder / "items.yaml"
    good = file.read_text()
    file.write_text(good.replace("every: 1h", "every: 2h"))
    assert served.get("/v1/pipelines/items")["definition"]["schedule"] == {"every": "2h"}
    file.write_text("name: items\ndestinations: 7\n")
    assert served.ask("GET", "/v1/pipelines/items").status == 404
    served.service.overview.expire()
    assert sorted(served.get("/v1/pipelines")["broken"]) == ["broken.yaml", "items.yaml"]
    file.unlink()
    served.service.overview.expire()
    assert sorted(served.get("/v1/pipelines")["broken"]) == ["broken.yaml"]


def test_a_folder_that_is_lost_is_a_problem_and_no_empty_list(served: Served) -> None:
    """When it is back, all is as before."""
    served.folder.rename(served.folder.with_name("away"))
    served.service.overview.expire()
    assert served.ask("GET", "/v1/pipelines").json()["code"] == "REFUSED"
    served.folder.with_name("away").rename(served.folder)
    assert len(served.get("/v1/pipelines")["pipelines"]) == 2
