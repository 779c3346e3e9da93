"""A store of large values, each under the hash of its bytes, and the references that replace them in rows.

This code also runs in Spark's Python workers, and is sent there by value.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import io
import json
import os
import re
import secrets
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from origins.errors import has_no_links
from stages.python_call import FunctionCannotRun

PREFIX = "wherry-claim:"
"""The beginning of a reference: `wherry-claim:<SHA-256>:<bytes>:<seal>`. Data never contains the key of the seal."""
REFERENCE = re.compile(rf"{PREFIX}([0-9a-f]{{64}}):")
_WHOLE = re.compile(rf"{PREFIX}([0-9a-f]{{64}}):([0-9]{{1,20}}):[0-9a-f]{{32}}".encode())
KEY, VALUES, TABLE, USERS, KEEPERS, SWEPT = "key", "values", "table", "users", "keepers", "swept"
"""The parts of a store. Its values are files or in a table. `users` names the pipelines that use it. `keepers` names
those whose destinations keep references."""
_SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": False, "metadata": {}}
            for name, kind in (("hash", "string"), ("value", "binary"))
        ],
    }
)
_FRESH = 86_400.0
"""The seconds for which a value counts as new after it was stored or referenced again."""
_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6)
"""The seconds between two attempts of a commit that fails although no other commit landed. A store answers 409 while
another writer requests the same name."""


@dataclass(frozen=True)
class StoredValue:
    """A value in the store, by the hash of its bytes."""

    name: str
    modified: float
    """When it was stored or last referenced, in seconds since 1970."""


class StoreFiles(ABC):
    """Files or objects below a place. Each is complete, even after a crash."""

    place: str

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """Return the content with this name; None if nothing has it."""

    @abstractmethod
    def create(self, name: str, content: bytes) -> None:
        """Store the content, unless the name is used."""

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Store the content. Replace the content that has this name."""

    @abstractmethod
    def keep(self, name: str, content: bytes) -> None:
        """Store the content, or mark the content that has this name as new."""

    @abstractmethod
    def list_names(self, folder: str) -> Iterator[StoredValue]:
        """Yield the contents in a folder, at any depth, by the last part of the name."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove the content with this name. A missing one is no error."""

    def clear_unfinished(self, before: float) -> None:
        """Remove unfinished files of writers that were killed before this time, if the place keeps such files."""

    def sync(self, name: str) -> None:
        """Write the content that another program stored under this name to the disk, if the place has a disk."""

    @contextlib.contextmanager
    def name_errors(self) -> Iterator[None]:
        """Raise an error of the place as `FunctionCannotRun`, since it is not a row's fault."""
        try:
            yield
        except OSError as error:
            why = error.strerror or str(error)
            if has_no_links(error):
                why += "; folders of /Volumes and /Workspace have no hard links; use a table or the URL of a store"
            raise FunctionCannotRun(f"the store of large values at {self.place} failed: {why}") from error


@dataclass(frozen=True)
class FolderFiles(StoreFiles):
    """A folder that all of Spark's workers can access."""

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
        """Write a file under a temporary name. It is on the disk before it gets its name."""
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
        _sync(folder)

    def clear_unfinished(self, before: float) -> None:
        with self.name_errors():
            for root, _, names in os.walk(self.place):
                for file in (os.path.join(root, name) for name in names if _UNFINISHED.fullmatch(name)):
                    with contextlib.suppress(FileNotFoundError):
                        if os.stat(file).st_mtime < before:
                            os.unlink(file)

    def sync(self, name: str) -> None:
        with self.name_errors():
            file = os.path.join(self.place, name)
            _sync(file)
            _sync(os.path.dirname(file))

    def list_names(self, folder: str) -> Iterator[StoredValue]:
        with self.name_errors():
            for root, _, names in os.walk(os.path.join(self.place, folder)):
                for name in names:
                    if _UNFINISHED.fullmatch(name):
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        yield StoredValue(name, os.stat(os.path.join(root, name)).st_mtime)

    def delete(self, name: str) -> None:
        with self.name_errors(), contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.place, name))


_UNFINISHED = re.compile(r"\.[0-9a-f]{32}|\d{20}\.json#\d+")
"""The names of unfinished files: Wherry's, and those that `deltalake` writes in a table's log."""


