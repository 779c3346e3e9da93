"""A look at the head of every file: which files belong together, and where they differ."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from origins.files.csv_header import OPENERS
from origins.files.heads import Head, UnreadableError, look_at, pick_evenly, read_start
from origins.files.listing import PACKED
from runners.model.errors import Refusal

FORMATS = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
_MOST_FILES = 2_000
"""How many files are looked at. Of more files, this many are chosen evenly by name."""
_MOST_LISTED = 100_000
_ALL_BYTES, _MOST_BYTES, _FEWEST_BYTES = 8 << 20, 1 << 20, 4 << 10
"""How many bytes are read of all files together, and at most and at least of each file."""
_ALL_ROWS, _MOST_ROWS, _FEWEST_ROWS = 10_000, 2_000, 10
_COMPARED = 4 << 10
"""How many bytes are compared to find out whether a packed file has the rows of the file beside it."""

Options = Mapping[str, str | bool]


@dataclass(frozen=True, kw_only=True)
class Group:
    """Files that one reader reads with the same options."""

    pattern: str
    """The pattern relative to the place. Empty if the place is a file."""
    options: Options
    files: tuple[str, ...]
    """The files that were looked at and are not empty."""
    exclude: tuple[str, ...] = ()
    """The patterns of files that fit the pattern and are left out. Other groups read some of them."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """What a look at files shows."""

    place: Path
    format: str
    files: int
    """How many files fit the patterns."""
    heads: Mapping[str, Head]
    """The heads by the names of the files, in the order of the files."""
    groups: Sequence[Group]
    empty: Sequence[str] = ()
    broken: Mapping[str, str] = field(default_factory=dict)
    """The files that cannot be read, and why."""
    odd: Mapping[str, Options] = field(default_factory=dict)
    """The files that need other options than the definition has."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """The files that no pattern fits, and why."""


def look_at_files(place: Path) -> Look:
    """Look at a file or a folder of files. Raise `Refusal` if no name has the ending of a known format."""
    try:
        names, folder = _list_names(place)
        kinds = {name: FORMATS[suffix] for name in names if (suffix := _get_suffix(name)) in FORMATS}
        readable = [name for name in kinds if not _is_hidden(name) and _as_text(name) == name]
        kinds = {name: kinds[name] for name in readable if (folder / name).is_file()}
    except OSError as error:
        raise Refusal(f"{place} cannot be read: {error.strerror}.") from error
    if not kinds:
        known = ", ".join(FORMATS)
        raise Refusal(f"{place}: expected a file, or a folder of files, with a name that ends with one of {known}.")
    kind = Counter(kinds.values()).most_common(1)[0][0]
    left_out = {_as_text(name): _say_why_not(name) for name in names if name not in kinds}
    left_out |= {name: f"is {other}" for name, other in kinds.items() if other != kind}
    files = [name for name, other in kinds.items() if other == kind]
    left_out |= (siblings := _find_siblings(folder, files))
    files = [name for name in files if name not in siblings]
    return _look_at_each(place, folder, kind, files, left_out)


def _list_names(place: Path) -> tuple[list[str], Path]:
    """Return the names in a folder, and the folder.

    If the folder has no files that can be read, the names in folders below it are included.
    """
    if not place.is_dir():
        return [place.name], place.parent
    with os.scandir(place) as entries:
        there = sorted((entry.name, entry.is_dir()) for entry in entries)
    names = [name for name, is_folder in there if not is_folder]
    if any(_get_suffix(name) in FORMATS for name in names):
        return [*names, *(f"{name}/" for name, is_folder in there if is_folder and not _is_hidden(name))], place
    return [*names, *sorted(_walk(place))], place


def _walk(place: Path) -> Iterator[str]:
    count = 0
    for folder, below, names in os.walk(place):
        below[:] = sorted(name for name in below if name[0] not in "_.")
        for name in names if folder != str(place) else ():
            count += 1
            if count > _MOST_LISTED:
                return
            yield Path(folder, name).relative_to(place).as_posix()


def _get_suffix(name: str) -> str:
    path = Path(name)
    return Path(path.stem).suffix if path.suffix in PACKED else path.suffix


def _get_ending(name: str) -> str:
    packed = Path(name).suffix if Path(name).suffix in PACKED else ""
    return _get_suffix(name) + packed


def _is_hidden(name: str) -> bool:
    return Path(name).name[0] in "_."


def _as_text(name: str) -> str:
    return name.encode(errors="replace").decode()


def _say_why_not(name: str) -> str:
    if _is_hidden(name):
        return "begins with _ or ."
    if name.endswith("/"):
        return "is a folder"
    if _as_text(name) != name:
        return "has a name that is not UTF-8"
    return "is no regular file" if _get_suffix(name) in FORMATS else "is no CSV, JSON or parquet by its name"


def _find_siblings(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """Return the packed files that have the same file unpacked beside them, and a description of each."""
    there = set(names)
    siblings = {}
    for name in names:
        twin = str(Path(name).with_suffix(""))
        if Path(name).suffix in PACKED and twin in there:
            same = _begin_alike(folder / name, folder / twin)
            siblings[name] = f"is {twin}, packed" if same else f"may not be {twin}: it begins otherwise"
    return siblings


def _begin_alike(one: Path, other: Path) -> bool:
    if _is_for_spark(one.name):
        return True
    try:
        return read_start(one, _COMPARED) == read_start(other, _COMPARED)
    except (OSError, EOFError):
        return False


def _is_for_spark(name: str) -> bool:
    """Whether only Spark can unpack the file."""
    return Path(name).suffix in PACKED and Path(name).suffix not in OPENERS


def _look_at_each(place: Path, folder: Path, kind: str, files: Sequence[str], left_out: Mapping[str, str]) -> Look:
    looked = [name for name in pick_evenly(files, _MOST_FILES) if not _is_for_spark(name)]
    many = max(1, len(looked))
    size = max(_FEWEST_BYTES, min(_MOST_BYTES, _ALL_BYTES // many))
    rows = max(_FEWEST_ROWS, min(_MOST_ROWS, _ALL_ROWS // many))
    heads: dict[str, Head] = {}
    empty: list[str] = []
    broken: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    for name in looked:
        try:
            if not (folder / name).stat().st_size:
                empty.append(name)
                continue
            head = look_at(folder / name, kind, size, rows)
        except UnreadableError as error:
            unreadable[name] = str(error)
            continue
        except (OSError, EOFError, ValueError) as error:
            broken[name] = getattr(error, "strerror", None) or str(error).splitlines()[0]
            continue
        heads[name] = head
    if (broken or unreadable) and not heads and not empty:
        name, why = next(iter({**broken, **unreadable}.items()))
        raise Refusal(f"{folder / name} cannot be read as {kind}: {why}.")
    look = Look(
        place=place, format=kind, files=len(files), heads=heads, groups=(), empty=empty, broken=broken,
        left_out=left_out,
    )  # fmt: skip
    return _group_files(look, files, unreadable)


def _group_files(look: Look, files: Sequence[str], unreadable: Mapping[str, str]) -> Look:
    """Group files that are read with the same options.

    The first pattern fits every file that no other group has, and also such files that come later. The patterns of the
    other groups fit only files that are there.
    """
    common = _find_common_options(look)
    needed = {name: _complete(head, common) for name, head in look.heads.items()}
    sets = Counter(tuple(sorted(options.items())) for options in needed.values())
    ranked = [dict(options) for options, _ in sets.most_common()] or [{}]
    if not look.place.is_dir():
        return _make_groups(look, [("", ranked[0], files)], {}, unreadable)
    everything = {*files, *(name for name in look.left_out if not _is_hidden(name) and not name.endswith("/"))}
    have_header = {"header" in options for options in ranked}
    others: list[tuple[str, Options, Sequence[str]]] = []
    odd: dict[str, Options] = {}
    for options in ranked[1:]:
        inside = [name for name in needed if needed[name] == options]
        pattern = _find_pattern(_propose_narrow_patterns, inside, everything.difference(inside))
        if len(have_header) == 1 and pattern is not None:
            others.append((pattern, options, inside))
        else:
            odd |= dict.fromkeys(inside, options)
    exclude = [pattern.removeprefix("**/") for pattern, _, _ in others]
    exclude += map(_escape, [*odd, *unreadable])
    mine = [name for name in files if needed.get(name, ranked[0]) == ranked[0]]
    left_out = dict(unreadable)
    pattern = _find_pattern(_propose_patterns, files, everything.difference(files))
    if pattern is None:
        ending = Counter(map(_get_ending, files)).most_common(1)[0][0]
        strange = {name for name in mine if _get_ending(name) != ending}
        left_out |= dict.fromkeys(strange, f"does not end with {ending}")
        mine = [name for name in mine if name not in strange]
        pattern = f"{'**/*' if any('/' in name for name in mine) else '*'}{_escape(ending)}"
    return _make_groups(look, [(pattern, ranked[0], mine), *others], odd, left_out, exclude)


def _make_groups(
    look: Look,
    patterns: Sequence[tuple[str, Options, Sequence[str]]],
    odd: Mapping[str, Options],
    others: Mapping[str, str],
    exclude: Sequence[str] = (),
) -> Look:
    heads = {name: head for name, head in look.heads.items() if name not in others}
    breaks = {name for name, head in heads.items() if head.breaks}
    groups = [
        Group(
            pattern=pattern,
            options={**options, "multiLine": True} if breaks.intersection(files) else options,
            files=tuple(name for name in files if name in heads),
            exclude=() if at else tuple(exclude),
        )
        for at, (pattern, options, files) in enumerate(patterns)
    ]
    return replace(
        look,
        files=look.files - len(others),
        heads=heads,
        groups=groups,
        empty=[name for name in look.empty if name not in others],
        broken={name: why for name, why in look.broken.items() if name not in others},
        odd={name: options for name, options in odd.items() if name not in others},
        left_out=dict(sorted({**look.left_out, **others}.items())),
    )


def _find_common_options(look: Look) -> Options:
    """Return the options that most files need.

    Files of plain text do not decide the encoding, and UTF-16 does not read them.
    """
    encodings = Counter(
        encoding
        for head in look.heads.values()
        if not head.is_plain and not (encoding := str(head.options.get("encoding", ""))).startswith("UTF-16")
    ).most_common(1)
    separators = Counter(str(head.options.get("sep", "")) for head in look.heads.values() if len(head.columns) > 1)
    most = separators.most_common(1)
    common = {"encoding": encodings[0][0] if encodings else "", "sep": most[0][0] if most else ""}
    return {name: value for name, value in common.items() if value}


def _complete(head: Head, common: Options) -> dict[str, str | bool]:
    """Return the options of one file. For options that the file does not show, return the common ones."""
    options = dict(head.options)
    for name, shows in (("encoding", not head.is_plain), ("sep", len(head.columns) > 1)):
        if not shows and name in common:
            options[name] = common[name]
    return options


def _find_pattern(
    propose: Callable[[Sequence[str]], Iterator[str]], inside: Sequence[str], outside: Iterable[str]
) -> str | None:
    """Return the first of the proposed patterns that fits these names and none of the others; None if there is none."""
    others = list(outside)
    for pattern in propose(inside):
        if all(_fits(name, pattern) for name in inside) and not any(_fits(name, pattern) for name in others):
            return pattern
    return None


def _fits(name: str, pattern: str) -> bool:
    """Whether the file's name fits a pattern. Without `**/` the pattern has the folders too."""
    bare = pattern.removeprefix("**/")
    return fnmatchcase(Path(name).name if bare != pattern else name, bare)


