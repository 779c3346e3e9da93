"""What a Delta table can show for the batches it got: who wrote which version, and what became of the files since.

The rows of a batch are the files that its commit added. They are all there as long as each of these is part of the
table, or was put together with others into one that is (`OPTIMIZE`). A commit under a label of ours may take the place
of rows on purpose: a merge, or the first batch of a run that replaces. What anybody else takes away is a loss, until a
later version brings just these files back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from destinations.account import Brought, Loss
from destinations.delta_log import Commit, labels_in
from origins.delta_versions import Added, Version

_UNDOES = ("RESTORE", "CLONE")


@dataclass(frozen=True, kw_only=True)
class Story:
    """What the versions of a table add up to."""

    brought: Sequence[Brought]
    losses: Sequence[Loss]
    files: Mapping[str, Added]
    """The files that the table has, of those of which its history still tells, by their names."""


def story_of(commits: Iterable[Commit], versions: Iterable[Version], pipeline: str) -> Story:
    """What became of the rows that each commit brought, oldest version first. Without `versions` (a table whose log
    cannot be read) only what the operations themselves say is known.
    """
    by_number = {version.number: version for version in versions}
    told = sorted(commits, key=lambda commit: commit.version)
    tale = _Tale(pipeline)
    for commit in told:
        version = by_number.get(commit.version)
        tale.turn(commit, version) if version is not None else tale.hear(commit)
    return Story(brought=tuple(tale.ending()), losses=tuple(tale.losses), files=tale.active)


def harmed(brought: Sequence[Brought], files: Mapping[str, Loss]) -> list[Brought]:
    """The same, where the losses of files as they lie are known, by the files' names."""
    found = []
    for each in brought:
        hit = [files[name] for name in each.files if name in files]
        if hit and each.loss is None:
            each = replace(each, loss=replace(hit[0], whole=len(hit) == len(each.files)))
        found.append(each)
    return found


