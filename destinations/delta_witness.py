"""A Delta table is asked what it got: on this machine from its log and its files, without Spark; else through Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote

from destinations.account import Account, Loss
from destinations.delta_account import Story, harmed, story_of
from destinations.delta_files import harm, untouched
from destinations.delta_log import Commit, LocalLog, SparkLog, labels_in
from destinations.delta_table import Table
from origins.batch import JSON
from origins.delta_versions import Added, Version, Versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MODES = {
    "append": "each batch is a commit of its own with its rows' count, and each of its files is looked at",
    "merge": "each batch's merge and how many rows it was given; not which of them later merges replaced",
    "replace": "each batch's commit and its rows' count; the rows themselves only since the last replacement",
}


def account(name: str, folder: Path | None, mode: str, spark: Callable[[], SparkSession], pipeline: str) -> Account:
    """What the table of this name in SQL can show, which may lie in a folder of this machine."""
    if folder is not None:
        if not LocalLog(folder).file(0).parent.is_dir():
            return Account(place=str(folder), proof="nothing: there is no such table", there=False)
        return _on_this_machine(folder, mode, pipeline)
    table = Table.find(spark(), name)
    if table is None:
        return Account(place=name, proof="nothing: there is no such table", there=False)
    if isinstance(table.log, LocalLog):
        return replace(_on_this_machine(table.log.folder, mode, pipeline), place=name)
    assert isinstance(table.log, SparkLog)
    return _through_spark(table, table.log, mode, spark(), pipeline)


def _on_this_machine(folder: Path, mode: str, pipeline: str) -> Account:
    log, nobody = LocalLog(folder), cast("SparkSession", None)
    try:
        commits = list(log.commits(nobody, -1))
        versions = Versions(str(folder)).after(nobody, -1)
        table_id = str(log.metadata(nobody).get("id", ""))
    except (OSError, ValueError, KeyError) as error:
        broken = Loss(code="LOG_BROKEN", said=f"its log cannot be read ({error})")
        return Account(place=str(folder), proof="nothing: its log cannot be read", losses=[broken], since=_NEVER)
    story = story_of(commits, versions, pipeline, partial(untouched, folder))
    losses, since = list(story.losses), _since(commits)
    if max((each.number for each in versions), default=-1) != max((each.version for each in commits), default=-1):
        losses.append(Loss(code="LOG_BROKEN", said=f"version {since - 1} of its log is missing"))
    hurt = harm(folder, story.files.values() if since == 0 else _all_files(folder, story))
    brought = harmed(story.brought, hurt)
    known = {file for each in brought for file in each.files}
    losses += [loss for file, loss in hurt.items() if file not in known]
    return Account(
        place=str(folder),
        proof=_MODES[mode],
        silent=mode == "merge",
        mends=mode == "append",
        id=table_id,
        since=since,
        brought=brought,
        losses=losses,
    )


def _through_spark(table: Table, log: SparkLog, mode: str, spark: SparkSession, pipeline: str) -> Account:
    commits = list(log.commits(spark, -1))
    versions: Sequence[Version] = ()
    with contextlib.suppress(Exception):  # a catalog may keep a table's folder to itself, and says so in many ways
        versions = Versions(table.location).after(spark, -1)
    story = story_of(commits, versions, pipeline)
    seen = "" if versions else "; its files cannot be seen, so only what its history says of itself"
    return Account(
        place=table.name,
        proof=_MODES[mode].replace(", and each of its files is looked at", "") + seen,
        silent=mode == "merge",
        mends=mode == "append" and bool(versions),
        id=table.id,
        since=_since(commits),
        brought=story.brought,
        losses=story.losses,
    )


def newest(log: LocalLog, version: int, pipeline: str) -> Mapping[str, JSON] | None:
    """What the newest of the last few versions says that brought a batch of this pipeline."""
    for commit in log.commits(cast("SparkSession", None), max(version - _LOOKED_AT, -1)):
        for label in labels_in(commit.tag):
            if label["pipeline"] == pipeline and commit.carries(label["key"]):
                return label
    return None


_LOOKED_AT = 16
_NEVER = 1 << 62


def _since(commits: Sequence[Commit]) -> int:
    return min((commit.version for commit in commits), default=_NEVER)


def _all_files(folder: Path, story: Story) -> Iterable[Added]:
    """Also those that are older than the history; where `deltalake` cannot tell them, those alone that are not."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        told = DeltaTable(str(folder)).get_add_actions(flatten=True)
        rows = zip(*(told[name].to_pylist() for name in ("path", "size_bytes", "num_records")), strict=True)
    except (DeltaError, OSError, KeyError):
        return story.files.values()
    older = [Added(path=unquote(path), size=size, rows=count, plain=True) for path, size, count in rows]
    return [*story.files.values(), *(file for file in older if file.path not in story.files)]
