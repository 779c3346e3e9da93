"""Numbers of things, as a person reads them."""

from __future__ import annotations


def counted(number: int, one: str = "row", many: str = "rows") -> str:
    """So many of something: `1 row`, `1,234 rows`."""
    return f"{number:,} {one if number == 1 else many}"


def batches_of(number: int) -> str:
    """So many batches."""
    return counted(number, "batch", "batches")
