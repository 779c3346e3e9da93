"""What a Delta table proves about the batches it got, and how lost rows are restored.

The rows of a batch are in the files that its commit added. All rows are still in the table if each file is part of the
table, or was merged into a file that is (`OPTIMIZE`). A commit with a label of this pipeline may replace rows on
purpose: a merge, or the first batch of a run that replaces. Any other removal is a loss, until a later version restores
the same files.

If another writer changes rows of a file that also has rows of other batches, the files are compared row by row. If that
is not possible, the change is a doubt and not a loss.

A commit's files stay on the disk until a vacuum removes them. So lost rows are read from the version of the commit,
only from its files, and appended with the same labels.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TypeAlias
from urllib.parse import unquote

from destinations.capabilities import BroughtBatch, DeliveryAccount, Loss
from destinations.delta.data_files import find_harm, find_untouched
from destinations.delta.log import LocalLog, LogCommit, SparkLog, StoreLog, format_tag
from destinations.delta.store_commit import StoreVersions
from destinations.delta.table import TargetTable
from destinations.delta.versions import format_key
from destinations.destination import DestinationError
from destinations.dlq import DLQ
from destinations.labels import BatchLabel
from origins.delta_actions import AddedFile, Version, VersionLog
from origins.errors import OriginError, WherryError, list_spark_errors
from origins.lazy import DataFrame, SparkSession, T, delta_errors, deltalake
from origins.names import quote_text
from origins.object_store import open_delta_table
from origins.secret import cut_text
from origins.store_access import StoreError

_UNDOES = ("RESTORE", "CLONE")
_PICKS = ("DELETE", "UPDATE", "MERGE")
"""The operations that change some rows of a file and leave the others unchanged."""
Atom: TypeAlias = tuple[int, str]
"""A file as a commit added it: the version and the name."""
Look: TypeAlias = Callable[[Sequence[str], Sequence[str], Sequence[str]], Mapping[str, "bool | None"]]
"""A function that gets removed files, the files that replaced them, and our files, by their names.

Our files are those whose rows were in the removed files. It returns whether all rows of each of our files are still
there; None if unknown.
"""


@dataclass(frozen=True, kw_only=True)
class TableHistory:
    """The batches and losses that the versions of a table show."""

    brought: Sequence[BroughtBatch]
    losses: Sequence[Loss]
    files: Mapping[str, AddedFile]
    """The table's files that its history has, by their names."""


def trace_history(
    commits: Iterable[LogCommit], versions: Iterable[Version], pipeline: str, look: Look | None = None
) -> TableHistory:
    """Find what happened to the rows of each commit.

    Without `versions`, because the log cannot be read, it only uses what the operations report. Without `look`, it
    compares no rows.
    """
    by_number = {version.number: version for version in versions}
    walk = _HistoryWalk(pipeline, look)
    for commit in sorted(commits, key=lambda commit: commit.version):
        version = by_number.get(commit.version)
        walk.advance(commit, version) if version is not None else walk.advance_unread(commit)
    return TableHistory(brought=tuple(walk.finish()), losses=tuple(walk.losses), files=walk.active)


def _add_harm(batch: BroughtBatch, files: Mapping[str, Loss]) -> BroughtBatch:
    """Return the batch with the known losses of its files. `files` has the losses by file name."""
    hit = [files[name] for name in batch.files if name in files]
    if not hit or batch.loss is not None:
        return batch
    return replace(batch, loss=replace(hit[0], whole=len(hit) == len(batch.files)))


@dataclass(frozen=True)
class _FileRows:
    """What is known of the rows in a file."""

    whole: frozenset[Atom]
    """The atoms that the file has completely."""
    doubts: Mapping[Atom, Loss]
    """The atoms among them that the file may not have, each with the cause of the doubt."""
    parts: frozenset[Atom] = frozenset()
    """The atoms of which the file may have some rows, but not all."""


