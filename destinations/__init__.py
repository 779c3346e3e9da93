"""Destinations: where rows go. `destination.py` has the contract. Each kind has a separate file."""

from typing import TYPE_CHECKING

from origins.lazy import export_late

if TYPE_CHECKING:
    from destinations.capabilities import StopsWriters
    from destinations.conformance import DestinationConformance, RememberingConformance
    from destinations.delta.delta import Delta
    from destinations.destination import (
        Destination,
        DestinationError,
        Identity,
        Misfit,
        OpenDestination,
        StatelessDestination,
        Unsure,
        Written,
        make_unsure_error,
    )
    from destinations.discard import Discard
    from destinations.dlq import Dlq
    from destinations.files import Files
    from destinations.kafka.kafka import Kafka
    from destinations.labels import BatchLabel, Label
    from destinations.log import Log
    from destinations.memory import Memory
    from destinations.python import Python
else:
    __getattr__, __dir__ = export_late(__name__)

__all__ = ["Delta", "Discard", "Dlq", "Files", "Kafka", "Log", "Memory", "Python", "make_unsure_error"]
__all__ += ["BatchLabel", "Destination", "DestinationConformance", "DestinationError", "Identity", "Label", "Misfit"]
__all__ += ["OpenDestination", "RememberingConformance", "StatelessDestination", "StopsWriters", "Unsure", "Written"]

KINDS = {
    "delta": "destinations.delta.delta:Delta",
    "discard": "destinations.discard:Discard",
    "files": "destinations.files:Files",
    "kafka": "destinations.kafka.kafka:Kafka",
    "log": "destinations.log:Log",
    "memory": "destinations.memory:Memory",
    "python": "destinations.python:Python",
}
