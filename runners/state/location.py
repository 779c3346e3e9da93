"""The place of a pipeline's state: a directory, a folder of an object store, or tables of a catalog's schema."""

from __future__ import annotations

import logging
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

from destinations.delta.delta import Delta
from destinations.destination import Destination
from destinations.dlq import FILTERED
from origins.lazy import SparkSession
from origins.quantities import parse_seconds
from origins.secret import SECRET
from origins.store_access import StoreUrl, is_store_url
from runners.model.errors import Refusal
from runners.model.pipeline_state import PipelineState
from runners.model.spec import PipelineSpec, SchemaState, SparkOptions
from runners.spark.session import is_given, list_forgotten_tables, list_packages, obtain, obtain_for, stop
from runners.state.journal import Journal
from runners.state.ledger import Ledger
from runners.state.prepared_store import FolderStore, PreparedStore, TableStore, UrlStore, VolumeStore
from runners.state.process_locks import lock_path
from runners.state.run_history import RunHistory
from runners.state.spark_ledger import SparkLedger

log = logging.getLogger("wherry")


@dataclass(frozen=True, kw_only=True)
class StateLocation:
    """The place of a state and of its parts."""

    directory: Path | None
    schema: str
    name: str
    url: StoreUrl | None = None
    """The state's folder in an object store."""
    volume: Path | None = None
    """The folder of the volume for rows that wait for delivery."""

    @staticmethod
    def of(pipeline: PipelineSpec) -> StateLocation:
        if isinstance(pipeline.state, SchemaState):
            volume = find_volume(pipeline.state.volume) if pipeline.state.volume else None
            return StateLocation(directory=None, schema=pipeline.state.schema, name=pipeline.name, volume=volume)
        if isinstance(pipeline.state, str) and is_store_url(pipeline.state):
            settings = getattr(pipeline.state, "settings", pipeline.spark.conf)
            return StateLocation(directory=None, schema="", name=pipeline.name, url=StoreUrl(pipeline.state, settings))
        directory = Path(pipeline.state or f".wherry/{pipeline.name}").absolute()
        return StateLocation(directory=directory, schema="", name=pipeline.name)

    def __str__(self) -> str:
        return str(self.folder) if self.folder is not None else f"{self.schema}.{self.name}_ledger"

    @property
    def folder(self) -> Path | StoreUrl | None:
        """The state's directory, or its folder in an object store."""
        return self.directory or self.url

    def make(self) -> None:
        """Create the directory, with access for its owner only. Raise `Refusal` if it cannot be written.

        An existing directory keeps its mode, because a group may share it. A warning is logged if every user can read
        it.
        """
        if self.directory is not None:
            try:
                self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
                probe = self.directory / ".writable"
                probe.touch()
                probe.unlink(missing_ok=True)  # another run may probe at the same moment
                if self.directory.stat().st_mode & stat.S_IRWXO:
                    log.warning(
                        "Every user of this machine can read the state, and it holds rows. To prevent that:  chmod "
                        "o-rwx %s",
                        self.directory,
                    )
            except OSError as error:
                raise Refusal(
                    f"The state cannot be written: {self.directory} ({error.strerror}).",
                    hint="Make it writable, or set `state:` to a writable directory.",
                ) from error

    @property
    def lock(self) -> Path:
        """The file whose lock shows that a run is working on this host."""
        return self.directory / "lock" if self.directory else lock_path(str(self))

    @property
    def needs_spark(self) -> bool:
        """Whether the ledger can be read only through Spark."""
        return self.folder is None

    def open_ledger(self, spark: SparkSession | None) -> Ledger:
        """Return the ledger. It uses Spark only if it is a table of a catalog."""
        if self.folder is not None:
            from runners.state.delta_ledger import DeltaLedger

            return DeltaLedger(self.folder / "ledger")
        assert spark is not None
        return SparkLedger(spark, f"{self.schema}.{self.name}_ledger")

    def open_journal(self, pipeline: PipelineSpec) -> Journal:
        """Return the ledger's journal, read to its end.

        Spark is obtained only if the ledger is a table of a catalog.
        """
        spark = obtain_for(pipeline) if self.needs_spark else None
        return Journal(self.open_ledger(spark))

    def store(self) -> PreparedStore:
        """Return the store for decided batches until they are delivered."""
        if self.directory is not None:
            return FolderStore(self.directory / "prepared")
        if self.url is not None:
            return UrlStore(self.url / "prepared")
        tables = TableStore(self.schema, f"{self.name}_prepared_")
        return tables if self.volume is None else VolumeStore(self.volume / self.name / "prepared", tables=tables)

    def open_history(self, pipeline: PipelineSpec, spark: Callable[[], SparkSession]) -> RunHistory | None:
        """Return the run history, or None if no history is kept. `spark` is called only if there is no other way."""
        kept = timedelta(seconds=parse_seconds(pipeline.run_options.history))
        if not kept:
            return None
        if self.folder is None:
            return RunHistory(f"{self.schema}.{self.name}_runs", kept, spark())
        return RunHistory(self.folder / "runs", kept)

    def make_dlq(self) -> Destination:
        """Return the DLQ of a pipeline whose definition names none."""
        return self._make_delta("dlq", f"{self.name}_dlq", name="dlq")

    def make_filtered(self) -> Delta:
        """Return the destination for rows that stages filter."""
        return self._make_delta("filtered", f"{self.name}_filtered", name=FILTERED)

    def _make_delta(self, folder: str, table: str, *, name: str) -> Delta:
        """Return a table in this folder of the state, or with this name in the state's schema."""
        if self.folder is None:
            return Delta(table=f"{self.schema}.{table}", name=name)
        place = self.folder / folder
        return Delta(path=place if isinstance(place, StoreUrl) else str(place), name=name)


