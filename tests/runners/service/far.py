"""A folder of pipelines that need no Spark, a real server of it, and commands that are typed to both."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from runners.pipeline import Pipeline
from runners.service.remote import RemoteFolder
from runners.service.serving import Server, ServerOptions
from tests.runners.service.served import DEFINITION, write_refused


def write_pipeline(folder: Path, name: str, more: str = "", rows: Mapping[int, int] | None = None) -> Path:
    """Write a definition, and a file for each of these rows. Return the definition's file."""
    landing = folder / "landing" / name
    landing.mkdir(parents=True, exist_ok=True)
    for id_, amount in (rows or {}).items():
        (landing / f"{id_}.json").write_text(json.dumps({"id": id_, "amount": amount}) + "\n")
    file = folder / f"{name}.yaml"
    file.write_text(DEFINITION.format(name=name) + more)
    return file


def write_folder(folder: Path) -> None:
    """Write `orders`, which ran and has three refused rows, and `items`, which is scheduled and reads a table of it."""
    assert Pipeline.load(write_pipeline(folder, "orders", rows={1: 10, 3: 30})).run().read == 2
    write_pipeline(folder, "orders", rows={7: 70})
    write_refused(folder, "orders", 3, ["PARSE", "CAST"])
    write_pipeline(folder, "items", "schedule: {every: 1h}\n", rows={1: 1})


@contextmanager
def serve(folder: Path) -> Iterator[tuple[str, str]]:
    """Serve a folder inside the block. Yield the address and a token with every right."""
    server = Server.open(ServerOptions(directory=folder, port=0))
    with server.listen() as address:
        try:
            yield address, server.own_token
        finally:
            server.stop("the test is over")


@contextmanager
def reach(folder: Path) -> Iterator[RemoteFolder]:
    """Serve a folder inside the block. Yield its pipelines as a command sees them."""
    with serve(folder) as (address, token):
        yield RemoteFolder.open(address, token)
