"""Tokens: what each caller may ask. A file keeps the hash of each token, so that a copy of the file opens nothing."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from runners.model.clock import Clock
from runners.model.errors import Refusal
from runners.service.operation import APPROVED, Caller, Right, Unauthenticated

_PREFIX = "wherry_"
"""The beginning of every token, by which scanners for leaked secrets find it."""
_OWNER, _LONGEST_NAME = "owner", 100
"""The name of the caller with the server's own token, and how long another name may be."""


TAKEN, OUTSIDE = (_OWNER, "webhook"), "provider:"
"""The names that the server itself uses, and how the name of a caller begins that could be mistaken for another."""

RightName = Literal["read", "operate", "admin"]


class StoredToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token as the file keeps it."""

    name: str
    hash: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    right: RightName
    pipelines: list[str] | None = None
    expires: Annotated[datetime, msgspec.Meta(tz=True)] | None = None

    def make_caller(self) -> Caller:
        """Return the caller with this token."""
        seen = None if self.pipelines is None else frozenset(self.pipelines)
        return Caller(name=self.name, right=Right[self.right.upper()], pipelines=seen, is_stored=True)


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """The tokens of a server. A change of the file counts from the next request."""

    file: Path
    clock: Clock
    own: str = ""
    """A token with every right that ends with this server. It is never written to a file."""

    def recognise(self, token: str) -> Caller:
        """Return the caller with this token. Raise `Unauthenticated` for a token that is unknown or has expired."""
        if self.own and hmac.compare_digest(_hash(token), _hash(self.own)):
            return Caller(name=_OWNER, right=Right.ADMIN)
        return self._admit(
            next((each for each in self.list_all() if hmac.compare_digest(each.hash, _hash(token))), None)
        )

    def look_up(self, caller: Caller) -> Caller:
        """Return a caller as its token is now. Raise `Unauthenticated` if that was removed or has expired."""
        if not caller.is_stored:
            return caller
        return self._admit(next((each for each in self.list_all() if each.name == caller.name), None))

    def _admit(self, known: StoredToken | None) -> Caller:
        if known is None:
            raise Unauthenticated("This token is not known.", hint="Make one:  wherry serve DIR --new-token NAME")
        if known.expires is not None and known.expires <= self.clock.now():
            raise Unauthenticated(f"The token of {known.name} expired at {known.expires}.", hint="Make a new one.")
        return known.make_caller()

    def list_all(self) -> Sequence[StoredToken]:
        """Return the tokens of the file. Raise `Refusal` for a file that cannot be read."""
        try:
            return msgspec.json.decode(self.file.read_bytes(), type=list[StoredToken])
        except FileNotFoundError:
            return []
        except (OSError, msgspec.MsgspecError) as error:
            raise Refusal(
                f"The tokens of the server cannot be read: {self.file} ({error}).",
                hint="Mend the file, or remove it and make new tokens.",
            ) from error

    def add(self, name: str, right: RightName, *, pipelines: Sequence[str] = (), lasts: float | None = None) -> str:
        """Return a new token for this name, which ends after so many seconds. An earlier token of the name ends.

        Raise `Refusal` for a name that a log cannot show, or that the server itself has.
        """
        if (
            name in TAKEN
            or name.startswith(OUTSIDE)
            or APPROVED in name
            or not name.isprintable()
            or not 0 < len(name.strip()) <= _LONGEST_NAME
        ):
            raise Refusal(
                f"No token can have the name {name[:_LONGEST_NAME]!r}.",
                hint=f"Choose 1 to {_LONGEST_NAME} letters, but not {' or '.join(TAKEN)}, {OUTSIDE}… and …{APPROVED}….",
            )
        token = make_own_token()
        made = StoredToken(
            name=name,
            hash=_hash(token),
            right=right,
            pipelines=list(pipelines) or None,
            expires=None if lasts is None else self.clock.now() + timedelta(seconds=lasts),
        )
        self._write([*(each for each in self.list_all() if each.name != name), made])
        return token

    def remove(self, name: str) -> bool:
        """Let the token of this name end. Return whether there was one."""
        every = self.list_all()
        left = [each for each in every if each.name != name]
        if len(left) < len(every):
            self._write(left)
        return len(left) < len(every)

    def _write(self, tokens: Sequence[StoredToken]) -> None:
        self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self.file.with_name(f".{self.file.name}.{os.getpid()}")
        text = json.dumps(msgspec.to_builtins(list(tokens)), indent=2) + "\n"
        new.unlink(missing_ok=True)
        with open(os.open(new, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        new.replace(self.file)


def make_own_token() -> str:
    """Return a token that no file has."""
    return _PREFIX + secrets.token_urlsafe(32)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
