"""A run whose destinations are open, for work that needs no Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from destinations.delta import Delta
from destinations.destination import Destination
from runners.model.spec import PipelineSpec
from runners.running.work import OpenRun
from runners.state.journal import Journal
from runners.ways.batch_source import BatchReader
from runners.ways.stage_chain import StageChain
from tests.runners.state.ledger.memory_ledger import MemoryLedger


def make_open_run(
    pipeline: PipelineSpec,
    journal: Journal | None = None,
    dlq: Destination = Delta(path="dlq"),  # noqa: B008 -- a frozen value
    chains: Mapping[str, StageChain] | None = None,
) -> OpenRun:
    return OpenRun(
        pipeline=pipeline,
        dlq=dlq,
        reading=BatchReader({}, {}, chains=chains or {}),
        journal=journal or Journal(MemoryLedger()),
        spark=cast("Any", None),
        deadline=lambda: None,
        is_stopped=lambda: False,
    )
