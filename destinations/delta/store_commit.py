"""An append to a plain Delta table in an object store, with a PUT that succeeds only if the next version is still free.

The store checks this condition, so no writer that uses it can replace another writer's commit. The guarantees of
`direct_commit` for a table in a folder also hold here.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import unquote

from destinations.delta.direct_commit import TablePlace, make_checksum
from destinations.delta.versions import LogHead, TableVersions, format_key
from origins.delta_actions import FileBody
from origins.files.stored_files import StoredFile
from origins.lazy import delta_errors, deltalake
from origins.object_store import PROBE, ObjectStore, make_store_error, open_bucket, open_store
from origins.store_access import StoreError, StoreUrl, canonicalise, get_options

SURE = 5.0
"""For how many seconds a listing of a table's log counts as current.

After that, the log is listed again. A commit needs no listing, because its condition detects every version that other
writers took.
"""
_FOOTER = 64 << 10
"""The last bytes of a file that usually include its whole footer."""
_LONG = 10
"""How many versions without a checkpoint make a new one worthwhile. Opening the table takes two requests for each."""
_ACTIONS = 1_000
"""A checkpoint with this many actions raises that number by one."""


@dataclass(frozen=True)
class StoreVersions(TableVersions):
    """The versions of a table in an object store."""

    url: str

    @property
    def name(self) -> str:
        return self.url

    @property
    def store(self) -> ObjectStore:
        return open_store(self.url)

    sure = SURE

    def list_names(self, first: int) -> Iterable[str]:
        return [key.removeprefix("_delta_log/") for key in self._list_log(first)]

    def find_newest(self, known: int = -1) -> int:
        later = self.list_versions(known) if known > 0 else ()
        return max(later or self.list_versions(), default=-1)

    def look(self, first: int) -> Callable[[int], str | None]:
        tags = self._list_log(first)
        return lambda version: tags.get(format_key(version))

    def read(self, name: str) -> bytes | None:
        found = self.store.read_object(name)
        return None if found is None else found[1]

    def _list_log(self, first: int) -> dict[str, str]:
        """Return the keys of the log from this version on, each with the tag that identifies its object."""
        return self.store.list_tags("_delta_log", format_key(first - 1) if first else "_delta_log/")


@dataclass(frozen=True)
class StorePlace(TablePlace):
    """A place in an object store."""

    url: str

    @property
    def versions(self) -> TableVersions:
        return StoreVersions(self.url)

    @property
    def store(self) -> ObjectStore:
        return open_store(self.url)

    def is_kept_apart(self) -> bool:
        self.store.check_put_if_new()
        return True

    @contextlib.contextmanager
    def stage(self, names: Sequence[str]) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="wherry-rows-") as folder:
            yield Path(folder)
            store = self.store
            for name in names:
                store.put_file(name, Path(folder) / name)

    def discard(self, names: Sequence[str]) -> None:
        with contextlib.suppress(StoreError):  # a file that no version names costs only space until a vacuum
            self.store.delete(names)

    def make_staging(self, staging: str, schema: str, properties: Mapping[str, str]) -> None:
        url = StoreUrl(f"{self.url}/{staging}", getattr(self.url, "settings", {}))
        try:
            create_in_store(url, schema, properties)
        except (delta_errors.DeltaError, OSError) as error:
            raise make_store_error(error, url, "cannot be written") from error

    def open_staged(self, file: FileBody) -> IO[bytes]:
        place = f"{canonicalise(self.url)}/{unquote(file['path'])}"
        return StoredFile(open_bucket(self.url), place, file["size"]).open_parts(_FOOTER)

    def clear_staging(self, staging: str, keep: Collection[str]) -> None:
        with contextlib.suppress(StoreError):  # the files cost only space, and no reader reads them
            store = self.store
            for keys in store.list_pages(staging):
                store.delete([key for key in keys if key not in keep])

    def offer(
        self, content: bytes, files: Sequence[FileBody]
    ) -> AbstractContextManager[Callable[[LogHead], str | None]]:
        store = self.store
        return contextlib.nullcontext(lambda head: store.take(format_key(head.version + 1), content))

    def explain_unlisted(self, version: int) -> StoreError:
        found = f"{self.url} has version {version}, and does not list it."
        return StoreError(found, hint="Wait a little, and run again.", is_away=True)

    def is_long(self, version: int) -> bool:
        try:
            last = json.loads(self.versions.read("_delta_log/_last_checkpoint") or "{}")
            at, size = int(last.get("version", -1)), int(last.get("size", 0))
        except (ValueError, TypeError, AttributeError):  # another program wrote it, and the log needs none
            at, size = -1, 0
        return version - at >= max(_LONG, size // _ACTIONS)


def create_in_store(url: str, columns: str, properties: Mapping[str, str]) -> None:
    """Create a table with these columns and properties. Delta opens it quickly, because it also gets a checksum."""
    deltalake.DeltaTable.create(
        canonicalise(url),
        deltalake.Schema.from_json(columns),
        mode="error",
        configuration=dict(properties),
        storage_options=get_options(url),
    )
    store, first = open_store(url), format_key(0)
    with contextlib.suppress(StoreError):  # without the checksum, Delta reads the log
        store.put_new(first.removesuffix("json") + "crc", make_checksum(store.read(first).decode()).encode())


def is_empty_store(url: str) -> bool:
    """Whether this URL surely has no objects below it."""
    try:
        return all(key == PROBE for page in open_store(url).list_pages() for key in page)
    except StoreError:
        return False
