"""Rows that are described before it is their batch's turn, while the one before it is carried."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from origins.batch import Batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, kw_only=True)
class _Coming:
    plan: str
    session: SparkSession
    rows: Future[Any]


@dataclass
class Ahead:
    """Those of the batch that each lane most likely carries next."""

    _coming: dict[str, _Coming] = field(default_factory=dict)

    def begin(self, batch: Batch, session: SparkSession, rows: Future[Any]) -> None:
        """The rows of this batch are being described, for whoever works in this session."""
        self._coming[batch.lane] = _Coming(plan=batch.plan, session=session, rows=rows)

    def taken(self, batch: Batch, session: SparkSession) -> Future[Any] | None:
        """The batch's rows, for whoever works in this session; None if another batch was expected, or they could not
        be described. Of its lane nothing is kept."""
        coming = self._coming.pop(batch.lane, None)
        if coming is None or coming.plan != batch.plan or coming.session is not session or coming.rows.exception():
            return None
        return coming.rows

    def drop(self, batch: Batch) -> None:
        """The rows are not needed."""
        self._coming.pop(batch.lane, None)
