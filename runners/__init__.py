"""Runs pipelines: processes batches, decides about rows, and keeps the ledger. A run begins in `running/run.py`."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from destinations.dlq import Dlq
    from origins.errors import WherryError
    from runners.definitions.document import DefinitionError
    from runners.listeners.metrics import Metrics
    from runners.model.errors import Owned, Paused, Refusal, StageError
    from runners.model.events import (
        BatchCancelled,
        BatchDecided,
        BatchPlanned,
        BatchRests,
        BatchResumed,
        BatchSettled,
        Event,
        LimitExceeded,
        Listener,
        Noticed,
        RunEnded,
        RunStarted,
        RunStopping,
    )
    from runners.model.run_report import PipelineFailed, Report
    from runners.model.spec import (
        BatchOptions,
        Hook,
        RetryOptions,
        RunOptions,
        ScheduleOptions,
        SchemaState,
        SparkOptions,
    )
    from runners.operations.audit.finding import Audit
    from runners.operations.offsets import Lanes
    from runners.operations.preview import Preview
    from runners.operations.repair import RepairResult
    from runners.pipeline import Pipeline
    from runners.running.backfill import Backfill
    from runners.running.choice import Choice
    from runners.running.compatibility import OperatorOverrides
    from runners.running.fix import Fix
    from runners.running.replay import Replay
    from runners.schedules.scheduling import scheduler_of
    from runners.service.client import Client
else:

    def __getattr__(name):
        return import_module("origins.lazy").load_export(__name__, name)

    def __dir__():
        return sorted({*globals(), *__all__})


__all__ = ["BatchOptions", "Dlq", "Hook", "Pipeline", "RetryOptions", "RunOptions", "ScheduleOptions"]
__all__ += ["SchemaState", "SparkOptions"]
__all__ += ["Backfill", "Choice", "Client", "Fix", "OperatorOverrides", "Replay", "scheduler_of"]
__all__ += ["Audit", "Lanes", "Preview", "RepairResult", "Report"]
__all__ += ["DefinitionError", "Owned", "Paused", "PipelineFailed", "Refusal", "StageError", "WherryError"]
__all__ += ["BatchCancelled", "BatchDecided", "BatchPlanned", "BatchRests", "BatchResumed", "BatchSettled"]
__all__ += ["Event", "LimitExceeded", "Listener", "Metrics", "Noticed", "RunEnded", "RunStarted", "RunStopping"]
