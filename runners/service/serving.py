"""Starts a server: the schedule of a folder, REST, gRPC and the page, in one process on one Spark."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from origins.errors import WherryError
from runners.definitions.definition import Definition, DefinitionsFolder, load
from runners.listeners.metrics import Metrics
from runners.model.clock import Clock
from runners.model.errors import Refusal
from runners.model.events import Listener
from runners.model.schedule_events import ScheduleListener
from runners.model.spec import PipelineSpec
from runners.operations.status import measure_known_lags
from runners.schedules.run_marks import RunGroups
from runners.schedules.schedule_plan import open_marks
from runners.schedules.scheduler import RunOutcome, RunThreads, Scheduler, Stop
from runners.schedules.scheduling import make_carrier
from runners.service.access.guard import Guard
from runners.service.access.issuer import Issuer
from runners.service.access.tokens import Tokens, make_own_token
from runners.service.arrivals import Arrivals
from runners.service.deeds import Deeds
from runners.service.definition_rules import DefinitionRules
from runners.service.grpc_server import answer_over_grpc
from runners.service.happenings import Happenings
from runners.service.hooks import Starter, read_secret
from runners.service.operations import OPERATIONS
from runners.service.plans import Plans
from runners.service.reading import read_overview
from runners.service.rest import make_app
from runners.service.search import open_index
from runners.service.search.indexer import Indexer
from runners.service.service import Service, SharedSpark
from runners.service.tasks import Tasks

SLOWEST = 20.0
"""How many seconds the server waits for tasks at its end."""
PATIENCE = 10.0
"""How many seconds a caller may take for the header of a request."""
MOST_CONNECTIONS = 400
"""How many connections get an answer at a time. A process may have some 1,000 open files, and runs need some."""


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Where and how a server works."""

    directory: Path
    """The directory with the definitions."""
    host: str = "127.0.0.1"
    port: int = 8400
    """The port of REST and the page. With 0 the system chooses one."""
    grpc_port: int = 0
    """The port of gRPC, chosen in the same way."""
    allowed_hosts: Collection[str] = ()
    """The names by which callers reach the server, beside those of the loopback and `host`."""
    at_once: int = field(default_factory=lambda: os.cpu_count() or 1)
    """How many pipelines the schedule runs at a time, and how many tasks work at a time."""
    groups: Mapping[str, int] = field(default_factory=dict)
    """How many runs of a group of pipelines work at a time. Every other group has one."""
    variables: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    note_secrets: Callable[[Mapping[str, str]], None] = lambda _: None
    definition_roots: Sequence[str] = ()
    """The folders and URLs below which definitions of callers may name places."""
    parameters: Collection[str] = ()
    """The names that callers may give values to."""
    provider: tuple[str, str] | None = None
    """The address of an identity provider, and the audience that its tokens must name."""
    tls: tuple[Path, Path] | None = None
    """The files with the certificate and its key."""
    webhook_secret: str = field(default="", repr=False)
    """What senders of webhooks sign with. Empty if there are none."""
    index_address: str = field(default="", repr=False)
    """The address of the PostgreSQL that has the search index. Empty: it is in a file of the directory."""


def open_tokens(directory: Path, own: str = "") -> Tokens:
    """Return the tokens of the server of a folder."""
    return Tokens(file=directory / ".wherry" / "server" / "tokens.json", clock=Clock(), own=own)


