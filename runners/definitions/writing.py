"""A pipeline that was made in Python, as a definition would write it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from destinations.dlq import Dlq
from origins.batch import JSON
from origins.given_path import GivenPath
from origins.secret import SECRET
from runners.definitions.kinds import CONTRACTS, Kinds, kind_of
from runners.definitions.options import options_of
from runners.pipeline import Pipeline


def written(value: Any, kinds: Kinds | None = None) -> JSON:
    """The value as a definition has it, without what is as it is by default; a function as `module:name`, a secret as
    its reference, and a path as it was given."""
    if isinstance(value, SECRET):
        return value.reference
    if isinstance(value, GivenPath):
        return value.given
    if isinstance(value, tuple(CONTRACTS.values())):
        contract = next(contract for contract in CONTRACTS.values() if isinstance(value, contract))
        given = _given(value, kinds)
        beside = {name: given.pop(name) for name in options_of(contract) if name in given}
        kind = kind_of(value, kinds)
        if beside.get("name") == kind:
            del beside["name"]
        main = [option.name for option in options_of(type(value)).values() if option.main]
        return {kind: given[main[0]] if main and list(given) == main else given, **beside}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _given(value, kinds)
    if isinstance(value, Mapping):
        return {str(key): written(inner, kinds) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [written(item, kinds) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else _name_of(value)


def _given(value: Any, kinds: Kinds | None) -> dict[str, JSON]:
    options = options_of(type(value))
    values = {name: getattr(value, name) for name in options}
    given = {name: written(inner, kinds) for name, inner in values.items() if inner != options[name].default}
    for name in given:
        if options[name].secret and not isinstance(values[name], SECRET):
            given[name] = f"${{secret:{name}}}"
    if isinstance(value, Pipeline) and "run_options" in given:
        given["run"] = given.pop("run_options")
    if isinstance(value, Dlq) and value.destination is not None:
        kind, options = next(iter(given.pop("destination").items()))
        given[kind] = options
    return given


def _name_of(value: object) -> str:
    module, name = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
    return f"{module}:{name}" if module and name else type(value).__qualname__
