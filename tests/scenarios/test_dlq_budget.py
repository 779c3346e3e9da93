"""A budget limits the refused rows that wait, and periods limit how long decided rows are kept."""

from __future__ import annotations

from typing import Any

import pytest
from deltalake import DeltaTable

from destinations.dead_letters import count_dead_letters
from runners.running import refused_budget
from runners.running.choice import Choice
from runners.running.replay import Replay
from tests.scenarios.conftest import ORDERS, Place, make_order
from tests.scenarios.test_fallback import hide_table

pytestmark = pytest.mark.spark

LIMITED = ORDERS.replace("dlq: {window: 1000, threshold: 500}", "dlq: {window: 0, budget: 2}")
SIZED = LIMITED.replace("budget: 2", "budget: 4 kB")
FALLBACK = "on_failure: fallback, fallback: {delta: {path: refused}}, "
KEPT = ORDERS.replace("dlq: {window: 1000, threshold: 500}", "dlq: {window: 0, retain: {default: 30d, CAST: 0s}}")


def test_a_run_stops_before_the_batch_that_follows_too_many_refused_rows(place: Place) -> None:
    """The batch that exceeds the budget is delivered. Later runs stop until rows are discarded or replayed."""
    for number in (1, 2, 3):
        place.land(
            f"{number}.json",
            [make_order(10 * number), make_order(10 * number + 1, amount="x"), make_order(5, amount="y")],
        )
    report = place.load(LIMITED).run(check=False)
    assert report.error is not None
    assert (report.error.code, report.batches, place.ids("tables/orders")) == ("BUDGET", 2, [10, 20])
    assert "4 refused rows wait" in report.error.message
    assert "4 refused rows wait" in str(place.load().run(check=False).error)
    assert place.load().discard_dead_letters(Choice(), reason="known") == 4
    report = place.load().run()
    assert (report.status, report.batches, place.ids("tables/orders")) == ("succeeded", 1, [10, 20, 30])


@pytest.mark.parametrize("failing", [{1, 2}, {2, 3}])
def test_a_store_that_is_briefly_unreachable_ends_no_run(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, failing: set[int]
) -> None:
    """The store may fail before the first batch, or after a batch with a refused row."""
    counts = iter(range(1, 10))

    def count(*asked: Any) -> int | None:
        if next(counts) in failing:
            raise TimeoutError("the store does not answer")
        return count_dead_letters(*asked)

    monkeypatch.setattr(refused_budget, "count_dead_letters", count)
    for number in (1, 2, 3):
        place.land(f"{number}.json", [make_order(10 * number), make_order(10 * number + 1, amount="x")])
    patient = LIMITED.replace("run: {", "run: {retry: {wait: 10ms}, ")
    report = place.load(patient).run(check=False)
    assert report.error is not None
    assert (report.error.code, report.batches, place.ids("tables/orders")) == ("BUDGET", 3, [10, 20, 30])
    assert caplog.text.count("Wherry cannot count the refused rows that wait: the store does not answer.") == 2


def test_a_run_without_new_rows_does_not_fail_because_of_its_budget(place: Place) -> None:
    """A replay does not fail either."""
    place.land("1.json", [make_order(1, amount="x"), make_order(2, amount="x"), make_order(3, amount="x")])
    assert place.load(LIMITED).run(check=False).batches == 1
    assert place.load().run(check=False).batches == 0
    again = place.load().replay(Replay(reason="again"), check=False)
    assert (again.status, again.read) == ("succeeded", 3)


def measure_messages(place: Place, table: str = ".wherry/orders/dlq") -> dict[str, int]:
    """Return the bytes that the refused rows hold, by the column `message`."""
    rows = DeltaTable(str(place.folder / table)).to_pyarrow_table().to_pylist()
    held = [(each["message"], (each["row"], each["original"] or "", each["message"])) for each in rows]
    return {message: sum(len(text.encode()) for text in texts) for message, texts in held}


def test_a_budget_in_bytes_counts_the_rows_that_wait(place: Place) -> None:
    """The count is exact. One batch with a long row exceeds the budget, and a discard lowers the count."""
    place.land("1.json", [make_order(1), make_order(2, amount="é"), make_order(3, amount="w")])
    place.land("2.json", [make_order(4), make_order(5, amount="x" * 3_000)])
    place.land("3.json", [make_order(6)])
    report = place.load(SIZED).run(check=False)
    held = measure_messages(place)
    assert report.error is not None
    assert (report.error.code, report.batches, place.ids("tables/orders")) == ("BUDGET", 2, [1, 4])
    assert f"hold {sum(held.values()):,} bytes, and dlq.budget is 4 kB (4,000 bytes)" in report.error.message
    assert place.load().discard_dead_letters(Choice(text="'w'"), reason="known") == 1
    left = sum(size for message, size in held.items() if "'w'" not in message)
    assert f"hold {left:,} bytes" in str(place.load().run(check=False).error)
    assert place.load().discard_dead_letters(Choice(text="xxx"), reason="known") == 1
    assert (place.load().run().batches, place.ids("tables/orders")) == (1, [1, 4, 6])


def test_rows_in_the_fallback_count_toward_a_budget_in_bytes(place: Place) -> None:
    """The rows of the batch that exceeds the budget count too."""
    place.land("1.json", [make_order(1)])
    pipeline = place.load(SIZED.replace("budget:", FALLBACK + "budget:"))
    pipeline.run()
    hide_table(place)
    place.land("2.json", [make_order(2), make_order(3, amount="x" * 3_000)])
    place.land("3.json", [make_order(4)])
    report = pipeline.run(check=False)
    held = sum(measure_messages(place, "refused").values())
    assert report.error is not None
    assert (report.error.code, report.fallback, place.ids("tables/orders")) == ("BUDGET", 1, [1, 2])
    assert f"hold {held:,} bytes" in report.error.message
    assert f"hold {held:,} bytes" in str(pipeline.run(check=False).error)


def test_decided_rows_are_kept_for_the_period_of_their_code(place: Place) -> None:
    """After a replay, the rows with the shorter period are gone. Rows that wait stay."""
    place.land(
        "1.json", [make_order(1), make_order(2, amount="x"), make_order(3, amount="-1"), make_order(4, amount="-2")]
    )
    pipeline = place.load(KEPT)
    pipeline.run()
    pipeline.discard_dead_letters(Choice(code="CAST"), reason="known")
    positive = [row["id"] for row in pipeline.dead_letters() if row["code"] == "positive_amount"]
    assert len(positive) == 2
    mended = place.load(KEPT.replace("amount > 0", "amount > -2"))
    mended.replay(Replay(choice=Choice(code="positive_amount"), reason="some are allowed"))
    left = {row["id"]: row["replayed"] for row in mended.dead_letters()}
    assert {row["code"] for row in mended.dead_letters()} == {"positive_amount"}
    assert all(left[id_] for id_ in positive)
