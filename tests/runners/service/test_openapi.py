"""The description of REST: it is valid, it fits what the server answers, and no request that it allows breaks it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import requests
import schemathesis
from openapi_spec_validator import validate
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from runners.service.operations import OPERATIONS
from tests.runners.service.served import Served

CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]


def list_state(folder: Path) -> Mapping[str, int]:
    """Return the size of each file of the folder, without the notes of the server and without locks."""
    files = [file for file in folder.rglob("*") if file.is_file() and "server" not in file.parts]
    return {str(file): file.stat().st_size for file in files if "lock" not in file.name}


def send_requests(served: Served, each: int) -> Counter[int]:
    """Send so many requests to every operation that fit the description, and as many that do not.

    Return how often each status came. An answer must fit the description, and a refused request must change nothing.
    """
    schema: Any = schemathesis.openapi.from_dict(served.get("/openapi.json"))
    statuses: Counter[int] = Counter()
    numbers = itertools.count()

    def send(case: Case[Any]) -> None:
        if case.path_parameters and "pipeline" in case.path_parameters and next(numbers) % 5:
            case.path_parameters["pipeline"] = ("orders", "items")[next(numbers) % 2]
        headers = {"Authorization": f"Bearer {served.tokens['owner']}"}
        if next(numbers) % 5:
            headers["Idempotency-Key"] = str(next(numbers))
        before = list_state(served.folder) if case.method != "GET" else None
        try:
            response = case.call(base_url=served.address, headers=headers, timeout=60)
        except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
            assert len(str(case.query)) > 10_000, "only an address that is longer than a header may be has no answer"
            return
        statuses[response.status_code] += 1
        case.validate_response(response, checks=CHECKS)
        assert response.status_code < 500
        assert response.status_code < 400 or before is None or list_state(served.folder) == before

    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.path == "/v1/events":
            continue
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            settings = hypothesis.settings(max_examples=each, suppress_health_check=list(hypothesis.HealthCheck))
            strategy = operation.as_strategy(generation_mode=mode)
            settings(hypothesis.given(strategy)(send))()  # type: ignore[no-untyped-call]
    return statuses


def test_the_description_is_valid(served: Served) -> None:
    """It is OpenAPI 3.1, and reading it needs no token."""
    document = served.ask("GET", "/openapi.json", headers={"Authorization": None}).json()
    validate(document)
    assert document["openapi"].startswith("3.1.")


def test_each_operation_is_described(served: Served) -> None:
    """It has its summary and the right that it needs. A change also has a body and a key."""
    document = served.get("/openapi.json")
    for operation in OPERATIONS:
        described = document["paths"][operation.path][operation.method.lower()]
        assert (described["operationId"], described["summary"]) == (operation.name, operation.summary)
        assert operation.right.name.lower() in described["description"]
        needed = {each["name"] for each in described["parameters"] if each["required"]}
        assert ("Idempotency-Key" in needed) == ("requestBody" in described) == operation.changes


def test_every_change_needs_a_reason_in_the_description(served: Served) -> None:
    """What only looks and takes long is no change."""
    document = served.get("/openapi.json")
    bodies = {
        operation.name: document["paths"][operation.path][operation.method.lower()]["requestBody"]
        for operation in OPERATIONS
        if operation.changes
    }
    required = {name: body["content"]["application/json"]["schema"]["required"] for name, body in bodies.items()}
    assert {name for name, names in required.items() if "reason" not in names} == {
        "explain_row",
        "run_audit",
        "validate_definition",
        "plan_change",
        "approve_plan",
        "carry_out_plan",
    }


def test_some_hundred_requests_break_nothing(served: Served) -> None:
    """Each gets an answer that fits the description. What is refused changes nothing."""
    statuses = send_requests(served, 6)
    assert sum(statuses.values()) > 200
    assert {200, 202, 404, 422} <= statuses.keys()


@pytest.mark.long
def test_ten_thousand_requests_break_nothing(served: Served) -> None:
    """As above, with more of them."""
    statuses = send_requests(served, 230)
    assert sum(statuses.values()) > 10_000, statuses
