"""Two processes that commit to one table in S3: a small piece of `two_drivers`."""

from __future__ import annotations

import pytest

from tests.stores.two_drivers import Round, try_round

COMMITS = 15


def check(kind: str, first: str, second: str, confirmed: int) -> None:
    found = try_round(Round(number=0, kind=kind, first=first, second=second, settings="Hadoop's own", commits=COMMITS))
    assert (found.errors, found.confirmed) == ([], confirmed)
    assert (found.replaced, found.repeated, found.twice) == ([], [], [])


@pytest.mark.parametrize("second", ["Wherry", "deltalake"])
def test_wherry_and_another_writer_of_conditional_puts_lose_nothing(second: str) -> None:
    """Both commit as fast as they can, and each commit is there once."""
    check("race", "Wherry", second, 2 * COMMITS)


def test_a_commit_of_wherrys_whose_answer_was_lost_is_there_once() -> None:
    """In a process of its own."""
    check("lost", "Wherry", "deltalake", 1)


@pytest.mark.spark
@pytest.mark.long
def test_a_commit_of_wherrys_that_a_spark_passed_takes_the_next_version() -> None:
    """Spark looked, and wrote, while the request of Wherry's was held up."""
    check("held", "Wherry", "Spark", 2)
