"""Where a pipeline keeps its state: a directory, or tables of a catalog's schema."""

from __future__ import annotations

import logging
import stat
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from destinations.delta import Delta
from destinations.destination import Destination
from origins.quantities import seconds
from runners.errors import Refusal
from runners.ledgers.ledger import Ledger
from runners.owners.ownership import lock_path
from runners.pipeline import Pipeline, SchemaState
from runners.session import forgotten
from runners.store import Folders, Store, Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runners.reports.run_history import History
    from runners.state import State

log = logging.getLogger("wherry")


@dataclass(frozen=True, kw_only=True)
class Place:
    """The parts of a state, by where they lie."""

    directory: Path | None
    schema: str
    name: str

    @staticmethod
    def of(pipeline: Pipeline) -> Place:
        """The state of this pipeline."""
        if isinstance(pipeline.state, SchemaState):
            return Place(directory=None, schema=pipeline.state.schema, name=pipeline.name)
        directory = Path(pipeline.state or f".wherry/{pipeline.name}").absolute()
        return Place(directory=directory, schema="", name=pipeline.name)

    def __str__(self) -> str:
        return str(self.directory) if self.directory else f"{self.schema}.{self.name}_ledger"

    def make(self) -> None:
        """Make the directory, for its owner alone. Raises `Refusal` when it cannot be written.

        One that is there keeps its mode, for a group may share it; that every user can look into it is said.
        """
        if self.directory is not None:
            try:
                self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
                probe = self.directory / ".writable"
                probe.touch()
                probe.unlink()
                if self.directory.stat().st_mode & stat.S_IRWXO:
                    log.warning(
                        "Every user of this machine can look into the state, where rows are kept. To close it:  "
                        "chmod o-rwx %s",
                        self.directory,
                    )
            except OSError as error:
                raise Refusal(
                    f"The state cannot be written: {self.directory} ({error.strerror}).",
                    hint="Make it writable, or set `state:` to a directory that is.",
                ) from error

    @property
    def lock(self) -> Path:
        """The file whose lock says that a run is under way on this host."""
        return self.directory / "lock" if self.directory else lock_path(str(self))

    @property
    def needs_spark(self) -> bool:
        """Whether the ledger can be read only through Spark."""
        return self.directory is None

    def ledger(self, spark: SparkSession | None) -> Ledger:
        """The ledger; through Spark only where it is a table of a catalog."""
        if self.directory is not None:
            from runners.ledgers.delta_ledger import DeltaLedger

            return DeltaLedger(self.directory / "ledger")
        from runners.ledgers.spark_ledger import SparkLedger

        assert spark is not None
        return SparkLedger(spark, f"{self.schema}.{self.name}_ledger")

    def store(self) -> Store:
        """Where decided batches lie until they are delivered."""
        if self.directory is not None:
            return Folders(self.directory / "prepared")
        return Tables(self.schema, f"{self.name}_prepared_")

    def history(self, pipeline: Pipeline, spark: Callable[[], SparkSession]) -> History | None:
        """Which runs there were; None where that is not kept. `spark` is asked only where there is no other way."""
        from runners.reports.run_history import RunHistory
        from runners.reports.spark_run_history import SparkRunHistory

        kept = timedelta(seconds=seconds(pipeline.run_options.history))
        if not kept:
            return None
        if self.directory is None:
            return SparkRunHistory(spark, f"{self.schema}.{self.name}_runs", kept)
        return RunHistory(self.directory / "runs", kept)

    def dlq(self) -> Destination:
        """The DLQ that a pipeline has unless it says otherwise."""
        from destinations.delta import Delta

        if self.directory is not None:
            return Delta(path=str(self.directory / "dlq"), name="dlq")
        return Delta(table=f"{self.schema}.{self.name}_dlq", name="dlq")


def check_pipeline(pipeline: Pipeline, place: Place, state: State) -> None:
    """Raises `Refusal` when the state is another pipeline's."""
    if state.pipeline and state.pipeline != pipeline.name:
        raise Refusal(
            f"This state belongs to {state.pipeline}, and the definition is called {pipeline.name}: {place}.",
            hint="Give the pipeline its old name back, or a state of its own (`state:`).",
        )


def check_lasting(pipeline: Pipeline, spark: SparkSession) -> None:
    """Raises `Refusal`, and ends this Spark, which was started for this run, where it would forget the pipeline's
    tables at its end."""
    delta = [each for each in (*pipeline.every_destination, pipeline.dlq.destination) if isinstance(each, Delta)]
    place = Place.of(pipeline)
    state = [f"{place.schema}.{place.name}_ledger"] if place.schema else []
    tables = [*state, *(each.table for each in delta if each.table)]
    gone = forgotten(spark, tables) if tables else []
    if gone:
        spark.stop()
        raise Refusal(
            f"Spark's catalog is in its memory, and the next run would not find {' and '.join(gone)}.",
            hint="Name folders, with `path` and `state`, or give Spark a catalog that lasts, with "
            "`spark: {conf: …}`; runners/README.md says how.",
        )
