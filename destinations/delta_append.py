"""An append to a plain Delta table on this machine: one file in its log, which takes the next version or fails.

A version's file is linked under its name, which only one can do. Behind the version that a write began at nothing may
have changed what the table is: no columns, no property, no rule, and no fence.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from origins.batch import JSON


class MetadataChanged(Exception):
    """The table is not what it was when the write began. Nothing was written."""


@dataclass(frozen=True)
class Head:
    """A table as its log has it at a version."""

    version: int
    id: str
    schema: str
    """As Delta writes it."""
    configuration: Mapping[str, str]
    partitions: Sequence[str]
    protocol: tuple[int, int]
    """The versions of Delta's protocol that a reader and a writer must know."""
    file: tuple[int, int] | None
    """What tells the version's file in the log from any other of that name; None if it is gone."""

    @staticmethod
    def of(folder: Path) -> Head:
        """The newest. Raises `DeltaError` or `OSError` where it cannot be read."""
        from deltalake import DeltaTable

        table = DeltaTable(str(folder))
        found, protocol = table.metadata(), table.protocol()
        return Head(
            version=table.version(),
            id=str(found.id),
            schema=table.schema().to_json(),
            configuration=found.configuration,
            partitions=tuple(found.partition_columns),
            protocol=(protocol.min_reader_version, protocol.min_writer_version),
            file=_identity(_file(folder, table.version())),
        )

    def refreshed(self, folder: Path) -> Head:
        """The newest, of which only the versions behind this one are read, if this one is still that of its name."""
        version = self.version
        if self.file is None or _identity(_file(folder, version)) != self.file:
            return Head.of(folder)
        for after in _behind(folder, version):
            if _changes(after):
                return Head.of(folder)
            version += 1
        return self if version == self.version else self.at(folder, version)

    def at(self, folder: Path, version: int) -> Head:
        """The same table at another version."""
        return replace(self, version=version, file=_identity(_file(folder, version)))

    def is_as(self, other: Head) -> bool:
        """Whether the table is the same, whatever rows it has."""
        return replace(self, version=other.version, file=other.file) == other


def append(folder: Path, head: Head, files: Sequence[Mapping[str, JSON]], tag: str) -> int:
    """Add these files to the table in one version that carries the tag; which it is. Raises `MetadataChanged` if the
    table is not as the head has it, and `OSError` if nothing could be written."""
    whole = folder / "_delta_log" / f".{uuid.uuid4()}.tmp"
    try:
        whole.write_text(_told(files, tag, head.version), encoding="utf-8")
        while not _linked(whole, _file(folder, head.version + 1)):
            later = head.refreshed(folder)
            if not later.is_as(head) or later.version == head.version:
                raise MetadataChanged(f"The table's metadata changed since the write began: {folder}.")
            head = later
        _see_that_it_counts(folder, head.version + 1)
    finally:
        whole.unlink(missing_ok=True)
    return head.version + 1


def is_kept_apart(folder: Path) -> bool:
    """Whether a name that is taken stays taken there: it is all that keeps two writers apart."""
    try:
        with tempfile.TemporaryDirectory(prefix="_probe-", dir=folder) as place:
            first, second, name = (Path(place, each) for each in ("first", "second", "name"))
            first.touch()
            second.touch()
            return _linked(first, name) and not _linked(second, name)
    except OSError:
        return False


def _linked(file: Path, name: Path) -> bool:
    """Give it this name too, if nothing else has it."""
    try:
        os.link(file, name)
    except FileExistsError:
        return file.samefile(name)
    return True


def _see_that_it_counts(folder: Path, version: int) -> None:
    """Where the version before this one was cleaned away meanwhile, this one was too, and its name was free again: what
    stands there is in no table."""
    if not _file(folder, version - 1).exists():
        _file(folder, version).unlink(missing_ok=True)
        raise MetadataChanged(f"The log of {folder} was cleaned up while the write was under way.")


def _told(files: Sequence[Mapping[str, JSON]], tag: str, before: int) -> str:
    """The version's file, in the words in which Spark tells of an append."""
    now = int(time.time() * 1000)
    metrics = {
        "numFiles": len(files),
        "numOutputRows": sum(json.loads(file["stats"])["numRecords"] for file in files),
        "numOutputBytes": sum(file["size"] for file in files),
    }
    info = {
        "timestamp": now,
        "userMetadata": tag,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": "[]"},
        "readVersion": before,
        "isolationLevel": "Serializable",
        "isBlindAppend": True,
        "operationMetrics": {name: str(value) for name, value in metrics.items()},
        "engineInfo": "wherry",
        "txnId": str(uuid.uuid4()),
    }
    lines = [{"commitInfo": info}, *({"add": file} for file in files)]
    return "".join(f"{json.dumps(line, ensure_ascii=False, separators=(',', ':'))}\n" for line in lines)


def _behind(folder: Path, version: int) -> Iterator[Path]:
    """The versions behind this one that are there, in their order."""
    while (file := _file(folder, version := version + 1)).exists():
        yield file


def _changes(file: Path) -> bool:
    """Whether this version changes what the table is, beside its rows."""
    with file.open(encoding="utf-8") as lines:
        return any(not _SAME.isdisjoint(json.loads(line)) for line in lines if any(each in line for each in _SAME))


_SAME = frozenset({"metaData", "protocol"})


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _file(folder: Path, version: int) -> Path:
    return folder / "_delta_log" / f"{version:020}.json"
