"""Rows as lines of a log."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from destinations.destination import Destination, Label, Written
from origins.names import quoted
from origins.payload import payload
from origins.protection import Protection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOGGER = "wherry.rows"
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


@dataclass(frozen=True, kw_only=True)
class Log(Destination):
    """Writes rows to the logger `wherry.rows`, a line of JSON each."""

    guarantee: ClassVar[str] = "at least once: a log cannot be asked, so the batch that was open is logged again"

    level: Literal["debug", "info", "warning", "error"] = "info"
    limit: int = 100
    """How many rows of a batch are logged; all of them are counted."""
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

    def write(self, spark: SparkSession, rows: DataFrame, labels: Sequence[Label]) -> Written:
        from pyspark.sql import functions as F

        columns = {name: F.col(quoted(name)) for name in rows.columns}
        lines = rows.select(payload(columns, rows.schema)).limit(self.limit + 1).collect()
        count = len(lines) if len(lines) <= self.limit else rows.count()
        level, logger = _LEVELS[self.level], logging.getLogger(LOGGER)
        for (line,) in lines[: self.limit]:
            logger.log(level, "%s", self._shown(line))
        if count > self.limit:
            batches = ", ".join(f"batch {label.batch.number} of lane {label.batch.lane}" for label in labels)
            logger.log(level, "%d more rows of %s are not shown", count - self.limit, batches)
        return Written(rows=count)

    def _shown(self, line: str) -> str:
        if not self.protection:
            return line
        row = json.loads(line)
        if "row_schema" not in row:
            return json.dumps(self.protection.row(row), ensure_ascii=False)
        texts = {name: row[name] for name in ("row", "original") if row.get(name) is not None}
        nack = self.protection.nack({**row, **{name: json.loads(text) for name, text in texts.items()}})
        kept = {name: json.dumps(nack[name], ensure_ascii=False) for name in texts}
        return json.dumps({**nack, **kept}, ensure_ascii=False)
