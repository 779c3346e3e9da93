"""A cell of the crash matrix detects each kind of error."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.scenarios.crash_cell import Cell, Trial

GOOD = [1, 3, 4, 6, 7, 9]
BAD = [2, 5, 8]
FINE: Mapping[str, Any] = {
    "early": [],
    "open": [],
    "status": "succeeded",
    "error": "",
    "balanced": True,
    "problems": [],
    "jvm": True,
}


def make_trial(folder: Path, destinations: str = "append", order: str = "up") -> Trial:
    cell = Cell(
        point="after-write",
        how="kill",
        destinations=destinations,
        refused="some",
        delivery="after_all",
        lanes=1,
        ledger="deltalake",
        spark="classic",
        rows="few",
        order=order,
        plan=1,
    )
    return Trial(cell=cell, folder=folder)


def leave_files(folder: Path, ids: Sequence[int], letters: Sequence[int]) -> None:
    """Write the files that the last run would leave."""
    write_deltalake(str(folder / "tables" / "append"), pa.table({"id": pa.array(ids, pa.int64())}))
    originals = pa.table({"original": [json.dumps({"id": each}) for each in letters]})
    write_deltalake(str(folder / ".wherry" / "orders" / "dlq"), originals)


def test_a_cell_with_each_row_once_is_right(tmp_path: Path) -> None:
    """The good rows are in the table, and the others are in the dead letter queue."""
    leave_files(tmp_path, GOOD, BAD)
    assert make_trial(tmp_path).wrong(FINE) == []


@pytest.mark.parametrize(
    ("ids", "letters"),
    [(GOOD[1:], BAD), ([*GOOD, 9], BAD), (GOOD, BAD[1:]), (GOOD, [*BAD, 2]), ([*GOOD, 2], BAD)],
    ids=["lost", "twice", "letter lost", "letter twice", "refused and delivered"],
)
def test_a_lost_or_doubled_row_is_found(tmp_path: Path, ids: Sequence[int], letters: Sequence[int]) -> None:
    """The row may be in the table or in the dead letter queue."""
    leave_files(tmp_path, ids, letters)
    assert len(make_trial(tmp_path).wrong(FINE)) == 1


@pytest.mark.parametrize(
    "facts", [{"status": "failed"}, {"balanced": False}, {"problems": ["ROWS_GONE"]}, {"early": ["append lacks rows"]}]
)
def test_an_error_of_the_run_or_the_audit_is_found(tmp_path: Path, facts: Mapping[str, Any]) -> None:
    """It is found although each row is there once."""
    leave_files(tmp_path, GOOD, BAD)
    assert len(make_trial(tmp_path).wrong({**FINE, **facts})) == 1


@pytest.mark.parametrize(
    ("given", "open_plans", "faults"),
    [
        ([("p1/python", GOOD[:2]), ("p2/python", GOOD[2:])], [], 0),
        ([("p1/python", GOOD[:2]), ("p1/python", GOOD[:2]), ("p2/python", GOOD[2:])], ["p1"], 0),
        ([("p1/python", GOOD[:2]), ("p1/python", GOOD[:2]), ("p2/python", GOOD[2:])], ["p2"], 1),
        ([("p1/python", GOOD[:2]), ("p1/python", GOOD[:1]), ("p2/python", GOOD[2:])], ["p1"], 1),
        ([("p1/python", GOOD[:2]), ("p3/python", GOOD[:2]), ("p2/python", GOOD[2:])], ["p1"], 1),
        ([("p1/python", GOOD[:2])], [], 1),
    ],
    ids=["once", "open twice", "settled twice", "other rows", "another label", "lost"],
)
def test_a_destination_without_memory_may_get_only_open_batches_again(
    tmp_path: Path, given: Sequence[tuple[str, Sequence[int]]], open_plans: Sequence[str], faults: int
) -> None:
    """Each of them must be whole and have the same label."""
    leave_files(tmp_path, [], BAD)
    (tmp_path / "taken").write_text("".join(json.dumps(each) + "\n" for each in given), encoding="utf-8")
    assert len(make_trial(tmp_path, "python").wrong({**FINE, "open": open_plans})) == faults


@pytest.mark.parametrize(
    ("order", "started", "jvm", "faults"),
    [
        ("up", False, True, 0),
        ("up", True, True, 1),
        ("late", True, True, 0),
        ("late", False, False, 1),
        ("never", False, False, 0),
        ("never", False, True, 1),
        ("never", True, False, 1),
    ],
)
def test_a_jvm_that_starts_at_the_wrong_time_is_found(
    tmp_path: Path, order: str, started: bool, jvm: bool, faults: int
) -> None:
    """A cell without a JVM proves nothing if a run starts one."""
    one = replace(make_trial(tmp_path, order=order).cell, refused="none")
    leave_files(tmp_path, range(1, 10), [])
    (tmp_path / ("starts" if started else "nothing")).touch()
    assert len(Trial(cell=one, folder=tmp_path).wrong({**FINE, "jvm": jvm})) == faults
