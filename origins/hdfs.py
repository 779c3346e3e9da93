"""HDFS, with the calls of an object store's client: its files by their paths, and a new one only if none is there."""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from origins.lazy import pa

_PIECE = 4 << 20
"""The bytes of one call to write."""
_FILE_MODE = 0o666
"""What HDFS's own umask is taken from, as of any program of Hadoop's."""


class HdfsClient:
    """The files below a URL. Raises `FileNotFoundError`, `FileExistsError` and what `hdfs-native` raises.

    A file has its name only once it is whole: it is written beside, under a hidden name, and renamed.
    """

    def __init__(self, url: str, settings: Mapping[str, str]) -> None:
        from hdfs_native import Client, WriteOptions

        parts = urlsplit(url)
        self._root = parts.path.rstrip("/")
        self._client = Client(f"hdfs://{parts.netloc}", dict(settings))
        self._options = WriteOptions(permission=_FILE_MODE, overwrite=True, create_parent=True)

    def list_with_delimiter(self, prefix: str | None, *, return_arrow: bool) -> dict[str, Any]:
        """The folders and the files right in a folder."""
        del return_arrow
        found = self._list(prefix, deep=False)
        folders = sorted(self._get_key(each.path) for each in found if each.isdir)
        return {"common_prefixes": folders, "objects": self._make_page([each for each in found if not each.isdir])}

    def list(
        self, prefix: str | None, *, offset: str | None = None, chunk_size: int, return_arrow: bool
    ) -> Iterator[pa.Table]:
        """The files in a folder, at any depth, in pages and in the order of their keys."""
        del return_arrow
        files = [each for each in self._list(prefix, deep=True) if not each.isdir]
        files.sort(key=lambda each: self._get_key(each.path))
        behind = (each for each in files if offset is None or self._get_key(each.path) > offset)
        while page := [*itertools.islice(behind, chunk_size)]:
            yield self._make_page(page)

    def head(self, key: str) -> dict[str, Any]:
        """What the file with this key is."""
        return self._describe(self._find_file(key))

    def get(self, key: str) -> SimpleNamespace:
        """The file with this key: what it is, and what is in it."""
        found = self._find_file(key)
        content = self._client.read(self._get_path(key)).read()
        return SimpleNamespace(meta={**self._describe(found), "size": len(content)}, bytes=lambda: content)

    def get_range(self, key: str, *, start: int, end: int) -> bytes:
        """The bytes of a file from `start` to before `end`."""
        return self._client.read(self._get_path(key)).read_range(start, end - start)

    def put(
        self, key: str, content: bytes | Path, *, mode: str = "overwrite", use_multipart: bool = False
    ) -> dict[str, str]:
        """Write a file; with `create` as its mode only if there is none with this key."""
        del use_multipart
        return {"e_tag": self._write(key, lambda: _read_pieces(content), overwrite=mode != "create")}

    def copy(self, key: str, target: str, *, overwrite: bool) -> None:
        """Copy a file."""
        self._find_file(key)
        self._write(target, lambda: self._read_pieces(key), overwrite=overwrite)

    def delete(self, keys: Sequence[str]) -> None:
        """Remove files. One that is not there is no error."""
        for key in keys:
            self._client.delete(self._get_path(key), recursive=False)

    def delete_folder(self, folder: str) -> None:
        """Remove a folder, with all that is in it."""
        self._client.delete(self._get_path(folder), recursive=True)

    def _write(self, key: str, read: Callable[[], Iterator[bytes]], *, overwrite: bool) -> str:
        path = PurePosixPath(self._get_path(key))
        beside = str(path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp"))
        try:
            with self._client.create(beside, self._options) as file:
                for piece in read():
                    file.write(piece)
            tag = _make_tag(self._client.get_file_info(beside))
            self._client.rename(beside, str(path), overwrite)
        except BaseException:
            with contextlib.suppress(Exception):  # the first error counts, and readers pass a hidden file over
                self._client.delete(beside, recursive=False)
            raise
        return tag

    def _read_pieces(self, key: str) -> Iterator[bytes]:
        reader = self._client.read(self._get_path(key))
        return reader.read_range_stream(0, len(reader))

    def _find_file(self, key: str) -> Any:
        found = self._client.get_file_info(self._get_path(key))
        if found.isdir:
            raise FileNotFoundError(found.path)
        return found

    def _list(self, prefix: str | None, *, deep: bool) -> Sequence[Any]:
        try:
            found = tuple(self._client.list_status(self._get_path(prefix or ""), deep))
        except FileNotFoundError:
            return ()
        return () if len(found) == 1 and self._get_key(found[0].path) == prefix else found  # a file, and no folder

    def _get_path(self, key: str) -> str:
        return f"{self._root}/{key}" if key else self._root or "/"

    def _get_key(self, path: str) -> str:
        return path[len(self._root) + 1 :]

    def _describe(self, found: Any) -> dict[str, Any]:
        modified = datetime.fromtimestamp(found.modification_time / 1000, timezone.utc)
        return {
            "path": self._get_key(found.path),
            "last_modified": modified,
            "size": found.length,
            "e_tag": _make_tag(found),
        }

    def _make_page(self, found: Sequence[Any]) -> pa.Table:
        kinds = {"path": pa.string(), "last_modified": pa.timestamp("us", "UTC"), "size": pa.int64()}
        schema = pa.schema([*kinds.items(), ("e_tag", pa.string())])
        return pa.Table.from_pylist([*map(self._describe, found)], schema=schema)


def _read_pieces(content: bytes | Path) -> Iterator[bytes]:
    if isinstance(content, bytes):
        yield from (content[at : at + _PIECE] for at in range(0, len(content), _PIECE))
        return
    with content.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece


def _make_tag(found: Any) -> str:
    """What tells a file from any other with its path. A rename keeps it."""
    return f"{found.modification_time}-{found.length}"
