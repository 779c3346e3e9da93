"""The columns of files, as the heads of the files show them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from origins.files.file_scan import list_folder_columns
from origins.files.heads import Head
from runners.definitions.look_at_files import Look

_ARROW = {
    "bool": "boolean", "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint", "float": "float",
    "double": "double", "string": "string", "large_string": "string", "binary": "binary", "date32[day]": "date",
}  # fmt: skip
_LADDER = ("tinyint", "smallint", "int", "bigint", "float", "double")
PLAIN = frozenset((int, float, bool))
"""The types of values of JSON that are neither text nor nested."""
_FLAT = PLAIN | {str, type(None)}


@dataclass(frozen=True)
class FileColumns:
    """The columns of the files that a definition can read: names, spellings and types, and how the files differ."""

    look: Look

    @property
    def heads(self) -> Mapping[str, Head]:
        """The heads of the files that the definition can read."""
        return {name: head for name, head in self.look.heads.items() if name not in self.look.odd}

    @cached_property
    def spellings(self) -> Mapping[str, Mapping[str, str]]:
        """How each file spells its columns."""
        return {name: {self.get_key(column): column for column in head.columns} for name, head in self.heads.items()}

    @cached_property
    def folders(self) -> Sequence[str]:
        """The columns that folders such as `day=2026-01-01` give."""
        return list_folder_columns(self.look.heads)

    def get_key(self, column: str) -> str:
        """Return the key by which columns are compared. It ignores the case of letters, except for JSON."""
        return column if self.look.format == "json" else column.lower()

    @cached_property
    def names(self) -> Sequence[str]:
        """The columns of all files, in the order that most files have, each in the first spelling."""
        orders = Counter(head.columns for head in self.heads.values() if head.columns)
        spelled: dict[str, str] = {}
        for columns, _ in orders.most_common():
            for column in columns:
                if column:
                    spelled.setdefault(self.get_key(column), column)
        folders = {name.lower() for name in self.folders}
        names = [name for name in spelled.values() if name.lower() not in folders]
        if self.look.format != "json":
            return names
        kept = {name.lower(): name for name in reversed(names)}
        return [name for name in names if kept[name.lower()] == name]

    @cached_property
    def lacking(self) -> Mapping[str, Sequence[str]]:
        """The columns that some of the files lack, with these files. A key of JSON may always be missing."""
        lacking: dict[str, list[str]] = {}
        for name, there in self.spellings.items():
            for column in self.names if there else ():
                if self.get_key(column) not in there:
                    lacking.setdefault(column, []).append(name)
        return lacking

    @property
    def has_nameless(self) -> bool:
        """Whether a file has a column without a name."""
        return any("" in head.columns for head in self.heads.values())

    @cached_property
    def other_case(self) -> Sequence[str]:
        """The keys of JSON that differ from a column only in the case of letters."""
        known = {name.lower(): name for name in self.names}
        keys = dict.fromkeys(key for head in self.heads.values() for key in head.columns)
        return [key for key in keys if known.get(key.lower(), key) != key and key not in self.doubled_keys]

    @cached_property
    def doubled_keys(self) -> Mapping[str, int]:
        """For each key that is repeated in JSON objects: in how many objects."""
        doubled: Counter[str] = Counter()
        for head in self.heads.values():
            doubled.update(head.doubled)
        return doubled

    @cached_property
    def widest(self) -> Mapping[str, str]:
        """The types of parquet columns, each as wide as in any file."""
        widest: dict[str, str] = {}
        for column in self.names:
            kinds = {kind for head in self.heads.values() for name, kind in head.types.items() if name == column}
            widest[column] = _widen([_ARROW.get(kind, kind) for kind in kinds])
        return widest

    @property
    def other_types(self) -> Sequence[str]:
        """The columns of parquet with several types, if a schema can give one type for each column."""
        if self.look.format != "parquet" or any(kind not in _ARROW.values() for kind in self.widest.values()):
            return []
        kinds = {(name, kind) for head in self.heads.values() for name, kind in head.types.items()}
        counted = Counter(name for name, _ in kinds)
        return [name for name in self.names if counted[name] > 1]

    @cached_property
    def mixed(self) -> frozenset[str]:
        """The columns of JSON in which some values are text, and others are numbers or booleans.

        They are read as text. A cast can then refuse a value that does not fit, and the row can be replayed.
        """
        if self.look.format != "json":
            return frozenset()
        rows = [row for head in self.heads.values() for row in head.rows]
        kinds = {name: {type(row.get(name)) for row in rows} for name in self.names}
        return frozenset(name for name, there in kinds.items() if str in there and there & PLAIN and there <= _FLAT)


def _widen(kinds: Sequence[str]) -> str:
    if len(kinds) == 1:
        return kinds[0]
    if all(kind in _LADDER for kind in kinds):
        widest = max(kinds, key=_LADDER.index)
        return "double" if widest == "float" else widest
    return "string" if all(kind in _ARROW.values() for kind in kinds) else " or ".join(sorted(kinds))
