"""Sessions whose server has forgotten them; nothing but words stands for the server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from runners.reconnecting import SessionForgotten, is_blank, reconnect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def answering(said: str) -> SparkSession:
    """A session of which the server says this, whatever it is asked."""

    def get(_: str) -> str:
        raise RuntimeError(said)

    return cast("SparkSession", SimpleNamespace(conf=SimpleNamespace(get=get)))


def test_a_session_that_was_given_is_not_replaced() -> None:
    """What was in it is not known, so the run ends: the error says what happened, and what to do."""
    with pytest.raises(SessionForgotten, match="knows the session no more") as told:
        reconnect(
            answering("[INVALID_HANDLE.SESSION_CHANGED] The existing Spark server driver instance has restarted.")
        )
    assert "Make a session again and run again" in told.value.hint


def test_whatever_else_a_server_answers_is_raised_as_it_is() -> None:
    """One that is away may know the session still."""
    with pytest.raises(RuntimeError, match="UNAVAILABLE"):
        reconnect(answering("<_Rendezvous:\n\tstatus = StatusCode.UNAVAILABLE"))


@pytest.mark.parametrize(
    ("told", "blank"), [({"_server_session_id": None}, True), ({"_server_session_id": "7f"}, False), ({}, False)]
)
def test_only_a_session_that_was_asked_for_nothing_is_surely_empty(told: dict[str, str | None], blank: bool) -> None:
    """One that somebody has used may hold settings and views, and one that does not say so is taken for such a one."""
    assert is_blank(cast("SparkSession", SimpleNamespace(client=SimpleNamespace(**told)))) is blank
