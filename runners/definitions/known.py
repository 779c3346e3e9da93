"""The secrets of all definitions that this command has read, for what nobody foresaw: the trace of an error."""

from __future__ import annotations

KNOWN: dict[str, str] = {}
"""Each with the reference that is shown in its place."""
