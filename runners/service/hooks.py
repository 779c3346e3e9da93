"""The webhook: another program says with a signature that something arrived, and a run of the pipeline begins.

The signature is that of Standard Webhooks. What the body says is not used.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from origins.errors import WherryError
from runners.model.clock import Clock
from runners.model.errors import Refusal
from runners.service import messages
from runners.service.changing import start_run
from runners.service.guard import Guard
from runners.service.operation import Caller, NotFound, Operation, Right, TooMuch, Unauthenticated
from runners.service.service import Service

PATH = "/v1/pipelines/{pipeline}/hooks/arrival"
WINDOW = 300.0
"""How many seconds the sender's clock may differ, and for how long a request can be sent again."""
EVERY = 1.0
"""How many seconds pass between two looks at the pipelines that wait for a run."""
_SHORTEST = 24
"""How many bytes a secret must have."""
SENDER = Caller(name="webhook", right=Right.OPERATE)
"""In whose name runs begin."""
REASON = "a webhook reported an arrival"
log = logging.getLogger("wherry")


@dataclass(frozen=True)
class Signature:
    """What a request says about itself: its headers."""

    id: str
    timestamp: str
    signatures: str


def read_secret(text: str) -> bytes:
    """Return the key of a secret. Raise `Refusal` if it is too short. `whsec_` announces base64."""
    text = text.strip()
    try:
        key = (
            base64.b64decode(text.removeprefix("whsec_"), validate=True) if text.startswith("whsec_") else text.encode()
        )
    except ValueError as error:
        raise Refusal("The secret of the webhook is not base64 after `whsec_`.") from error
    if len(key) < _SHORTEST:
        raise Refusal(f"The secret of the webhook has {len(key)} bytes, and needs {_SHORTEST}.")
    return key


def sign(key: bytes, id_: str, timestamp: str, body: bytes) -> str:
    """Return the signature of a request."""
    signed = hmac.new(key, f"{id_}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(signed).decode()}"


def check(key: bytes, signature: Signature, body: bytes, clock: Clock) -> None:
    """Raise `Unauthenticated` unless a holder of the key signed this within the window."""
    timestamp = signature.timestamp
    expected = sign(key, signature.id, timestamp, body).encode()
    given = [each.encode() for each in signature.signatures.split(" ")]
    is_signed = any(hmac.compare_digest(expected, each) for each in given)
    is_number = timestamp.isascii() and timestamp.isdecimal() and len(timestamp) < 20
    if not (is_signed and is_number and abs(clock.now().timestamp() - int(timestamp)) <= WINDOW):
        raise Unauthenticated(
            "This request has no valid signature, or it is older than five minutes.",
            hint="Sign it with the secret of the server, as Standard Webhooks describes, and check the sender's clock.",
        )


def note_arrival(service: Service, caller: Caller, ask: messages.StartRun) -> messages.Arrival:
    """Let a run begin, or follow the run that works."""
    service.find(ask.pipeline)
    service.arrivals.note(ask.pipeline)
    return messages.Arrival(pipeline=ask.pipeline)


ARRIVAL = Operation(
    act=note_arrival, method="POST", path=PATH, ask=messages.StartRun, answer=messages.Arrival, right=Right.OPERATE
)
"""The operation. It is not in the table, because its caller has a signature in the place of a token."""


def take_in(service: Service, guard: Guard, key: bytes, pipeline: str, signature: Signature, body: bytes) -> object:
    """Answer a request. A request that comes again gets the first answer, and begins nothing."""
    if not key:
        raise NotFound("This server has no webhook.", hint="Set WHERRY_WEBHOOK_SECRET for `wherry serve`.")
    check(key, signature, body, service.clock)
    guard.count(SENDER.name)
    ask = messages.StartRun(pipeline=pipeline, reason=REASON)
    return service.answer(ARRIVAL, SENDER, ask, signature.id)


@dataclass(kw_only=True)
class Starter:
    """Begins a run for each pipeline that waits for one. What waits is in files, so that it outlives the server."""

    service: Service
    start: Callable[[str], messages.Task] | None = None
    """Begins a run of a pipeline as a task. By default, it is a run of the service."""
    _begun: dict[str, tuple[str, Sequence[Path]]] = field(default_factory=dict)
    """By pipeline, the task that carries it, and what had arrived before it began."""
    _ended: threading.Event = field(default_factory=threading.Event)

    def follow(self) -> None:
        """Look again and again, until `end` is called."""
        while not self._ended.wait(EVERY):
            self.look()

    def end(self) -> None:
        """Let `follow` end soon."""
        self._ended.set()

    def look(self) -> None:
        """Begin what waits, and forget what has begun and ended. A run that another run keeps away is tried again."""
        arrivals = self.service.arrivals
        for name, (task, arrived) in [*self._begun.items()]:
            carried = self.service.tasks.get(task)
            if self._ended.is_set():
                return
            if carried.ended_at is not None:
                del self._begun[name]
                if carried.problem is None or carried.problem.code != "OWNED":
                    arrivals.settle(arrived)
        for name, arrived in arrivals.list_waiting().items():
            if name not in self._begun:
                try:
                    self._begun[name] = (self.start or self._start)(name).task, arrived
                except TooMuch:
                    continue
                except WherryError as error:
                    log.warning("The run of %s that a webhook asked for cannot begin: %s", name, error.message)
                    arrivals.settle(arrived)

    def _start(self, name: str) -> messages.Task:
        return start_run(self.service, SENDER, messages.StartRun(pipeline=name, reason=REASON))
