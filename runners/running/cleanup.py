"""What a run deletes: old rows of the DLQ, old filtered rows, and unused prepared rows and large values.

An error here only costs space. Wherry logs it, and a later run tries again.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from destinations.dead_letters import query_dlq
from destinations.delta.delta import Delta
from destinations.delta.table import TargetTable
from destinations.destination import Destination
from destinations.dlq import DEFAULT
from origins.errors import WherryError, clean_up_by, list_spark_errors
from origins.lazy import SparkSession
from origins.names import HIDDEN, quote_text
from origins.quantities import parse_seconds
from runners.model.clock import Clock
from runners.model.spec import PipelineSpec
from runners.model.text import summarise_error
from runners.running.fix import find_given
from runners.running.opening import make_chains
from runners.state.journal import DecidedLetters, Journal, list_decided
from runners.state.location import StateLocation
from runners.ways.stage_chain import list_upkeep

log = logging.getLogger("wherry")


@dataclass
class Cleanup:
    """Deletes data that a pipeline has kept for long enough."""

    pipeline: PipelineSpec
    place: StateLocation
    destinations: Mapping[str, Destination]
    dlq: Destination
    filtered: Delta
    clock: Clock
    _dropped: float | None = None
    """The time at which it last deleted old filtered rows."""

    def delete_dead_letters(self, journal: Journal, spark: SparkSession) -> None:
        """Delete DLQ rows that were replayed or discarded, and were refused longer ago than `dlq.retain` says."""
        known = list_decided(journal)
        if not isinstance(self.dlq, Delta) or not known.ids:
            return
        periods = {code: parse_seconds(each) for code, each in self.pipeline.dlq.periods.items()}
        try:
            _delete_old(spark, self.dlq, known, _match_old(periods, self.clock.now()))
        except list_spark_errors(WherryError) as error:
            log.warning("rows of the DLQ that are older than dlq.retain were not deleted: %s", summarise_error(error))

    def drop_filtered(self, spark: SparkSession) -> None:
        """Delete filtered rows that were stored longer ago than `keep_filtered` says, at most once an hour."""
        now = self.clock.elapsed()
        if not self.pipeline.keeps_filtered or (self._dropped is not None and now < self._dropped + 3_600):
            return
        self._dropped = now
        retain = timedelta(seconds=parse_seconds(self.pipeline.keep_filtered))
        old = f"filtered_at < timestamp {quote_text((self.clock.now() - retain).isoformat())}"
        try:
            if not query_dlq(self.filtered, lambda: spark, f"SELECT plan FROM {{table}} WHERE {old} LIMIT 1"):
                return
            table = TargetTable.find(spark, self.filtered.sql_name, self.filtered.found_here)
            with table.hold_commits() if table else contextlib.nullcontext():
                spark.sql(f"DELETE FROM {self.filtered.sql_name} WHERE {old}").collect()
        except list_spark_errors(WherryError) as error:
            log.warning("filtered rows that are older than keep_filtered were not deleted: %s", summarise_error(error))

    def sweep_prepared(self, journal: Journal, spark: SparkSession, *, is_shared: bool) -> None:
        """Delete prepared rows that no open batch and no replay needs; other runs have lanes if `is_shared`."""

        def list_needed() -> Sequence[str]:
            journal.refresh()
            plans, given = journal.state.open_plans, find_given(journal)
            return [
                *(plan.decision.path for plan in plans if plan.decision),
                *(plan.batch.plan for plan in plans if is_shared),
                *([given.name] if given else []),
            ]

        self.place.store().sweep(spark, list_needed)

    def sweep_large_values(self, journal: Journal, spark: SparkSession) -> None:
        """Delete large values that no row names, if no batch is open and no other run has lanes."""
        if journal.state.open_plans or journal.is_shared:
            return
        kept = [self.dlq, *([self.filtered] if self.pipeline.keeps_filtered else [])]
        chains = list(make_chains(self.pipeline, self.destinations).values())
        for upkeep in list_upkeep(chains):
            upkeep.sweep(chains, self.pipeline.name, kept, lambda: spark, self.clock.now().timestamp())


def _match_old(retain: Mapping[str, float], now: datetime) -> str:
    """Return SQL that is true for rows that were refused longer ago than the period of their code."""
    before = {
        code: f"timestamp {quote_text((now - timedelta(seconds=kept)).isoformat())}" for code, kept in retain.items()
    }
    own = [f"WHEN {quote_text(code)} THEN {moment}" for code, moment in before.items() if code != DEFAULT]
    newest = before[min(retain, key=lambda code: retain[code])]
    limit = f"CASE code {' '.join(own)} ELSE {before[DEFAULT]} END" if own else before[DEFAULT]
    return f"nacked_at < {newest} AND nacked_at < {limit}"


def _delete_old(spark: SparkSession, dlq: Delta, known: DecidedLetters, is_old: str) -> None:
    table = TargetTable.find(spark, dlq.sql_name, dlq.found_here)
    old = spark.sql(f"SELECT id FROM {dlq.sql_name} WHERE {is_old}").collect() if table else []
    ids = [(row["id"],) for row in old if row["id"] in known]
    if table is None or not ids:
        return
    view = f"{HIDDEN}{uuid.uuid4().hex}"
    spark.createDataFrame(ids, "id string").createOrReplaceTempView(view)
    with clean_up_by(lambda: spark.catalog.dropTempView(view)), table.hold_commits():
        gone = f"MERGE INTO {dlq.sql_name} AS kept USING {view} AS gone ON kept.id = gone.id"
        spark.sql(f"{gone} WHEN MATCHED THEN DELETE").collect()
