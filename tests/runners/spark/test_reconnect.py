"""Sessions that their server has lost. Doubles stand in for the server."""

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


def make_failing_session(error: Exception) -> SparkSession:
    """Return a session whose server answers every request with this error."""

    def get(_: str) -> str:
        raise error

    return cast("SparkSession", SimpleNamespace(conf=SimpleNamespace(get=get)))


def test_a_session_of_the_caller_is_not_replaced() -> None:
    """Its settings and views are unknown, so the run ends. The error has a hint."""
    changed = SparkConnectGrpcException("no", errorClass="INVALID_HANDLE.SESSION_CHANGED", messageParameters={})
    with pytest.raises(SessionForgotten, match="no longer has the given session") as told:
        reconnect(make_failing_session(changed))
    assert "Create a session and run again" in told.value.hint


def test_any_other_error_of_a_server_is_raised_unchanged() -> None:
    """An unavailable server may still know the session."""
    with pytest.raises(SparkConnectGrpcException, match="away"):
        reconnect(make_failing_session(SparkConnectGrpcException("away", grpc_status_code=StatusCode.UNAVAILABLE)))


@pytest.mark.parametrize(
    ("told", "blank"), [({"_server_session_id": None}, True), ({"_server_session_id": "7f"}, False), ({}, False)]
)
def test_only_a_session_without_requests_is_surely_empty(told: dict[str, str | None], blank: bool) -> None:
    """A used session may have settings and views. A session that does not tell counts as used."""
    assert is_unasked(cast("SparkSession", SimpleNamespace(client=SimpleNamespace(**told)))) is blank
