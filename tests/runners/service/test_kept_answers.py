"""Answers that take long are computed once."""

from __future__ import annotations

import threading

import pytest

from runners.service.kept_answers import KeptAnswers


def test_an_answer_is_computed_once_for_all_readers() -> None:
    """Later readers wait for it. Another key is computed beside it."""
    kept: KeptAnswers[str] = KeptAnswers()
    began, gate, computed = threading.Event(), threading.Event(), []

    def compute() -> str:
        computed.append("slow")
        began.set()
        assert gate.wait(10)
        return "answer"

    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(kept.get("slow", compute))) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert began.wait(10)
    assert kept.get("quick", lambda: "other") == "other"
    gate.set()
    for thread in threads:
        thread.join(10)
    assert (found, computed) == (["answer"] * 8, ["slow"])


def test_a_failure_is_not_kept() -> None:
    """The next reader lets it be computed again."""
    kept: KeptAnswers[str] = KeptAnswers()

    def fail() -> str:
        raise OSError("away")

    with pytest.raises(OSError, match="away"):
        kept.get("key", fail)
    assert kept.get("key", lambda: "answer") == "answer"


def test_only_the_last_hundred_are_kept() -> None:
    """The answer that was asked for longest ago is forgotten."""
    kept: KeptAnswers[int] = KeptAnswers()
    for number in range(150):
        kept.get(number, lambda number=number: number)  # type: ignore[misc]
        kept.get(0, lambda: -1)
    assert [kept.get(number, lambda: -1) for number in (0, 149, 51, 1)] == [0, 149, 51, -1]
