"""Secrets never leave: what is shown or stored has their references in the place of them."""

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
    """Our errors that leave here say no secret."""
    try:
        yield
    except WherryError as error:
        error.message, error.hint = without(secrets, [error.message, error.hint])
        raise


@contextlib.contextmanager
def hide_in_logs(secrets: Mapping[str, str]) -> Iterator[None]:
    """Log lines that are written meanwhile say no secret. Those that bring facts are masked by who made them, for they
    have names in them."""

    def discreetly(record: logging.LogRecord) -> bool:
        if not hasattr(record, "facts"):
            record.msg, record.args = without(secrets, record.getMessage()), ()
        return True

    log = logging.getLogger("wherry")
    log.addFilter(discreetly)
    try:
        yield
    finally:
        log.removeFilter(discreetly)


def without(secrets: Mapping[str, str], value: Any) -> Any:
    """What is shown of a value that is free text, or has free text inside: every secret is replaced by its reference.

    Names, ids, keys, paths and states are not free text, and are never given to this.
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
    """What a person should know of secrets that are too short to be hidden well; a sentence each."""
    for reference in sorted({reference for secret, reference in secrets.items() if len(secret) < SHORT}):
        yield (
            f"The secret {reference} has fewer than {SHORT} characters: Wherry hides it in texts only as a whole "
            "word. Choose a longer secret."
        )


def hide_secrets(end: E) -> E:
    """An origin or a destination to be shown and stored: references stand in its texts. Nothing is carried by it."""
    copied = copy.copy(end)
    for name, value in vars(end).items():
        texts = value if isinstance(value, list | tuple) else (value,)
        if any(isinstance(text, SecretText) for text in texts):
            object.__setattr__(copied, name, put_references(value))
    return copied
