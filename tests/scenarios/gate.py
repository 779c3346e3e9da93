"""A stage that holds a batch in the middle of its Spark job, so that a test can act at that moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stages.stage import Stage

if TYPE_CHECKING:
    from stages.rows import Rows

ENOUGH = 60.0
"""The seconds after which waiting ends."""


@dataclass(frozen=True, kw_only=True)
class Gate(Stage):
    """A stage that changes no row. The first task that reads the row with this id waits until the gate opens."""

    folder: str
    row: int

    def apply(self, rows: Rows) -> Rows:
        from pyspark.sql import functions as F
        from pyspark.sql.types import LongType

        folder, held, enough = self.folder, self.row, ENOUGH

        def wait(value: int) -> int:
            import os
            import time

            if value == held and not os.path.exists(f"{folder}/reached"):
                open(f"{folder}/reached", "x").close()
                end = time.monotonic() + enough
                while not os.path.exists(f"{folder}/open") and time.monotonic() < end:
                    time.sleep(0.05)
            return value

        return rows.with_columns({"id": F.udf(wait, LongType(), useArrow=False)("id")})

    @contextmanager
    def reached(self, act: Callable[[], object]) -> Iterator[list[object]]:
        """While the context is open, wait until the row is being read, act, and then open the gate. The yielded list
        holds the result of the action afterwards."""
        done: list[object] = []

        def wait() -> None:
            for _ in range(int(ENOUGH / 0.05)):
                if Path(self.folder, "reached").exists():
                    done.append(act())
                    break
                threading.Event().wait(0.05)
            Path(self.folder, "open").touch()

        thread = threading.Thread(target=wait)
        thread.start()
        yield done
        thread.join()
