"""Secrets in what is shown and stored."""

from __future__ import annotations

import pytest

from origins.errors import WherryError
from runners.secrets import hidden, without

SECRETS = {"hunter2": "${secret:A}", "hunter2!\n": "${secret:B}"}


def test_every_text_of_a_value_loses_its_secrets() -> None:
    """However deep it stands; what is no text stays as it is."""
    value = {"a": ["x hunter2 y", 5, None], "b": ("hunter2",)}
    assert without(SECRETS, value) == {"a": ["x ${secret:A} y", 5, None], "b": ("${secret:A}",)}


def test_the_longest_secret_goes_first() -> None:
    """One secret may begin like another."""
    assert without(SECRETS, "hunter2!\n") == "${secret:B}"


def test_a_secret_is_known_where_it_is_quoted() -> None:
    """As Python and JSON write its line breaks and quotes."""
    assert without(SECRETS, f"got {'hunter2!' + chr(10)!r}") == "got '${secret:B}'"


def test_an_error_that_leaves_says_no_secret() -> None:
    """Neither in what happened nor in what to do."""
    with pytest.raises(WherryError) as caught, hidden(SECRETS):
        raise WherryError("no way to user:hunter2@host", hint="Is hunter2 right?")
    assert str(caught.value) == "no way to user:${secret:A}@host\nIs ${secret:A} right?"
