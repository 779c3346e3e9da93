"""How a run becomes an owner of its pipeline, when it may take it from another run, and how it releases it.

A run takes a pipeline that has no owner, whose owner is dead, or whose owner was silent for a whole lease. Times of day
are compared only to refuse, because two clocks may differ by minutes. To take a pipeline from a silent owner, a whole
lease must pass on this machine's clock. It counts from the moment when this machine saw the owner's last entry.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from destinations.labels import Deadline
from origins.batch import Json
from origins.codec import encode
from origins.errors import WherryError
from origins.lazy import SparkSession
from origins.quantities import parse_seconds
from origins.spark_versions import is_connect
from runners.model.clock import Clock
from runners.model.entry import Entry, OwnerBody
from runners.model.errors import Owned, Paused
from runners.model.pipeline_state import PipelineState
from runners.model.run_report import Report
from runners.model.spec import PipelineSpec
from runners.model.text import show_moment
from runners.spark.session import find_jvm_process, measure_clock_offset
from runners.state.journal import Journal, Lease
from runners.state.location import StateLocation, check_pipeline
from runners.state.process_locks import (
    StateLock,
    end_orphan,
    identify_host,
    identify_process,
    is_process_alive,
    sweep_locks,
)

PAUSE = 1.0
"""How many seconds pass between two looks for an entry of the owner."""
_WAIT = "Wait for it, or stop it:  wherry stop FILE"
log = logging.getLogger("wherry")


@dataclass(kw_only=True)
class Ownership:
    """A run's ownership of its pipeline, from the lock to the release.

    Call `hold_lock`, `open_journal`, `acquire` and `release` in this order.
    """

    pipeline: PipelineSpec
    place: StateLocation
    run: str
    clock: Clock
    hash: str
    """The definition's hash. Only runs with the same definition share their lanes."""
    assignment: str
    """How the run shares the lanes with other runs. With `single`, it does not."""
    take_over: str
    """Why an owner on another host has surely ended."""
    replay: Json
    ruling: Json
    finish: bool
    follow: bool
    runs_paused: bool
    """Whether the run may own a paused pipeline, because it plans no new batch."""
    check: Callable[[Journal, SparkSession], None]
    """Raises if the run must not become an owner for a reason that concerns this run only."""
    before: Sequence[OwnerBody] = ()
    """The owners from which the run took the pipeline. None of them releases it any longer."""
    _taking: Takeover | None = None
    """None if a scheduler keeps other runs away."""

    @contextlib.contextmanager
    def hold_lock(self) -> Iterator[None]:
        """Hold a lock that shows other processes of this host that this process is alive.

        Another process of this host may have the lock of the state. The run then locks a separate file, and the ledger
        shows whether the other owner is alive. With `ownership: off` there is no lock.
        """
        if self.pipeline.run_options.ownership == "off":
            yield
            return
        lock = StateLock(self.place.lock)
        if self.assignment != "single" or not lock.acquire():
            lock = StateLock(lock.path.with_name(f"{lock.path.name}-{self.run}"))
            lock.acquire()
        try:
            self._taking = Takeover(
                pipeline=self.pipeline.name,
                place=self.place,
                lock=lock,
                clock=self.clock,
                take_over=self.take_over,
                assignment=self.assignment,
                hash=self.hash,
            )
            yield
        finally:
            if lock.path != self.place.lock:
                lock.path.unlink(missing_ok=True)
            lock.release()

    def open_journal(self, spark: SparkSession | None) -> Journal:
        """Open the ledger. Raise if it belongs to another pipeline, or if the run may not become an owner."""
        tenure = None if self._taking is None else Lease(self.clock, parse_seconds(self.pipeline.run_options.lease))
        journal = Journal(self.place.open_ledger(spark), tenure)
        check_pipeline(self.pipeline, self.place, journal.state)
        self._may_take(journal)
        return journal

    def acquire(self, journal: Journal, spark: SparkSession) -> None:
        """Become an owner, and end the JVMs that earlier owners left working on this host."""
        jvm, lock = find_jvm_process(spark), self._taking.lock if self._taking else None
        body = OwnerBody(
            **vars(identify_host()),
            pipeline=self.pipeline.name,
            run=self.run,
            jvm=identify_process(jvm) if jvm else None,
            ownership=self.pipeline.run_options.ownership,
            lock=lock.path.name if lock else None,
            lock_file=lock.identity if lock else None,
            take_over=self.take_over,
            replay=self.replay,
            ruling=self.ruling,
            finish=self.finish,
            assignment=self.assignment,
            hash=self.hash,
            follow=self.follow,
            job=self.pipeline.job,
        )

        def may(journal: Journal) -> bool:
            self.check(journal, spark)
            return self._may_take(journal)

        before = journal.acquire(encode(body), may=may)
        sweep_locks(self.place.lock, named=[str(owner.lock) for owner in journal.state.owners])
        for owner in before:
            end_orphan(owner)
        self.before = before

    def release(self, journal: Journal, report: Report) -> None:
        """Release the pipeline.

        If the ledger of a failed run cannot be written, the run stays its owner. The next run sees that the owner has
        ended.
        """
        with contextlib.suppress(WherryError) if report.error else contextlib.nullcontext():
            journal.record(Entry(kind="release", body=report.json()))

    def _may_take(self, journal: Journal) -> bool:
        """Return whether the run joins the owners. Raise `Owned` or `Paused` if it may not run."""
        joins = self._taking.may(journal) if self._taking else False
        paused = journal.state.paused
        if paused is not None and not self.runs_paused:
            raise Paused(
                self.pipeline.name,
                since=show_moment(paused.at),
                lane=paused.lane,
                number=paused.number,
                reason=paused.reason,
            )
        return joins


