"""Secrets are hidden in what Wherry shows and stores."""

from __future__ import annotations

import json
import logging
import pickle
import re

import pytest

from destinations.memory import Memory as Kept
from origins.errors import WherryError
from origins.memory import Memory
from origins.secret import SecretText, cut_text, list_mask_steps, make_mask, make_secret
from runners.definitions.definition import definition_of
from runners.model.masking import hide_in_errors, hide_in_logs, warn_of_short_secrets, without
from runners.model.planned_batch import StageCount
from runners.model.run_report import Report, RunError
from runners.pipeline import Pipeline
from stages.mask import Mask

SECRETS = {"hunter2": "${secret:A}", "hunter2!\n": "${secret:B}"}


def test_secrets_are_hidden_in_every_text_of_a_value() -> None:
    """The text may be nested. Values of other types are unchanged."""
    value = {"a": ["x hunter2 y", 5, None], "b": ("hunter2",)}
    assert without(SECRETS, value) == {"a": ["x ${secret:A} y", 5, None], "b": ("${secret:A}",)}


def test_the_longest_secret_is_replaced_first() -> None:
    """A secret may begin like another secret."""
    assert without(SECRETS, "hunter2!\n") == "${secret:B}"


def test_a_secret_that_is_part_of_a_reference_is_replaced_once() -> None:
    """The replacement is not searched again."""
    assert without({"secret": "${secret:A}", "A": "${secret:B}"}, "A secret") == "${secret:B} ${secret:A}"


def test_a_quoted_secret_is_hidden() -> None:
    """Line breaks and quotes may be escaped as in Python or JSON."""
    assert without(SECRETS, f"got {'hunter2!' + chr(10)!r}") == "got '${secret:B}'"


def test_an_error_shows_no_secret() -> None:
    """Neither the message nor the hint shows one."""
    with pytest.raises(WherryError) as caught, hide_in_errors(SECRETS):
        raise WherryError("no way to user:hunter2@host", hint="Is hunter2 right?")
    assert str(caught.value) == "no way to user:${secret:A}@host\nIs ${secret:A} right?"


def test_log_lines_show_no_secret_during_a_run(caplog: pytest.LogCaptureFixture) -> None:
    """The secret may be anywhere in the line. After the run, lines are unchanged."""
    log = logging.getLogger("wherry")
    with hide_in_logs(SECRETS), caplog.at_level("INFO", "wherry"):
        log.warning("%s of hunter2: %d rows", "user:hunter2@host", 5)
    log.warning("100% of hunter2")
    assert caplog.messages == ["user:${secret:A}@host of ${secret:A}: 5 rows", "100% of hunter2"]


def test_a_failed_run_shows_no_secret() -> None:
    """Neither its message nor its hint nor later errors show one, for any class of error."""
    told = RunError.of(WherryError("no hunter2", hint="Is it hunter2?"), SECRETS)
    assert (told.message, told.hint) == ("no ${secret:A}", "Is it ${secret:A}?")
    assert RunError.of(ValueError("no hunter2"), SECRETS).message == "no ${secret:A}"
    assert RunError.of(ValueError("no"), SECRETS, later=[ValueError("nor hunter2")]).later == ("nor ${secret:A}",)


def test_a_secret_of_a_pipeline_made_in_python_is_not_stored() -> None:
    """Stages of the pipeline and of a destination are covered.

    The representation of the pipeline does not show it either.
    """
    stages = [Mask(columns={"a": "hash"}, salt="hunter2"), Mask(columns={"b": "redact"})]
    pipeline = Pipeline(
        name="orders",
        origin=Memory(schema="a string, b string"),
        destinations=[Kept(stages=stages)],
        state="state",
    )
    definition = definition_of(pipeline)
    assert '"salt":"${secret:salt}"' in definition.text
    assert definition.pipeline.secrets == {"hunter2": "${secret:salt}"}
    assert "hunter2" not in definition.text + repr(definition) + repr(pipeline)


PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEF\n-----END PRIVATE KEY-----\n"
LONG = "k" * 30 + "0123456789" * 12


@pytest.mark.parametrize("secret", ["1", "lane", "shop"])
def test_a_short_secret_is_masked_as_a_whole_word_only(secret: str) -> None:
    """As a part of another word it reveals nothing."""
    said = f"no {secret}! but x{secret} and {secret}_2"
    assert without({secret: "${secret:S}"}, said) == f"no ${{secret:S}}! but x{secret} and {secret}_2"


