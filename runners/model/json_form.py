"""The form in which `--json` prints a result."""

from __future__ import annotations

from origins.batch import JSON
from origins.codec import encode as to_json
from origins.codec import encode_fields

__all__ = ["JsonForm", "to_json"]


class JsonForm:
    """A result that is printed with all its fields. A class that shows other names has its own `json`."""

    def json(self) -> dict[str, JSON]:
        """Return the form that `--json` prints."""
        return encode_fields(self)
