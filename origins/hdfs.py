"""HDFS with the methods of an object store's client: files by their paths, and creation only if no file exists."""

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
"""The number of bytes in one call to write."""
_FILE_MODE = 0o666
"""The mode that HDFS applies its umask to, as for any Hadoop program."""


class HdfsClient:
    """The files below a URL. The methods raise `FileNotFoundError`, `FileExistsError` and the errors of `hdfs-native`.

    A file gets its name only when it is complete. It is first written under a hidden name in the same folder. Options
    that matter only to object stores are accepted, and ignored.
    """

    def __init__(self, url: str, settings: Mapping[str, str]) -> None:
        from hdfs_native import Client, WriteOptions

        parts = urlsplit(url)
        self._root = parts.path.rstrip("/")
        self._client = Client(f"hdfs://{parts.netloc}", dict(settings))
        self._options = WriteOptions(permission=_FILE_MODE, overwrite=True, create_parent=True)

    def list_with_delimiter(self, prefix: str | None, *, return_arrow: bool = True) -> dict[str, Any]:
        """Return the folders and the files directly in a folder."""
        found = self._list(prefix, deep=False)
        folders = sorted(self._get_key(each.path) for each in found if each.isdir)
        return {"common_prefixes": folders, "objects": self._make_page([each for each in found if not each.isdir])}

    def list(
        self, prefix: str | None, *, offset: str | None, chunk_size: int, return_arrow: bool = True
    ) -> Iterator[pa.Table]:
        """Yield the files in a folder, at any depth, in pages and in the order of their keys."""
        files = [each for each in self._list(prefix, deep=True) if not each.isdir]
        files.sort(key=lambda each: self._get_key(each.path))
        behind = (each for each in files if offset is None or self._get_key(each.path) > offset)
        while page := [*itertools.islice(behind, chunk_size)]:
            yield self._make_page(page)

    def head(self, key: str) -> dict[str, Any]:
        """Return the description of the file with this key."""
        return self._describe(self._find_file(key))

    def get(self, key: str) -> SimpleNamespace:
        """Return the file with this key: its description and its content."""
        found = self._find_file(key)
        content = self._client.read(self._get_path(key)).read()
        return SimpleNamespace(meta={**self._describe(found), "size": len(content)}, bytes=lambda: content)

    def get_range(self, key: str, *, start: int, end: int) -> bytes:
        """Return the bytes of a file from `start` to before `end`."""
        return self._client.read(self._get_path(key)).read_range(start, end - start)

    def put(
        self, key: str, content: bytes | Path, *, mode: str = "overwrite", use_multipart: bool = False
    ) -> dict[str, str]:
        """Write a file. With the mode `create`, write it only if no file has this key."""
        return {"e_tag": self._write(key, lambda: _read_pieces(content), overwrite=mode != "create")}

    def copy(self, key: str, target: str, *, overwrite: bool) -> None:
        """Copy a file."""
        self._find_file(key)
        self._write(target, lambda: self._read_pieces(key), overwrite=overwrite)

    def delete(self, keys: Sequence[str]) -> None:
        """Remove files. A missing file is no error."""
        for key in keys:
            self._client.delete(self._get_path(key), recursive=False)

    def delete_folder(self, folder: str) -> None:
        """Remove a folder with all its contents."""
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
            with contextlib.suppress(Exception):  # the first error counts, and readers skip a hidden file
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
        return () if len(found) == 1 and self._get_key(found[0].path) == prefix else found  # a file, not a folder

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
    """Return a tag that distinguishes a file from any other with the same path. A rename keeps the tag."""
    return f"{found.modification_time}-{found.length}"
