"""Secrets never leave: what is shown or stored has their references in their places."""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any

from destinations.destination import Destination
from origins.errors import WherryError
from origins.origin import Origin
from runners.definitions.options import options_of
from runners.listeners.hook import Hook
from runners.pipeline import Pipeline
from stages.stage import Stage


def secrets_of(pipeline: Pipeline) -> Mapping[str, str]:
    """The secrets that a pipeline has, each with its reference: those that its definition took from outside, and, in
    one that was made in Python, the values of options that are secret."""
    ends: list[Origin | Destination] = [*pipeline.given_origins, *pipeline.destinations]
    ends += [pipeline.dlq.destination] if pipeline.dlq.destination else []
    components: list[Origin | Destination | Stage | Hook] = [*ends, *pipeline.stages, *pipeline.hooks]
    components += [stage for end in ends for stage in end.stages]
    given = {
        getattr(each, option.name): f"${{secret:{option.name}}}"
        for each in components
        for option in options_of(type(each)).values()
        if option.secret
    }
    return {**{secret: reference for secret, reference in given.items() if secret}, **pipeline.secrets}


@contextlib.contextmanager
def hidden(secrets: Mapping[str, str]) -> Iterator[None]:
    """Our errors that leave here say no secret."""
    try:
        yield
    except WherryError as error:
        error.message, error.hint = without(secrets, [error.message, error.hint])
        raise


@contextlib.contextmanager
def discreet(secrets: Mapping[str, str]) -> Iterator[None]:
    """Log lines that are written meanwhile say no secret."""

    def discreetly(record: logging.LogRecord) -> bool:
        record.msg, record.args = without(secrets, record.getMessage()), ()
        return True

    log = logging.getLogger("wherry")
    log.addFilter(discreetly)
    try:
        yield
    finally:
        log.removeFilter(discreetly)


def without(secrets: Mapping[str, str], value: Any) -> Any:
    """The value with every secret in its texts replaced by its reference, also where it is quoted in them."""
    if isinstance(value, str):
        forms = {form: secrets[secret] for secret in secrets for form in _written(secret) if form}
        longest_first = "|".join(map(re.escape, sorted(forms, key=len, reverse=True)))
        return re.sub(longest_first, lambda found: forms[found.group()], value) if forms else value
    if isinstance(value, Mapping):
        return {key: without(secrets, inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(without(secrets, inner) for inner in value)
    return value


def _written(secret: str) -> tuple[str, str, str]:
    """The secret, and as Python and JSON quote it."""
    return secret, repr(secret)[1:-1], json.dumps(secret)[1:-1]