@dataclass(kw_only=True)
class Takeover:
    """A run that wants a pipeline, or a share of its lanes."""

    pipeline: str
    place: StateLocation
    lock: StateLock
    """The lock of this run: the state's, or a separate one if another process has that, or if lanes are shared."""
    clock: Clock
    take_over: str = ""
    """Why the owner on another host has surely ended."""
    assignment: str = "single"
    """How the run shares the lanes with other runs. With `single`, it does not."""
    hash: str = ""
    """The definition's hash. Only runs with the same definition share their lanes."""
    _present: frozenset[str] = frozenset()
    """The owners at the time when this run began to wait for the first of them."""
    _outlasted: dict[str, int] = field(default_factory=dict)
    """The owners for which this run waited a whole lease, each with the number of its last entry."""

    def may(self, journal: Journal) -> bool:
        """Return True if the run can join the owners, and False once it may take the pipeline.

        It waits for a sign of each owner, for up to a lease. Raise `Owned` as soon as an owner that cannot be joined
        proves to be alive.
        """
        owners = journal.state.owners
        if self._can_join(journal.state):
            return True
        if not owners and self.assignment == "single" and self.lock.path != self.place.lock:
            raise Owned(f"{self.pipeline} is running already on this host.", hint=_WAIT)
        for owner in owners:
            self._await_end(journal, owner)
        return False

    def _can_join(self, state: PipelineState) -> bool:
        """Whether the run can join the owners.

        It can if it shares lanes, all owners have the same assignment and definition, no stop is requested, and one
        owner may be alive.
        """
        who = state.owners
        alike = all((owner.assignment, owner.hash) == (self.assignment, self.hash) for owner in who)
        alive = any(not is_dead(owner, self.place, self.lock) for owner in who)
        return self.assignment != "single" and not state.stopping and alike and alive

    def _await_end(self, journal: Journal, owner: OwnerBody) -> None:
        """Return once the run no longer has to wait for this owner."""
        name = owner.owner
        if owner.assignment == "local_only" and not self.take_over and journal.state.lanes_of(name):
            raise make_kept_error(self.pipeline, journal.state, owner)
        if self._is_free(owner) or self._outlasted.get(name) == owner.heard:
            return
        strange = bool(self._present) and (name not in self._present or name in self._outlasted)
        if strange or owner.lease is None or has_live_lease(owner, self.clock):
            raise self._make_owned_error(owner)
        log.warning(
            "%s belongs to %s, which was last heard at %s: waiting %.0f s for a sign of it",
            self.pipeline,
            describe_owner(owner),
            owner.heard_at,
            owner.lease,
        )
        self._present = self._present or frozenset(other.owner for other in journal.state.owners)
        if not self._is_silent(journal, owner):
            raise self._make_owned_error(journal.state.find_owner(name) or journal.state.owner or owner)
        self._outlasted[name] = owner.heard

    def _is_free(self, owner: OwnerBody) -> bool:
        """Whether the run may take the pipeline from this owner without waiting."""
        if owner.ownership == "off" or is_dead(owner, self.place, self.lock):
            return True
        return bool(self.take_over) and owner.host != socket.gethostname()

    def _is_silent(self, journal: Journal, owner: OwnerBody) -> bool:
        """Whether this owner records nothing for a whole lease."""
        until = self.clock.elapsed() + (owner.lease or 0.0)
        over = False
        while not over:
            self.clock.wait(max(0.0, min(PAUSE, until - self.clock.elapsed())))
            over = self.clock.elapsed() >= until
            journal.catch_up()
            now = journal.state.find_owner(owner.owner)
            if now is None:
                return journal.state.owner is None
            if is_dead(now, self.place, self.lock):
                return True
            if now.heard != owner.heard:
                return False
        return True

    def _make_owned_error(self, owner: OwnerBody) -> Owned:
        if owner.host == socket.gethostname():
            return Owned(
                f"{self.pipeline} is running already on this host: process {owner.pid}, since {owner.at}, last "
                f"heard at {owner.heard_at}.",
                hint=_WAIT,
            )
        return Owned(
            f"{self.pipeline} is running on another host: {describe_owner(owner)}, since {owner.at}, last heard at "
            f"{owner.heard_at}.",
            hint=f'{_WAIT}\nIf that run has surely ended:  --take-over "why you know"',
        )