@dataclass
class _HistoryWalk:
    """The state of a table after some of its versions, file by file."""

    pipeline: str
    look: Look | None
    active: dict[str, AddedFile] = field(default_factory=dict)
    rows: dict[tuple[str, bool], _FileRows] = field(default_factory=dict)
    """The rows of a file, by its name and whether all its rows count, without the parts."""
    parts: dict[str, frozenset[Atom]] = field(default_factory=dict)
    """The parts of a file, by its name."""
    gone: dict[Atom, Loss] = field(default_factory=dict)
    """The loss for each atom that was removed completely or in part, unless that was on purpose."""
    sizes: dict[Atom, int] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    commits: list[tuple[LogCommit, tuple[AddedFile, ...]]] = field(default_factory=list)

    def advance(self, commit: LogCommit, version: Version) -> None:
        before = [self.active.pop(name) for name in version.removed if name in self.active]
        gone = {file.path: self._get_rows(file) for file in before}
        # a batch of this pipeline, and each merge, removes rows on purpose
        ours = any(label.pipeline == self.pipeline or commit.operation == "MERGE" for label in commit.labels)
        spared = {} if ours else self._find_spared(commit, version, before)
        if commit.labels:
            self.commits.append((commit, version.added))
            self.sizes.update({(commit.version, file.path): file.rows or 0 for file in version.added})
        for file in (*version.added, *version.rearranged):
            self._add(commit, version, file, gone, spared)
        unknown = len(version.removed) > len(before) and not commit.labels
        self._note_lost(commit, version, _join_all(gone.values()), ours=ours, unknown=unknown)

    def advance_unread(self, commit: LogCommit) -> None:
        """Add a version whose files cannot be read."""
        if commit.labels:
            self.commits.append((commit, ()))
        elif commit.undoes or _count_removed(commit):
            self.losses.append(_describe_loss(commit))

    def finish(self) -> Iterator[BroughtBatch]:
        """Return what each commit added, and what happened to its rows."""
        there = [self._get_rows(file) for file in self.active.values()]
        whole, partly = _join_whole(there), _join_all(there)
        doubtful = {atom: loss for rows in there for atom, loss in rows.doubts.items()}
        sure = frozenset[Atom]().union(*(rows.whole - rows.doubts.keys() for rows in there))
        for commit, added in self.commits:
            atoms = [(commit.version, file.path) for file in added]
            lost = [atom for atom in atoms if atom not in whole and atom in self.gone]
            left = [atom for atom in atoms if atom in partly]
            loss = replace(self.gone[lost[-1]], whole=not left) if lost else None
            doubts = [doubtful[atom] for atom in atoms if atom in doubtful and atom not in sure]
            yield from _list_brought(commit, added, loss, doubts[-1] if doubts and loss is None else None)

    def _get_rows(self, file: AddedFile) -> _FileRows:
        return replace(self.rows[file.path, file.plain], parts=self.parts.get(file.path, frozenset()))

    def _add(
        self,
        commit: LogCommit,
        version: Version,
        file: AddedFile,
        gone: Mapping[str, _FileRows],
        spared: Mapping[Atom, Loss | None],
    ) -> None:
        """Note the rows of a file that this version added, while it removed the files in `gone`."""
        key, again = (file.path, file.plain), gone.get(file.path)  # the same file with fewer rows
        self.active[file.path] = file
        if key in self.rows and commit.operation in _UNDOES:
            return
        doubts = {atom: loss for rows in gone.values() for atom, loss in rows.doubts.items()}
        if commit.labels:
            whole = frozenset({(commit.version, file.path)})
        elif file in version.rearranged and not version.rewrites:
            whole = _join_whole(gone.values())
            self.parts[file.path] = _join_all(gone.values()) - whole
        else:
            kept = {each.path for each in version.added}
            moved = [again] if again else [rows for name, rows in gone.items() if name not in kept]
            whole = _join_whole(moved) & spared.keys()
            self.parts[file.path] = _join_all([again] if again else gone.values()) - whole
            doubts |= {atom: loss for atom, loss in spared.items() if loss is not None}
        self.rows[key] = _FileRows(whole, {atom: loss for atom, loss in doubts.items() if atom in whole})

    def _find_spared(
        self, commit: LogCommit, version: Version, before: Sequence[AddedFile]
    ) -> Mapping[Atom, Loss | None]:
        """Return the atoms whose rows this foreign version may have left unchanged, each with its doubt or None.

        There are such atoms only if all changed rows may belong to other batches, because the version changed few rows
        and left enough.
        """
        whole, changed, added = _join_whole(map(self._get_rows, before)), _count_removed(commit), version.added
        if not whole or not changed or commit.operation not in _PICKS or not version.rewrites:
            return {}
        mine = sum(self.sizes[atom] for atom in whole)
        others = sum(file.rows or 0 for file in before) - mine
        if others < changed or sum(file.rows or 0 for file in added) < mine:
            return {}
        plain = all(file.plain for file in (*before, *added))
        names = [[file.path for file in files] for files in (before, added)]
        untouched = self.look(names[0], names[1], [path for _, path in whole]) if plain and self.look else {}
        reason = (
            f"version {commit.version} ({_describe_commit(commit)}) changed {changed:,} "
            "rows in files that hold rows of this batch and others"
        )
        doubt = Loss(code="NOT_PROVED", reason=reason, version=commit.version)
        verdicts = {atom: untouched.get(atom[1]) for atom in whole}
        return {atom: None if sure else doubt for atom, sure in verdicts.items() if sure is not False}

    def _note_lost(
        self, commit: LogCommit, version: Version, taken: frozenset[Atom], *, ours: bool, unknown: bool
    ) -> None:
        """Record the losses that this version caused."""
        if ours and commit.overwrites and not commit.parameters.get("predicate"):
            self.gone.clear()  # this commit would also have replaced all rows that were lost before
            self.losses.clear()
        if ours or not version.rewrites:
            return
        there = _join_whole(map(self._get_rows, (*version.added, *version.rearranged)))
        self.gone.update({atom: _describe_loss(commit) for atom in taken if atom not in there})
        if unknown:
            self.losses.append(_describe_loss(commit))


