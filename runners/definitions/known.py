"""The secrets of the definitions that a command has read, for what nobody foresaw: the trace of an error."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

_known: dict[str, str] | None = None


@contextlib.contextmanager
def collect_secrets() -> Iterator[Mapping[str, str]]:
    """While in here the secrets that are read stand in the mapping, each with its reference; afterwards none does."""
    global _known
    before, _known = _known, {}
    try:
        yield _known
    finally:
        _known = before


def remember_secrets(secrets: Mapping[str, str]) -> None:
    """A definition with these secrets was read. Outside of a command nothing is remembered."""
    if _known is not None:
        _known.update(secrets)