def _propose_patterns(inside: Sequence[str]) -> Iterator[str]:
    """Yield patterns that also fit later files."""
    start = "**/" if any("/" in name for name in inside) else ""
    endings = {_get_ending(name) for name in inside}
    yield f"{start}*{_escape(min(endings, key=len))}{'*' if len(endings) > 1 else ''}"
    yield f"{start}*"
    yield f"{start}{_escape(_find_prefix([Path(name).name for name in inside]))}*"


def _propose_narrow_patterns(inside: Sequence[str]) -> Iterator[str]:
    """Yield patterns that fit few later files: one name, or names that begin alike."""
    own = [Path(name).name for name in inside]
    start = "**/" if any("/" in name for name in inside) else ""
    if len(inside) == 1:
        yield _escape(inside[0])
    endings = {_get_ending(name) for name in inside}
    (ending,) = endings if len(endings) == 1 else {""}
    shared = _find_prefix(own)
    yield f"{start}{_escape(shared)}*{_escape(ending)}"
    following = {name[len(shared) : len(shared) + 1] for name in own}
    if all(char.isalnum() for char in following):
        yield f"{start}{_escape(shared)}[{''.join(sorted(following))}]*{_escape(ending)}"


def _find_prefix(names: Sequence[str]) -> str:
    """Return the characters with which all names begin."""
    first, last = min(names), max(names)
    alike = (at for at, char in enumerate(first) if not last.startswith(char, at))
    return first[: next(alike, len(first))]


def _escape(name: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", name)
