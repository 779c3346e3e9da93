"""Rows out of files."""

from origins.files.files import Files

__all__ = ["Files"]
