"""What a Delta table can show for the batches it got: who wrote which version, and what became of the files since.

The rows of a batch are the files that its commit added. They are all there as long as each of these is part of the
table, or was put together with others into one that is (`OPTIMIZE`). A commit under a label of ours may take the place
of rows on purpose: a merge, or the first batch of a run that replaces. What anybody else takes away is a loss, until a
later version brings just these files back. Where somebody changes rows of a file that holds ours and others, the files
are compared row by row; where that cannot be done, it is a doubt and no loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from destinations.account import Brought, Loss
from destinations.delta_log import Commit, labels_in
from origins.delta_versions import Added, Version

_UNDOES = ("RESTORE", "CLONE")
_PICKS = ("DELETE", "UPDATE", "MERGE")
"""The operations that change some rows of a file and leave others as they are."""
Atom: TypeAlias = tuple[int, str]
"""A file as a commit brought it: its version and name."""
Look: TypeAlias = Callable[[Sequence[str], Sequence[str], Sequence[str]], Mapping[str, "bool | None"]]
"""Asked of files that took the place of others, and of files of ours whose rows stood in those, by their names: whether
all rows of each of ours are still there; None where that cannot be told."""


@dataclass(frozen=True, kw_only=True)
class Story:
    """What the versions of a table add up to."""

    brought: Sequence[Brought]
    losses: Sequence[Loss]
    files: Mapping[str, Added]
    """The files that the table has, of those of which its history still tells, by their names."""


def _no_look(before: Sequence[str], after: Sequence[str], mine: Sequence[str]) -> Mapping[str, bool | None]:
    return dict.fromkeys(mine)


def story_of(commits: Iterable[Commit], versions: Iterable[Version], pipeline: str, look: Look = _no_look) -> Story:
    """What became of the rows that each commit brought, oldest version first. Without `versions` (a table whose log
    cannot be read) only what the operations themselves say is known.
    """
    by_number = {version.number: version for version in versions}
    told = sorted(commits, key=lambda commit: commit.version)
    tale = _Tale(pipeline, look)
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
    """The versions up to one of them, file by file."""

    pipeline: str
    look: Look
    active: dict[str, Added] = field(default_factory=dict)
    contents: dict[tuple[str, bool], frozenset[Atom]] = field(default_factory=dict)
    """Which atoms a file holds whole, by its name and whether all that stands in it counts."""
    parts: dict[str, frozenset[Atom]] = field(default_factory=dict)
    """The atoms of which a file that is part of the table may hold some rows, and not all."""
    gone: dict[Atom, Loss] = field(default_factory=dict)
    """What took an atom away, or a part of it, that did not make room on purpose."""
    doubts: dict[tuple[str, bool], Mapping[Atom, Loss]] = field(default_factory=dict)
    """The atoms that a file may hold whole, of which nobody can say whether it does, and what made it so."""
    sizes: dict[Atom, int] = field(default_factory=dict)
    """How many rows atoms have."""
    losses: list[Loss] = field(default_factory=list)
    commits: list[tuple[Commit, tuple[Added, ...]]] = field(default_factory=list)

    def turn(self, commit: Commit, version: Version) -> None:
        """One version more."""
        labels = [label for label in labels_in(commit.tag) if commit.carries(label["key"])]
        before = [(self.active[name], *self._held(name)) for name in version.moved if name in self.active]
        unknown = len(version.moved) > len(before)
        for file, _, _ in before:
            del self.active[file.path]
        gone = _Gone(
            files=tuple(file for file, _, _ in before),
            whole={file.path: whole for file, whole, _ in before},
            parts={file.path: parts for file, _, parts in before},
            doubts={atom: loss for file, _, _ in before for atom, loss in self._doubts(file).items()},
        )
        ours = self._ours(commit, labels)
        spared = {} if ours else self._spared(commit, version, gone)
        if labels:
            self.commits.append((commit, version.added))
            self.sizes.update({(commit.version, file.path): file.rows or 0 for file in version.added})
        for file in (*version.added, *version.rearranged):
            self._add(commit, version, file, labels=bool(labels), gone=gone, spared=spared)
        self._miss(commit, version, gone.atoms, ours=ours, unknown=unknown and not labels)

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
        doubtful = self._doubtful()
        for commit, added in self.commits:
            atoms = [(commit.version, file.path) for file in added]
            lost = [atom for atom in atoms if atom not in whole and atom in self.gone]
            left = [atom for atom in atoms if atom in whole or atom in partly]
            loss = replace(self.gone[lost[-1]], whole=not left) if lost else None
            doubts = [doubtful[atom] for atom in atoms if atom in doubtful]
            yield from _each(commit, added, loss, doubts[-1] if doubts and loss is None else None)

    def _doubtful(self) -> Mapping[Atom, Loss]:
        """The atoms that the table may have whole, and no file of it surely."""
        doubts = {atom: loss for file in self.active.values() for atom, loss in self._doubts(file).items()}
        if not doubts:
            return {}
        sure = frozenset[Atom]().union(
            *(self._held(name)[0] - self._doubts(file).keys() for name, file in self.active.items())
        )
        return {atom: loss for atom, loss in doubts.items() if atom not in sure}

    def _held(self, name: str) -> tuple[frozenset[Atom], frozenset[Atom]]:
        """The atoms that a file of the table holds whole, and those of which it may hold some rows."""
        file = self.active[name]
        return self.contents.get((name, file.plain), frozenset()), self.parts.get(name, frozenset())

    def _doubts(self, file: Added) -> Mapping[Atom, Loss]:
        return self.doubts.get((file.path, file.plain), {})

    def _add(
        self,
        commit: Commit,
        version: Version,
        file: Added,
        *,
        labels: bool,
        gone: _Gone,
        spared: Mapping[Atom, Loss | None],
    ) -> None:
        key = (file.path, file.plain)
        known = key in self.contents and commit.operation in _UNDOES
        self.active[file.path] = file
        if known:
            return
        doubts = gone.doubts
        if labels:
            self.contents[key] = frozenset({(commit.version, file.path)})
        elif file in version.rearranged and not version.rewrites:
            self.contents[key] = whole = frozenset().union(*gone.whole.values())
            self.parts[file.path] = gone.atoms - whole
        else:
            again = file.path in gone.whole  # the same file with fewer rows
            held = gone.whole[file.path] if again else frozenset().union(*gone.moved(version).values())
            self.contents[key] = whole = held & spared.keys()
            inside = gone.whole[file.path] | gone.parts[file.path] if again else gone.atoms
            self.parts[file.path] = inside - whole
            doubts = {**doubts, **{atom: loss for atom, loss in spared.items() if loss is not None}}
        self.doubts[key] = {atom: loss for atom, loss in doubts.items() if atom in self.contents[key]}

    def _spared(self, commit: Commit, version: Version, gone: _Gone) -> Mapping[Atom, Loss | None]:
        """The atoms of which this version, which somebody else wrote, may have left all rows as they were, each with
        the doubt where that is not sure. It has changed so few rows, and left so many, that they may all be others'."""
        whole = frozenset().union(*gone.whole.values())
        changed, added = _removed(commit), version.added
        if not whole or not changed or commit.operation not in _PICKS or not version.rewrites:
            return {}
        mine = sum(self.sizes[atom] for atom in whole)
        others = sum(file.rows or 0 for file in gone.files) - mine
        if others < changed or sum(file.rows or 0 for file in added) < mine:
            return {}
        plain = all(file.plain for file in (*gone.files, *added))
        names = [[file.path for file in files] for files in (gone.files, added)]
        told = self.look(names[0], names[1], [path for _, path in whole]) if plain else {}
        said = f"version {commit.version} ({_what(commit)}) changed {changed:,} rows in files that hold them and others"
        doubt = Loss(code="NOT_PROVED", said=said, version=commit.version)
        verdicts = {atom: told.get(atom[1]) for atom in whole}
        return {atom: None if sure else doubt for atom, sure in verdicts.items() if sure is not False}

    def _miss(self, commit: Commit, version: Version, taken: frozenset[Atom], *, ours: bool, unknown: bool) -> None:
        """Note whose rows went with this version."""
        if ours and commit.overwrites and not commit.parameters.get("predicate"):
            self.gone.clear()  # whatever was lost before would have made room now
            self.losses.clear()
        if ours or not version.rewrites:
            return
        there: set[Atom] = set()
        for file in (*version.added, *version.rearranged):
            there |= self._held(file.path)[0]
        self.gone.update({atom: _loss(commit) for atom in taken if atom not in there})
        if unknown:
            self.losses.append(_loss(commit))

    def _ours(self, commit: Commit, labels: Sequence[Mapping[str, object]]) -> bool:
        """Whether rows that went with this commit went on purpose: one of this pipeline's, or anybody's merge."""
        mine = any(label["pipeline"] == self.pipeline for label in labels)
        return mine or (bool(labels) and commit.operation == "MERGE")