@dataclass(kw_only=True)
class Server:
    """A server: its service, its scheduler and its guard."""

    options: ServerOptions
    service: Service
    scheduler: Scheduler
    guard: Guard
    grpc_address: str = ""
    """Where gRPC answers while the server listens, such as `127.0.0.1:8401`."""
    starter: Starter = field(init=False)
    """Begins the runs that webhooks ask for."""
    _stops: queue.SimpleQueue[tuple[str, bool]] = field(default_factory=queue.SimpleQueue)

    def __post_init__(self) -> None:
        self.starter = Starter(service=self.service)

    @staticmethod
    def open(options: ServerOptions, listeners: Sequence[ScheduleListener] = ()) -> Server:
        """Return the server of a folder. Raise `Refusal` if the folder does not exist or cannot be written."""
        clock = Clock()
        service = make_service(options, clock)
        scheduler = make_scheduler(service, options, clock, listeners)
        tokens = open_tokens(options.directory, own=make_own_token())
        provider = options.provider
        issuer = None if provider is None else Issuer(url=provider[0], audience=provider[1], clock=clock)
        guard = Guard(tokens=tokens, clock=clock, issuer=issuer, hosts=options.allowed_hosts)
        return Server(options=options, service=service, scheduler=scheduler, guard=guard)

    @property
    def own_token(self) -> str:
        """A token with every right, which ends with the server."""
        return self.guard.tokens.own

    @property
    def hook_key(self) -> bytes:
        """The key of webhooks. Empty if there are none."""
        return read_secret(self.options.webhook_secret) if self.options.webhook_secret else b""

    @property
    def error(self) -> str:
        """Why the server cannot continue. Empty while it can."""
        return self.scheduler.error

    def run(self) -> None:
        """Run the pipelines of the folder when they are due, until `stop` is called and all runs have ended."""
        threading.Thread(target=self._end_tasks, name="wherry-stop", daemon=True).start()
        indexer = make_indexer(self.service, is_busy=lambda: bool(self.scheduler.due_queue.running))
        threading.Thread(target=indexer.follow, name="wherry-index", daemon=True).start()
        threading.Thread(target=self.starter.follow, name="wherry-arrivals", daemon=True).start()
        self.service.metrics.ready = True
        self.scheduler.run()
        indexer.end()
        self.service.tasks.wait(SLOWEST)

    def stop(self, reason: str, *, force: bool = False) -> None:
        """Begin nothing more. Batches in flight finish, or not with `force`. A signal handler may call this."""
        self.service.metrics.ready = False
        self.starter.end()  # before its runs are stopped, so that the next server begins them
        self.scheduler.stop(reason, force=force)
        self._stops.put((reason, force))

    def _end_tasks(self) -> None:
        """End the tasks whenever a stop is asked for. Stopping a task may write to a ledger, which no handler may."""
        while True:
            reason, force = self._stops.get()
            self.service.tasks.end(reason, force=force)

    @contextlib.contextmanager
    def listen(self) -> Iterator[str]:
        """Answer callers inside the block. Yield the address of REST. Raise `Refusal` if a port cannot be opened."""
        options = self.options
        with (
            answer_over_http(make_app(self.service, self.guard, self.hook_key), options) as address,
            answer_over_grpc(self.service, self.guard, options.host, options.grpc_port, options.tls) as grpc_address,
        ):
            self.grpc_address = grpc_address
            try:
                yield address
            finally:
                self.service.happenings.end()


def make_service(options: ServerOptions, clock: Clock) -> Service:
    """Return the service of a folder. Raise `Refusal` if the folder does not exist or its notes cannot be written."""
    hidden: dict[str, str] = {}

    def note_secrets(secrets: Mapping[str, str]) -> None:
        hidden.update(secrets)
        options.note_secrets(secrets)

    read = partial(load, variables=options.variables, secrets=options.secrets, note_secrets=note_secrets)
    folder = DefinitionsFolder(path=options.directory, load=partial(read, needs_secrets=False))
    folder.open()
    metrics, happenings, marks = Metrics(clock), Happenings(clock), open_marks(options.directory)

    def make_listeners(pipeline: PipelineSpec) -> Sequence[Listener]:
        metrics.watch_lag(pipeline.name, lambda: measure_known_lags(pipeline))
        return [metrics.of(pipeline.name), happenings.of(pipeline.name, pipeline.secrets)]

    def list_pipelines() -> Sequence[PipelineSpec]:
        return [each.pipeline for each in service.list_definitions().definitions.values()]

    service = Service(
        folder=folder,
        tasks=Tasks(clock, options.at_once, RunGroups(marks.folder / "groups", options.groups)),
        deeds=Deeds(options.directory / ".wherry" / "server", clock),
        happenings=happenings,
        metrics=metrics,
        marks=marks,
        spark=SharedSpark(list_pipelines=list_pipelines),
        plans=Plans(clock, OPERATIONS),
        index=open_index(options.index_address, options.directory / ".wherry" / "server" / "index.sqlite"),
        arrivals=Arrivals(options.directory / ".wherry" / "server" / "arrivals"),
        clock=clock,
        read_overview=read_overview,
        load=read,
        rules=DefinitionRules(
            folder=options.directory,
            roots=options.definition_roots,
            parameters=options.parameters,
            variables=options.variables,
        ),
        look_up=open_tokens(options.directory).look_up,
        make_listeners=make_listeners,
        hidden=hidden,
    )
    return service


