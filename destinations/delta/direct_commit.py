"""An append to a plain Delta table: a file in its log that takes the next version or fails.

In a folder, a version's file gets its name by a hard link, so only one writer can take the version. After the version
at which a write began, nothing may have changed the table's metadata: no columns, no property, no rule and no fence.
This also holds if the change was undone since.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
import tempfile
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO
from urllib.parse import unquote

from destinations.delta.lock import SparkCommits
from destinations.delta.versions import FolderVersions, LogHead, Mark, TableVersions, format_key, identify_file
from destinations.destination import DestinationError
from origins.delta_actions import ActionBody, FileBody
from origins.errors import WherryError, clean_up_by
from origins.lazy import deltalake

MODE = 0o644
"""The mode of a table's file that Spark writes, independent of this process's umask."""


class MetadataChanged(Exception):
    """The table's metadata has changed since the write began. Nothing was written."""


class Overwritten(WherryError):
    """Another writer has replaced an existing version."""

    code = "OVERWRITTEN"

    def __init__(self, table: Path | str, version: int, brought: str) -> None:
        super().__init__(
            f"Another writer has replaced version {version} of the table {table}, which held {brought}. These rows "
            "are no longer in the table.",
            hint="Find and stop the other writer: a Spark in another process can replace a version that it did not "
            "see. Then see which batches are missing, and how to deliver them again:  wherry audit FILE",
        )


