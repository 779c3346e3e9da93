"""The printed comparison of two definitions."""

from __future__ import annotations

from runners.model.comparison import (
    CanaryReport,
    ComparedBatch,
    ComparedDestination,
    Comparison,
    Difference,
    Outcome,
    ShadowTable,
)

DELIVERED = Outcome(fate="delivered")


def make_comparison(*differences: Difference, **given: object) -> Comparison:
    """Return a comparison of one batch with one destination."""
    orders = ComparedDestination(name="orders", same=3, differences=differences, **given)  # type: ignore[arg-type]
    batch = ComparedBatch(origin="o", lane="0", number=7, label="a.json", by_row=True, destinations=[orders])
    return Comparison(batches=[batch])


def test_equal_outcomes_take_one_line_for_each_destination() -> None:
    """The comparison is the same."""
    same = make_comparison()
    assert same.is_same
    assert str(same).splitlines() == [
        "Batch 7 of lane 0 (a.json). Nothing is written.",
        "orders: 3 rows are the same.",
    ]


def test_a_changed_type_is_a_difference_although_all_values_are_the_same() -> None:
    """A table may not take the other type."""
    changed = make_comparison(changed_columns={"id": ["bigint", "string"], "day": [None, "date"]})
    assert not changed.is_same
    assert str(changed).splitlines()[2:] == [
        "  column id: bigint before, string now",
        "  column day: only the new definition has it (date)",
    ]


def test_each_difference_shows_one_of_its_rows() -> None:
    """It shows the values before and now, or why the row is refused. Control characters of rows are escaped."""
    values = Difference(
        rows=2,
        old=DELIVERED,
        new=DELIVERED,
        columns=["email"],
        example={"read": {"id": 1}, "old": {"email": "a"}, "new": {"email": "\x1b[31mb"}},
    )
    refused = Difference(
        rows=1,
        old=DELIVERED,
        new=Outcome(fate="refused", stage="cast", code="CAST"),
        example={"read": {"id": 2}, "why": "column id: 'x' is not a bigint"},
    )
    gone = Difference(rows=4, old=DELIVERED, new=None, example={"old": {"id": 9}})
    lines = str(make_comparison(values, refused, gone)).splitlines()
    assert lines[1:] == [
        "orders: 3 rows are the same, 7 rows differ.",
        "  2 rows: other values in email, for example",
        '    email  "a"  →  "\\u001b[31mb"',
        '    row as read  {"id": 1}',
        "  1 row: delivered before, refused by cast (CAST) now, for example",
        "    column id: 'x' is not a bigint",
        '    row as read  {"id": 2}',
        "  4 rows: delivered by the old definition alone, for example",
        '    {"id": 9}',
    ]


def test_the_batches_of_a_canary_add_up_by_destination_column_and_cause() -> None:
    """Each kind of difference keeps its first example, and the most frequent kind comes first."""
    refused = Outcome(fate="refused", stage="cast", code="CAST")
    email = Difference(rows=1, old=DELIVERED, new=DELIVERED, columns=["email"], example={"read": {"id": 1}})
    more = Difference(rows=2, old=DELIVERED, new=DELIVERED, columns=["email"], example={"read": {"id": 2}})
    gone = Difference(rows=2, old=DELIVERED, new=refused, example={"read": {"id": 3}, "why": "no number"})
    report = CanaryReport(share=0.05)
    assert report.is_same
    tables = {"orders": ShadowTable(place="canary/orders", rows=4)}
    for differences, causes in (((email,), {}), ((gone, more), {"cast (CAST)": 2})):
        batch = make_comparison(*differences).batches[0]
        report = report.add(batch, rows=5, refused=causes, tables=tables)
    report = report.add_failure("batch 9 of lane 0 (b.json) was not tried: no such table")
    assert not report.is_same
    assert str(report).splitlines() == [
        "Canary with a share of 5%: Wherry tried the new definition on 2 batches with 10 rows.",
        "orders: 6 rows are the same, 5 rows differ.",
        "  3 rows: other values in email, for example",
        '    row as read  {"id": 1}',
        "  2 rows: delivered before, refused by cast (CAST) now, for example",
        "    no number",
        '    row as read  {"id": 3}',
        "The new definition refused 2 rows by cast (CAST).",
        "Shadow table of orders: canary/orders (8 rows from this run)",
        "note: batch 9 of lane 0 (b.json) was not tried: no such table",
    ]
    shown = report.json()
    assert (shown["batches"], shown["rows"], shown["failed"], shown["same"]) == (2, 10, 1, False)
    assert shown["tables"] == {"orders": {"place": "canary/orders", "rows": 8}}
    assert [each["rows"] for each in shown["destinations"][0]["differences"]] == [3, 2]


def test_a_canary_names_the_first_batches_that_failed_and_counts_all() -> None:
    """A run may fail to try thousands of batches."""
    report = CanaryReport(share=1)
    for number in range(30):
        report = report.add_failure(f"batch {number}")
    assert (report.failed, len(report.notices)) == (30, 20)
    assert str(report).splitlines()[-1] == "note: 25 more; --json names the first 20"
