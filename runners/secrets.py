"""Secrets never leave: what is shown or stored has their references in their places."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from origins.errors import WherryError


@contextlib.contextmanager
def hidden(secrets: Mapping[str, str]) -> Iterator[None]:
    """Our errors that leave here say no secret."""
    try:
        yield
    except WherryError as error:
        error.message, error.hint = without(secrets, [error.message, error.hint])
        raise


def without(secrets: Mapping[str, str], value: Any) -> Any:
    """The value with every secret in its texts replaced by its reference, also where it is quoted in them."""
    if isinstance(value, str):
        for secret in sorted(secrets, key=len, reverse=True):
            for written in (secret, repr(secret)[1:-1], json.dumps(secret)[1:-1]):
                value = value.replace(written, secrets[secret])
        return value
    if isinstance(value, Mapping):
        return {key: without(secrets, inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(without(secrets, inner) for inner in value)
    return value