def find_volume(volume: str) -> Path:
    """Return the folder of a volume, which is given by its name in Unity Catalog or by its path."""
    return Path(volume if volume.startswith("/") else "/Volumes/" + volume.replace("`", "").replace(".", "/"))


def find_dlq(pipeline: PipelineSpec) -> tuple[Destination, Callable[[], SparkSession]]:
    """Return the pipeline's DLQ, and a function that obtains a Spark session to read it."""
    return pipeline.dlq.destination or StateLocation.of(pipeline).make_dlq(), partial(obtain_for, pipeline)


def check_pipeline(pipeline: PipelineSpec, place: StateLocation, state: PipelineState) -> None:
    """Raise `Refusal` if the state belongs to another pipeline."""
    if state.pipeline and state.pipeline != pipeline.name:
        raise Refusal(
            f"This state belongs to {state.pipeline}, but the definition's name is {pipeline.name}: {place}.",
            hint="Restore the pipeline's old name, or set another `state:`.",
        )


def check_lasting(pipeline: PipelineSpec, spark: SparkSession) -> None:
    """Raise `Refusal` if Spark would forget the pipeline's tables at its end.

    This also ends Spark, which was started for this run.
    """
    every = [*pipeline.every_destination, *pipeline.dlq.given_destinations]
    place = StateLocation.of(pipeline)
    state = [f"{place.schema}.{place.name}_ledger"] if place.schema else []
    tables = [*state, *(target.table for target in every if isinstance(target, Delta) and target.table)]
    gone = list_forgotten_tables(spark, tables) if tables else []
    if gone:
        stop(spark)
        raise Refusal(
            f"Spark keeps its catalog in memory only, so the next run would not find {' and '.join(gone)}.",
            hint="Name folders, with `path` and `state`, or give Spark a lasting catalog, with `spark: {conf: …}`; "
            "see runners/docs/howto/catalog-state.md.",
        )


def open_shared_session(pipelines: Sequence[PipelineSpec]) -> SparkSession:
    """Return one Spark session for all these pipelines. If Wherry starts it, it has the settings of each.

    Raise `Refusal` if the settings of two pipelines differ.
    """
    conf: dict[str, str] = {}
    first: dict[str, str] = {}
    for pipeline in pipelines:
        name, wanted = pipeline.name, pipeline.spark
        for key, value in wanted.settings.items():
            if conf.setdefault(key, value) != value:
                hidden = isinstance(conf[key], SECRET) or isinstance(value, SECRET)
                values = "two values, which stay secret" if hidden else f"{conf[key]} and {value}"
                raise Refusal(
                    f"{first[key]} and {name} share one Spark, but they set {key} to {values}.",
                    hint="Set one value in both, or schedule them in two directories.",
                )
            first.setdefault(key, name)
    packages = dict.fromkeys(each for pipeline in pipelines for each in list_packages(pipeline))
    starts = not is_given()
    spark = obtain(SparkOptions(conf=conf, packages=tuple(packages)))
    if starts:
        for pipeline in pipelines:
            check_lasting(pipeline, spark)
    return spark
