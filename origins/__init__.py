"""Origins: where rows come from. `origin.py` is the contract, every other kind is a file of its own."""

KINDS = {
    "delta": "origins.delta:Delta",
    "files": "origins.files:Files",
    "generate": "origins.generate:Generate",
    "memory": "origins.memory:Memory",
}
