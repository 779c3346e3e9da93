"""Exit codes, by which a scheduler knows how a command ended."""

from __future__ import annotations

FAILED = 1
WRONG = 2
"""The definition or the call is wrong."""
STOPPED = 3
"""Stopped before the end."""
OWNED = 4
"""Another run owns the pipeline."""
INTERRUPTED = 130
BROKEN_PIPE = 141

BY_CODE = {"DEFINITION": WRONG, "STAGE": WRONG, "AGGREGATE": WRONG, "REFUSED": WRONG, "OWNED": OWNED}
"""The exit code of an error by the error's code; any other error is a failure."""
BY_STATUS = {"succeeded": 0, "stopped": STOPPED, "failed": FAILED}
"""The exit code of a run by how it ended."""