def _join_whole(files: Iterable[_FileRows]) -> frozenset[Atom]:
    """Return the atoms that these files have completely."""
    return frozenset[Atom]().union(*(rows.whole for rows in files))


def _join_all(files: Iterable[_FileRows]) -> frozenset[Atom]:
    """Return the atoms of which these files may have any row."""
    return frozenset[Atom]().union(*(rows.whole | rows.parts for rows in files))


def _list_brought(
    commit: LogCommit, added: Sequence[AddedFile], loss: Loss | None, doubt: Loss | None
) -> Iterator[BroughtBatch]:
    counted = [file.rows for file in added if file.rows is not None and file.plain]
    compares = commit.operation == "WRITE" and added and len(counted) == len(added)
    for label in commit.labels:
        yield BroughtBatch(
            label=label,
            rows=commit.measure_written().rows,
            together=[other.key for other in commit.labels],
            version=commit.version,
            listed=sum(counted) - commit.copied if compares else None,
            files=[file.path for file in added],
            copied=commit.copied,
            loss=loss,
            doubt=doubt,
        )


def _describe_loss(commit: LogCommit) -> Loss:
    code = "RESTORED" if commit.operation in _UNDOES else "ROWS_GONE"
    rows = _count_removed(commit)
    how_many = f" ({rows:,} row{'s' * (rows != 1)})" if rows else ""
    reason = f"version {commit.version} ({_describe_commit(commit)}) removed them{how_many}"
    return Loss(code=code, reason=reason, version=commit.version)


def _describe_commit(commit: LogCommit) -> str:
    when = f", {commit.at}" if commit.at else ""
    which = commit.parameters.get("predicate")
    what = f" where {which}" if which and which not in ("[]", '["true"]') else ""
    back = commit.parameters.get("version")
    to = f" to version {back}" if commit.operation in _UNDOES and back else ""
    return f"{commit.operation}{to}{what}{when}"


def _count_removed(commit: LogCommit) -> int:
    """Return how many rows a commit removed or changed, by its metrics."""
    names = (
        *("numDeletedRows", "numUpdatedRows", "numTargetRowsDeleted", "numTargetRowsUpdated"),
        *("num_deleted_rows", "num_updated_rows", "num_target_rows_deleted", "num_target_rows_updated"),
    )
    return sum(int(commit.metrics.get(name) or 0) for name in names)


