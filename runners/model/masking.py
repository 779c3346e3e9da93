"""Masking of secrets: what Wherry shows or stores contains their references instead."""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from destinations.destination import Destination
from origins.errors import WherryError
from origins.origin import Origin
from origins.secret import SHORT, SecretText, make_mask, put_references

E = TypeVar("E", bound="Origin | Destination")


@contextlib.contextmanager
def hide_in_errors(secrets: Mapping[str, str]) -> Iterator[None]:
    """Replace secrets in Wherry's errors that leave this block."""
    try:
        yield
    except WherryError as error:
        error.message, error.hint = without(secrets, [error.message, error.hint])
        raise


@contextlib.contextmanager
def hide_in_logs(secrets: Mapping[str, str]) -> Iterator[None]:
    """Replace secrets in the log lines that are written during this block.

    Lines with `facts` are not changed: their facts include names, so the code that logs them masks them.
    """

    def mask_record(record: logging.LogRecord) -> bool:
        if not hasattr(record, "facts"):
            record.msg, record.args = without(secrets, record.getMessage()), ()
        return True

    log = logging.getLogger("wherry")
    log.addFilter(mask_record)
    try:
        yield
    finally:
        log.removeFilter(mask_record)


def without(secrets: Mapping[str, str], value: Any) -> Any:
    """Return the value with every secret in its texts replaced by the secret's reference.

    The value is free text or contains some. Names, ids, keys, paths and states are not free text, and are not passed
    here.
    """
    return _without(make_mask(secrets), value) if secrets else value


def _without(mask: Callable[[str], str], value: Any) -> Any:
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, Mapping):
        return {key: _without(mask, inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_without(mask, inner) for inner in value)
    return value


def warn_of_short_secrets(secrets: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for a person about each secret that is too short to be hidden well."""
    for reference in sorted({reference for secret, reference in secrets.items() if len(secret) < SHORT}):
        yield (
            f"The secret {reference} has fewer than {SHORT} characters: Wherry hides it in texts only as a whole "
            "word. Choose a longer secret."
        )


def hide_secrets(end: E) -> E:
    """Return a copy of an origin or a destination to show and store, with references in its texts.

    It carries no rows.
    """
    copied = copy.copy(end)
    for name, value in vars(end).items():
        texts = value if isinstance(value, list | tuple) else (value,)
        if any(isinstance(text, SecretText) for text in texts):
            object.__setattr__(copied, name, put_references(value))
    return copied