def _sync(path: str) -> None:
    """Write a file or a folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@dataclass
class ObjectFiles(StoreFiles):
    """A folder of an object store."""

    place: str
    arguments: Mapping[str, Any] = field(repr=False)
    """The arguments of `obstore.store.from_url`."""
    _opened: Any = field(default=None, init=False, repr=False, compare=False)

    def read(self, name: str) -> bytes | None:
        with self.name_errors():
            try:
                return bytes(self._client.get(name).bytes())
            except FileNotFoundError:
                return None

    def create(self, name: str, content: bytes) -> None:
        from obstore.exceptions import AlreadyExistsError

        with self.name_errors():
            for pause in (*_PAUSES, None):
                try:
                    self._client.put(name, content, mode="create", use_multipart=False)
                    return
                except AlreadyExistsError:  # also while another request for the name is in progress
                    if self.read(name) is not None:
                        return
                    if pause is None:
                        raise
                time.sleep(pause)

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
        """Raise an error of the store so that it is tried again later, unless the store refuses the request."""
        from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

        try:
            yield
        except Exception as error:  # the library's errors have no common type
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
class ValueStore:
    """A store of values, each in a file. The key and the notes are files beside them."""

    files: StoreFiles

    @property
    def place(self) -> str:
        """Return the folder of the store, or its URL."""
        return self.files.place

    def keep_value(self, name: str, content: bytes) -> None:
        """Store the value with this hash, or mark it as new. It is safe after `settle`."""
        self.files.keep(find_value(name), content)

    def settle(self) -> None:
        """Finish storing all values that were kept."""

    def read_value(self, name: str) -> bytes | None:
        """Return the value with this hash; None if it is missing. Changed content has another hash."""
        return self.files.read(find_value(name))

    def list_values(self) -> Iterator[StoredValue]:
        """Yield all values."""
        return self.files.list_names(VALUES)

    def delete_values(self, names: Iterable[str]) -> None:
        """Remove the values with these hashes, and remains of earlier ones."""
        for name in names:
            self.files.delete(find_value(name))


class _ValueFile(NamedTuple):
    """The file of one value in a Delta table."""

    path: str
    size: int
    modified: float


@dataclass
class TableValues(ValueStore):
    """A Delta table of values, each in a separate file. The key and the notes are files beside the table.

    The table's log records the file of each value. A commit succeeds only if no other commit came after the log was
    read. So each value is in the table once.
    """

    arguments: Mapping[str, Any] = field(repr=False)
    """The arguments of `deltalake.DeltaTable`."""
    _table: Any = field(default=None, init=False, repr=False, compare=False)
    _version: int = field(default=-1, init=False, repr=False, compare=False)
    _known: dict[str, _ValueFile] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The files of the values in this version."""
    _kept: dict[str, bytes] = field(default_factory=dict, init=False, repr=False, compare=False)

    def keep_value(self, name: str, content: bytes) -> None:
        self._kept[name] = content

    def settle(self) -> None:
        """Commit the missing values, and add the file of a value again if the value is no longer new."""
        written: dict[str, _ValueFile] = {}
        added = not self._kept
        while not added:
            self._read_log(create=True)
            files = {name: file for name in self._kept if (file := self._known.get(name))}
            lacking = self._kept.keys() - files.keys()
            written |= {name: self._write_file(name) for name in lacking - written.keys()}
            old = time.time() - _FRESH
            again = {name: file for name, file in files.items() if file.modified < old}
            added = self._add_files({**again, **{name: written[name] for name in lacking}})
        for name, file in written.items():
            if name in self._known and self._known[name].path != file.path:
                self.files.delete(f"{TABLE}/{file.path}")  # another task was quicker
        self._kept.clear()

    def read_value(self, name: str) -> bytes | None:
        for is_again in (False, True):
            if is_again:
                self._read_log()
            file = self._known.get(name)
            content = self.files.read(f"{TABLE}/{file.path}") if file else None
            if content is not None:
                return _unpack_value(content)
        return None

    def list_values(self) -> Iterator[StoredValue]:
        self._read_log()
        return (StoredValue(name, file.modified) for name, file in self._known.items())

    def delete_values(self, names: Iterable[str]) -> None:
        """Remove the values from the table. A later call removes their files, once `deltalake` considers them old."""
        self._read_log()
        chosen = ", ".join(f"'{name}'" for name in names)
        with self._name_errors():
            if chosen:
                self._table.delete(f"hash IN ({chosen})")
            if self._table is not None:
                self._table.vacuum(dry_run=False, full=True)

    @contextlib.contextmanager
    def _name_errors(self) -> Iterator[None]:
        """Raise the errors of `deltalake` too as errors of the place."""
        from deltalake.exceptions import DeltaError

        with self.files.name_errors():
            try:
                yield
            except DeltaError as error:
                raise OSError(str(error)) from error

    def _write_file(self, name: str) -> _ValueFile:
        path, packed = f"{name[:2]}/{name}-{uuid.uuid4().hex}.parquet", _pack_value(self._kept[name])
        self.files.write(f"{TABLE}/{path}", packed)
        return _ValueFile(path, len(packed), time.time())

    def _read_log(self, *, create: bool = False) -> None:
        """Read which values the newest version has. Without a table there are none."""
        import deltalake

        with self._name_errors():
            try:
                self._table = self._table or deltalake.DeltaTable(**self.arguments)
            except deltalake.exceptions.TableNotFoundError:
                if not create:
                    return
                self._table = self._create_table()
            self._table.update_incremental()
            if self._table.version() != self._version:
                self._version, self._known = self._table.version(), _list_files(self._table)

    def _create_table(self) -> Any:
        import deltalake

        once = deltalake.CommitProperties(max_commit_retries=0)
        schema = deltalake.Schema.from_json(_SCHEMA)
        for pause in (*_PAUSES, None):
            try:
                deltalake.DeltaTable.create(
                    **self.arguments, schema=schema, mode="ignore", partition_by="hash", commit_properties=once
                )
                break
            except deltalake.exceptions.DeltaError:
                with contextlib.suppress(deltalake.exceptions.TableNotFoundError):
                    deltalake.DeltaTable(**self.arguments)  # another task was quicker
                    break
                if pause is None:
                    raise
                time.sleep(pause)
        self.files.sync(f"{TABLE}/_delta_log/{0:020}.json")
        return deltalake.DeltaTable(**self.arguments)

    def _add_files(self, files: Mapping[str, _ValueFile]) -> bool:
        """Add the files to the version that was read. Return false if another commit came between."""
        import deltalake

        if not files:
            return True
        now = round(time.time() * 1_000)
        actions = [
            deltalake.transaction.AddAction(
                file.path, file.size, {"hash": name}, now, data_change=True, stats='{"numRecords":1}'
            )
            for name, file in files.items()
        ]
        once, schema = deltalake.CommitProperties(max_commit_retries=0), deltalake.Schema.from_json(_SCHEMA)
        with self._name_errors():
            for pause in (*_PAUSES, None):
                try:
                    self._table.create_write_transaction(actions, "append", schema, "hash", commit_properties=once)
                    break
                except deltalake.exceptions.CommitFailedError:
                    self._table.update_incremental()
                    if self._table.version() != self._version:
                        return False
                    if pause is None:
                        raise
                    time.sleep(pause)
        self.files.sync(f"{TABLE}/_delta_log/{self._version + 1:020}.json")
        return True


