"""The form in which `--json` prints a result."""

from __future__ import annotations

from origins.batch import JSON
from origins.codec import encode_fields


class JsonForm:
    """A result that is printed with all its fields. A class that shows more has its own `json`."""

    def json(self) -> dict[str, JSON]:
        """Return the form that `--json` prints."""
        return encode_fields(self)