@dataclass(frozen=True, kw_only=True)
class _Gone:
    """The files that a version took out of the table, and the atoms that each holds: whole, in part, in doubt."""

    files: tuple[Added, ...]
    whole: Mapping[str, frozenset[Atom]]
    parts: Mapping[str, frozenset[Atom]]
    doubts: Mapping[Atom, Loss]

    @property
    def atoms(self) -> frozenset[Atom]:
        """All that they hold."""
        return frozenset().union(*self.whole.values(), *self.parts.values())

    def moved(self, version: Version) -> Mapping[str, frozenset[Atom]]:
        """What those hold whole that are not part of the table again, with fewer rows."""
        again = {file.path for file in version.added}
        return {name: whole for name, whole in self.whole.items() if name not in again}


def _each(commit: Commit, added: Sequence[Added], loss: Loss | None, doubt: Loss | None) -> Iterator[Brought]:
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
            doubt=doubt,
        )


def _loss(commit: Commit) -> Loss:
    code = "RESTORED" if commit.operation in _UNDOES else "ROWS_GONE"
    rows = _removed(commit)
    how_many = f" ({rows:,} rows)" if rows else ""
    said = f"version {commit.version} ({_what(commit)}) took them away{how_many}"
    return Loss(code=code, said=said, version=commit.version)


def _what(commit: Commit) -> str:
    """What a version did, and when."""
    when = f", {commit.at}" if commit.at else ""
    which = commit.parameters.get("predicate")
    what = f" where {which}" if which and which not in ("[]", '["true"]') else ""
    back = commit.parameters.get("version")
    to = f" to version {back}" if commit.operation in _UNDOES and back else ""
    return f"{commit.operation}{to}{what}{when}"


def _removed(commit: Commit) -> int:
    """How many rows a commit says that it took away or changed."""
    names = (
        *("numDeletedRows", "numUpdatedRows", "numTargetRowsDeleted", "numTargetRowsUpdated"),
        *("num_deleted_rows", "num_updated_rows", "num_target_rows_deleted", "num_target_rows_updated"),
    )
    return sum(int(commit.metrics.get(name) or 0) for name in names)
