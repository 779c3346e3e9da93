"""Two processes that commit to one table in S3: a small part of `two_drivers`."""

from __future__ import annotations

import pytest

from tests.stores.two_drivers import Round, try_round

COMMITS = 15


def check(kind: str, first: str, second: str, confirmed: int) -> None:
    found = try_round(Round(number=0, kind=kind, first=first, second=second, settings="Hadoop's own", commits=COMMITS))
    assert (found.errors, found.confirmed) == ([], confirmed)
    assert (found.replaced, found.repeated, found.twice) == ([], [], [])


def test_wherry_and_another_writer_of_conditional_puts_lose_nothing() -> None:
    """Both commit as fast as they can, and each commit is in the table once."""
    check("race", "Wherry", "deltalake", 2 * COMMITS)


def test_a_wherry_commit_whose_answer_was_lost_is_applied_once() -> None:
    """The writer is a separate process."""
    check("lost", "Wherry", "deltalake", 1)


@pytest.mark.spark
@pytest.mark.long
def test_a_wherry_commit_after_a_commit_of_spark_takes_the_next_version() -> None:
    """Spark writes its commit while the request of Wherry is held."""
    check("held", "Wherry", "Spark", 2)
