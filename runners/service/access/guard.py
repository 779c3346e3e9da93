"""Which callers may come in: the token of a caller, how often it asks, and from which web sites."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar
from urllib.parse import urlsplit

from runners.model.clock import Clock
from runners.service.access.issuer import Issuer
from runners.service.access.tokens import OUTSIDE, TAKEN, Tokens
from runners.service.operation import APPROVED, Caller, Forbidden, TooMuch, Unauthenticated

A = TypeVar("A")
RATE, BURST = 100.0, 400.0
"""How many requests a caller may send in a second for long, and how many at once."""
RECOGNISE_EVERY = 1.0
"""After how many seconds the token of a stream is looked up again."""
_DOTS = 2
"""How many dots a signed token of an identity provider has. A token of this server has none."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(kw_only=True)
class Guard:
    """The checks before anything else is done with a request."""

    tokens: Tokens
    clock: Clock
    issuer: Issuer | None = None
    """The identity provider whose tokens count too."""
    hosts: Collection[str] = ()
    """The names of the server, beside those of the loopback. A web site that sends a request gives another name."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _left: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By caller, how many requests are left, and when that was counted."""

    def check_source(self, host: str, origin: str | None) -> None:
        """Raise `Forbidden` for a request for another host, or from a page of another web site."""
        name, _ = _read_host(f"//{host}")
        if name not in (*_LOOPBACK, *(each.lower() for each in self.hosts)):
            raise Forbidden(
                "This server does not answer for this host.", hint="Name it:  wherry serve DIR --allow-host NAME"
            )
        if origin is not None and _read_host(origin) != _read_host(f"//{host}"):
            raise Forbidden("This server does not answer to pages of other web sites.")

    def admit(self, authorization: str) -> Caller:
        """Return the caller with the token of this header.

        Raise `Unauthenticated` without a known token, and `TooMuch` if the caller asks too often.
        """
        caller = self._recognise(authorization)
        self.count(caller.name)
        return caller

    def follow(self, authorization: str, caller: Caller, answers: Iterable[A]) -> Iterator[A]:
        """Yield the answers of a stream while the token of this header is the caller's.

        Raise `Unauthenticated` with the first answer after that, or a second later.
        """
        recognised = self.clock.elapsed()
        for answer in answers:
            if self.clock.elapsed() >= recognised + RECOGNISE_EVERY:
                if self._recognise(authorization) != caller:
                    raise Unauthenticated("This token allows something else now.", hint="Begin a new stream.")
                recognised = self.clock.elapsed()
            yield answer

    def _recognise(self, authorization: str) -> Caller:
        kind, _, token = authorization.partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            raise Unauthenticated(
                "This server wants a token.",
                hint="Send the header Authorization: Bearer TOKEN. `wherry serve` prints one.",
            )
        token = token.strip()
        is_signed = self.issuer is not None and token.count(".") == _DOTS
        if not self.issuer or not is_signed:
            return self.tokens.recognise(token)
        caller = self.issuer.recognise(token)
        if APPROVED in caller.name:
            raise Forbidden("The identity provider gives this caller the name of two, so it does not count.")
        taken = (*TAKEN, *(each.name for each in self.tokens.list_all()))
        is_taken = caller.name in taken or caller.name.startswith(OUTSIDE)
        return replace(caller, name=f"{OUTSIDE}{caller.name}") if is_taken else caller

    def check_sees_all(self, caller: Caller) -> None:
        """Raise `Forbidden` for a caller of only some pipelines."""
        if caller.pipelines is not None:
            raise Forbidden(f"{caller.name} may see only some pipelines, and this is about all of them.")

    def count(self, name: str) -> None:
        """Raise `TooMuch` if the caller of this name asks too often."""
        now = self.clock.elapsed()
        with self._lock:
            left, at = self._left.get(name, (BURST, now))
            left = min(BURST, left + (now - at) * RATE) - 1
            self._left[name] = (max(left, 0.0), now)
        if left < 0:
            raise TooMuch(f"{name} asks more than {RATE:.0f} times a second.", hint="Wait a second.")


def _read_host(url: str) -> tuple[str, int | None]:
    """Return the host and the port of a URL. The host is empty if the URL cannot be read."""
    try:
        parts = urlsplit(url)
        return (parts.hostname or "").lower(), parts.port
    except ValueError:
        return "", None