class TablePlace(ABC):
    """The place of a table whose versions this process writes: its log and its data files."""

    @property
    @abstractmethod
    def versions(self) -> TableVersions:
        """The versions that the table has."""

    @property
    def name(self) -> str:
        """The place, as a person would name it."""
        return self.versions.name

    @abstractmethod
    def is_kept_apart(self) -> bool:
        """Whether a name in the log that is taken stays taken. Only this separates two processes."""

    @abstractmethod
    def stage(self, names: Sequence[str]) -> AbstractContextManager[Path]:
        """Give a folder of this machine for new files with these names. At the end they are in the table's place."""

    @abstractmethod
    def discard(self, names: Sequence[str]) -> None:
        """Remove such files, also if they are not in the table's place yet."""

    def is_long(self, version: int) -> bool:
        """Whether reading the log up to this version costs the next opening more than a checkpoint costs now."""
        return False

    @abstractmethod
    def make_staging(self, staging: str, schema: str, properties: Mapping[str, str]) -> None:
        """Create a table in a folder below this place, with these columns and properties."""

    def read_staged(self, staging: str, token: str, after: int) -> tuple[int, Sequence[FileBody]]:
        """Return the later version with this token, and its files by their names from this place.

        If there was nothing to commit, return `after` and no files. Raises `DestinationError` if that is unknown.
        """
        version = after
        while (content := self.versions.read(f"{staging}/{format_key(version + 1)}")) is not None:
            version += 1
            files = find_staged(content.decode(), token, staging)
            if files is not None:
                return version, files
        if version == after and self.versions.read(known := f"{staging}/{format_key(after)}") is None:
            raise DestinationError(f"{self.name}/{known} is missing.", hint="Run again. The destination wrote nothing.")
        return after, ()

    @abstractmethod
    def open_staged(self, file: FileBody) -> Path | IO[bytes]:
        """Return a staged file, to read its rows and its footer."""

    def adopt_staged(self, files: Sequence[FileBody]) -> Sequence[FileBody]:
        """Move such files to where the table has its files. Return them with their new names."""
        return files

    @abstractmethod
    def clear_staging(self, staging: str, keep: Collection[str]) -> None:
        """Remove the staging table's log, and all its files except these."""

    def append(self, began: LogHead, files: Sequence[FileBody], tag: str, check: Callable[[], None]) -> LogHead:
        """Add files that are in place to the table in one version with the tag. Return the table at that version.

        Raises `MetadataChanged` if the table's metadata changed since the write began, and `OSError` if nothing could
        be written. Also raises what `check` raises, which is the last step before the commit.

        Raises `Overwritten` if another writer replaced this version, or the one below it, at the same moment. A version
        that other readers may have read is never removed.
        """
        return self._commit(began, format_commit(files, tag, began.version).encode(), files, check)

    def _commit(
        self, head: LogHead, content: bytes, files: Sequence[FileBody], check: Callable[[], None] = lambda: None
    ) -> LogHead:
        """Make this content the version after the newest one. Return the table at that version."""
        with self.offer(content, files) as take:
            if not self.versions.is_current(head):  # after a deletion of the table, its next version is free
                head = self._advance(head)
            while True:
                check()
                taken = take(head)
                if taken is not None:
                    return replace(head, version=head.version + 1, file=taken or None)
                later = self._advance(head)
                for version in range(head.version + 1, later.version + 1):
                    if self.versions.read(format_key(version)) == content:  # an earlier request was carried out
                        return replace(head, version=version, file=self.versions.identify(version))
                if later.version == head.version:
                    raise self.explain_unlisted(head.version + 1)
                head = later

    def _advance(self, head: LogHead) -> LogHead:
        """Return the newest version. Raises `MetadataChanged` if another table may have replaced this one."""
        later = self.versions.advance(head)
        if later is None:
            raise MetadataChanged(
                f"The table's metadata changed since the write began, or its log was cleaned up: {self.name}."
            )
        return later

    def explain_unlisted(self, version: int) -> Exception:
        """Return the error for a version that is not free, although the place does not list it."""
        return MetadataChanged(f"The log of {self.name} was cleaned up during the write.")

    @abstractmethod
    def offer(
        self, content: bytes, files: Sequence[FileBody]
    ) -> AbstractContextManager[Callable[[LogHead], Mark | None]]:
        """Give a function that makes the content the version after a head, if that version is free.

        It returns the version's mark, or an empty string if that is unknown; None if the version is not free. The
        content adds these files.
        """

    def mark(self, properties: Mapping[str, str]) -> None:
        """Set these properties in one commit. Raises as `open` and `append` do."""
        table, head = self.versions.open_head()  # deltalake's way to set them blocks all threads
        known = table.metadata()
        body = {
            "id": str(known.id),
            "name": known.name,
            "description": known.description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": table.schema().to_json(),
            "partitionColumns": known.partition_columns,
            "configuration": {**known.configuration, **properties},
            "createdTime": known.created_time,
        }
        parameters = {"properties": json.dumps(dict(properties))}
        info = {"operation": "SET TBLPROPERTIES", "operationParameters": parameters}
        self._commit(head, _format_version(info, [{"metaData": body}]).encode(), ())


