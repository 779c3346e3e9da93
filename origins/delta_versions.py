"""What each version of a Delta table brought, as its log says: read on this machine, or else through Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from origins.batch import JSON
from origins.listing import literally

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COMMIT = re.compile(r"(\d{20})\.json")


@dataclass(frozen=True, kw_only=True)
class Added:
    """A file whose rows a version brought."""

    path: str
    """Relative to the table, with `/` between folders; absolute where it lies elsewhere."""
    size: int
    rows: int | None
    """As the writer counted; None where it did not."""
    plain: bool
    """Whether all that stands in the file counts, and it lies below the table."""
    stats: str = field(default="", repr=False, compare=False)
    """What the writer noted of its columns, as JSON."""


@dataclass(frozen=True, kw_only=True)
class Version:
    """One version of a table."""

    number: int
    operation: str
    added: tuple[Added, ...]
    """The files with rows that were not there before."""
    rewrites: bool
    """Whether rows that were there before went or changed."""
    moved: frozenset[str]
    """Files that went, though their rows stayed: they were written anew into others."""
    columns: str | None
    """The table's columns, where this version says them anew (Spark's JSON)."""
    rearranged: tuple[Added, ...] = ()
    """The files into which rows that were there before were written anew."""


@dataclass(frozen=True)
class Versions:
    """The log of the table that lies here."""

    location: str

    @property
    def folder(self) -> Path | None:
        """The table's folder, if it is on this machine."""
        if self.location.startswith("file:"):
            return Path("/" + self.location.removeprefix("file:").lstrip("/"))
        return Path(self.location) if self.location.startswith("/") else None

    def after(self, spark: SparkSession, number: int) -> list[Version]:
        """The versions after this one that the log still has, oldest first and without a gap."""
        if self.folder is None:
            found = self._by_spark(spark, number)
        else:
            log = self.folder / "_delta_log"
            found = _following(log, number)
            if not found and not self.has(number):
                found = _listed(log, number)
        newest = max(found, default=number)
        first = newest
        while first - 1 in found:
            first -= 1
        return [_version(at, found[at]) for at in range(first, newest + 1) if at in found]

    def has(self, number: int) -> bool:
        """Whether this version is known to be there, without asking Spark."""
        return self.folder is not None and (self.folder / "_delta_log" / f"{number:020}.json").exists()

    def _by_spark(self, spark: SparkSession, number: int) -> dict[int, list[str]]:
        from pyspark.sql import functions as F

        files = (
            spark.read.format("text").option("pathGlobFilter", "*.json").load(f"{literally(self.location)}/_delta_log")
        )
        at = F.regexp_extract("_metadata.file_name", f"^{_COMMIT.pattern}$", 1)
        lines = files.select(at.alias("at"), "value").where("at <> ''").where(F.col("at").cast("bigint") > number)
        found: dict[int, list[str]] = {}
        for version, line in lines.collect():
            found.setdefault(int(version), []).append(line)
        return found


def _following(log: Path, number: int) -> dict[int, list[str]]:
    """The commits right after this one."""
    found = {}
    while (file := log / f"{number + 1:020}.json").exists():
        number += 1
        found[number] = file.read_text(encoding="utf-8").split("\n")
    return found


def _listed(log: Path, number: int) -> dict[int, list[str]]:
    """The commits after this one, where the next is not there."""
    names = {int(name.group(1)): name.group() for path in log.glob("*.json") if (name := _COMMIT.fullmatch(path.name))}
    return {at: (log / name).read_text(encoding="utf-8").split("\n") for at, name in names.items() if at > number}


def _version(number: int, lines: Iterable[str]) -> Version:
    actions: list[Mapping[str, JSON]] = [json.loads(line) for line in lines if line.strip()]
    adds = [action["add"] for action in actions if "add" in action]
    removes = [action["remove"] for action in actions if "remove" in action]
    info = next((action["commitInfo"] for action in actions if "commitInfo" in action), None) or {}
    operation = info.get("operation", "")
    began_anew = number > 0 and (operation in ("RESTORE", "CLONE") or "REPLACE" in operation)
    return Version(
        number=number,
        operation=operation,
        added=tuple(_added(add) for add in adds if add.get("dataChange", True)),
        rewrites=began_anew or any(remove.get("dataChange", True) for remove in removes),
        moved=frozenset(unquote(remove["path"]) for remove in removes),
        columns=next((action["metaData"]["schemaString"] for action in actions if "metaData" in action), None),
        rearranged=tuple(_added(add) for add in adds if not add.get("dataChange", True)),
    )


def _added(add: Mapping[str, JSON]) -> Added:
    path = unquote(add["path"])
    stats = json.loads(add.get("stats") or "{}")
    below = not path.startswith("/") and ":" not in path.split("/")[0]
    return Added(
        path=path,
        size=add["size"],
        rows=stats.get("numRecords"),
        plain=below and not add.get("deletionVector"),
        stats=add.get("stats") or "",
    )
