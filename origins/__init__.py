"""Origins: where rows come from. `origin.py` has the contract, and each kind has a file."""

from typing import TYPE_CHECKING

from origins.lazy import export_late

if TYPE_CHECKING:
    from origins.batch import Backlog, Batch, Limits, Span
    from origins.batch_rows import BatchRows, FrameRows
    from origins.conformance import OriginConformance
    from origins.delta import Delta
    from origins.dlq import DlqEntries
    from origins.errors import OriginError, WherryError
    from origins.files.files import Files
    from origins.generate import Generate
    from origins.kafka.kafka import Kafka
    from origins.memory import Crash, End, Memory, Pause
    from origins.origin import PLACE, Origin, Progress
else:
    __getattr__, __dir__ = export_late(__name__)

__all__ = ["Delta", "DlqEntries", "Files", "Generate", "Kafka", "Memory"]
__all__ += ["Crash", "End", "Pause"]
__all__ += ["PLACE", "Backlog", "Batch", "BatchRows", "FrameRows", "Limits", "Origin", "OriginConformance"]
__all__ += ["OriginError", "Progress"]
__all__ += ["Span", "WherryError"]

KINDS = {
    "delta": "origins.delta:Delta",
    "dlq": "origins.dlq:DlqEntries",
    "files": "origins.files.files:Files",
    "generate": "origins.generate:Generate",
    "kafka": "origins.kafka.kafka:Kafka",
    "memory": "origins.memory:Memory",
}
