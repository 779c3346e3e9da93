"""A folder of pipelines that need no Spark, a real server of it, and commands that are typed to both."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from origins.nack import DLQ_COLUMNS, parse_columns
from runners.pipeline import Pipeline
from runners.service.remote import RemoteFolder
from runners.service.serving import Server, ServerOptions

DEFINITION = """
name: {name}
origin:
  files: {{path: "landing/{name}/*.json", format: json, schema: "id long, amount long"}}
destinations:
  - delta: {{path: tables/{name}}}
dlq: {{window: 0}}
run: {{batch: {{files: 1}}, runners: 1}}
"""


def write_pipeline(folder: Path, name: str, more: str = "", rows: Mapping[int, int] | None = None) -> Path:
    """Write a definition, and a file for each of these rows. Return the definition's file."""
    landing = folder / "landing" / name
    landing.mkdir(parents=True, exist_ok=True)
    for id_, amount in (rows or {}).items():
        (landing / f"{id_}.json").write_text(json.dumps({"id": id_, "amount": amount}) + "\n")
    file = folder / f"{name}.yaml"
    file.write_text(DEFINITION.format(name=name) + more)
    return file


def refuse_rows(folder: Path, name: str, count: int) -> None:
    """Let a pipeline have refused rows, as if an origin could not read them. Their ids are `plan/1` and so on."""
    kinds = {"string": pa.string(), "long": pa.int64(), "timestamp": pa.timestamp("us", "UTC")}
    columns = parse_columns(DLQ_COLUMNS).fields
    schema = pa.schema([(each.name, kinds.get(each.dataType.typeName(), pa.list_(pa.string()))) for each in columns])
    rows: list[dict[str, Any]] = [
        {
            "id": f"plan/{number}",
            "pipeline": name,
            "origin": "files",
            "lane": "0",
            "number": 1,
            "plan": "plan",
            "run": "run",
            "stage": "origin",
            "delivered_to": [],
            "code": "PARSE" if number % 2 else "CAST",
            "message": f"column amount: 'x{number}' is not a bigint",
            "row": json.dumps({"raw": f"x{number}"}),
            "part": f"{number}.json",
            "position": number,
            "nacked_at": datetime(2026, 1, 1, 0, 0, number % 60, tzinfo=timezone.utc),
        }
        for number in range(1, count + 1)
    ]
    write_deltalake(folder / ".wherry" / name / "dlq", pa.Table.from_pylist(rows, schema), mode="append")


def write_folder(folder: Path) -> None:
    """Write `orders`, which ran and has three refused rows, and `items`, which is scheduled and reads a table of it."""
    assert Pipeline.load(write_pipeline(folder, "orders", rows={1: 10, 3: 30})).run().read == 2
    write_pipeline(folder, "orders", rows={7: 70})
    refuse_rows(folder, "orders", 3)
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
