"""Which batches are processed again after a command moves an offset, as far as the ledger shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from origins.batch import JSON
from origins.codec import encode
from runners.model.entry import Entry
from runners.model.errors import Refusal
from runners.operations.offsets import OffsetMove, carry_out, plan_backfill, plan_reset, plan_rewind, plan_set
from runners.operations.printing import format_move
from runners.pipeline import Pipeline
from runners.running.backfill import Backfill
from runners.state.delta_ledger import DeltaLedger
from runners.state.journal import Journal
from runners.state.process_locks import identify_host
from tests.runners.state.ledger.test_progress import make_planned, make_settle_entry

DEFINITION = "name: orders\norigin: {generate: {rows: 6}}\ndestinations: [log: {}]\n"


@pytest.fixture
def orders(tmp_path: Path) -> Pipeline:
    """A pipeline that has processed three batches of two orders each."""
    (tmp_path / "orders.yaml").write_text(DEFINITION)
    record_run(tmp_path, {1: (None, 2), 2: (2, 4), 3: (4, 6)})
    return Pipeline.load(tmp_path / "orders.yaml")


def record_run(folder: Path, spans: dict[int, tuple[JSON, int]], delivered: Sequence[str] = ()) -> None:
    """Record a run that processed these batches, without Spark."""
    (folder / ".wherry" / "orders").mkdir(parents=True, exist_ok=True)
    journal = Journal(DeltaLedger(folder / ".wherry" / "orders" / "ledger"))
    journal.acquire({**vars(identify_host()), "pipeline": "orders", "run": "r"})
    journal.record(Entry(kind="open", body={"pipeline": "orders"}))
    for number, (start, end) in spans.items():
        name = f"p{number}"
        counts = {**make_settle_entry().body["counts"], "read": 2, "delivered": dict.fromkeys(delivered, 2)}
        planned = make_planned(number, start=start, end=end)
        journal.record(Entry(kind="plan", lane="0", plan=name, body=encode(planned)))
        body = {**make_settle_entry().body, "offset": end, "counts": counts}
        journal.record(replace(make_settle_entry(), plan=name, body=body))
    journal.record(Entry(kind="release", body={"status": "succeeded"}))


def count_again(move: OffsetMove) -> tuple[int | None, int | None]:
    """Return how many batches and rows are processed again."""
    return move.lanes["0"].batches, move.lanes["0"].rows


@pytest.mark.parametrize(
    ("offset", "expected"), [(4, (1, 2)), (2, (2, 4)), (None, (3, 6)), (6, (0, 0)), (3, (None, None))]
)
def test_repeated_rows_are_counted_from_a_batch_that_begins_at_the_offset(
    orders: Pipeline, offset: JSON, expected: tuple[int | None, int | None]
) -> None:
    """Nothing is repeated if the lane is already there. In the middle of a batch the count is unknown."""
    assert count_again(plan_set(orders, "0", offset)) == expected


def test_skipped_versions_are_shown_before_an_offset_is_set(tmp_path: Path) -> None:
    """The Delta origin counts the versions of a table, and names their operations."""
    for number in range(3):
        write_deltalake(str(tmp_path / "in"), pa.table({"id": [number]}), mode="append")
    DeltaTable(str(tmp_path / "in")).delete("id = 1")
    (tmp_path / "orders.yaml").write_text(DEFINITION.replace("generate: {rows: 6}", "delta: {path: in}"))
    planned = plan_set(Pipeline.load(tmp_path / "orders.yaml"), "0", {"version": 3, "table": "x"})
    skipped = "4 versions with rows: 0 (WRITE, 1 row), 1 (WRITE, 1 row), 2 (WRITE, 1 row), 3 (DELETE, 1 row)"
    assert planned.lanes["0"].skipped == skipped
    assert planned.json()["lanes"]["0"]["skipped"] == skipped
    assert f"skips {skipped}" in " ".join(format_move(planned).split())
    behind = plan_set(Pipeline.load(tmp_path / "orders.yaml"), "0", None)
    assert "skipped" not in behind.json()["lanes"]["0"]


def test_a_reset_counts_each_row_once_after_an_offset_was_set(orders: Pipeline, tmp_path: Path) -> None:
    """Batches that were set back are not counted twice."""
    carry_out(orders, plan_set(orders, "0", 2), reason="again")
    assert count_again(plan_reset(orders)) == (1, 2)
    record_run(tmp_path, {4: (2, 4), 5: (4, 6)})
    assert count_again(plan_reset(orders)) == (3, 6)


def test_offsets_do_not_move_while_a_batch_is_open(orders: Pipeline, tmp_path: Path) -> None:
    """Its delivery is uncertain, so no move is planned. A move planned earlier is not applied."""
    before = plan_reset(orders)
    journal = Journal(DeltaLedger(tmp_path / ".wherry" / "orders" / "ledger"))
    journal.acquire({**vars(identify_host()), "pipeline": "orders", "run": "r"})
    journal.record(Entry(kind="plan", lane="0", plan="p4", body=encode(make_planned(4, start=6, end=7))))
    journal.record(Entry(kind="release", body={"status": "failed"}))
    moves: list[Callable[[], object]] = [
        lambda: plan_set(orders, "0", 2),
        lambda: plan_rewind(orders, batches=1),
        lambda: plan_reset(orders),
        lambda: carry_out(orders, before, reason="again"),
    ]
    for planned in moves:
        with pytest.raises(Refusal, match=r"Batch 4 of lane 0 is open: .*\nRun the pipeline once.*:  wherry run FILE"):
            planned()
    journal.catch_up()
    assert journal.state.get_lane("0").offset == 6


def test_a_backfill_plan_counts_batches_or_states_why_there_are_none(orders: Pipeline) -> None:
    """No Spark is started for this. The message lists the lane's batches if none is in the range."""
    assert count_again(plan_backfill(orders, Backfill(start=2, reason="a test"))) == (2, 4)
    with pytest.raises(Refusal, match="No settled batch is in this range") as caught:
        plan_backfill(orders, Backfill(start=9, reason="a test"))
    assert caught.value.hint.startswith("Lane 0 has batches 1 to 3, committed from 20")
    journal = Journal(DeltaLedger(Path(str(orders.state)) / "ledger"))
    body = {"key": Backfill(start=3, reason="a test").key, "name": "backfill-1", "reason": "a test"}
    journal.record(Entry(kind="backfill", body=body))
    assert count_again(plan_backfill(orders, Backfill(start=3, reason="a test"))) == (1, 2)


