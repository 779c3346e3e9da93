"""The webhook: another program says with a signature that something arrived, and a run of the pipeline begins.

The signature is that of Standard Webhooks. What the body says is not used.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import re
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from origins.secret import make_mask
from runners.model.clock import Clock
from runners.model.errors import Refusal
from runners.model.spec import PipelineSpec
from runners.operations.status import describe_state
from runners.schedules.schedule_plan import ScheduleCatalog
from runners.service import messages
from runners.service.access.guard import Guard
from runners.service.changing import start_run
from runners.service.operation import Caller, NotFound, Operation, Right, TooMuch, Unauthenticated
from runners.service.service import Service
from runners.service.tasks import repeat
from runners.state.location import StateLocation

PATH = "/v1/pipelines/{pipeline}/hooks/arrival"
WINDOW = 300.0
"""How many seconds the sender's clock may differ, and for how long a request can be sent again."""
EVERY = 1.0
"""How many seconds pass between two looks at the pipelines that wait for a run."""
AGAIN = 30.0
"""How many seconds pass before a run is tried again that could not begin."""
LARGEST = 64 << 10
"""How many bytes the body of a request may have."""
_ID = re.compile(r"[!-\-/-~]{1,200}")
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


def check_headers(key: bytes, signature: Signature, clock: Clock) -> None:
    """Raise `Unauthenticated` for a time outside the window, and for an id that leaves open what was signed.

    Raise `NotFound` without a key.
    """
    if not key:
        raise NotFound("This server has no webhook.", hint="Set WHERRY_WEBHOOK_SECRET for `wherry serve`.")
    timestamp = signature.timestamp
    is_number = timestamp.isascii() and timestamp.isdecimal() and len(timestamp) < 20
    is_now = is_number and abs(clock.now().timestamp() - int(timestamp)) <= WINDOW
    if not (is_now and _ID.fullmatch(signature.id)):
        raise _refuse()


def check_body(key: bytes, signature: Signature, body: bytes) -> None:
    """Raise `Unauthenticated` unless a holder of the key signed this."""
    expected = sign(key, signature.id, signature.timestamp, body).encode()
    given = [each.encode() for each in signature.signatures.split(" ")]
    if not any(hmac.compare_digest(expected, each) for each in given):
        raise _refuse()


def _refuse() -> Unauthenticated:
    return Unauthenticated(
        "This request has no valid signature, or it is older than five minutes.",
        hint="Sign it with the secret of the server, as Standard Webhooks describes, and check the sender's clock. "
        "webhook-id has 1 to 200 letters without spaces and full stops.",
    )


def note_arrival(service: Service, caller: Caller, ask: messages.StartRun) -> messages.Arrival:
    """Let a run begin, or follow the run that works."""
    service.find(ask.pipeline)
    service.arrivals.note(ask.pipeline, ask.reason)
    return messages.Arrival(pipeline=ask.pipeline)


ARRIVAL = Operation(
    act=note_arrival, method="POST", path=PATH, ask=messages.StartRun, answer=messages.Arrival, right=Right.OPERATE
)
"""The operation. It is not in the table, because its caller has a signature in the place of a token."""


def take_in(service: Service, guard: Guard, key: bytes, pipeline: str, signature: Signature, body: bytes) -> object:
    """Answer a request whose headers were checked. A request that comes again begins nothing.

    The file of the arrival makes it count once. So each request has a key of its own, and none is refused for good.
    """
    check_body(key, signature, body)
    guard.count(SENDER.name)
    ask = messages.StartRun(pipeline=pipeline, reason=f"{REASON}: {signature.id}")
    return service.answer(ARRIVAL, SENDER, ask, uuid.uuid4().hex)


@dataclass(kw_only=True)
class Starter:
    """Begins a run for each pipeline that waits for one. What waits is in files, so that it outlives the server."""

    service: Service
    start: Callable[[str], messages.Task] | None = None
    """Begins a run of a pipeline as a task. By default, it is a run of the service."""
    _begun: dict[str, tuple[str, Sequence[Path]]] = field(default_factory=dict)
    """By pipeline, the task that carries it, and what had arrived before it began."""
    _put_off: dict[str, float] = field(default_factory=dict)
    """By pipeline, until when nothing begins."""
    _ended: threading.Event = field(default_factory=threading.Event)

    def follow(self) -> None:
        """Look again and again, until `end` is called."""
        repeat(self.look, EVERY, self._ended)

    def end(self) -> None:
        """Let `follow` end soon."""
        self._ended.set()

    def look(self) -> None:
        """Begin what waits, and settle what waited for a run that has ended."""
        for name in [*self._begun]:
            self._settle(name)
        waiting = self.service.arrivals.list_waiting()
        catalog = self.service.list_definitions() if waiting else ScheduleCatalog()
        now = self.service.clock.elapsed()
        for name in sorted(waiting.keys() - self._begun.keys()):
            if name not in catalog.definitions and not catalog.broken:
                self.service.arrivals.settle(waiting[name])
            elif name in catalog.definitions and now >= self._put_off.get(name, now):
                self._begin(catalog.definitions[name].pipeline, waiting[name])

    def _settle(self, name: str) -> None:
        """Settle what waited for this pipeline's run, if the run has ended. If none took place, another begins later.

        Only a task that ended can be forgotten. What it did is not known then.
        """
        task, arrived = self._begun[name]
        try:
            carried: messages.Task | None = self.service.tasks.get(task)
        except NotFound:
            carried = None
        if self._ended.is_set() or (carried is not None and carried.ended_at is None):
            return
        if carried is not None and (carried.state != "failed" or carried.result is not None):
            self.service.arrivals.settle(arrived)
        else:
            self._put_off[name] = self.service.clock.elapsed() + AGAIN
        del self._begun[name]

    def _begin(self, pipeline: PipelineSpec, arrived: Sequence[Path]) -> None:
        """Begin a run, unless one works or the pipeline is paused."""
        name, place = pipeline.name, StateLocation.of(pipeline)
        self._put_off[name] = self.service.clock.elapsed() + AGAIN
        try:
            state = "" if place.needs_spark else describe_state(place, place.open_journal(pipeline).state)
            if state not in ("running", "paused"):
                self._begun[name] = (self.start or self._start)(name).task, arrived
                del self._put_off[name]
        except TooMuch:
            del self._put_off[name]
        except Exception as error:  # noqa: BLE001 -- one pipeline keeps no other away
            mask = make_mask(self.service.hidden)
            log.warning("The run of %s that a webhook asked for cannot begin yet: %s", name, mask(str(error)))

    def _start(self, name: str) -> messages.Task:
        return start_run(self.service, SENDER, messages.StartRun(pipeline=name, reason=REASON))