def test_a_short_secret_causes_a_warning_with_its_reference() -> None:
    """A longer secret causes no warning."""
    (said,) = warn_of_short_secrets({"12345": "${secret:PIN}", "123456": "${secret:KEY}"})
    assert said.startswith("The secret ${secret:PIN} has fewer than 6 characters:")


@pytest.mark.parametrize(
    "said",
    [PEM, PEM.strip(), " ".join(PEM.split()), repr(PEM), json.dumps(PEM), "MIIEvQIBADANBgkqhkiG9w0BAQEF"],
)
def test_a_secret_of_several_lines_is_masked_in_one_line_and_line_by_line(said: str) -> None:
    """An error is often shown in one line, or only with its first line."""
    assert "MIIE" not in without({PEM: "${secret:PEM}"}, f"no {said}")


@pytest.mark.parametrize("before", ["", "user:", "x" * 70])
def test_a_secret_that_is_cut_off_is_masked(before: str) -> None:
    """Every cut text ends with an ellipsis."""
    shown = without({LONG: "${secret:KEY}"}, f"'{cut_text(before + LONG, 80)}' is no number")
    assert shown == f"'{before}${{secret:KEY}}…' is no number"


def test_a_second_masking_changes_nothing() -> None:
    """A reference is not searched, even if its name is a secret."""
    secrets = {"KEY_OF_SHOP": "${secret:A}", "hunter2": "${secret:KEY_OF_SHOP}"}
    once = without(secrets, "hunter2")
    assert (once, without(secrets, once)) == ("${secret:KEY_OF_SHOP}", "${secret:KEY_OF_SHOP}")


@pytest.mark.parametrize(
    "said",
    [
        "no 4711",
        "no 4711x",
        "no a+(b)*$[c]\\d.",
        f"no {cut_text(LONG, 80)}'",
        f"no {LONG}",
        PEM,
        "${secret:PIN} 4711",
    ],
)
def test_sql_masks_as_python_does(said: str) -> None:
    """Both use the same expressions. A `$` in a replacement is escaped for Java."""
    secrets = {
        "4711": "${secret:PIN}",
        "a+(b)*$[c]\\d.": "${secret:SIGNS}",
        LONG: "${secret:LONG}",
        PEM: "${secret:PEM}",
    }
    text = said
    for pattern, put in list_mask_steps(secrets):
        text = re.sub(pattern, lambda _, put=put: put.replace("\\$", "$"), text)  # type: ignore[misc]
    assert text == make_mask(secrets)(said)
    assert (text == said) is said.endswith("x")


def test_a_report_keeps_its_names_states_and_counts() -> None:
    """A secret may equal such a word. Free text is masked."""
    words = ["succeeded", "orders", "lanes", "shop", "amount"]
    report = Report(
        pipeline="orders",
        run="7f",
        status="succeeded",
        reason="the amount is amount",
        lanes={"lanes": {"offset": "shop", "batches": 1}},
        stages=(StageCount(stage="amount", entered=1, left=1),),
        notices=("shop is no folder",),
        error=RunError(cls="orders", code="shop", message="no shop", later=("nor orders",)),
    )
    masked = report.mask({word: f"${{secret:{word.upper()}}}" for word in words}).json()
    before = report.json()
    assert (masked.pop("notices"), masked.pop("reason")) == (
        ["${secret:SHOP} is no folder"],
        "the ${secret:AMOUNT} is ${secret:AMOUNT}",
    )
    error = {**masked.pop("error")}
    assert (error["message"], error["later"]) == ("no ${secret:SHOP}", ["nor ${secret:ORDERS}"])
    assert (error["class"], error["code"]) == ("orders", "shop")
    assert masked == {name: before[name] for name in masked}


@pytest.mark.parametrize(
    ("value", "shown"), [("hunter2", "'${secret:A}'"), (5, "'${secret:A}'"), (0.5, "'${secret:A}'")]
)
def test_a_secret_value_is_a_plain_value_and_is_quoted_as_its_reference(value: str | int | float, shown: str) -> None:
    """It is a plain value everywhere, also in a worker. Its representation shows the reference."""
    made = make_secret(value, "${secret:A}")
    assert (made, f"{made}", str(made), json.dumps(made)) == (value, str(value), str(value), json.dumps(value))
    assert repr(made) == shown
    assert type(pickle.loads(pickle.dumps(made))) is type(value)  # noqa: S301  (it was pickled here)


def test_a_secret_text_with_an_inserted_lane_keeps_its_reference() -> None:
    """An example is the place of a destination with one table for each lane."""
    made = SecretText("main_hunter2.{lane}", "main_${secret:A}.{lane}").replace("{lane}", "orders")
    assert (made, made.reference) == ("main_hunter2.orders", "main_${secret:A}.orders")
