"""The contract of an operation: what a caller asks, what the service answers, and which right that needs.

REST and gRPC are made from the table of operations, so both answer the same.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from origins.errors import WherryError

APPROVED = ", approved by "
"""What stands between the two names of a planned change. No caller has it in its own name."""


class Right(enum.IntEnum):
    """What a caller may do. A higher right includes the lower ones."""

    READ = 1
    """See everything, and change nothing."""
    OPERATE = 2
    """Start and stop runs, and decide about refused rows."""
    ADMIN = 3
    """Move offsets, repair, process old batches again, and change definitions."""


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The sender of a question."""

    name: str
    right: Right
    pipelines: frozenset[str] | None = None
    """The pipelines that the caller may see. None means all."""
    is_stored: bool = field(default=False, compare=False)
    """Whether the server keeps the token of this caller, so that the caller can be looked up again."""

    def may_see(self, pipeline: str) -> bool:
        """Whether the caller may see this pipeline."""
        return self.pipelines is None or pipeline in self.pipelines


class Ask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a caller asks. A field that is not known is refused."""


class AskPipeline(Ask, frozen=True, kw_only=True):
    """A question about one pipeline."""

    pipeline: str
    """The name of the pipeline."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What the service answers."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One thing that a caller can ask for."""

    act: Callable[[Any, Caller, Any], Any]
    """Answers it, from the service, the caller and the question.

    Its name is the name of the operation, and its docstring is the documentation.
    """
    method: str
    """The method of HTTP. Everything but `GET` changes something."""
    path: str
    """The path of HTTP. A name in braces is a field of the question."""
    ask: type[Ask]
    answer: type[Reply]
    right: Right = Right.READ
    """The right that it needs."""
    waits: bool = False
    """Whether its answer may take long. It then has threads of its own, so that no other operation waits for it."""
    streams: bool = False
    """Whether it answers many times, until the caller has enough. `act` then returns an iterator."""

    @property
    def name(self) -> str:
        """Its name, such as `list_pipelines`."""
        return self.act.__name__

    @property
    def title(self) -> str:
        """Its name in gRPC, such as `ListPipelines`."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def summary(self) -> str:
        """What it does, in a sentence."""
        return (self.act.__doc__ or "").partition("\n")[0]

    @property
    def changes(self) -> bool:
        """Whether it changes something."""
        return self.method != "GET"

    @property
    def path_fields(self) -> Iterator[str]:
        """The fields of the question that are in the path."""
        return (part[1:-1] for part in self.path.split("/") if part.startswith("{"))


ENCODER = msgspec.json.Encoder(enc_hook=str)
"""Encodes answers. Names and paths of Wherry are texts of classes of their own."""


class NotFound(WherryError):
    """What the caller named does not exist."""

    code = "NOT_FOUND"


class Forbidden(WherryError):
    """The caller has not the right to do this."""

    code = "FORBIDDEN"


class Unauthenticated(WherryError):
    """The caller sent no token, or its token is not known."""

    code = "UNAUTHENTICATED"


class Invalid(WherryError):
    """The question is not complete, or has a wrong value."""

    code = "INVALID"


class TooMuch(WherryError):
    """The caller asks too often, or for too much."""

    code = "TOO_MUCH"


class NotKept(WherryError):
    """The server cannot log a change, so it does not do it."""

    code = "NOT_KEPT"


class KeyTaken(WherryError):
    """The idempotency key belongs to another change, or to one whose end is not known."""

    code = "KEY_TAKEN"


class Changed(WherryError):
    """What the caller wants to change is not what the caller has seen."""

    code = "CHANGED"
