"""The stores of large values that a pipeline uses, and the sweep of values that no row refers to."""

from __future__ import annotations

import base64
import binascii
import contextlib
import logging
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from destinations.dead_letters import stream_dlq
from destinations.delta.delta import Delta
from destinations.destination import Destination
from destinations.discard import Discard
from origins.errors import WherryError, list_spark_errors
from origins.lazy import SparkSession
from origins.object_store import open_store as open_object_store
from origins.quantities import parse_seconds
from origins.store_access import StoreError, is_store_url
from runners.model.text import summarise_error
from runners.ways.stage_chain import StageChain
from stages.capabilities import StatesRules
from stages.claim import Claim, Format, Unclaim, open_store
from stages.claim_store import KEEPERS, KEY, PREFIX, REFERENCE, SWEPT, USERS, ValueStore
from stages.columns import Drop, Rename
from stages.conditions import Filter, Require
from stages.deduplicate import Deduplicate
from stages.lookup import Lookup
from stages.python_call import FunctionCannotRun
from stages.stage import Stage

log = logging.getLogger("wherry")

_Place: TypeAlias = tuple[str, Format]
"""The place of a store, and the format of its values."""

_OFTEN = 86_400.0
"""The seconds between two sweeps of a store."""
_IN_BYTES = base64.b64encode(PREFIX[:12].encode()).decode()
"""The beginning of a reference in a column of bytes, which the DLQ stores in base64."""
_BYTES = re.compile(rf"{re.escape(_IN_BYTES)}[A-Za-z0-9+/]+")


def note_user(chain: StageChain, pipeline: str) -> None:
    """Record in the stores of a chain that this pipeline uses them, and whether its destinations keep references.

    Raises `StoreError` if a store cannot separate two writers of a table.
    """
    stages = [step.stage for step in chain.steps if isinstance(step.stage, Claim | Unclaim)]
    for place in dict.fromkeys(map(_get_place, stages)):
        store = open_store(*place)
        is_claimed = any(isinstance(stage, Claim) for stage in stages if _get_place(stage) == place)
        if not is_claimed and store.files.read(KEY) is None:
            continue
        if is_claimed:
            _check_conditions(*place)
        names = [f"{USERS}/{pipeline}", *([f"{KEEPERS}/{pipeline}"] if _does_keep(chain, place) else [])]
        for name in names:
            if store.files.read(name) is None:
                store.files.create(name, b"")


def _check_conditions(path: str, kind: Format) -> None:
    """Raise `StoreError` if commits to a table of values could replace each other."""
    if kind != "delta" or not is_store_url(path):
        return
    try:
        open_object_store(path).check_put_if_new()
    except StoreError as error:
        if not error.is_away and not error.is_of_here:
            error.hint = "Use a store with conditional writes, or set `format: files` at `claim` and at `unclaim`."
        raise


def _get_place(stage: Claim | Unclaim) -> _Place:
    return stage.path, stage.format


def _does_keep(chain: StageChain, place: _Place) -> bool:
    """Whether references to values of this store may reach a destination."""
    ways = [[*chain.common, *steps] for steps in chain.branches.values()]
    return any(_may_leave([step.stage for step in way], place) for way in ways)


_PASSING = (Claim, Deduplicate, Drop, StatesRules, Filter, Lookup, Rename, Require)
"""The stages that copy no value of a row into another column."""


def _may_leave(stages: Sequence[Stage], place: _Place) -> bool:
    """Whether rows may have references after these stages.

    If another stage changed a reference, its value is not restored.
    """
    there = leave = False
    for stage in stages:
        if isinstance(stage, Claim) and _get_place(stage) == place:
            there = True
        elif isinstance(stage, Unclaim) and _get_place(stage) == place and not stage.columns and stage.when is None:
            there = False
        elif there and not isinstance(stage, _PASSING):
            leave = True
    return there or leave


def sweep(
    chains: Iterable[StageChain],
    pipeline: str,
    kept: Sequence[Destination],
    spark: Callable[[], SparkSession],
    now: float,
) -> None:
    """Remove values that were not stored or referred to for as long as `retain` sets, except those in DLQ entries.

    No batch of the pipeline may be in progress. `kept` are the tables with refused or filtered rows. A store is not
    changed if another pipeline uses it, or if a destination has references to it. An error here costs only space, and
    the sweep is tried again.
    """
    for (path, kind), retain in _list_retained(chains).items():
        try:
            store = open_store(path, kind)
            last = store.files.read(SWEPT)
            if store.files.read(KEY) is None or (last and float(last) > now - _OFTEN):
                continue
            store.files.write(SWEPT, str(now).encode())
            why = _find_obstacle(store, pipeline, kept)
            if why:
                log.warning("the large values in %s stay, though `retain` is set: %s", path, why)
                continue
            _sweep(store, set(_list_named(kept, spark)), now - retain)
        except list_spark_errors(WherryError, FunctionCannotRun, ValueError) as error:
            log.warning("large values in %s that nothing names were not removed: %s", path, summarise_error(error))


def _list_retained(chains: Iterable[StageChain]) -> Mapping[_Place, float]:
    """Return how many seconds values are kept, by the places of their stores.

    If several stages differ, the longest counts.
    """
    found: dict[_Place, float] = {}
    for stage in (step.stage for chain in chains for step in chain.steps):
        if isinstance(stage, Claim):
            seconds = parse_seconds(stage.retain) if stage.retain else math.inf
            place = _get_place(stage)
            found[place] = max(seconds, found.get(place, 0.0))
    return {place: seconds for place, seconds in found.items() if math.isfinite(seconds)}


def _find_obstacle(store: ValueStore, pipeline: str, kept: Sequence[Destination]) -> str:
    """Return why no value is removed; empty if values may be removed."""
    others = sorted({found.name for found in store.files.list_names(USERS)} - {pipeline})
    if others:
        return f"the pipeline {others[0]} uses the store too"
    keepers = sorted(found.name for found in store.files.list_names(KEEPERS))
    if keepers:
        return f"destinations of {keepers[0]} have references; once they have none, remove {store.place}/{KEEPERS}"
    unread = next((each.place for each in kept if not isinstance(each, Delta | Discard)), "")
    return f"{unread} may name them, and cannot be read" if unread else ""


def _sweep(store: ValueStore, named: set[str], before: float) -> None:
    removed = [each.name for each in store.list_values() if each.modified < before and each.name not in named]
    store.delete_values(removed)
    store.files.clear_unfinished(before)
    if removed:
        log.info("%s large values that nothing names were removed from %s", len(removed), store.place)


def _list_named(kept: Sequence[Destination], spark: Callable[[], SparkSession]) -> Iterator[str]:
    """Return the hashes of values to which rows in these tables refer."""
    parts = [f"`{column}` LIKE '%{word}%'" for column in ("row", "original") for word in (PREFIX, _IN_BYTES)]
    query = f"SELECT `row`, original FROM {{table}} WHERE {' OR '.join(parts)}"
    for each in kept:
        for table in stream_dlq(each, spark, query) if isinstance(each, Delta) else ():
            for row in table.to_pylist():
                for text in filter(None, row.values()):
                    yield from _find_references(text)


def _find_references(text: str) -> Iterator[str]:
    yield from REFERENCE.findall(text)
    for encoded in _BYTES.findall(text):
        with contextlib.suppress(binascii.Error):
            whole = base64.b64decode(encoded[: len(encoded) // 4 * 4])
            yield from REFERENCE.findall(whole.decode("utf-8", "replace"))
