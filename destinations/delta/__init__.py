"""The destination that writes rows to a Delta table."""

from destinations.delta.delta import Delta

__all__ = ["Delta"]
