"""What an operation opens of a pipeline: a Spark session, the ledger, or the ledger while no run is active."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from origins.batch import JSON
from origins.lazy import SparkSession
from origins.spark_private import forget_context_settings
from origins.spark_versions import is_on_databricks
from runners.model.clock import Clock
from runners.model.entry import Entry
from runners.model.errors import Owned
from runners.model.pipeline_state import PipelineState
from runners.model.spec import PipelineSpec
from runners.spark.own_session import make_own_session
from runners.spark.session import check_store_access, obtain, obtain_for
from runners.state.journal import Journal
from runners.state.ledger import Conflict
from runners.state.location import StateLocation, check_pipeline
from runners.state.ownership import Takeover
from runners.state.process_locks import StateLock


def open_session(pipeline: PipelineSpec) -> SparkSession:
    """Return a new session with the pipeline's time zone."""
    forget_context_settings()
    check_store_access(pipeline)
    return make_own_session(obtain_for(pipeline), pipeline.run_options.time_zone)


def open_state(pipeline: PipelineSpec) -> tuple[StateLocation, Journal]:
    """Return the place of the pipeline's state, and its ledger. Raises `Refusal` if another pipeline has that state."""
    forget_context_settings()
    place = StateLocation.of(pipeline)
    journal = place.open_journal(pipeline)
    check_pipeline(pipeline, place, journal.state)
    return place, journal


def append_entry(pipeline: PipelineSpec, decide: Callable[[PipelineState], Entry | None]) -> PipelineState:
    """Record the entry that `decide` returns for the state, even during a run. Return that state.

    If another process wrote first, `decide` is called again. If it returns None, nothing is recorded.
    """
    while True:
        journal = open_state(pipeline)[1]
        entry = decide(journal.state)
        try:
            if entry is not None:
                journal.ledger.append([entry], after=journal.state.seq)
        except Conflict:
            continue
        return journal.state


@contextmanager
def hold_pipeline(pipeline: PipelineSpec, before: str) -> Iterator[Journal]:
    """Yield the ledger, while no run has the pipeline. `before` names in an error the operation that must wait."""
    lock = StateLock(StateLocation.of(pipeline).lock)
    if not lock.acquire():
        raise Owned(f"{pipeline.name} is running. Wait for its end before you {before}.")
    try:
        place, journal = open_state(pipeline)
        Takeover(pipeline=pipeline.name, place=place, lock=lock, clock=Clock()).may(journal)
        yield journal
    finally:
        lock.release()


_ACTOR: ContextVar[str] = ContextVar("wherry_actor", default="")


@contextmanager
def act_for(who: str) -> Iterator[None]:
    """In this block, the ledger keeps this name instead of the user of the machine."""
    token = _ACTOR.set(who)
    try:
        yield
    finally:
        _ACTOR.reset(token)


def sign(reason: str) -> dict[str, JSON]:
    """Return the user and the reason in the form that the ledger keeps.

    On Databricks, everyone is the same user of the machine. There it is the user of the workspace.
    """
    if _ACTOR.get():
        return {"who": _ACTOR.get(), "reason": reason}
    if is_on_databricks():
        return {"who": str(obtain().sql("SELECT current_user()").collect()[0][0]), "reason": reason}
    return {"who": f"{getpass.getuser()}@{socket.gethostname()}", "reason": reason}
