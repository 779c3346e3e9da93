"""Origins that read files."""

from origins.files.files import Files

__all__ = ["Files"]
