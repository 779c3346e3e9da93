"""What becomes of a line of CSV whose fields are text: which values have their types, what is refused, what is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from origins.bad_lines import CORRUPT, Verdict, as_map, is_lost_field, is_wider, misfits
from origins.changes import Changes
from origins.csv_header import Header
from origins.csv_quotes import fields_of
from origins.names import quoted, text

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

_AS_IT_IS = {"ignoreleadingwhitespace": "false", "ignoretrailingwhitespace": "false"}


@dataclass(frozen=True, kw_only=True)
class CsvVerdict:
    """A line of a file with this header; `typed` says where its fields stand with their types.

    `suspect` are other conditions under which a line is none, each with what is said then. Where the `line` itself is
    not known, Spark keeps only lines with too few or too many fields; any other is written again from its fields.
    """

    header: Header
    typed: Mapping[StructField, str]
    options: Mapping[str, str]
    changes: Changes
    suspect: Mapping[str, str] = field(default_factory=dict)
    line: str = "NULL"

    @property
    def no_line(self) -> str:
        """SQL that is true for what is no line of the file.

        Spark refuses a query that asks for nothing but broken lines. So a field is asked for beside them, in a
        condition that is never true and that no optimizer sees through.
        """
        corrupt = quoted(CORRUPT)
        also = f"coalesce({quoted(self.header.columns[0])} is null and char_length({corrupt}) < 0, false)"
        return " or ".join([f"{corrupt} is not null", also, *self.suspect])

    def fitting(self, column: StructField) -> str:
        """SQL for the column's value; NULL where what stands there does not fit and is rescued."""
        name = self.typed[column]
        is_kept = self._lost(column, name, "rescue")
        return name if is_kept == "false" else f"if({is_kept}, null, {name})"

    @property
    def kept(self) -> str:
        """SQL for what was rescued of a line, as JSON; NULL if there is nothing."""
        values = dict.fromkeys(self.header.others.values(), "NULL")
        if self.changes.extra == "rescue":
            values = {real: quoted(name) for name, real in self.header.others.items()}
        for column, name in self.typed.items():
            is_kept = self._lost(column, name, "rescue")
            if is_kept != "false":
                values[column.name] = f"if({is_kept}, {quoted(column.name)}, NULL)"
        pairs = ", ".join(f"{text(name)}, {value}" for name, value in values.items() if value != "NULL")
        some = (
            f"nullif(to_json(map_filter(map({pairs}), (key, value) -> value is not null)), '{{}}')" if pairs else "NULL"
        )
        whole = f"to_json(named_struct('_line', {self._raw}))" if self.changes.corrupt == "rescue" else "NULL"
        return f"cast(case when {self.no_line} then {whole} else {some} end as string)"

    def of(self, *, in_words: bool) -> Verdict:
        """The verdict on the line."""
        lost = [f"({condition})" for condition in self._all_lost(("stop", "nack", "evolve")) if condition != "false"]
        bad = [self.no_line, *lost]
        if self.changes.corrupt == "rescue":
            bad = [f"not ({self.no_line}) and ({' or '.join(lost)})"] if lost else []
        why, raw = self._miscounted, quoted(CORRUPT)
        if self.header.wrong:
            bad, raw = ["true"], "cast(null as string)"
        if in_words:
            said = misfits((each, quoted(each.name), self._is_lost(each, name)) for each, name in self.typed.items())
            first = "".join(f"when {condition} then {text(what)} " for condition, what in self.suspect.items())
            why = f"case {first}when {quoted(CORRUPT)} is null then {said} else {why} end"
            raw = self._raw
        return Verdict(
            is_bad=" or ".join(bad) or "false",
            why=text(self.header.wrong) if self.header.wrong else why,
            raw=raw,
            is_change=str(bool(self.header.wrong)).lower(),
            stops=self._stops,
        )

    @property
    def _miscounted(self) -> str:
        """SQL for what is said of a line with too few or too many fields."""
        expected, found = len(self.header.columns), fields_of(quoted(CORRUPT), self.options)
        fields = f"{found}, if({found} = 1, ' field', ' fields')"
        has = f"concat('this line has ', {fields}, ', and {expected} were expected')"
        other = text(f"this line cannot be read as the {expected} fields that were expected")
        return f"if({found} = {expected}, {other}, {has})"

    @property
    def _stops(self) -> str:
        stops = [f"({condition})" for condition in self._all_lost(("stop",)) if condition != "false"]
        if self.changes.corrupt == "stop":
            stops.append(self.no_line)
        return "false" if self.header.wrong or not stops else " or ".join(stops)

    @property
    def _raw(self) -> str:
        fields = f"struct({', '.join(map(quoted, self.header.columns))})"
        return f"coalesce({quoted(CORRUPT)}, {self.line}, to_csv({fields}, {as_map({**_AS_IT_IS, **self.options})}))"

    def _all_lost(self, policies: tuple[str, ...]) -> list[str]:
        return [self._lost(column, name, *policies) for column, name in self.typed.items()]

    def _is_lost(self, column: StructField, name: str) -> str:
        return is_lost_field(column, quoted(column.name), name)

    def _lost(self, column: StructField, name: str, *policies: str) -> str:
        """SQL that is true for a field that has not its type, where the policy for that is one of these."""
        wider, other = self.changes.wider in policies, self.changes.other in policies
        is_lost = self._is_lost(column, name)
        if wider == other:
            return is_lost if wider else "false"
        return f"{is_lost} and {'' if wider else 'not '}{is_wider(column, quoted(column.name))}"
