"""Destinations: where rows go. `destination.py` is the contract, every other kind is a file of its own."""

KINDS = {
    "delta": "destinations.delta:Delta",
    "discard": "destinations.discard:Discard",
    "files": "destinations.files:Files",
    "log": "destinations.log:Log",
    "memory": "destinations.memory:Memory",
    "python": "destinations.python:Python",
}
