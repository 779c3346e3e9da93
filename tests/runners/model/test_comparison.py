"""The printed comparison of two definitions."""

from __future__ import annotations

from runners.model.comparison import (
    ComparedBatch,
    ComparedDestination,
    Comparison,
    Difference,
    Outcome,
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
