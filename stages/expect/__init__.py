"""The stage `expect`: expectations about rows and batches."""

from stages.expect.expect import Expect

__all__ = ["Expect"]
