"""The DLQ that a run has open, with its fallback and its copies. A copy may have stages, which its rows pass first."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from destinations.capabilities import ConfirmsBatches, NeedsMaintenance, SharesPlace, StopsWriters, stop_writers
from destinations.dead_letters import ensure_dlq, make_dlq_schema
from destinations.destination import Destination, DestinationError, Identity, OpenDestination, Written, find_or_assume
from destinations.dlq import DLQ, FALLBACK
from destinations.labels import Label
from origins.batch import Batch
from origins.batch_rows import BatchRows, compute_once
from origins.crash_points import reach
from origins.errors import WherryError, clean_up_by, get_raised_words, list_spark_errors
from origins.lazy import DataFrame, SparkSession, T
from runners.ways.stage_chain import StageChain, apply_chain, make_empty_rows, make_labels
from stages.bisection import MARK
from stages.rows import make_rows, take_clean

log = logging.getLogger("wherry")


def open_dlq(
    opened: Mapping[str, OpenDestination], copies: Sequence[Destination], assume: str, *, ours: bool
) -> Mapping[str, OpenDlq]:
    """Return the DLQ and its fallback, if it has one, by name. Both are open, and get the copies.

    `ours` says whether the DLQ is the table in the state.
    """
    opened_copies = [_open_copy(each.as_copy()) for each in copies]
    falls = FALLBACK in opened
    ends = {DLQ: OpenDlq(kept=opened[DLQ], copies=opened_copies, assume=assume, grows=ours, has_fallback=falls)}
    if falls:
        ends[FALLBACK] = OpenDlq(kept=opened[FALLBACK], copies=opened_copies, grows=True, is_fallback=True)
    return ends


@dataclass(eq=False, kw_only=True)
class OpenDlq(OpenDestination, ConfirmsBatches, NeedsMaintenance, SharesPlace, StopsWriters):
    """A DLQ, or its fallback, that a run has open.

    Refused rows are written to the copies before the DLQ. So the copies have all rows that the DLQ has, and a look at
    the DLQ is enough. If a DLQ with a fallback cannot be opened, the run goes on, and each write to the DLQ fails.
    """

    kept: OpenDestination
    copies: Sequence[DlqCopy] = ()
    grows: bool = False
    """Whether a table of an earlier version gets its missing columns."""
    has_fallback: bool = False
    is_fallback: bool = False
    """Whether this is the fallback, which takes rows instead of the DLQ. Both have the same copies."""
    assume: str = ""
    """The answer if a copy does not know whether it has the rows:

    `delivered` or `missing`. If empty, the copy raises.
    """
    _known: Identity = field(default_factory=lambda: Identity(place=""))
    _broken: str = ""
    """Why the DLQ could not be opened; empty if it is open."""

    def expects(self, known: Identity) -> None:
        self._known = known
        self.kept.expects(known)

    def share(self) -> None:
        for each in (self.kept, *self._list_own()):
            if isinstance(each, SharesPlace):
                each.share()

    def ensure_place(self, spark: SparkSession, schema: T.StructType | None) -> Identity:
        """Create the missing places of the copies and of the DLQ, and check that refused rows fit.

        If there is a fallback and the DLQ cannot be opened, return its identity from the last time it was opened.
        """
        copies = {each.name: each.ensure(spark) for each in self.copies}
        try:
            found = ensure_dlq(self.kept, spark) if self.grows else self.kept.ensure_place(spark, schema)
        except list_spark_errors(WherryError, OSError) as error:
            if not self.has_fallback:
                raise
            self._broken = getattr(error, "message", "") or str(error).partition("\n")[0]
            log.warning("The DLQ cannot be opened, so this run writes refused rows to the fallback: %s", self._broken)
            found = self._known
        return replace(found, copies=copies)

    def write(self, spark: SparkSession, rows: BatchRows, labels: Sequence[Label]) -> Written:
        (label,) = labels
        own = replace(label, destination=DLQ) if self.is_fallback else label
        for each in self.copies:
            each.write(spark, rows, own)
        reach("between-writes", label.destination)
        self._check()
        written = self.kept.write(spark, rows, labels)
        for each in self.copies:
            each.forget(own)
        return written

    @property
    def needs_maintenance(self) -> bool:
        return isinstance(self.kept, NeedsMaintenance) and self.kept.needs_maintenance

    def maintain(self, spark: SparkSession) -> None:
        if isinstance(self.kept, NeedsMaintenance):
            self.kept.maintain(spark)

    def confirm(self) -> None:
        if isinstance(self.kept, ConfirmsBatches):
            self.kept.confirm()

    def find(self, spark: SparkSession, label: Label, identity: Identity) -> Written | None:
        found = None

        def learn() -> None:
            if found is None and not self.is_fallback:
                for each in self.copies:
                    each.learn(spark, label, identity.copies.get(each.name), self.assume)

        with clean_up_by(learn):
            self._check()
            found = self.kept.find(spark, label, identity)
        return found

    def fence(self, spark: SparkSession, token: str) -> None:
        for each in self._list_own():
            stop_writers(each, spark, token)
        self._check()
        stop_writers(self.kept, spark, token)

    def close(self) -> None:
        for each in (*self._list_own(), self.kept):
            each.close()

    def _list_own(self) -> Sequence[OpenDestination]:
        """Return the copies that this object opens and closes. The copies of a fallback belong to the DLQ."""
        return () if self.is_fallback else [each.opened for each in self.copies]

    def _check(self) -> None:
        if self._broken:
            raise DestinationError(f"The DLQ could not be opened when the run began: {self._broken}")


@dataclass(eq=False, kw_only=True)
class DlqCopy:
    """A copy of a DLQ that a run has open."""

    name: str
    opened: OpenDestination
    select: Callable[[BatchRows, Batch], BatchRows] = lambda rows, _: rows
    """Selects the rows of a batch that the copy gets."""
    find_schema: Callable[[SparkSession], T.StructType] = lambda _: make_dlq_schema()
    """Returns the schema of these rows. Raises if the copy's stages do not fit."""
    _copied: dict[str, int | None] = field(default_factory=dict)
    """By batch key, how many rows the copy has of a batch that the DLQ may lack."""
    _tried: set[str] = field(default_factory=set)
    """The keys of the batches that this run has begun to write to the copy."""

    def ensure(self, spark: SparkSession) -> Identity:
        """Create the copy's place if it is missing, and check that refused rows fit."""
        return self.opened.ensure_place(spark, self.find_schema(spark))

    def write(self, spark: SparkSession, rows: BatchRows, label: Label) -> None:
        """Write the copy's rows of a batch, unless the copy has them."""
        own = self.select(rows, label.batch)
        if self._has(own, label):
            return
        self._tried.add(label.key)
        try:
            self._copied[label.key] = self.opened.write(spark, own, [label]).rows
        except list_spark_errors() as error:
            if get_raised_words(error) != MARK:
                raise
            raise DestinationError(
                f"A stage of the DLQ's copy '{self.name}' refused a row, and a refused row has no other place to go.",
                hint="Let the stage filter the row, or take it with `on_error: keep`. The run goes on with this batch.",
            ) from error

    def _has(self, own: BatchRows, label: Label) -> bool:
        """Whether the copy has these rows. A batch that was decided again may have more of them than before."""
        if label.key not in self._copied:
            return False
        copied, rows = self._copied[label.key], own.count()
        return copied is None or copied == (own.frame().count() if rows is None else rows)

    def forget(self, label: Label) -> None:
        """Forget the batch, because the DLQ has it now."""
        self._copied.pop(label.key, None)

    def learn(self, spark: SparkSession, label: Label, identity: Identity | None, assume: str) -> None:
        """Find out whether the copy has the batch.

        The answer of a person counts only for batches of earlier runs, and only for the copy, not for the DLQ.
        `identity` is what was at the copy's place when the run opened it.
        """
        if label.key in self._tried or identity is None:
            found = self.opened.find(spark, label, self.ensure(spark))
        else:
            found = find_or_assume(self.opened, spark, label, identity, assume, what="the copy")
        if found is not None:
            self._copied[label.key] = found.rows


def _open_copy(destination: Destination) -> DlqCopy:
    name, opened = destination.name or destination.place, destination.open()
    if not destination.stages:
        return DlqCopy(name=name, opened=opened)
    chain = StageChain.of(destination.stages, {})

    def select(rows: BatchRows, batch: Batch) -> BatchRows:
        return SelectedRows(rows, chain, make_labels(batch))

    def find_schema(spark: SparkSession) -> T.StructType:
        return apply_chain(make_empty_rows(spark, make_dlq_schema()), chain.common, {}, checked=True).schema

    return DlqCopy(name=name, opened=opened, select=select, find_schema=find_schema)


@dataclass(frozen=True)
class SelectedRows(BatchRows):
    """The rows after stages, none of which may refuse a row. If one does, the query raises."""

    rows: BatchRows
    chain: StageChain
    labels: Mapping[str, str | int | datetime]

    @compute_once
    def frame(self) -> DataFrame:
        frame = self.rows.frame()
        rows = make_rows(frame, tuple(frame.columns), self.labels, take_clean, explains=False)
        return take_clean(apply_chain(rows, self.chain.common, {}))
