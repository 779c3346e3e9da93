"""The name of a batch at a destination, and the time until which its write may begin."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from origins.batch import Batch
from origins.codec import LEFT_OUT
from origins.errors import WherryError, get_raised_words, list_spark_errors
from origins.lazy import DataFrame


@dataclass(frozen=True, kw_only=True)
class BatchLabel:
    """What a destination stores with the rows of a batch."""

    pipeline: str
    lane: str
    number: int
    plan: str
    destination: str
    key: str
    """The plan's id and the destination's name."""
    reads: str = field(default="", metadata=LEFT_OUT)
    """A digest of the place that the origin reads. Empty if the batch has no origin, or in older labels."""
    job: Mapping[str, str] = field(default_factory=dict, metadata=LEFT_OUT)
    """The ids of the job that planned the batch. Empty without a job."""


class Late(WherryError):
    """A write began after the lease of its run had ended. It wrote nothing."""

    code = "LATE"

    def __init__(self) -> None:
        super().__init__(
            "The run's lease ended before a write began, so the destination wrote nothing.",
            hint="The machine slept, or was too busy to renew the lease. Wherry tries again if this run still owns "
            "the pipeline. If it happens often, set a longer `run.lease`.",
        )


@dataclass(frozen=True, kw_only=True)
class Deadline:
    """The end of the right to write. It moves while the run renews its lease, so ask again for each write."""

    left: Callable[[], float]
    """Returns how many seconds are left, by a clock that also counts the sleep of the machine."""
    secure: Callable[[], None] = lambda: None
    """Returns if enough time is left to begin a write, and raises `Late` otherwise."""
    ahead: float = 0.0
    """How many seconds Spark's clock is ahead of this machine's."""
    now: Callable[[], float] = field(default=time.time, repr=False)
    """The time of day on this machine, in seconds since 1970."""

    @contextlib.contextmanager
    def guard_rows(self, rows: DataFrame) -> Iterator[DataFrame]:
        """Give the rows. They raise an error if their write begins too late, which the context raises as `Late`.

        Spark reads the clock once for a query, when it plans it. If there is time, the condition is then true and costs
        nothing in the query.
        """
        began = self.now()  # before `left`, so a sleep between the two makes the deadline earlier and not later
        until = int((began + self.left() + self.ahead) * 1_000_000)
        mark = f"wherry-late-{uuid.uuid4().hex}"
        try:
            yield rows.where(f"if(unix_micros(current_timestamp()) < {until}L, true, raise_error('{mark}'))")
        except list_spark_errors() as error:
            if get_raised_words(error) == mark:
                raise Late() from error
            raise

    def check(self) -> None:
        """Raise `Late` if no time is left. Commits without Spark call it right before they commit."""
        if self.left() <= 0:
            raise Late()


@dataclass(frozen=True, kw_only=True)
class Label:
    """The name of a batch, which a destination writes with the rows in one atomic write, to find them later."""

    batch: Batch
    destination: str
    deadline: Deadline | None = field(default=None, compare=False)
    """The end of the time in which the write may begin; None if there is no limit. It is not stored."""

    @property
    def key(self) -> str:
        """The plan's id and the destination's name. Only the key is compared; the rest of a label is for people."""
        return f"{self.batch.plan}/{self.destination}"

    @property
    def stored(self) -> BatchLabel:
        """What a destination stores with the rows."""
        batch = self.batch
        return BatchLabel(
            pipeline=batch.pipeline,
            lane=batch.lane,
            number=batch.number,
            plan=batch.plan,
            destination=self.destination,
            key=self.key,
            reads=batch.reads,
            job=batch.job,
        )
