"""Until when a write may begin: an owner whose lease is over, asleep for an hour say, must not write any more."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from origins.errors import WherryError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Late(WherryError):
    """A write began after the lease of its run was over. Nothing of it landed."""

    code = "LATE"

    def __init__(self) -> None:
        super().__init__(
            "A write was about to begin when the run's lease was over, so nothing was written.",
            hint="The machine was asleep, or too busy to say that it is alive. It is tried again if the pipeline is "
            "still this run's; if that happens often, give it a longer `run.lease`.",
        )


@dataclass(frozen=True, kw_only=True)
class Deadline:
    """The end of the right to write, as it is at the moment at which it is asked for: it moves while the run lives."""

    left: Callable[[], float]
    """How many seconds are left, on a clock that counts sleep."""
    secure: Callable[[], None] = lambda: None
    """Returns while enough is left to begin a write, and raises `Late` once that is over."""
    ahead: float = 0.0
    """How many seconds Spark's clock is ahead of this machine's."""
    now: Callable[[], float] = field(default=time.time, repr=False)
    """The time of day on this machine, in seconds since 1970."""

    @contextlib.contextmanager
    def upon(self, rows: DataFrame) -> Iterator[DataFrame]:
        """The rows, which raise where their write begins too late. In here that is raised as `Late`.

        Spark takes the time once for a query, when it plans how to run it; while there is time the condition is true
        then and leaves no trace in what is run.
        """
        began = self.now()  # before `left`: a sleep between the two brings the deadline nearer, and not farther
        until = int((began + self.left() + self.ahead) * 1_000_000)
        mark = f"wherry-late-{uuid.uuid4().hex}"
        try:
            yield rows.where(f"if(unix_micros(current_timestamp()) < {until}L, true, raise_error('{mark}'))")
        except Exception as error:
            if f"USER_RAISED_EXCEPTION] {mark}" in str(error):
                raise Late() from error
            raise

    def check(self) -> None:
        """Raises `Late` once it is over; for what is committed without Spark, right before that."""
        if self.left() <= 0:
            raise Late()