@dataclass
class _Tale:
    """The versions up to one of them, file by file. An atom is a file as a commit brought it: its version and name."""

    pipeline: str
    active: dict[str, Added] = field(default_factory=dict)
    contents: dict[tuple[str, bool], frozenset[tuple[int, str]]] = field(default_factory=dict)
    """Which atoms a file holds whole, by its name and whether all that stands in it counts."""
    parts: dict[str, frozenset[tuple[int, str]]] = field(default_factory=dict)
    """The atoms of which a file that is part of the table may hold some rows, and not all."""
    gone: dict[tuple[int, str], Loss] = field(default_factory=dict)
    """What took an atom away, or a part of it, that did not make room on purpose."""
    losses: list[Loss] = field(default_factory=list)
    commits: list[tuple[Commit, tuple[Added, ...]]] = field(default_factory=list)

    def turn(self, commit: Commit, version: Version) -> None:
        """One version more."""
        labels = [label for label in labels_in(commit.tag) if commit.carries(label["key"])]
        before = [(name, self._held(name)) for name in version.moved if name in self.active]
        unknown = len(version.moved) > len(before)
        for name in version.moved:
            self.active.pop(name, None)
        brings = (*version.added, *version.rearranged)
        if labels:
            self.commits.append((commit, version.added))
        taken = frozenset().union(*(whole | parts for _, (whole, parts) in before)) if before else frozenset()
        whole = frozenset().union(*(whole for _, (whole, _) in before)) if before else frozenset()
        for file in brings:
            self._add(commit, version, file, labels=bool(labels), whole=whole, taken=taken, sources=before)
        self._miss(commit, version, taken, ours=self._ours(commit, labels), unknown=unknown and not labels)

    def hear(self, commit: Commit) -> None:
        """One version more, of which the files cannot be seen."""
        labels = [label for label in labels_in(commit.tag) if commit.carries(label["key"])]
        if labels:
            self.commits.append((commit, ()))
        elif commit.undoes or _removed(commit):
            self.losses.append(_loss(commit))

    def ending(self) -> Iterator[Brought]:
        """What each commit brought, and what became of it."""
        whole = frozenset().union(*(self._held(name)[0] for name in self.active)) if self.active else frozenset()
        partly = frozenset().union(*(self.parts.get(name, frozenset()) for name in self.active))
        for commit, added in self.commits:
            atoms = [(commit.version, file.path) for file in added]
            lost = [atom for atom in atoms if atom not in whole and atom in self.gone]
            left = [atom for atom in atoms if atom in whole or atom in partly]
            loss = replace(self.gone[lost[-1]], whole=not left) if lost else None
            yield from _each(commit, added, loss)

    def _held(self, name: str) -> tuple[frozenset[tuple[int, str]], frozenset[tuple[int, str]]]:
        """The atoms that a file of the table holds whole, and those of which it may hold some rows."""
        file = self.active[name]
        return self.contents.get((name, file.plain), frozenset()), self.parts.get(name, frozenset())

    def _add(
        self,
        commit: Commit,
        version: Version,
        file: Added,
        *,
        labels: bool,
        whole: frozenset[tuple[int, str]],
        taken: frozenset[tuple[int, str]],
        sources: Sequence[tuple[str, object]],
    ) -> None:
        known = (file.path, file.plain) in self.contents and commit.operation in _UNDOES
        self.active[file.path] = file
        if known:
            return
        if labels:
            self.contents[file.path, file.plain] = frozenset({(commit.version, file.path)})
        elif file in version.rearranged and not version.rewrites:
            self.contents[file.path, file.plain] = whole
            self.parts[file.path] = taken - whole
        else:
            own = {name: held for name, held in sources if name == file.path}
            self.contents[file.path, file.plain] = frozenset()
            self.parts[file.path] = taken if not own else own[file.path][0] | own[file.path][1]  # type: ignore[index]

    def _miss(
        self, commit: Commit, version: Version, taken: frozenset[tuple[int, str]], *, ours: bool, unknown: bool
    ) -> None:
        """Note whose rows went with this version."""
        if ours and commit.overwrites and not commit.parameters.get("predicate"):
            self.gone.clear()  # whatever was lost before would have made room now
            self.losses.clear()
        if ours or not version.rewrites:
            return
        there: set[tuple[int, str]] = set()
        for file in (*version.added, *version.rearranged):
            there |= self._held(file.path)[0]
        self.gone.update({atom: _loss(commit) for atom in taken if atom not in there})
        if unknown:
            self.losses.append(_loss(commit))

    def _ours(self, commit: Commit, labels: Sequence[Mapping[str, object]]) -> bool:
        """Whether rows that went with this commit went on purpose: one of this pipeline's, or anybody's merge."""
        mine = any(label["pipeline"] == self.pipeline for label in labels)
        return mine or (bool(labels) and commit.operation == "MERGE")


def _each(commit: Commit, added: Sequence[Added], loss: Loss | None) -> Iterator[Brought]:
    counted = [file.rows for file in added if file.rows is not None and file.plain]
    compares = commit.operation == "WRITE" and added and len(counted) == len(added)
    labels = [label for label in labels_in(commit.tag) if commit.carries(label["key"])]
    for label in labels:
        yield Brought(
            label=label,
            rows=commit.written().rows,
            together=[str(each["key"]) for each in labels],
            version=commit.version,
            listed=sum(counted) if compares else None,
            files=[file.path for file in added],
            loss=loss,
        )


def _loss(commit: Commit) -> Loss:
    code = "RESTORED" if commit.operation in _UNDOES else "ROWS_GONE"
    when = f", {commit.at}" if commit.at else ""
    rows = _removed(commit)
    how_many = f" ({rows:,} rows)" if rows else ""
    which = commit.parameters.get("predicate")
    what = f" where {which}" if which and which not in ("[]", '["true"]') else ""
    back = commit.parameters.get("version")
    to = f" to version {back}" if code == "RESTORED" and back else ""
    said = f"version {commit.version} ({commit.operation}{to}{what}{when}) took them away{how_many}"
    return Loss(code=code, said=said, version=commit.version)


def _removed(commit: Commit) -> int:
    """How many rows a commit says that it took away or changed."""
    names = ("numDeletedRows", "numTargetRowsDeleted", "numUpdatedRows", "num_deleted_rows", "num_updated_rows")
    return sum(int(commit.metrics.get(name) or 0) for name in names)