def make_indexer(service: Service, is_busy: Callable[[], bool] = lambda: False) -> Indexer:
    """Return what fills the search index of a service. It rests while a run or a task works."""

    def is_any_busy() -> bool:
        return is_busy() or any(task.state == "working" for task in service.tasks.list_all())

    return Indexer(
        index=service.index,
        list_definitions=service.list_definitions,
        hidden=service.hidden,
        is_busy=is_any_busy,
        clock=service.clock,
    )


def make_scheduler(
    service: Service, options: ServerOptions, clock: Clock, listeners: Sequence[ScheduleListener]
) -> Scheduler:
    """Return the scheduler of the server's folder. Spark starts with the first run."""

    def carry(definition: Definition, stoppable: Callable[[Stop], None]) -> RunOutcome:
        try:
            spark = service.spark.open()
        except WherryError as error:
            return RunOutcome(name=definition.pipeline.name, status="failed", message=str(error))
        return make_carrier(spark, lambda each: service.make_listeners(each.pipeline))(definition, stoppable)

    return Scheduler(
        folder=DefinitionsFolder(path=options.directory, load=service.load),
        marks=service.marks,
        run_workers=RunThreads(carry),
        at_once=options.at_once,
        groups=service.tasks.groups,
        clock=clock,
        listeners=[service.metrics, service.happenings, *listeners],
    )


@contextlib.contextmanager
def answer_over_http(app: ASGIApp, options: ServerOptions) -> Iterator[str]:
    """Let an application answer inside the block. Yield the address. Raise `Refusal` for a port in use."""
    config = uvicorn.Config(
        app,
        http=_PatientProtocol,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=int(PATIENCE),
        timeout_graceful_shutdown=2,
        h11_max_incomplete_event_size=32 << 10,
        ssl_certfile=str(options.tls[0]) if options.tls else None,
        ssl_keyfile=str(options.tls[1]) if options.tls else None,
    )
    try:
        config.load()
    except OSError as error:
        raise Refusal(
            f"The certificate or its key cannot be used: {error}.", hint="Both are files in the PEM format."
        ) from error
    opened = _open_port(options.host, options.port)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([opened],), name="wherry-server", daemon=True)
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        scheme = "https" if options.tls else "http"
        name = f"[{options.host}]" if ":" in options.host else options.host
        yield f"{scheme}://{name}:{opened.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(SLOWEST)


class _PatientProtocol(H11Protocol):
    """HTTP for slow callers. It leaves a caller without a whole header in time, and callers beyond a limit."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > 2 * MOST_CONNECTIONS:
            transport.abort()
        else:
            self.loop.call_later(PATIENCE, self._leave_unless_asked, None)

    def _leave_unless_asked(self, before: object) -> None:
        """Leave the caller if it asked nothing since the request `before`, and waits for no answer."""
        if self.transport.is_closing():
            return
        asks = self.cycle is not None and not self.cycle.response_complete
        if self.cycle is before and not asks:
            self.transport.abort()
        else:
            self.loop.call_later(PATIENCE, self._leave_unless_asked, self.cycle)


def _open_port(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=MOST_CONNECTIONS)
        # asyncio sends small answers at once only on a socket that names TCP as its protocol
        return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=listening.detach())
    except (OSError, UnicodeError) as error:
        raise Refusal(
            f"The server cannot listen at {host}:{port}: {getattr(error, 'strerror', error)}.",
            hint="Choose another port with --port, or end the program that uses this port.",
        ) from error
