"""Errors as problems."""

from __future__ import annotations

import re
from http import HTTPStatus

import pytest

from origins.errors import WherryError
from runners.model.errors import Owned, Refusal
from runners.service.operation import Forbidden, Invalid, KeyTaken, NotFound, NotKept, TooMuch, Unauthenticated
from runners.service.problems import describe_problem, make_problem


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Invalid("x"), 422),
        (Refusal("x"), 422),
        (KeyTaken("x"), 409),
        (Owned("x"), 409),
        (NotFound("x"), 404),
        (Forbidden("x"), 403),
        (Unauthenticated("x"), 401),
        (TooMuch("x"), 429),
        (NotKept("x"), 503),
        (WherryError("x"), 503),
    ],
)
def test_an_error_for_people_is_shown_as_it_is(error: WherryError, status: int) -> None:
    """The status of HTTP belongs to its code. With any other code, something cannot be used now."""
    problem = describe_problem(error)
    assert (problem.status, problem.code, problem.detail) == (status, error.code, "x")
    assert (problem.type, problem.title) == (f"urn:wherry:error:{error.code}", HTTPStatus(status).phrase)


def test_an_unexpected_error_shows_nothing_of_itself(caplog: pytest.LogCaptureFixture) -> None:
    """The log has it, under the number that the caller gets."""
    error = ZeroDivisionError("at /secret/place")
    problem = describe_problem(error)
    number = re.findall(r"number (\w{12})", problem.detail)
    assert (problem.status, problem.code, len(number)) == (500, "UNEXPECTED", 1)
    assert "secret" not in problem.detail + problem.hint
    (record,) = caplog.records
    assert number[0] in record.message
    assert record.exc_info is not None
    assert record.exc_info[1] is error


def test_a_problem_has_its_hint() -> None:
    """It says what to do."""
    assert describe_problem(Refusal("no", hint="do this")).hint == "do this"
    assert make_problem("STOPPED", "It was stopped.").hint == ""
