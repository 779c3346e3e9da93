"""The form of a definition as a JSON Schema. An editor uses it to complete and check a definition."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from destinations.dlq import Dlq
from runners.definitions.kinds import (
    CALLED,
    CONTRACTS,
    ROLES,
    KindMissing,
    Option,
    Role,
    get_our_kinds,
    has_shape,
    list_alternatives,
    list_options,
    read_docs,
    read_summary,
)
from runners.model.spec import PipelineSpec

_PARAMETER = {"type": "string", "pattern": r"\$\{"}
"""`${NAME}` may replace any value."""
_CLASS = r"^\w+(\.\w+)*:\w+$"
"""`module:Class` may replace a kind. Its options are not known here."""
_NAMES_A_CLASS = {"not": {"propertyNames": {"not": {"pattern": _CLASS}}}}
_FILE = {"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]}
_PLAIN: Mapping[Any, Mapping[str, Any]] = {
    str: {"type": ["string", "number", "boolean"]},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
}


def make_json_schema() -> dict[str, Any]:
    """Return the schema of a definition, with every available kind and option."""
    definition = _make_object_schema(PipelineSpec)
    definition["anyOf"] = [{"required": ["origin"]}, {"required": ["origins"]}]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A pipeline of Wherry",
        **definition,
        "$defs": {role: _make_role_schema(role) for role in CONTRACTS} | {"dlq": _make_dlq_schema()},
    }


def _make_role_schema(role: Role) -> dict[str, Any]:
    beside = {name: _make_option_schema(option) for name, option in list_options(CONTRACTS[role]).items()}
    schemas = _kinds(role)
    return {
        "type": "object",
        "properties": {**schemas, **beside},
        "patternProperties": {_CLASS: {}},
        "additionalProperties": False,
        "oneOf": [*({"required": [kind]} for kind in schemas), _NAMES_A_CLASS],
    }


def _kinds(role: Role) -> dict[str, Any]:
    kinds, schemas = get_our_kinds(), {}
    for kind in kinds.list_names(role):
        with contextlib.suppress(KindMissing):
            schemas[kind] = _make_kind_schema(role, kinds.resolve(role, kind))
    return schemas


def _make_kind_schema(role: Role, component: type) -> dict[str, Any]:
    contract = list_options(CONTRACTS[role])
    inside = _make_object_schema(component, without=contract)
    main = next((option for option in list_options(component).values() if option.main), None)
    either = {"anyOf": [_make_option_schema(main), inside]} if main is not None else inside
    return {"description": read_summary(component), **either}


def _make_dlq_schema() -> dict[str, Any]:
    own = _make_object_schema(Dlq, without={"destination": None})
    schemas = _kinds("destination")
    return {**own, "properties": {**own["properties"], **schemas}, "patternProperties": {_CLASS: {}}}


def _make_object_schema(component: type, without: Mapping[str, Any] | None = None) -> dict[str, Any]:
    docs = read_docs(component)
    options = {name: option for name, option in list_options(component).items() if name not in (without or {})}
    properties = {
        CALLED.get(name, name): _make_option_schema(option, docs.get(name, "")) for name, option in options.items()
    }
    required = [name for name, option in options.items() if option.required]
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": required} if required else schema


def _make_option_schema(option: Option, text: str = "") -> dict[str, Any]:
    schemas = [_make_type_schema(one) for one in list_alternatives(option.annotation)]
    if str in list_alternatives(option.annotation):
        schemas.append(_FILE)
    description = {"description": text} if text else {}
    return {**description, "anyOf": [*schemas, _PARAMETER]}


def _make_type_schema(annotation: Any) -> Mapping[str, Any]:
    if annotation in ROLES:
        return {"$ref": f"#/$defs/{ROLES[annotation]}"}
    if annotation is Dlq:
        return {"$ref": "#/$defs/dlq"}
    if get_origin(annotation) is Literal:
        return {"enum": list(get_args(annotation))}
    if has_shape(annotation, Sequence):
        return {
            "type": "array",
            "items": {"anyOf": [_make_type_schema(one) for one in list_alternatives(get_args(annotation)[0])]},
        }
    if has_shape(annotation, Mapping):
        values = [_make_type_schema(one) for one in list_alternatives(get_args(annotation)[1])]
        return {"type": "object", "additionalProperties": {"anyOf": values}}
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        return _make_object_schema(annotation)
    return _PLAIN.get(annotation, {})
