"""The rows that `find` found, as text and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace

from destinations.capabilities import BroughtBatch
from destinations.labels import BatchLabel
from runners.operations.find_rows import group_writes
from runners.operations.found_rows import (
    SHOWN,
    BatchMatches,
    DestinationMatches,
    DlqMatches,
    FoundRows,
    KeptMatch,
    KeptMatches,
    LetterMatch,
    UnreadBatch,
    Write,
)
from runners.operations.trace import TracedRow

LETTER = LetterMatch(
    id="p/1",
    lane="0",
    number=3,
    stage="cast",
    state="open",
    at="2026-01-31T06:00:00.000+00:00",
    code="CAST",
    message="column amount: 'nine' is not a decimal(10,2)",
    row={"id": 3},
)
ROWS = (
    TracedRow(row={"id": 1}, outcome="wanted", destinations=["orders"], filtered_for={"large": "large/filter"}),
    TracedRow(row={"id": 2}, outcome="filtered", stage="only_paid"),
    TracedRow(row={"id": 3}, outcome="rejected", stage="cast", code="CAST", message="no number"),
)


def make_batch(number: int = 3, rows: tuple[TracedRow, ...] = ROWS) -> BatchMatches:
    return BatchMatches(
        lane="0",
        number=number,
        label="a.json",
        at="2026-01-31T06:00:00+00:00",
        read=3,
        filtered={"only_paid": 1, "large/filter": 1},
        rejected={"cast": 1},
        wanted={"orders": 1, "large": 0},
        rows=rows,
    )


def make_found(**other: object) -> FoundRows:
    facts: dict[str, object] = {
        "pipeline": "orders",
        "where": "id < 4",
        "since": "",
        "searched": 12,
        "read": 3,
        "matching": 1,
        "batches": (make_batch(),),
        "unread": (),
        "destinations": {},
        "dlq": DlqMatches(),
    }
    return FoundRows(**{**facts, **other})  # type: ignore[arg-type]


def make_brought(number: int, version: int, *files: str) -> BroughtBatch:
    label = BatchLabel(pipeline="orders", lane="0", number=number, plan="p", destination="orders", key=f"p{number}")
    return BroughtBatch(label=label, rows=1, version=version, files=files)


def test_found_rows_are_shown_as_counts_and_then_as_rows() -> None:
    """Each count has a line, and each row has its outcome."""
    writes = (Write(rows=1, version=4, batches=(("0", 3),)), Write(rows=1, version=None))
    destinations = {
        "orders": DestinationMatches(rows=2, writes=writes),
        "large": DestinationMatches(rows=None, why="only tables of the kind `delta` can be searched"),
    }
    why = "1 refused row lacks the columns of --where."
    dlq = DlqMatches(states={"open": 1, "replayed": 0, "discarded": 0}, rows=(LETTER,), why=why)
    assert str(make_found(destinations=destinations, dlq=dlq, not_compared=1)).splitlines() == [
        "orders: rows with id < 4",
        "",
        "read    3 rows in 1 batch; searched 12 batches",
        "        1 row could not be compared, and so did not match",
        "today   1 row would go to orders",
        "        0 rows would go to large",
        "        1 row would be filtered by only_paid",
        "        1 row would be filtered by large/filter",
        "        1 row would be refused by cast",
        "orders  has 2 rows",
        "        1 row from batch 3 of lane 0 (version 4)",
        "        1 row from a version without a batch label",
        "large   cannot be searched: only tables of the kind `delta` can be searched",
        "DLQ     1 waiting, 0 replayed, 0 discarded",
        "        1 refused row lacks the columns of --where.",
        "",
        "Batch 3 of lane 0 (a.json), settled 2026-01-31 06:00:00: 3 rows",
        '  goes to orders; filtered by large/filter: {"id": 1}',
        '  filtered by only_paid: {"id": 2}',
        '  refused by cast: {"id": 3}',
        "    no number",
        "",
        "In the DLQ",
        "  waiting, lane 0, batch 3, cast: column amount: 'nine' is not a decimal(10,2)",
        '    {"id": 3}',
    ]


def test_unreadable_batches_are_counted_and_a_few_named() -> None:
    """A few of them have the reason."""
    unread = [UnreadBatch(lane="0", number=number, label="", why="a.json is gone") for number in range(1, 6)]
    said = " ".join(str(make_found(batches=(), unread=unread)).split())
    assert "5 batches, whose files are gone or changed." in said
    assert "batch 3 of lane 0: a.json is gone and 2 batches more" in said
    assert "batch 4" not in said


def test_no_escape_sequence_reaches_the_terminal() -> None:
    """Those in a row or a condition are shown as text."""
    row = TracedRow(row={"id": "\x1b[2J"}, outcome="filtered", stage="only_paid")
    assert "\x1b" not in str(make_found(where="id = '\x1b[2J'", batches=(make_batch(rows=(row,)),)))


def test_the_json_has_sums_and_every_batch() -> None:
    """The sums are over all batches."""
    found = json.loads(json.dumps(make_found(batches=(make_batch(4), make_batch(3))).json()))
    assert (found["read"], found["rejected"], found["wanted"]) == (3, {"cast": 2}, {"orders": 2, "large": 0})
    assert found["batches"][0]["rows"][0]["filtered_for"] == {"large": "large/filter"}


def test_rows_of_a_table_belong_to_the_version_that_added_their_file() -> None:
    """The newest version comes first, and files without a label come last. A path may be encoded."""
    first, second = make_brought(1, 1, "day=1/a.parquet"), make_brought(2, 2, "b%20c.parquet")
    brought = [first, second, make_brought(3, 2, "b c.parquet")]
    writes = group_writes({"a.parquet": 3, "b c.parquet": 1, "x.parquet": 2}, brought)
    assert writes == [
        Write(rows=1, version=2, batches=(("0", 2), ("0", 3))),
        Write(rows=3, version=1, batches=(("0", 1),)),
        Write(rows=2, version=None),
    ]


def test_a_limited_number_of_rows_is_printed() -> None:
    """The others are counted: of all batches together, of the DLQ, and of kept rows."""
    row = TracedRow(row={"id": 1}, outcome="filtered", stage="only_paid")
    batches = [make_batch(number, rows=(row,) * 15) for number in (2, 1)]
    dlq = DlqMatches(states={"open": 2, "replayed": 1, "discarded": 0}, rows=(LETTER,))
    kept = KeptMatches(stages={"only_paid": 1_001}, rows=(KEPT,))
    said = str(make_found(batches=batches, read=27, dlq=dlq, kept=kept))
    assert said.count("  filtered by only_paid: ") == SHOWN
    assert [line for line in said.splitlines() if " more of " in line] == [
        "7 more of the rows that were read are not shown. Narrow the search with --where or --since.",
        "2 more of the rows of the DLQ are not shown. Narrow the search with --where or --since.",
        "1,000 more of the kept rows are not shown. Narrow the search with --where or --since.",
    ]


KEPT = KeptMatch(
    lane="0",
    number=3,
    stage="only_paid",
    destination=None,
    at="2026-01-31T06:00:00.000+00:00",
    message="",
    row={"id": 3},
)


def test_kept_rows_are_shown_as_counts_by_stage_and_then_as_rows() -> None:
    """Each row has its batch. A discarded row has the reason."""
    discarded = replace(KEPT, stage="cast", message="'nine' is not an int")
    kept = KeptMatches(stages={"only_paid": 1, "cast": 1}, rows=(KEPT, discarded))
    assert str(make_found(read=0, matching=0, batches=(), kept=kept)).splitlines()[2:] == [
        "read  0 rows in 0 batches; searched 12 batches",
        "kept  1 row filtered by only_paid",
        "      1 row filtered by cast",
        "",
        "Kept filtered rows",
        "  only_paid, lane 0, batch 3",
        '    {"id": 3}',
        "  cast, lane 0, batch 3: 'nine' is not an int",
        '    {"id": 3}',
    ]


def test_the_output_names_the_option_that_keeps_filtered_rows() -> None:
    """It does so only if the pipeline keeps none."""
    unread = (UnreadBatch(lane="0", number=1, label="a.json", why="it is gone"),)
    without, having = (" ".join(str(make_found(unread=unread, kept=kept)).split()) for kept in (None, KeptMatches()))
    assert ("keep_filtered: 30d" in without, "no filtered rows" in without) == (True, False)
    assert ("keep_filtered: 30d" in having, "no filtered rows" in having) == (False, True)
