"""The contract of a stage: what is done to rows on their way."""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from origins.batch import JSON

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stages.rows import Rows

OnError: TypeAlias = Literal["nack", "discard", "keep", "stop"]


@dataclass(frozen=True, kw_only=True)
class Stage(ABC):
    """One step between origin and destination. A frozen dataclass: its fields are its options.

    A stage says what happens to a row and never how a batch is carried: the same `apply` serves the batch
    that raises at its first refused row and the one that keeps a verdict beside every row.
    """

    changes_rows: ClassVar[bool] = False
    """Whether rows that leave are other rows than those that came, so that the counts begin anew behind it."""
    gathers: ClassVar[bool] = False
    """Whether it looks at several rows at once, so that Spark brings rows of several tasks together."""

    asks_outside: ClassVar[bool] = False
    """Whether it asks what may notice, so that it is asked once while a batch is decided, however often the rows behind
    it are looked at."""

    name: str | None = None
    on_error: OnError = "nack"
    """What becomes of a row that the stage refuses: it goes to the DLQ, is thrown away, goes on as it came, or stops
    the run."""
    when: str | None = None
    """A condition: the stage is about the rows for which it is true, and the others pass it by."""

    @abstractmethod
    def apply(self, rows: Rows) -> Rows:
        """The rows as they leave. Lazy: must not start a Spark job."""

    def pin(self, spark: SparkSession) -> JSON:
        """What must stay the same when a batch is computed again: the version of a table that this stage asks, say.

        Told once for each batch, before it is planned; recorded with the plan, and there as `rows.pin` whenever the
        batch is computed; where rows are only analysed, nothing is pinned. Must be quick. Raises when what it asks is
        not there.
        """
        return None

    @property
    def may_mix(self) -> bool:
        """Whether what becomes of a row may depend on which others are in its batch, so that Spark's plan is asked. A
        stage whose documentation says that it looks at one batch answers no."""
        return self.changes_rows or self.gathers

    @property
    def takes_all(self) -> bool:
        """Whether all rows that come are surely taken, so that they can be counted while they pass. A stage with
        `changes_rows` may be content with some of them, as `exists` is; then they are counted by a query of its own.
        """
        return not self.changes_rows

    @property
    def repeatable(self) -> bool:
        """Whether the same rows always give the same answer, so that a batch may be computed again."""
        return True

    @property
    def prepares(self) -> str:
        """Why every batch must be decided before it is delivered, in words that follow its name; nothing where a clean
        batch need not be."""
        return ""

    def found(self, notes: Mapping[str, int]) -> JSON:
        """What it has to say of a batch in which so many rows have these notes (`Rows.noted`), an empty one where no
        more is known than that it took the row; None if it has nothing to say. As `json.dumps` takes it."""
        return None

    @property
    def usual_note(self) -> JSON:
        """The note of a row of which there is nothing to say; None if it keeps no notes, or knows of none."""
        return None

    @property
    def needs_places(self) -> bool:
        """Whether it asks in which order rows were read, which is known of a batch that is prepared."""
        return False


def check_columns(names: Iterable[str], rows: Rows) -> None:
    """Raises ValueError that names a column which the rows have not, and the nearest that they have."""
    for name in names:
        if rows.spelled(name) not in rows.names:
            near = difflib.get_close_matches(name.lower(), [own.lower() for own in rows.names], n=1)
            meant = f"did you mean '{rows.spelled(near[0])}'?" if near else f"there are: {', '.join(rows.names)}"
            raise ValueError(f"there is no column '{name}'; {meant}")