def make_deadline(tenure: Lease | None, spark: SparkSession) -> Deadline | None:
    """Return the deadline for beginning a write, or None if no other run may take the pipeline."""
    if tenure is None:
        return None
    apart = measure_clock_offset(spark) if is_connect(spark) else 0.0
    return Deadline(left=tenure.count_seconds_left, secure=tenure.secure, ahead=apart)


def make_kept_error(pipeline: str, state: PipelineState, owner: OwnerBody) -> Owned:
    lanes = ", ".join(state.lanes_of(owner.owner))
    return Owned(
        f"Lanes {lanes} of {pipeline} belong to {describe_owner(owner)}, since {owner.at}, last heard at "
        f"{owner.heard_at}. With run.assignment local_only no other run takes them over by itself.",
        hint=f'{_WAIT}\nIf that run has surely ended:  --take-over "why you know"',
    )


def is_run(state: PipelineState, place: StateLocation, clock: Clock) -> bool:
    """Whether the pipeline is running, as far as that is known without waiting."""
    return any(is_owner_alive(owner, place, clock) for owner in state.owners)


def is_owner_alive(owner: OwnerBody, place: StateLocation, clock: Clock) -> bool:
    if is_dead(owner, place):
        return False
    if owner.ownership == "off" and owner.boot == identify_host().boot:
        return is_process_alive(owner.pid, owner.started)
    return owner.ownership == "off" or has_live_lease(owner, clock)


def has_live_lease(owner: OwnerBody, clock: Clock) -> bool:
    """Whether the owner's lease has not ended, by the time of day on both machines.

    An owner without a lease always seems alive, except with `ownership: off`.
    """
    lease = owner.lease
    if lease is None:
        return owner.ownership != "off"
    silent = (clock.now() - datetime.fromisoformat(owner.heard_at)).total_seconds()
    return bool(silent < lease)


def is_dead(owner: OwnerBody, place: StateLocation, mine: StateLock | None = None) -> bool:
    """Whether the owner is surely dead: it ran on this host, and no process except `mine` has its lock.

    A missing file proves nothing. A state in a directory has its locks beside it. The locks of other states are in a
    private folder of each user. Another host of the same name has another such folder, and so may another process of
    this host. There, only the very file that the owner recorded proves anything.
    """
    if owner.host != socket.gethostname() or owner.ownership == "off":
        return False
    file = place.lock.with_name(str(owner.lock or place.lock.name))
    identity = "" if place.directory is not None else str(owner.lock_file or "")
    if place.directory is None and (not identity or owner.boot != identify_host().boot):
        return False
    if mine is not None and mine.path == file:
        return identity in ("", mine.identity)
    return StateLock(file).is_held(identity) is False


def describe_owner(owner: OwnerBody) -> str:
    return f"{owner.host}, process {owner.pid}"
