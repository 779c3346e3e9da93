"""Entries of a search index, for tests."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from runners.service.search.index import Index, Indexed, Wanted


def make_entry(number: int, **changes: str) -> Indexed:
    """Return an entry of the pipeline `orders` that happened this many seconds after a moment."""
    at = datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=number)
    facts = {"pipeline": "orders", "kind": "row", "name": f"p/{number}", "run": "r", "status": "refused"}
    return Indexed(**{**facts, "at": at.isoformat(), "text": f"row {number}", **changes})


def list_names(index: Index, **wanted: object) -> list[str]:
    """Return the names of what is found in the pipeline `orders`."""
    return [found["name"] for _, found in index.search(Wanted(pipelines=["orders"], **wanted))]  # type: ignore[arg-type]
