"""Values that were stored or last used at a time that a test chooses."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

from stages.claim_store import VALUES, ValueClaims


def store_at(claims: ValueClaims, content: bytes, when: float) -> str:
    """Store a value as if it were this time, and return its reference."""
    with mock.patch("stages.claim_store.time.time", return_value=when):
        reference = claims.store_value(content)
        claims.store.settle()
    for file in Path(claims.store.place, VALUES).rglob(reference.split(":")[1]):
        os.utime(file, (when, when))
    return reference
