"""The destination that writes rows as lines of a log."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from destinations.destination import StatelessDestination, Written
from destinations.labels import Label
from origins.batch_rows import BatchRows
from origins.lazy import SparkSession
from origins.nack import encode_payload
from origins.names import quote_name
from origins.protection import Protection

LOGGER = "wherry.rows"
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


@dataclass(frozen=True, kw_only=True)
class Log(StatelessDestination):
    """Writes rows to the logger `wherry.rows`, each as a line of JSON.

    Example:
        log: {level: info, limit: 20}
    """

    guarantee: ClassVar[str] = "at least once: after a crash Wherry logs the open batch again"

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The level of the log lines."""
    limit: int = 100
    """How many rows of a batch Wherry logs. It counts all of them."""
    protection: Protection = field(default=Protection(), repr=False, metadata={"hidden": True})

    def __post_init__(self) -> None:
        if self.level not in _LEVELS:
            raise ValueError(f"level: expected {', '.join(_LEVELS)}, got {self.level!r}")
        if self.limit < 0:
            raise ValueError(f"limit: expected 0 or more rows, got {self.limit}")

    @property
    def place(self) -> str:
        return "log"

    def discreet(self, protection: Protection) -> Log:
        return dataclasses.replace(self, protection=protection)

    def write(self, spark: SparkSession, rows: BatchRows, labels: Sequence[Label]) -> Written:
        frame = rows.frame()
        columns = {name: quote_name(name) for name in frame.columns}
        lines = frame.selectExpr(encode_payload(columns, frame.schema)).limit(self.limit + 1).collect()
        count = len(lines) if len(lines) <= self.limit else frame.count()
        level, logger = _LEVELS[self.level], logging.getLogger(LOGGER)
        for (line,) in lines[: self.limit]:
            logger.log(level, "%s", self._mask_line(line))
        if count > self.limit:
            batches = ", ".join(f"batch {label.batch.number} of lane {label.batch.lane}" for label in labels)
            logger.log(level, "%d more rows of %s are not logged", count - self.limit, batches)
        return Written(rows=count)

    def _mask_line(self, line: str) -> str:
        if not self.protection:
            return line
        row = json.loads(line)
        if "row_schema" not in row:
            return json.dumps(self.protection.mask_row(row), ensure_ascii=False)
        texts = {name: row[name] for name in ("row", "original") if row.get(name) is not None}
        nack = self.protection.mask_nack({**row, **{name: json.loads(text) for name, text in texts.items()}})
        kept = {name: json.dumps(nack[name], ensure_ascii=False) for name in texts}
        return json.dumps({**nack, **kept}, ensure_ascii=False)
