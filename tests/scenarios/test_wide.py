"""Pipelines with many columns and many stages end, however their rows get to the destinations."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import pytest

from tests.pace import measure_pace
from tests.scenarios.conftest import Place

pytestmark = pytest.mark.spark

NAMES = [f"c{number}" for number in range(24)]
"""A plan that doubles with every column would take hours for so many."""
CLEAR = {f"clear_{name}": f"not coalesce({name} rlike '^(n/a|-)$', false)" for name in NAMES}
POINTS = {name: f"if({name} like '%,%', replace(replace({name}, '.', ''), ',', '.'), {name})" for name in NAMES}
STAGES = [
    {"require": CLEAR},
    {"with_columns": POINTS},
    {"filter": "c0 <> '0'"},
    {"rename": {name: f"{name}_" for name in NAMES}},
    {"rename": {f"{name}_": name for name in NAMES}},
    {"cast": dict.fromkeys(NAMES, "double")},
    {"require": {f"positive_{name}": f"{name} >= 0" for name in NAMES}, "on_error": "discard"},
    {"with_columns": {name: f"{name} + 1" for name in NAMES}, "when": "c1 > 1"},
    {"cast": dict.fromkeys(NAMES, "decimal(20,2)")},
    {"select": [*NAMES]},
]
ONE, MERGED = "delta: {path: tables/a}", "delta: {path: tables/a, mode: merge, keys: [c0]}"
TWO = f"{ONE}}}, {{delta: {{path: tables/b}}, stages: {json.dumps([STAGES[-2], {'filter': 'c1 > 0'}])}"


def define(place: Place, destinations: str, rows: Sequence[Sequence[str]]) -> str:
    """Write these rows as a CSV file, and return the definition that carries them."""
    landing = place.folder / "landing"
    landing.mkdir()
    (landing / "a.csv").write_text("\n".join(map(";".join, [NAMES, *rows])) + "\n", encoding="utf-8")
    schema = ", ".join(f"{name} string" for name in NAMES)
    files = f"{{path: landing/*.csv, format: csv, options: {{sep: ';'}}, schema: '{schema}'}}"
    return (
        f"name: orders\norigin: {{files: {files}}}\nstages: {json.dumps(STAGES)}\n"
        f"destinations: [{{{destinations}}}]\ndlq: {{window: 0}}\n"
    )


def make_row(first: str, other: str = "2") -> Sequence[str]:
    return [first, *[other] * (len(NAMES) - 1)]


GOOD = [make_row(f"1.00{number},5") for number in range(1, 8)]
BAD = [make_row("0"), make_row("n/a"), make_row("seven"), make_row("9", "-1")]


@pytest.mark.parametrize(
    ("destinations", "bad", "small_bytes"),
    [(ONE, 0, 4 << 20), (MERGED, 4, 4 << 20), (TWO, 4, 0)],
    ids=["one, clean", "merged, few", "two, many"],
)
def test_a_batch_of_many_columns_behind_ten_stages_is_carried(
    place: Place, destinations: str, bad: int, small_bytes: int
) -> None:
    """Of the bad rows two are filtered and two are refused."""
    report = place.carry(define(place, destinations, [*GOOD, *BAD[:bad]]), small_bytes=small_bytes)
    assert (report.status, report.balanced, report.read, report.nacked) == ("succeeded", True, 7 + bad, bad // 2)
    assert sorted(float(row["c0"]) for row in place.rows("tables/a")) == [1002.5 + number for number in range(7)]


def test_a_merge_of_many_columns_with_refused_rows_takes_no_minutes(place: Place) -> None:
    """Of 3,120 rows 50 are refused. On a quiet machine the run takes seconds."""
    rows = [make_row(f"{number},5") for number in range(1, 3_071)] + [make_row("n/a")] * 50
    pace, began = measure_pace(), time.monotonic()
    report = place.carry(define(place, MERGED, rows))
    seconds = time.monotonic() - began
    assert (report.status, report.read, report.nacked) == ("succeeded", 3_120, 50)
    assert len(place.rows("tables/a")) == 3_070
    assert seconds <= 120 * pace
