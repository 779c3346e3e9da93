"""A clean-up after an error leaves the error as it is."""

from __future__ import annotations

import sys

import pytest

from origins.errors import clean_up_by


def fail() -> None:
    raise ConnectionRefusedError("no JVM")


def test_a_clean_up_does_not_hide_the_first_error() -> None:
    """Its own error stands beside the first one in a trace, where Python can do that."""
    with pytest.raises(ValueError, match="the cause") as caught, clean_up_by(fail):
        raise ValueError("the cause")
    if sys.version_info >= (3, 11):
        assert caught.value.__notes__ == ["The clean-up failed too: ConnectionRefusedError: no JVM"]


def test_a_failed_clean_up_after_success_is_an_error() -> None:
    """Nothing else reports it."""
    with pytest.raises(ConnectionRefusedError), clean_up_by(fail):
        pass


def test_a_clean_up_is_done_once() -> None:
    """It is done after the block, also if the block ends early."""
    done = []

    def leave() -> str:
        with clean_up_by(lambda: done.append(1)):
            return "left"

    assert leave() == "left"
    assert done == [1]