def _list_files(table: Any) -> dict[str, _ValueFile]:
    import pyarrow as pa

    found = pa.table(table.get_add_actions(flatten=True)).to_pydict()
    columns = (found["partition.hash"], found["path"], found["size_bytes"], found["modification_time"])
    return {name: _ValueFile(path, size, at / 1_000) for name, path, size, at in zip(*columns, strict=True)}


def _pack_value(content: bytes) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    packed = io.BytesIO()
    table = pa.table({"value": pa.array([content], pa.binary())})
    pq.write_table(table, packed, compression="zstd", use_dictionary=False, write_statistics=False)
    return packed.getvalue()


def _unpack_value(packed: bytes) -> bytes:
    """Return the value in a file. If the file is not such a file, return its content."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(pa.BufferReader(packed)).read(["value"], use_threads=False)
        return bytes(table["value"][0].as_py())
    except (pa.ArrowException, LookupError, OSError):
        return packed


@dataclass
class ValueClaims:
    """An object that stores large values and finds them by their references."""

    store: ValueStore
    _key: bytes | None = field(default=None, repr=False)
    """The key of the store, once it is known. It never changes."""

    def store_value(self, content: bytes) -> str:
        """Return the reference to these bytes. They are safe once the store has settled."""
        name = hashlib.sha256(content).hexdigest()
        self.store.keep_value(name, content)
        if self._stored_key is None:
            self.store.files.create(KEY, secrets.token_hex(32).encode())
        return self._make_reference(name, len(content))

    def is_reference(self, text: bytes) -> bool:
        """Return whether the text is a reference to a value of this store."""
        name, length = _read_reference(text)
        return bool(name) and self._stored_key is not None and text.decode() == self._make_reference(name, length)

    def find_value(self, text: bytes) -> bytes | str:
        """Return the bytes of a reference, or why they cannot be returned."""
        if self._stored_key is None:
            raise FunctionCannotRun(f"{self.store.place} is not a store of large values")
        if not self.is_reference(text):
            return "is not a reference to a value of this store"
        name, length = _read_reference(text)
        content = self.store.read_value(name)
        if content is None:
            return f"names a value of {length:,} bytes that the store does not have: {name}"
        if hashlib.sha256(content).hexdigest() != name:
            return f"names a value of {length:,} bytes that changed in the store: {name}"
        return content

    @property
    def _stored_key(self) -> bytes | None:
        self._key = self._key or self.store.files.read(KEY)
        return self._key

    def _make_reference(self, name: str, length: int) -> str:
        key = self._stored_key
        assert key is not None
        seal = hmac.new(key, f"{name}:{length}".encode(), hashlib.sha256).hexdigest()[:32]
        return f"{PREFIX}{name}:{length}:{seal}"


def find_value(name: str) -> str:
    """Return the name of the value with this hash in a store."""
    return f"{VALUES}/{name[:2]}/{name}"


def _read_reference(text: bytes) -> tuple[str, int]:
    """Return the hash and the length in a reference; empty and 0 if the text is no reference."""
    found = _WHOLE.fullmatch(text)
    return (found[1].decode(), int(found[2])) if found else ("", 0)
