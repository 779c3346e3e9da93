"""A suite of expectations: as a definition lists them, or in a file as Great Expectations writes it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from origins.batch import JSON
from stages.expectation import Expectation, expectation

_LARGEST = 4 << 20


def listed(items: Sequence[object]) -> list[Expectation]:
    """The expectations of a list of `{name: {options}}`. Raises ValueError that says which of them is wrong."""
    found = []
    for number, item in enumerate(items, 1):
        if not isinstance(item, Mapping) or len(item) != 1:
            raise ValueError(f"number {number}: expected `expect_…: {{options}}`, got {item!r}")
        ((name, options),) = item.items()
        found.append(_numbered(number, name, options))
    return found


def read(path: str) -> list[Expectation]:
    """The expectations of a suite file. Raises ValueError that says what is wrong with it."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise ValueError(f"expected at most 4 MiB in {path}")
        suite = json.loads(content.decode("utf-8-sig"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    return of_suite(suite, path)


def of_suite(suite: JSON, path: str) -> list[Expectation]:
    """The expectations of a suite in Great Expectations' own JSON."""
    items = suite.get("expectations") if isinstance(suite, Mapping) else None
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        raise ValueError(f"{path} is no suite; expected a mapping with a list of `expectations`")
    if "expectation_suite_name" in suite or any("expectation_type" in item for item in items):
        raise ValueError(
            f"{path} was written by Great Expectations before 1.0 (`expectation_type`); write it anew with 1.24, or "
            "rename `expectation_suite_name` to `name` and every `expectation_type` to `type`"
        )
    found = []
    for number, item in enumerate(items, 1):
        kwargs = item.get("kwargs")
        if not isinstance(kwargs, Mapping):
            raise ValueError(f"number {number}: expected `type` and `kwargs`, got {item!r}")
        beside = {key: item[key] for key in ("severity", "meta") if item.get(key) is not None}
        options = {key: value for key, value in kwargs.items() if key != "batch_id"}
        found.append(_numbered(number, item.get("type"), {**options, **beside}))
    return found


def _numbered(number: int, name: object, options: object) -> Expectation:
    try:
        return expectation(name, options)
    except ValueError as error:
        raise ValueError(f"number {number}: {error}") from None
