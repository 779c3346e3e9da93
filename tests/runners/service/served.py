"""A server of a folder of pipelines, and a caller of it, for tests. No pipeline here needs Spark."""

from __future__ import annotations

import http.client
import json
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from origins.lazy import SparkSession
from origins.nack import DLQ_COLUMNS, parse_columns
from runners.model.clock import Clock
from runners.model.errors import Refusal
from runners.pipeline import Pipeline
from runners.service.access.guard import Guard
from runners.service.access.tokens import RightName, Tokens, make_own_token
from runners.service.rest import make_app
from runners.service.search.indexer import Indexer
from runners.service.service import Service, SharedSpark
from runners.service.serving import ServerOptions, answer_over_http, make_indexer, make_service
from tests.manual_clock import ManualClock

DEFINITION = """
name: {name}
origin:
  files: {{path: "landing/{name}/*.json", format: json, schema: "id long, amount long"}}
destinations:
  - delta: {{path: tables/{name}}}
dlq: {{window: 0}}
run: {{batch: {{files: 1}}, runners: 1}}
"""
SCHEDULED = "schedule: {every: 1h}\n"


@dataclass
class QuickClock(ManualClock):
    """A clock that moves a second whenever it is read, so that no caller asks too often."""

    def elapsed(self) -> float:
        self.move(1.0)
        return super().elapsed()


class NoSpark(SharedSpark):
    """A Spark that never starts, so that a task that needs it fails at once and changes nothing."""

    def open(self) -> SparkSession:
        raise Refusal("This server has no Spark.")


@dataclass(frozen=True)
class Reply:
    """What the server answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)


@dataclass(kw_only=True)
class Served:
    """A server that listens, and its folder."""

    folder: Path
    service: Service
    guard: Guard
    address: str = ""
    tokens: dict[str, str] = field(default_factory=dict)
    """The token of each caller that `add_caller` made. `owner` has every right."""

    @property
    def port(self) -> int:
        """The port at which the server listens."""
        return int(urlsplit(self.address).port or 0)

    def add_caller(self, name: str, right: RightName, *pipelines: str, lasts: float | None = None) -> str:
        """Make a token for a caller, and return the caller's name."""
        self.tokens[name] = self.guard.tokens.add(name, right, pipelines=pipelines, lasts=lasts)
        return name

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        by: str = "owner",
        key: str | None = None,
        headers: Mapping[str, str | None] | None = None,
        timeout: float = 20.0,
    ) -> Reply:
        """Send a request, and return the answer. A change gets a new key, unless one is given.

        A header of None is left out.
        """
        given: dict[str, str | None] = {"Authorization": f"Bearer {self.tokens[by]}"}
        if method not in ("GET", "HEAD"):
            given["Idempotency-Key"] = uuid.uuid4().hex if key is None else key
        sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        if sent is not None:
            given["Content-Type"] = "application/json"
        given |= headers or {}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, sent, {name: each for name, each in given.items() if each is not None})
            answer = connection.getresponse()
            return Reply(answer.status, {name.lower(): each for name, each in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str, *, by: str = "owner") -> Any:
        """Return what a question is answered. It must be answered."""
        reply = self.ask("GET", path, by=by)
        assert reply.status == 200, reply
        return reply.json()

    def read_log(self) -> list[dict[str, Any]]:
        """Return the lines of the log of changes."""
        file = self.service.deeds.log
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def write_pipeline(folder: Path, name: str, more: str = "", rows: Mapping[int, Any] | None = None) -> Path:
    """Write a definition, and a file with these amounts by id. Return the definition's file."""
    landing = folder / "landing" / name
    landing.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"id": id_, "amount": amount}) + "\n" for id_, amount in (rows or {}).items()]
    if lines:
        (landing / f"{len(list(landing.iterdir()))}.json").write_text("".join(lines))
    file = folder / f"{name}.yaml"
    file.write_text(DEFINITION.format(name=name) + more)
    return file


def write_refused(folder: Path, name: str, count: int, codes: Sequence[str] = ("PARSE",), first: int = 1) -> None:
    """Let a pipeline have refused rows, as if an origin could not read them. Their ids are `plan/1` and so on.

    The rows have the codes by turns.
    """
    kinds = {"string": pa.string(), "long": pa.int64(), "timestamp": pa.timestamp("us", "UTC")}
    schema = pa.schema(
        [
            (each.name, kinds.get(each.dataType.typeName(), pa.list_(pa.string())))
            for each in parse_columns(DLQ_COLUMNS).fields
        ]
    )
    rows = [
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
            "code": codes[(number - 1) % len(codes)],
            "message": f"column amount: 'x{number}' is not a bigint",
            "row": json.dumps({"raw": f"x{number}"}),
            "part": f"{number}.json",
            "position": number,
            "nacked_at": datetime(2026, 1, 1, 0, 0, number % 60, tzinfo=timezone.utc),
        }
        for number in range(first, first + count)
    ]
    write_deltalake(folder / ".wherry" / name / "dlq", pa.Table.from_pylist(rows, schema), mode="append")


def write_pipelines(folder: Path) -> None:
    """Write `orders`, which ran and has two refused rows, `items`, which is scheduled, and a broken definition."""
    file = write_pipeline(folder, "orders", rows={1: 10, 3: 30})
    assert Pipeline.load(file).run().read == 2
    write_refused(folder, "orders", 2)
    write_pipeline(folder, "items", SCHEDULED, rows={1: 1})
    (folder / "broken.yaml").write_text("name: broken\norigin: {nowhere: {}}\ndestinations: []\n")


@contextmanager
def serve(folder: Path, *, clock: Clock | None = None, spark: bool = False, **options: Any) -> Iterator[Served]:
    """Serve a folder inside the block. Tasks get a Spark only with `spark`."""
    chosen = ServerOptions(directory=folder, port=0, at_once=2, **options)
    service = make_service(chosen, Clock())
    if not spark:
        service.spark = NoSpark(list_pipelines=list)
    tokens = Tokens(file=folder / ".wherry" / "server" / "tokens.json", clock=clock or Clock(), own=make_own_token())
    guard = Guard(tokens=tokens, clock=clock or QuickClock())
    served = Served(folder=folder, service=service, guard=guard, tokens={"owner": tokens.own})
    with answer_over_http(make_app(service, guard), chosen) as served.address:
        try:
            yield served
        finally:
            service.happenings.end()
            service.tasks.end("the test is over")


@pytest.fixture(scope="session")
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that `write_pipelines` wrote. Tests copy it."""
    folder = tmp_path_factory.mktemp("pipelines")
    write_pipelines(folder)
    return folder


@pytest.fixture
def served(pipelines: Path, tmp_path: Path) -> Iterator[Served]:
    """A server of three definitions, one of which is broken."""
    shutil.copytree(pipelines, tmp_path, dirs_exist_ok=True)
    with serve(tmp_path) as found:
        yield found


@pytest.fixture
def indexer(served: Served) -> Iterator[Indexer]:
    """The indexer of a server, which has looked once."""
    made = make_indexer(served.service)
    made.look()
    yield made
    made.end()
