"""Lines of JSON whose keys are not those of the schema: which are refused, and what is said of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from origins.bad_lines import as_map
from origins.changes import Changes
from origins.json_keys import doubled, lacking, may_have_other, paths_in, strange
from origins.json_tail import as_array, is_whole
from origins.names import text

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_TAKEN = ("ignore", "rescue")
_KEYS = ("extra", "other")
_TWICE = "an object has this key more than once, and only one value can be kept: "
_SPELLED = " is written otherwise than the column, and keys are matched exactly"


@dataclass(frozen=True, kw_only=True)
class JsonChanges:
    """What the policies say about the keys of objects that are to have this schema."""

    schema: StructType
    changes: Changes
    options: Mapping[str, str]

    @property
    def asks_missing(self) -> bool:
        """Whether a column that a line has not is anything to speak of."""
        return self.changes.missing != "evolve"

    @property
    def asks_extra(self) -> bool:
        """Whether a key that the schema has not is."""
        return self.changes.extra != "ignore"

    @property
    def asks_doubled(self) -> bool:
        """Whether a key that stands twice is."""
        return self.changes.doubled != "keep_last"

    @property
    def apart(self) -> bool:
        """Whether lines are taken apart key by key: not all that does not fit is refused alike."""
        policies = {self.changes.wider, self.changes.other, self.changes.corrupt}
        return self.changes.rescues or not (is_whole(self.options) or policies <= {"nack", "evolve"})

    @property
    def only_keys(self) -> bool:
        """Whether only extra keys are rescued, so that nothing is to be taken apart where there are none."""
        return {self.changes.wider, self.changes.other, self.changes.corrupt} <= {"nack", "evolve"}

    @property
    def any_stops(self) -> bool:
        """Whether the run stops at anything."""
        return any(self.changes.having("stop"))

    def strange(self, line: str) -> str:
        """SQL for the paths of a line's keys that the schema has not, or in other letters, as far as anybody asks."""
        is_asked = "true" if self.asks_extra else self._is_spelled
        suspect = may_have_other(line, self.schema, any_name=self.asks_extra)
        found = strange(line, self.schema, self.options)
        return f"if({suspect}, filter({found}, path -> {is_asked}), cast(array() as array<string>))"

    def refused(self, line: str, paths: str | None = None) -> str:
        """SQL for what is wrong with the keys of a line, by the policies; NULL if there is nothing. `paths` are its
        `strange` ones, where they are known."""
        kinds = [kind for kind in _KEYS if getattr(self.changes, kind) not in _TAKEN]
        kinds += ["missing"] if self.asks_missing else []
        return self._said(line, paths, [*kinds, "doubled"] if self.asks_doubled else kinds)

    def stopping(self, line: str, paths: str | None = None) -> str:
        """SQL for what is wrong with the keys of a line so that the run stops; NULL if there is nothing."""
        stops = {kind for kind in ("extra", "other", "missing") if getattr(self.changes, kind) == "stop"}
        return self._said(line, paths, sorted(stops))

    def rescued(self, paths: str) -> str:
        """SQL for those of the `strange` paths that are rescued."""
        return f"filter({paths}, path -> {self._is_of([k for k in _KEYS if getattr(self.changes, k) == 'rescue'])})"

    def in_file(self, line: str, found: str) -> str:
        """What is `found` of a line, for a whole file: of the first of its objects in which something is."""
        objects = f"from_json({as_array(line)}, 'array<string>', {as_map(self.options)})"
        return f"get(filter(transform({objects}, object -> {found}), said -> said is not null), 0)"

    @property
    def _is_spelled(self) -> str:
        known = f"array({', '.join(text(path.lower()) for path in paths_in(self.schema))})"
        return f"array_contains({known}, lower(path))"

    def _is_of(self, kinds: Sequence[str]) -> str:
        """SQL that is true for a strange path that is of one of these kinds of change."""
        if set(kinds) >= set(_KEYS):
            return "true"
        return {(): "false", ("extra",): f"not {self._is_spelled}"}.get((*kinds,), self._is_spelled)

    def _said(self, line: str, paths: str | None, kinds: Sequence[str]) -> str:
        parts = []
        asked = [kind for kind in kinds if kind in _KEYS]
        if asked:
            said = f"if({self._is_spelled}, concat(path, {text(_SPELLED)}), concat('the schema has no ', path))"
            found = f"transform(filter({paths or self.strange(line)}, path -> {self._is_of(asked)}), path -> {said})"
            parts.append(f"nullif(array_join({found}, '; '), '')")
        if "missing" in kinds:
            absent = f"array_join({lacking(line, self.schema, self.options)}, ', ')"
            parts.append(f"concat('there is no ', nullif({absent}, ''))")
        if "doubled" in kinds:
            twice = f"array_join({doubled(line, self.schema, self.options)}, ', ')"
            parts.append(f"concat({text(_TWICE)}, nullif({twice}, ''))")
        return f"nullif(concat_ws('; ', {', '.join(parts)}), '')" if parts else "cast(null as string)"
