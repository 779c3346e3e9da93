"""A store of large values, each under the hash of its bytes, and the references that stand for them in rows.

This runs in Spark's Python workers too, where it is sent by value.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from stages.python_call import FunctionCannotRun

PREFIX = "wherry-claim:"
"""How a reference begins: `wherry-claim:<SHA-256>:<bytes>:<seal>`. No data has the key with which it is sealed."""
REFERENCE = re.compile(rf"{PREFIX}([0-9a-f]{{64}}):")
KEY, VALUES, USERS, KEEPERS, SWEPT = "key", "values", "users", "keepers", "swept"
"""The parts of a store. `users` names the pipelines that use it, `keepers` those whose destinations keep references."""
_FRESH = 86_400.0
"""For so many seconds a value counts as new, once it was stored or named again."""


@dataclass(frozen=True)
class StoredValue:
    """A value in the store, by the hash of its bytes."""

    name: str
    modified: float
    """When it was stored or last named, in seconds since 1970."""


class ValueStore(ABC):
    """Files or objects below one place. What is there was written whole."""

    place: str

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """What is under this name; None where nothing is."""

    @abstractmethod
    def create(self, name: str, content: bytes) -> None:
        """Store it, unless something has this name."""

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Store it in the place of what has this name."""

    @abstractmethod
    def keep(self, name: str, content: bytes) -> None:
        """Store it, or note that what has this name is as good as new."""

    @abstractmethod
    def list_names(self, folder: str) -> Iterator[StoredValue]:
        """What is in a folder, at any depth, by its last name."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove it. Twice is once."""

    @contextlib.contextmanager
    def name_errors(self) -> Iterator[None]:
        """An error of the place is no row's fault."""
        try:
            yield
        except OSError as error:
            why = error.strerror or str(error)
            raise FunctionCannotRun(f"the store of large values at {self.place} failed: {why}") from error


@dataclass(frozen=True)
class FolderValues(ValueStore):
    """A folder that all of Spark's workers see."""

    place: str

    def read(self, name: str) -> bytes | None:
        with self.name_errors():
            try:
                with open(os.path.join(self.place, name), "rb") as file:
                    return file.read()
            except FileNotFoundError:
                return None

    def create(self, name: str, content: bytes) -> None:
        with self.name_errors(), contextlib.suppress(FileExistsError):
            self._write(name, content, os.link)

    def write(self, name: str, content: bytes) -> None:
        with self.name_errors():
            self._write(name, content, os.replace)

    def keep(self, name: str, content: bytes) -> None:
        with self.name_errors():
            file = os.path.join(self.place, name)
            if os.path.exists(file) and os.path.getsize(file) == len(content):
                os.utime(file)
            else:
                self._write(name, content, os.replace)

    def _write(self, name: str, content: bytes, publish: Callable[[str, str], None]) -> None:
        """Write a file beside, which is on the disk before it has its name."""
        file = os.path.join(self.place, name)
        folder = os.path.dirname(file)
        os.makedirs(self.place, mode=0o700, exist_ok=True)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        beside = os.path.join(folder, f".{uuid.uuid4().hex}")
        try:
            with open(beside, "xb") as new:
                new.write(content)
                new.flush()
                os.fsync(new.fileno())
            publish(beside, file)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(beside)
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def list_names(self, folder: str) -> Iterator[StoredValue]:
        with self.name_errors():
            for root, _, names in os.walk(os.path.join(self.place, folder)):
                for name in names:
                    with contextlib.suppress(FileNotFoundError):
                        yield StoredValue(name, os.stat(os.path.join(root, name)).st_mtime)

    def delete(self, name: str) -> None:
        with self.name_errors(), contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.place, name))