def test_a_backfill_plan_counts_batches_that_destinations_have(tmp_path: Path) -> None:
    """Those are left out, or repeated with `again`. A backfill without other batches is refused."""
    (tmp_path / "orders.yaml").write_text(DEFINITION)
    record_run(tmp_path, {1: (None, 2), 2: (2, 4)}, delivered=["log"])
    (tmp_path / "orders.yaml").write_text(DEFINITION.replace("]", ", {log: {}, name: b}]"))
    record_run(tmp_path, {3: (4, 6)}, delivered=["log", "b"])
    orders = Pipeline.load(tmp_path / "orders.yaml")
    planned = plan_backfill(orders, Backfill(reason="a test"))
    assert (count_again(planned), planned.lanes["0"].after) == ((2, 4), 4)
    assert planned.destinations == {
        "log": "gets nothing; 3 batches, 6 rows that it got before are left out",
        "b": "gets 2 batches, 4 rows; 1 batch, 2 rows that it got before are left out",
    }
    repeated = plan_backfill(orders, Backfill(only="b", again=True, reason="a test"))
    assert count_again(repeated) == (3, 6)
    assert repeated.destinations["b"].startswith(
        "gets 3 batches, 6 rows; it got 1 batch, 2 rows of these before: it gets"
    )
    with pytest.raises(Refusal, match="log got all of this range already: 3 batches, 6 rows") as caught:
        plan_backfill(orders, Backfill(only="log", reason="a test"))
    assert caught.value.hint == "Add --again to deliver them once more."