_KEEPS_ROWS = ("OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "CREATE CHECKPOINT")
"""The operations that a restore may undo without losing rows."""


_ADDS_ROWS = ("WRITE", "STREAMING UPDATE", "COPY INTO")
"""The operations that remove no row, unless they overwrite."""


def _add_way_back(loss: Loss, commits: Sequence[LogCommit], table: str, pipeline: str, *, mends: bool) -> Loss:
    """Return the loss with the statements that undo it.

    `table` is the table's name in SQL. `mends` says whether whole batches can be appended again, so that a restore may
    remove them.
    """
    at, before = loss.version, next((commit for commit in commits if commit.version == loss.version), None)
    if at is None or before is None or not any(commit.version == at - 1 for commit in commits):
        return loss
    later = [commit for commit in commits if commit.version > at and commit.operation not in _KEEPS_ROWS]
    ours = [commit for commit in later if _brings(commit, pipeline)]
    old = f"{table} VERSION AS OF {at - 1}"
    return replace(
        loss,
        restore=f"RESTORE TABLE {table} TO VERSION AS OF {at - 1}" if later == ours and (mends or not ours) else "",
        takes_later=bool(ours),
        insert=f"INSERT INTO {table} SELECT * FROM {old} EXCEPT ALL SELECT * FROM {table} VERSION AS OF {at}"
        if before.operation == "DELETE"
        and all(commit.operation in _ADDS_ROWS and not commit.overwrites for commit in later)
        else "",
    )


def describe_dropped(spark: SparkSession, table: TargetTable, rows: T.StructType) -> Iterator[str]:
    """Return how to restore the values of columns that another writer dropped, if `rows` have these columns."""
    there = {name.lower() for name in table.schema.names}
    missing = {name.lower() for name in rows.names if name.lower() not in there}
    later: list[LogCommit] = []
    for commit in table.log.list_commits(spark, -1) if missing else ():
        if commit.operation == "DROP COLUMNS":
            dropped = missing & {name.lower() for name in json.loads(str(commit.parameters.get("columns", "[]")))}
            if dropped and not later:
                yield (
                    f"version {commit.version} ({_describe_commit(commit)}) dropped {', '.join(sorted(dropped))}; to "
                    f"get the values back, RESTORE TABLE {table.name} TO VERSION AS OF {commit.version - 1}"
                )
            return
        if commit.operation not in _KEEPS_ROWS:
            later.append(commit)


def _brings(commit: LogCommit, pipeline: str) -> bool:
    """Whether the commit only added batches, all of this pipeline."""
    adds = commit.operation == "WRITE" and not commit.overwrites
    return adds and {label.pipeline for label in commit.labels} == {pipeline}


_PROOFS = {
    "append": "commit, row count and every file",
    "merge": "merge and row count; not which rows later merges replaced",
    "replace": "commit and row count; the rows themselves only since the last replacement",
}
"""What the history proves about the rows of each mode."""
_PROOFS_BY_LOG = {**_PROOFS, "append": "commit and row count"}
"""The same for a table whose files are not checked."""


def make_account(
    name: str, place: Path | str | None, mode: str, spark: Callable[[], SparkSession], pipeline: str
) -> DeliveryAccount:
    """Return what the table with this SQL name proves. It may be in a folder of this machine or at a URL of a store."""
    if isinstance(place, Path):
        if not (place / "_delta_log").is_dir():
            return DeliveryAccount(place=str(place), proof="nothing: the table was not found", there=False)
        return _account_here(place, mode, pipeline, name)
    account = _account_in_store(place, mode, pipeline, name) if place else None
    if account is not None:
        return account
    table = TargetTable.find(spark(), name)
    if table is None:
        return DeliveryAccount(place=name, proof="nothing: the table was not found", there=False)
    if not isinstance(table.log, LocalLog):
        return _account_through_spark(table, mode, spark(), pipeline)
    return replace(_account_here(table.log.folder, mode, pipeline, name), place=name)


def _account_here(folder: Path, mode: str, pipeline: str, name: str, *, url: str = "") -> DeliveryAccount:
    """Return the account of a table in a folder.

    With `url`, the folder has only a copy of the log, and the table is there.
    """
    log, place = LocalLog(folder), url or str(folder)
    try:
        commits = list(log.list_commits(None, -1))
        versions = VersionLog(str(folder)).list_local_after(-1)
        table_id = _read_id(url) if url else str(log.read_metadata().get("id", ""))
    except (OSError, DestinationError, OriginError) as error:
        broken = Loss(code="LOG_BROKEN", reason=f"its log cannot be read ({str(error).splitlines()[0]})")
        return DeliveryAccount(place=place, proof="nothing: its log cannot be read", losses=[broken], since=_NEVER)
    look = None if url else partial(find_untouched, folder)
    history = trace_history(commits, versions, pipeline, look)
    losses, since = list(history.losses), _find_first_version(commits)
    if max((each.number for each in versions), default=-1) != max((each.version for each in commits), default=-1):
        losses.append(Loss(code="LOG_BROKEN", reason=f"version {since - 1} of its log is missing"))
    hurt: Mapping[str, Loss] = {}
    if not url:
        hurt = find_harm(folder, history.files.values() if since == 0 else _list_all_files(folder, history))
    brought = [_add_harm(batch, hurt) for batch in history.brought]
    known = {file for batch in brought for file in batch.files}
    losses += [loss for file, loss in hurt.items() if file not in known]
    proof = (_PROOFS_BY_LOG if url else _PROOFS)[mode]
    account = DeliveryAccount(
        place=place, proof=proof, id=table_id, mends=mode == "append", brought=brought, losses=losses
    )
    return _complete_account(account, commits, name, mode, pipeline)


def _account_in_store(url: str, mode: str, pipeline: str, name: str) -> DeliveryAccount | None:
    """Return the account of a table in an object store from its log; None if this process cannot read the log."""
    with tempfile.TemporaryDirectory(prefix="wherry-log-") as here:
        folder = Path(here)
        try:
            if not _copy_log(url, folder / "_delta_log"):
                return DeliveryAccount(place=url, proof="nothing: the table was not found", there=False)
            return _account_here(folder, mode, pipeline, name, url=url)
        except StoreError:
            return None


def _copy_log(url: str, folder: Path) -> int:
    """Copy the versions of a table in a store, and return their number.

    Each copy is read twice: for the commit's label and for its files. Fetching many versions at a time is faster than
    one by one.
    """
    versions = StoreVersions(url)
    folder.mkdir()

    def copy(version: int) -> None:
        (folder.parent / format_key(version)).write_bytes(versions.store.read(format_key(version)))

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return len(list(pool.map(copy, versions.list_versions())))


_AT_ONCE = 16
"""How many files of a log are fetched at the same time."""


def _read_id(url: str) -> str:
    """Return the id of the table at this URL; empty if `deltalake` cannot read it."""
    try:
        table = open_delta_table(url)
    except delta_errors.DeltaError:
        return ""
    return "" if table is None else str(table.metadata().id)


def _account_through_spark(table: TargetTable, mode: str, spark: SparkSession, pipeline: str) -> DeliveryAccount:
    commits = list(table.log.list_commits(spark, -1))
    versions: Sequence[Version] = ()
    if not isinstance(table.log, SparkLog) or table.log.location:
        with contextlib.suppress(*list_spark_errors()):  # a catalog may deny access to the table's folder
            versions = VersionLog(table.location).list_after(spark, -1)
    history = trace_history(commits, versions, pipeline)
    seen = "" if versions else "; from the table's history alone, since its files cannot be read"
    account = DeliveryAccount(
        place=table.name,
        proof=_PROOFS_BY_LOG[mode] + seen,
        id=table.id,
        mends=mode == "append" and bool(versions),
        brought=history.brought,
        losses=history.losses,
    )
    return _complete_account(account, commits, table.name, mode, pipeline)


def _complete_account(
    account: DeliveryAccount, commits: Sequence[LogCommit], name: str, mode: str, pipeline: str
) -> DeliveryAccount:
    """Return the account with the statements that undo each loss.

    Also set what follows from the mode and from the history's age.
    """

    def add(loss: Loss) -> Loss:
        return _add_way_back(loss, commits, name, pipeline, mends=account.mends)

    return replace(
        account,
        silent=mode == "merge",
        since=_find_first_version(commits),
        brought=[batch if batch.loss is None else replace(batch, loss=add(batch.loss)) for batch in account.brought],
        losses=[add(loss) for loss in account.losses],
    )


def find_newest(log: LocalLog | StoreLog, version: int, pipeline: str) -> BatchLabel | None:
    """Return the label of this pipeline's newest batch in the last few versions; None if they have none."""
    commits = log.list_commits(None, max(version - _LOOKED_AT, -1))
    return next((label for commit in commits for label in commit.labels if label.pipeline == pipeline), None)


_LOOKED_AT = 16
_NEVER = 1 << 62


def _find_first_version(commits: Sequence[LogCommit]) -> int:
    return min((commit.version for commit in commits), default=_NEVER)


def _list_all_files(folder: Path, history: TableHistory) -> Iterable[AddedFile]:
    """Return all files of the table, also those older than the history.

    If `deltalake` fails, the older ones are missing.
    """
    try:
        added = deltalake.DeltaTable(str(folder)).get_add_actions(flatten=True)
        rows = zip(*(added[name].to_pylist() for name in ("path", "size_bytes", "num_records")), strict=True)
    except (delta_errors.DeltaError, OSError, KeyError):
        return history.files.values()
    older = [AddedFile(path=unquote(path), size=size, rows=count, plain=True) for path, size, count in rows]
    return [*history.files.values(), *(file for file in older if file.path not in history.files)]


def put_back(
    spark: SparkSession, table: TargetTable, brought: Sequence[BroughtBatch], *, but: Collection[str] | None = None
) -> int:
    """Append the rows of one commit again, and return their number. `brought` has all batches of that commit.

    With `but`, it only appends rows whose `id` is neither in the table now nor in `but`. Raises `DestinationError` if
    the files are gone.
    """
    first = brought[0]
    before = table.log.find_latest(spark)
    try:
        with table.hold_commits():
            table.append(_select_brought(spark, table, first, but), format_tag([batch.label for batch in brought]))
    except list_spark_errors(WherryError) as error:
        raise DestinationError(
            f"The rows of version {first.version} of {table.location} cannot be put back: "
            f"{cut_text(str(error).splitlines()[0], 300)}",
            hint=f"Wherry wrote nothing.{_suggest_again([batch.label for batch in brought])}",
        ) from error
    written = table.find_written(spark, first.key, before)
    return written.rows or 0


def _suggest_again(labels: Sequence[BatchLabel]) -> str:
    """Return how to deliver the batches of a commit again; empty for the DLQ, which no command delivers to alone."""
    first, last = (pick(labels, key=lambda label: label.number) for pick in (min, max))
    if first.destination == DLQ:
        return ""
    lane = shlex.quote(first.lane)
    return (
        f" If a VACUUM deleted the files, deliver the batch again:  wherry backfill FILE --lane {lane} --from "
        f'{first.number} --to {last.number} --only {first.destination} --again --reason "…"'
    )


def _select_brought(
    spark: SparkSession, table: TargetTable, brought: BroughtBatch, but: Collection[str] | None
) -> DataFrame:
    names = ", ".join(quote_text(PurePosixPath(file).name) for file in brought.files)
    rows = spark.sql(
        f"SELECT * FROM {table.name} VERSION AS OF {brought.version} WHERE _metadata.file_name IN ({names})"
    )
    if but is None:
        return rows
    wanted = rows.join(spark.sql(f"SELECT id FROM {table.name}"), "id", "left_anti")
    if but:
        wanted = wanted.join(spark.createDataFrame([(letter,) for letter in but], "id string"), "id", "left_anti")
    return wanted.select(*rows.columns)
