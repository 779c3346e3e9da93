"""The description of REST, in OpenAPI 3.1, made from the table of operations."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from runners.model.text import find_version
from runners.service.messages import Problem, Task
from runners.service.operation import Operation

_REF = "#/components/schemas/{name}"


@functools.lru_cache(maxsize=1)
def describe(operations: Sequence[Operation]) -> bytes:
    """Return the document as JSON."""
    kinds = dict.fromkeys([Problem, *(kind for each in operations for kind in (each.ask, each.answer))])
    _, schemas = msgspec.json.schema_components(list(kinds), ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _describe_operation(operation, schemas)
    for operation in operations:
        schemas.pop(operation.ask.__name__)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "Wherry", "version": find_version(), "license": {"name": "Apache-2.0"}},
            "paths": paths,
            "components": {
                "schemas": schemas,
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            },
            "security": [{"token": []}],
        }
    )


def _describe_operation(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    asked = schemas[operation.ask.__name__]
    in_path = [*operation.path_fields]
    beside = {name: kind for name, kind in asked["properties"].items() if name not in in_path}
    required = [name for name in asked.get("required", ()) if name not in in_path]
    parameters = [*_describe_parameters("path", {name: asked["properties"][name] for name in in_path}, in_path)]
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": f"Needs the right to {operation.right.name.lower()}.",
    }
    if operation.changes:
        key = {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"}
        parameters += _describe_parameters("header", {"Idempotency-Key": key}, ["Idempotency-Key"])
        body = {"type": "object", "properties": beside, "required": required, "additionalProperties": False}
        described["requestBody"] = {"required": bool(required), "content": {"application/json": {"schema": body}}}
    else:
        parameters += _describe_parameters("query", beside, required)
    status = "202" if operation.changes and operation.answer is Task else "200"
    kind = "text/event-stream" if operation.streams else "application/json"
    schema = {"type": "string"} if operation.streams else {"$ref": _REF.format(name=operation.answer.__name__)}
    problem = {"$ref": _REF.format(name=Problem.__name__)}
    return {
        **described,
        "parameters": parameters,
        "responses": {
            status: {"description": (operation.answer.__doc__ or "").strip(), "content": {kind: {"schema": schema}}},
            "default": {
                "description": "Why it was not done.",
                "content": {"application/problem+json": {"schema": problem}},
            },
        },
    }


def _describe_parameters(place: str, fields: dict[str, Any], required: Sequence[str]) -> Iterator[dict[str, Any]]:
    for name, schema in fields.items():
        yield {"name": name, "in": place, "required": name in required, "schema": schema}
