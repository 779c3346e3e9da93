"""Secrets in what is shown and stored."""

from __future__ import annotations

import logging

import pytest

from destinations.memory import Memory as Kept
from origins.errors import WherryError
from origins.memory import Memory
from runners.definitions.definition import of
from runners.definitions.secrets import discreet, hidden, without
from runners.pipeline import Pipeline
from runners.report import RunError
from stages.mask import Mask

SECRETS = {"hunter2": "${secret:A}", "hunter2!\n": "${secret:B}"}


def test_every_text_of_a_value_loses_its_secrets() -> None:
    """However deep it stands; what is no text stays as it is."""
    value = {"a": ["x hunter2 y", 5, None], "b": ("hunter2",)}
    assert without(SECRETS, value) == {"a": ["x ${secret:A} y", 5, None], "b": ("${secret:A}",)}


def test_the_longest_secret_goes_first() -> None:
    """One secret may begin like another."""
    assert without(SECRETS, "hunter2!\n") == "${secret:B}"


def test_a_secret_that_is_part_of_a_reference_is_replaced_once() -> None:
    """What was put in its place is not looked through again."""
    assert without({"secret": "${secret:A}", "A": "${secret:B}"}, "A secret") == "${secret:B} ${secret:A}"


def test_a_secret_is_known_where_it_is_quoted() -> None:
    """As Python and JSON write its line breaks and quotes."""
    assert without(SECRETS, f"got {'hunter2!' + chr(10)!r}") == "got '${secret:B}'"


def test_an_error_that_leaves_says_no_secret() -> None:
    """Neither in what happened nor in what to do."""
    with pytest.raises(WherryError) as caught, hidden(SECRETS):
        raise WherryError("no way to user:hunter2@host", hint="Is hunter2 right?")
    assert str(caught.value) == "no way to user:${secret:A}@host\nIs ${secret:A} right?"


def test_log_lines_say_no_secret_while_a_run_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """Wherever in a line it would stand; afterwards lines are as they were."""
    log = logging.getLogger("wherry")
    with discreet(SECRETS), caplog.at_level("INFO", "wherry"):
        log.warning("%s of hunter2: %d rows", "user:hunter2@host", 5)
    log.warning("100% of hunter2")
    assert caplog.messages == ["user:${secret:A}@host of ${secret:A}: 5 rows", "100% of hunter2"]


def test_a_run_that_failed_says_no_secret() -> None:
    """Neither in why nor in what to do, whoever raised."""
    told = RunError.of(WherryError("no hunter2", hint="Is it hunter2?"), SECRETS)
    assert (told.message, told.hint) == ("no ${secret:A}", "Is it ${secret:A}?")
    assert RunError.of(ValueError("no hunter2"), SECRETS).message == "no ${secret:A}"
    assert RunError.of(ValueError("no"), SECRETS, later=[ValueError("nor hunter2")]).later == ("nor ${secret:A}",)


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
