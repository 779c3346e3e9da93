"""Secrets in what is shown and stored."""

from __future__ import annotations

import pytest

from destinations.memory import Memory as Kept
from origins.errors import WherryError
from origins.memory import Memory
from runners.definition import of
from runners.pipeline import Pipeline
from runners.secrets import hidden, without
from stages.mask import Mask

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


def test_a_secret_of_a_pipeline_made_in_python_is_not_kept() -> None:
    """Wherever its stage stands; and whoever shows the pipeline does not show it."""
    stages = [Mask(columns={"a": "hash"}, salt="hunter2"), Mask(columns={"b": "redact"})]
    pipeline = Pipeline(
        name="orders",
        origin=Memory(schema="a string, b string"),
        destinations=[Kept(stages=stages)],
        state="state",
    )
    definition = of(pipeline)
    assert '"salt":"${secret:salt}"' in definition.text
    assert definition.pipeline.secrets == {"hunter2": "${secret:salt}"}
    assert "hunter2" not in definition.text + repr(definition) + repr(pipeline)
