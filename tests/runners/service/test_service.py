"""The service: it asks for the right, does changes in the caller's name, and keeps the list of pipelines fresh."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.model.errors import Refusal
from runners.service import messages
from runners.service.operation import Caller, Forbidden, Invalid, NotFound, Operation, Right
from runners.service.operations import OPERATIONS
from tests.runners.service.served import Served, serve, write_pipeline

BY_NAME: dict[str, Operation] = {operation.name: operation for operation in OPERATIONS}
OWNER = Caller(name="owner", right=Right.ADMIN)


def test_a_right_is_asked_for_before_a_pipeline(served: Served) -> None:
    """A caller without the right does not learn whether the pipeline exists."""
    reader = Caller(name="anna", right=Right.READ, pipelines=frozenset({"items"}))
    ask = messages.StopRun(pipeline="orders", reason="x")
    with pytest.raises(Forbidden, match="the right to operate"):
        served.service.answer(BY_NAME["stop_run"], reader, ask, "key")
    with pytest.raises(Forbidden, match="may not see"):
        served.service.answer(BY_NAME["get_pipeline"], reader, messages.GetPipeline(pipeline="orders"))


def test_a_pipeline_is_found_by_its_name_only(served: Served) -> None:
    """The name of its file, and that of a broken definition, lead nowhere. The error shows no path."""
    assert served.service.find("orders").pipeline.name == "orders"
    for name in ("orders.yaml", "broken", "../orders", "", "ORDERS"):
        with pytest.raises(NotFound) as missing:
            served.service.find(name)
        assert str(served.folder) not in str(missing.value)


def test_a_change_is_in_the_next_list(served: Served) -> None:
    """A refused one leaves the list as it is."""
    held = messages.HoldSchedule(pipeline="items", reason="holidays", held=True)

    def read_held() -> str | None:
        listed = served.service.answer(BY_NAME["list_pipelines"], OWNER, messages.ListPipelines())
        return listed.pipelines[0].held  # type: ignore[no-any-return]

    assert read_held() is None
    with pytest.raises(Invalid):
        served.service.answer(BY_NAME["hold_schedule"], OWNER, held)
    assert read_held() is None
    served.service.answer(BY_NAME["hold_schedule"], OWNER, held, "key")
    assert read_held() == "holidays"


def test_looking_needs_no_secret_and_running_needs_all(tmp_path: Path) -> None:
    """A secret that is there is hidden in every error."""
    write_pipeline(tmp_path, "orders", "spark: {conf: {spark.hadoop.fs.s3a.secret.key: '${secret:LAKE}'}}\n")
    with serve(tmp_path) as served:
        assert served.get("/v1/pipelines/orders")["state"] == "never_run"
        reply = served.ask("POST", "/v1/pipelines/orders/runs", {"reason": "x"})
        assert (reply.status, reply.json()["code"]) == (422, "DEFINITION")
    with serve(tmp_path, secrets={"LAKE": "hunter2-of-the-lake"}) as served:
        conf = served.service.load_to_run("orders").pipeline.spark.conf
        assert conf["spark.hadoop.fs.s3a.secret.key"] == "hunter2-of-the-lake"

        def fail(service: object, caller: Caller, ask: messages.GetReadiness) -> None:
            raise Refusal("It is hunter2-of-the-lake.", hint="hunter2-of-the-lake")

        failing = Operation(
            act=fail, method="GET", path="/v1/fail", ask=messages.GetReadiness, answer=messages.Readiness
        )
        with pytest.raises(Refusal) as refused:
            served.service.answer(failing, OWNER, messages.GetReadiness())
        assert str(refused.value) == "It is ${secret:LAKE}.\n${secret:LAKE}"
