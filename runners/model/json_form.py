"""The form in which `--json` prints a result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from origins.batch import JSON


class JsonForm:
    """A result that is printed with all its fields. A class that shows other names has its own `json`."""

    def json(self) -> dict[str, JSON]:
        """Return the form that `--json` prints."""
        return {name: to_json(value) for name, value in vars(self).items()}


def to_json(value: Any) -> JSON:
    """Return the value in dicts and lists, with the form of each result in it."""
    if hasattr(value, "json"):
        return value.json()
    if isinstance(value, Mapping):
        return {name: to_json(inner) for name, inner in value.items()}
    return [to_json(inner) for inner in value] if isinstance(value, (list, tuple)) else value