@dataclass(frozen=True)
class FolderPlace(TablePlace):
    """A folder of this machine."""

    folder: Path
    commits: SparkCommits = field(default_factory=SparkCommits)
    """The commits of Spark that are stopped while this process takes a version."""

    @property
    def versions(self) -> TableVersions:
        return FolderVersions(self.folder)

    @staticmethod
    def keeps_names_apart(folder: Path) -> bool:
        """Whether a name in a folder that is taken stays taken. Raises `OSError` if the folder cannot be written."""
        with tempfile.TemporaryDirectory(prefix=".probe-", dir=folder) as place:
            first, second, name = (Path(place, label) for label in ("first", "second", "name"))
            first.touch()
            second.touch()
            open_to_readers(first)
            return _try_link(first, name) and not _try_link(second, name)

    def is_kept_apart(self) -> bool:
        with contextlib.suppress(OSError):
            return self.keeps_names_apart(self.folder / "_delta_log")
        return False

    def stage(self, names: Sequence[str]) -> AbstractContextManager[Path]:
        return nullcontext(self.folder)

    def discard(self, names: Sequence[str]) -> None:
        for name in names:
            (self.folder / name).unlink(missing_ok=True)

    def make_staging(self, staging: str, schema: str, properties: Mapping[str, str]) -> None:
        create_in_folder(self.folder / staging, schema, properties)

    def read_staged(self, staging: str, token: str, after: int) -> tuple[int, Sequence[FileBody]]:
        version, files = super().read_staged(staging, token, after)
        for each in files:  # on the disk now, since a commit makes them durable while it holds the table
            _make_durable(self.open_staged(each))
        return version, files

    def open_staged(self, file: FileBody) -> Path:
        return self.folder / unquote(file["path"])

    def adopt_staged(self, files: Sequence[FileBody]) -> Sequence[FileBody]:
        adopted: list[FileBody] = [{**file, "path": file["path"].rpartition("/")[2]} for file in files]
        for file, new in zip(files, adopted, strict=True):
            self.open_staged(file).rename(self.folder / unquote(new["path"]))
        return adopted

    def clear_staging(self, staging: str, keep: Collection[str]) -> None:
        shutil.rmtree(self.folder / staging, ignore_errors=True)  # the files cost only space, and no table has them

    def append(self, began: LogHead, files: Sequence[FileBody], tag: str, check: Callable[[], None]) -> LogHead:
        head = super().append(began, files, tag, check)
        if self.versions.identify(head.version) != head.file:
            raise Overwritten(self.folder, head.version, describe_batches(tag))
        return head

    @contextlib.contextmanager
    def offer(self, content: bytes, files: Sequence[FileBody]) -> Iterator[Callable[[LogHead], Mark | None]]:
        log = self.folder / "_delta_log"
        whole = log / f".{uuid.uuid4()}.tmp"
        with clean_up_by(lambda: whole.unlink(missing_ok=True)):
            whole.write_bytes(content)
            for file in (whole, *map(self.open_staged, files)):
                open_to_readers(file)
                _make_durable(file)
            _make_durable(self.folder)
            with self.commits.hold(self.folder):
                yield partial(self._take_next, whole)
        _make_durable(log)

    def _take_next(self, whole: Path, head: LogHead) -> Mark | None:
        """Give the file the name of the version after this one. Return its mark; None if another file has the name.

        If the log was cleaned up meanwhile, the version's name was free again. A file with this name is then below an
        older checkpoint, so no reader reads it.
        """
        linked = self.folder / format_key(head.version + 1)
        if self.versions.identify(head.version) != head.file:
            raise MetadataChanged(f"The newest version of {self.folder} was replaced during the write.")
        if not _try_link(whole, linked):
            return None
        passed = head.is_old and any(
            linked.with_name(name).stat().st_ctime_ns <= linked.stat().st_ctime_ns
            for name in self.versions.list_checkpoints(head.version + 1)
        )
        if passed:
            linked.unlink(missing_ok=True)
            raise MetadataChanged(f"The log of {self.folder} was cleaned up during the write.")
        if self.versions.identify(head.version) != head.file:
            raise Overwritten(self.folder, head.version, "rows of an earlier commit")
        return identify_file(whole)

    def mark(self, properties: Mapping[str, str]) -> None:
        nothing_more = deltalake.PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
        with self.commits.hold(self.folder):
            table = self.versions.open()
            table.alter.set_table_properties(
                dict(properties), raise_if_not_exists=False, post_commithook_properties=nothing_more
            )
            open_to_readers(self.folder / format_key(table.version()))


def describe_batches(tag: str) -> str:
    try:
        labels = json.loads(tag)["wherry"]
        return ", ".join(f"batch {label['number']} of lane {label['lane']}" for label in labels)
    except (ValueError, KeyError, TypeError):
        return "rows of this run"


def open_to_readers(file: Path) -> None:
    """Give the file the mode of Spark's files, so that the same users can read it."""
    if stat.S_IMODE(file.stat().st_mode) != MODE:
        file.chmod(MODE)


