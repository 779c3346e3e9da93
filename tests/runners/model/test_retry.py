"""Whether a batch is tried again, and after how long."""

from __future__ import annotations

import random

import pytest

from runners.model.spec import FOR_EVER, NEVER, RetryOptions

AWAY = TimeoutError("timed out")


class Highest(random.Random):
    """Dice that always give the longest wait."""

    def random(self) -> float:
        return 0.0


def list_pauses(retry: RetryOptions, times: int) -> list[float | None]:
    """Return the waits before this many tries. The tries themselves take no time."""
    found: list[float | None] = []
    since = 0.0
    for tried in range(times):
        found.append(retry.pause(AWAY, tried=tried, since=since, dice=Highest()))
        since += found[-1] or 0.0
    return found


@pytest.mark.promise("SS-23")
def test_waits_double_from_a_second_to_five_minutes() -> None:
    """These are the default waits, here without a limit of attempts or time."""
    retry = RetryOptions(attempts=FOR_EVER, within="10000d")
    assert list_pauses(retry, 11) == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert retry.pause(AWAY, tried=100_000, since=0, dice=Highest()) == 300


@pytest.mark.promise("SS-23")
def test_no_more_is_tried_after_the_last_attempt() -> None:
    """The default is seven attempts, which outlast a server that is down for a minute. With 0 there are none."""
    assert list_pauses(RetryOptions(), 9) == [1, 2, 4, 8, 16, 32, 64, None, None]
    assert list_pauses(NEVER, 1) == [None]


def test_no_wait_ends_after_the_total_time() -> None:
    """The first three waits are 7 seconds. The next wait of 8 seconds would end after 15."""
    assert list_pauses(RetryOptions(within="14s"), 5) == [1, 2, 4, None, None]


def test_a_lasting_error_is_not_tried_again() -> None:
    """The number of attempts does not matter. `also` can make such an error transient."""
    assert RetryOptions(attempts=FOR_EVER).pause(ValueError("no"), tried=0, since=0, dice=Highest()) is None
    assert RetryOptions(also=["no"]).pause(ValueError("no"), tried=0, since=0, dice=Highest()) == 1


def test_a_fifth_of_each_wait_is_random() -> None:
    """Many pipelines that failed at the same moment do not all continue at the same moment."""
    dice = random.Random(7)
    found = {RetryOptions(wait="100s").pause(AWAY, tried=0, since=0, dice=dice) for _ in range(1_000)}
    assert all(80 < (pause or 0) <= 100 for pause in found)
    assert len(found) > 900


def test_durations_are_written_as_in_other_options() -> None:
    """The waits are in seconds."""
    assert list_pauses(RetryOptions(wait="500ms", most="1m", within="1d"), 8) == [0.5, 1, 2, 4, 8, 16, 32, None]
    assert list_pauses(RetryOptions(wait="45s", most="1m", within="2m"), 3) == [45, 60, None]