@dataclass
class ObjectValues(ValueStore):
    """A folder of an object store."""

    place: str
    arguments: Mapping[str, Any] = field(repr=False)
    """What `obstore.store.from_url` takes."""
    _opened: Any = field(default=None, init=False, repr=False, compare=False)

    def read(self, name: str) -> bytes | None:
        with self.name_errors():
            try:
                return bytes(self._client.get(name).bytes())
            except FileNotFoundError:
                return None

    def create(self, name: str, content: bytes) -> None:
        from obstore.exceptions import AlreadyExistsError

        with self.name_errors(), contextlib.suppress(AlreadyExistsError):
            self._client.put(name, content, mode="create", use_multipart=False)

    def write(self, name: str, content: bytes) -> None:
        with self.name_errors():
            self._client.put(name, content)

    def keep(self, name: str, content: bytes) -> None:
        with self.name_errors():
            try:
                known = self._client.head(name)
            except FileNotFoundError:
                known = None
            if known is None or known["last_modified"].timestamp() < time.time() - _FRESH:
                self._client.put(name, content)

    def list_names(self, folder: str) -> Iterator[StoredValue]:
        with self.name_errors():
            for page in self._client.list(folder):
                for found in page:
                    yield StoredValue(found["path"].rpartition("/")[2], found["last_modified"].timestamp())

    def delete(self, name: str) -> None:
        with self.name_errors(), contextlib.suppress(FileNotFoundError):
            self._client.delete(name)

    @contextlib.contextmanager
    def name_errors(self) -> Iterator[None]:
        """A store that does not answer is tried again later. A store that refuses is not."""
        from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

        try:
            yield
        except Exception as error:  # its errors have no type of their own
            why = str(error).strip().partition("\n")[0][:500]
            refused = isinstance(error, PermissionDeniedError | UnauthenticatedError)
            kind = FunctionCannotRun if refused else ConnectionError
            raise kind(f"the store of large values at {self.place} failed: {why}") from error

    @property
    def _client(self) -> Any:
        from obstore.store import from_url

        self._opened = self._opened or from_url(**self.arguments)
        return self._opened


@dataclass
class ValueClaims:
    """What stores large values, and gives them back."""

    store: ValueStore
    _key: bytes | None = field(default=None, repr=False)
    """The key of the store, once it is known. It never changes."""

    def store_value(self, content: bytes) -> str:
        """The reference to these bytes, which are in the store then."""
        name = hashlib.sha256(content).hexdigest()
        self.store.keep(find_value(name), content)
        if self._stored_key is None:
            self.store.create(KEY, secrets.token_hex(32).encode())
        return self._make_reference(name, len(content))

    def is_reference(self, text: bytes) -> bool:
        """Whether it stands for a value of this store."""
        name, length = _read_reference(text)
        return bool(name) and self._stored_key is not None and text.decode() == self._make_reference(name, length)

    def find_value(self, text: bytes) -> bytes | str:
        """The bytes for which a reference stands; or why there are none."""
        if self._stored_key is None:
            raise FunctionCannotRun(f"{self.store.place} is not a store of large values")
        if not self.is_reference(text):
            return "is not a reference to a value of this store"
        name, length = _read_reference(text)
        content = self.store.read(find_value(name))
        if content is None:
            return f"names a value of {length:,} bytes that the store does not have: {name}"
        if hashlib.sha256(content).hexdigest() != name:
            return f"names a value of {length:,} bytes that changed in the store: {name}"
        return content

    @property
    def _stored_key(self) -> bytes | None:
        self._key = self._key or self.store.read(KEY)
        return self._key

    def _make_reference(self, name: str, length: int) -> str:
        key = self._stored_key
        assert key is not None
        seal = hmac.new(key, f"{name}:{length}".encode(), hashlib.sha256).hexdigest()[:32]
        return f"{PREFIX}{name}:{length}:{seal}"


def find_value(name: str) -> str:
    """Where in a store the value with this hash is."""
    return f"{VALUES}/{name[:2]}/{name}"


def _read_reference(text: bytes) -> tuple[str, int]:
    """The hash and the length in a reference; nothing where it is none."""
    parts = text.decode("utf-8", "replace").removeprefix(PREFIX).split(":")
    whole = len(parts) == 3 and len(parts[0]) == 64 and set(parts[0]) <= set("0123456789abcdef")
    return (parts[0], int(parts[1])) if whole and parts[1].isascii() and parts[1].isdigit() else ("", 0)