def _make_durable(path: Path) -> None:
    """Write a file, or the names in a folder, to the disk before anything depends on it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that cannot do this
            raise
    finally:
        os.close(handle)


def _try_link(file: Path, name: Path) -> bool:
    """Link the file to this name as well. Return false if another file has the name."""
    try:
        os.link(file, name)
    except FileExistsError:
        return file.samefile(name)
    return True


def create_in_folder(folder: Path, columns: str, properties: Mapping[str, str]) -> None:
    """Create a table with these columns and properties. Delta opens it quickly, because it also gets a checksum.

    Raises `DeltaError` or `OSError` if it cannot be created.
    """
    log = folder / "_delta_log"
    missing = [parent for parent in (log, *log.parents) if not parent.exists()]
    schema = deltalake.Schema.from_json(columns)
    deltalake.DeltaTable.create(str(folder), schema, mode="error", configuration=dict(properties))
    first = folder / format_key(0)
    whole = log / f".{first.stem}.crc.{os.getpid()}.tmp"
    whole.write_text(make_checksum(first.read_text(encoding="utf-8")), encoding="utf-8")
    whole.replace(first.with_suffix(".crc"))
    for new in missing:  # as with Spark's folders, every user may read these
        new.chmod(new.stat().st_mode & stat.S_ISGID | 0o755)
    for file in log.iterdir():
        if file.is_file():
            open_to_readers(file)


def find_staged(commit: str, token: str, staging: str) -> Sequence[FileBody] | None:
    """Return the files of a commit to a table in the folder `staging`, by their names from above that folder.

    It is None if the commit has another token.
    """
    actions: list[ActionBody] = [json.loads(line) for line in _split_actions(commit)]
    if not any(action.get("commitInfo", {}).get("userMetadata") == token for action in actions):
        return None
    return [_make_added(f"{staging}/{file['path']}", file) for action in actions if (file := action.get("add"))]


def _split_actions(commit: str) -> Iterator[str]:
    """Return the lines of a version's file. Some characters in texts end a line for Python, but not in JSON."""
    return filter(None, commit.split("\n"))


def _make_added(path: str, file: FileBody) -> FileBody:
    return {
        "path": path,
        "partitionValues": {},
        "size": file["size"],
        "modificationTime": file["modificationTime"],
        "dataChange": True,
        "stats": file["stats"],
    }


def make_checksum(commit: str) -> str:
    """Return the checksum that Delta writes beside a table's first version.

    With it, Delta opens the table without a job.
    """
    actions = {name: action for line in _split_actions(commit) for name, action in json.loads(line).items()}
    known = {"metadata": actions["metaData"], "protocol": actions["protocol"]}
    nothing = {"tableSizeBytes": 0, "numFiles": 0, "setTransactions": [], "domainMetadata": [], "allFiles": []}
    return json.dumps({**nothing, "numMetadata": 1, "numProtocol": 1, **known})


def format_commit(files: Sequence[FileBody], tag: str, before: int) -> str:
    """Return the content of a version's file, in the form in which Spark describes an append."""
    metrics = {
        "numFiles": len(files),
        "numOutputRows": count_rows(files),
        "numOutputBytes": sum(file["size"] for file in files),
    }
    info = {
        "userMetadata": tag,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": "[]"},
        "readVersion": before,
        "isolationLevel": "Serializable",
        "isBlindAppend": True,
        "operationMetrics": {name: str(value) for name, value in metrics.items()},
    }
    return _format_version(info, [{"add": file} for file in files])


def _format_version(info: Mapping[str, object], actions: Sequence[Mapping[str, object]]) -> str:
    made = {"timestamp": int(time.time() * 1000), **info, "engineInfo": "wherry", "txnId": str(uuid.uuid4())}
    lines = [{"commitInfo": made}, *actions]
    return "".join(f"{json.dumps(line, ensure_ascii=False, separators=(',', ':'))}\n" for line in lines)


def count_rows(files: Sequence[FileBody]) -> int:
    """Return how many rows these files have, by their statistics."""
    return sum(json.loads(file["stats"] or "{}")["numRecords"] for file in files)
