"""Whether a pipeline without a state is an older pipeline under a new name, which would deliver its rows again."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from destinations.capabilities import NEWEST, ProvesDeliveries
from destinations.destination import Destination
from destinations.labels import BatchLabel
from origins.errors import WherryError, list_spark_errors
from origins.lazy import SparkSession
from origins.object_store import open_store
from origins.origin import Origin
from origins.store_access import StoreError, StoreUrl, get_key
from runners.model.entry import OpenBody
from runners.model.errors import Refusal
from runners.model.masking import hide_secrets
from runners.model.spec import PipelineSpec
from runners.running.compatibility import OperatorOverrides, canonicalise_all
from runners.state.journal import Journal
from runners.state.location import StateLocation
from runners.state.spark_ledger import quote_table

_MOST = 100


@dataclass(frozen=True, kw_only=True)
class Twin:
    """Another pipeline that reads and writes where this pipeline does."""

    name: str
    state: str = ""
    """The place of its state; empty if only labels name the pipeline."""
    origin: str
    """The place that both read."""
    destinations: tuple[str, ...]
    """This pipeline's destinations to which both write."""

    def describe(self) -> str:
        """Return what both pipelines share, as a sentence."""
        where = " and ".join(f"'{name}'" for name in self.destinations)
        state = f" ({self.state})" if self.state else ""
        return f"The pipeline {self.name} reads {self.origin} and writes to {where} too{state}."


def check_renamed(
    pipeline: PipelineSpec,
    destinations: Mapping[str, Destination],
    journal: Journal,
    ruling: OperatorOverrides,
    spark: SparkSession,
) -> None:
    """Raises `Refusal` at a first run if another pipeline reads and writes at the same places.

    A person puts the older name back, or says with `--fresh` that the rows shall come again.
    """
    if journal.state.opened != OpenBody():
        return
    asked = {name: each for name, each in destinations.items() if name not in ruling.fresh}
    place = StateLocation.of(pipeline)
    telling = {name: each for name, each in asked.items() if isinstance(each, ProvesDeliveries)}
    labels = {name: list(islice(each.list_labels(spark), NEWEST)) for name, each in telling.items()}
    known = sorted({label.pipeline for each in labels.values() for label in each})
    states = list_states_beside(place, known, spark if len(telling) < len(asked) else None)
    twin = find_twin(pipeline, asked, states, spark) or _find_stranger(pipeline, labels)
    if twin is not None:
        fresh = " ".join(f"--fresh {name}" for name in twin.destinations)
        back = "put the old name back" if twin.state else "put the old name and the old `state:` back"
        raise Refusal(
            f"Was {twin.name} renamed to {pipeline.name}, or is this a second pipeline? {twin.describe()}",
            hint=f"If it was renamed, {back}, because the state belongs to it:  name: {twin.name}\n"
            "If it is a second pipeline, which delivers all rows again:  wherry run FILE " + fresh + ' --reason "…"',
        )


def list_states_beside(
    place: StateLocation, known: Iterable[str] = (), spark: SparkSession | None = None
) -> Iterator[StateLocation]:
    """Yield the other states in a state's folder, or in its schema if `spark` is given.

    Yield the states of the pipelines that are known, too.
    """
    names = list(known)
    if place.directory is not None:
        names = sorted(each.parent.name for each in place.directory.parent.glob("*/ledger"))
    elif place.url and "/" in get_key(place.url):
        with contextlib.suppress(StoreError):  # this user may read there, but not list what is there
            folders, _ = open_store(StoreUrl(place.url.rpartition("/")[0], place.url.settings)).list_folder()
            names += [folder.strip("/").rpartition("/")[2] for folder in folders[:_MOST]]
    elif place.schema and spark is not None:
        with contextlib.suppress(*list_spark_errors()):  # this user may not list what is there
            ledgers = spark.sql(f"show tables in {quote_table(place.schema)} like '*_ledger'").limit(_MOST).collect()
            names += [row.tableName.removesuffix("_ledger") for row in ledgers if not row.isTemporary]
    found = (_move_beside(place, name) for name in dict.fromkeys(names))
    yield from (each for each in found if str(each) != str(place))


def find_twin(
    pipeline: PipelineSpec,
    destinations: Mapping[str, Destination],
    states: Iterable[StateLocation],
    spark: SparkSession | None = None,
) -> Twin | None:
    """Return the first of these states whose pipeline reads and writes where this one does; None if there is none.

    `spark` is needed only for a state in a catalog. A state that cannot be read does not count.
    """
    read = {canonicalise_all(hide_secrets(each).place) for each in pipeline.every_origin} - {""}
    written = {name: canonicalise_all(hide_secrets(each).place) for name, each in destinations.items()}
    for place in states:
        opened = OpenBody()
        with contextlib.suppress(WherryError):
            opened = Journal(place.open_ledger(spark)).state.opened
        origins = [each.place for each in opened.origins.values()]
        places = {canonicalise_all(each.place) for each in opened.destinations.values()} - {""}
        shared = [origin for origin in origins if canonicalise_all(origin) in read]
        both = tuple(name for name, each in written.items() if each in places)
        if shared and both and opened.pipeline != pipeline.name:
            return Twin(name=opened.pipeline, state=str(place), origin=shared[0], destinations=both)
    return None


def _find_stranger(pipeline: PipelineSpec, labels: Mapping[str, Sequence[BatchLabel]]) -> Twin | None:
    """Return another pipeline that wrote these labels and reads where this one does; None if there is none."""
    origins = {digest_place(each): hide_secrets(each).place for each in pipeline.every_origin}
    theirs = {
        name: [label for label in each if label.reads in origins and label.pipeline != pipeline.name]
        for name, each in labels.items()
    }
    newest = next((label for each in theirs.values() for label in each), None)
    if newest is None:
        return None
    both = [name for name, each in theirs.items() if newest.pipeline in {label.pipeline for label in each}]
    return Twin(name=newest.pipeline, origin=origins[newest.reads], destinations=tuple(both))


def digest_place(origin: Origin) -> str:
    """Return a digest of the place that an origin reads. It is the same for each origin that reads there."""
    origin = hide_secrets(origin)
    return hashlib.sha256(f"{type(origin).__name__} {canonicalise_all(origin.place)}".encode()).hexdigest()[:16]


def _move_beside(place: StateLocation, name: str) -> StateLocation:
    """Return the usual place of another pipeline's state beside this one."""
    url = place.url and StoreUrl(f"{place.url.rpartition('/')[0]}/{name}", place.url.settings)
    return replace(place, name=name, url=url, directory=place.directory and place.directory.with_name(name))
