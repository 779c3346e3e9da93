"""Sessions whose server has forgotten them; nothing but words stands for the server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from grpc import StatusCode
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

from origins.spark_private import is_unasked
from runners.spark.session import SessionForgotten, reconnect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def answering(error: Exception) -> SparkSession:
    """A session whose server answers with this error, whatever it is asked."""

    def get(_: str) -> str:
        raise error

    return cast("SparkSession", SimpleNamespace(conf=SimpleNamespace(get=get)))


def test_a_session_that_was_given_is_not_replaced() -> None:
    """What was in it is not known, so the run ends: the error says what happened, and what to do."""
    changed = SparkConnectGrpcException("no", errorClass="INVALID_HANDLE.SESSION_CHANGED", messageParameters={})
    with pytest.raises(SessionForgotten, match="no longer has the given session") as told:
        reconnect(answering(changed))
    assert "Create a session and run again" in told.value.hint


def test_whatever_else_a_server_answers_is_raised_as_it_is() -> None:
    """One that is away may know the session still."""
    with pytest.raises(SparkConnectGrpcException, match="away"):
        reconnect(answering(SparkConnectGrpcException("away", grpc_status_code=StatusCode.UNAVAILABLE)))


@pytest.mark.parametrize(
    ("told", "blank"), [({"_server_session_id": None}, True), ({"_server_session_id": "7f"}, False), ({}, False)]
)
def test_only_a_session_that_was_asked_for_nothing_is_surely_empty(told: dict[str, str | None], blank: bool) -> None:
    """One that somebody has used may hold settings and views, and one that does not say so is taken for such a one."""
    assert is_unasked(cast("SparkSession", SimpleNamespace(client=SimpleNamespace(**told)))) is blank
