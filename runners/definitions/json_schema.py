"""The form of a definition as a JSON Schema, by which an editor completes and checks it while it is written."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from destinations.destination import Destination
from destinations.dlq import Dlq
from origins.origin import Origin
from runners.definitions.kinds import CONTRACTS, Kinds, Role, ours
from runners.definitions.options import Option, alternatives, docs_of, has_shape, options_of, summary_of
from runners.pipeline import Pipeline
from stages.stage import Stage

_CALLED = {"run_options": "run"}
_ROLES: Mapping[Any, Role] = {Origin: "origin", Stage: "stage", Destination: "destination"}
_PARAMETER = {"type": "string", "pattern": r"\$\{"}
"""`${NAME}` may stand for any value."""
_FILE = {"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]}
_PLAIN: Mapping[Any, Mapping[str, Any]] = {
    str: {"type": ["string", "number", "boolean"]},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
}


def json_schema(kinds: Kinds | None = None) -> dict[str, Any]:
    """The schema of a definition, with every kind and every option that there is."""
    kinds = kinds or ours()
    definition = _object(Pipeline, kinds)
    definition["anyOf"] = [{"required": ["origin"]}, {"required": ["origins"]}]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A pipeline of Wherry",
        **definition,
        "$defs": {role: _role(role, kinds) for role in CONTRACTS} | {"dlq": _dlq(kinds)},
    }


def _role(role: Role, kinds: Kinds) -> dict[str, Any]:
    """One kind, with what may stand beside it."""
    beside = {name: _option(option) for name, option in options_of(CONTRACTS[role]).items()}
    found = {kind: _kind(role, kind, kinds) for kind in kinds.of(role)}
    return {
        "type": "object",
        "properties": {**found, **beside},
        "additionalProperties": False,
        "oneOf": [{"required": [kind]} for kind in found],
    }


def _kind(role: Role, kind: str, kinds: Kinds) -> dict[str, Any]:
    component = kinds.resolve(role, kind)
    contract = options_of(CONTRACTS[role])
    inside = _object(component, kinds, without=contract)
    main = next((option for option in options_of(component).values() if option.main), None)
    either = {"anyOf": [_option(main), inside]} if main is not None else inside
    return {"description": summary_of(component), **either}


def _dlq(kinds: Kinds) -> dict[str, Any]:
    """Its own options, with one destination beside them."""
    own = _object(Dlq, kinds, without={"destination": None})
    found = {kind: _kind("destination", kind, kinds) for kind in kinds.of("destination")}
    return {**own, "properties": {**own["properties"], **found}}


def _object(component: type, kinds: Kinds, without: Mapping[str, Any] | None = None) -> dict[str, Any]:
    docs = docs_of(component)
    options = {name: option for name, option in options_of(component).items() if name not in (without or {})}
    properties = {_CALLED.get(name, name): _option(option, docs.get(name, "")) for name, option in options.items()}
    required = [name for name, option in options.items() if option.required]
    found: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**found, "required": required} if required else found


def _option(option: Option, text: str = "") -> dict[str, Any]:
    found = [_type(one) for one in alternatives(option.annotation)]
    if str in alternatives(option.annotation):
        found.append(_FILE)
    said = {"description": text} if text else {}
    return {**said, "anyOf": [*found, _PARAMETER]}


def _type(annotation: Any) -> Mapping[str, Any]:
    if annotation in _ROLES:
        return {"$ref": f"#/$defs/{_ROLES[annotation]}"}
    if annotation is Dlq:
        return {"$ref": "#/$defs/dlq"}
    if get_origin(annotation) is Literal:
        return {"enum": list(get_args(annotation))}
    if has_shape(annotation, Sequence):
        return {"type": "array", "items": {"anyOf": [_type(one) for one in alternatives(get_args(annotation)[0])]}}
    if has_shape(annotation, Mapping):
        values = [_type(one) for one in alternatives(get_args(annotation)[1])]
        return {"type": "object", "additionalProperties": {"anyOf": values}}
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        return _object(annotation, ours())
    return _PLAIN.get(annotation, {})
