"""The types of columns, guessed from the first rows of files, and the SQL that rewrites values for a cast."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from origins.names import quote_name

_MOST_BAD, _FEW_BAD, _NEVER_BAD = 0.1, 2, 0.25
"""How many values of another type a column may have. Such values are refused.

Their share may be at most the first number, or their number at most the second. Their share may never be above the
third number.
"""
_ENOUGH, _SOME, _MAINLY_BAD = 50, 8, 0.6
"""From how many values on one file can show that a type does not hold there.

With the first number of values, a share above `_NEVER_BAD` shows it. With the second, only a share above `_MAINLY_BAD`
does.
"""
_CODE = re.compile(r"[+-]?0\d+|[+]\d+")
"""Digits that begin with 0 or + are a code, such as `007` and `+4912345`. A number would lose these characters."""
_TYPES = {
    "boolean": re.compile(r"(?i)true|false"),
    "bigint": re.compile(r"[+-]?\d{1,19}"),
    "decimal(18,2)": re.compile(r"[+-]?\d{1,16}(\.\d{1,2})?"),
    "double": re.compile(r"[+-]?(\d{1,15}(\.\d*)?|\.\d+)([eE][+-]?\d+)?"),
    "date": re.compile(r"\d{4}-\d\d-\d\d"),
    "timestamp": re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?"),
}
_LONG, _INEXACT = 1 << 63, 10**15
"""The first integer that is too large for `bigint`, and the first that `double` may round."""
_LOSSES = {
    "bigint": re.compile(r"[+-]?\d{19,}"),
    "decimal(18,2)": re.compile(r"[+-]?(\d*\.\d{3,}|(\d+\.?\d*|\.\d+)[eE][+-]?\d+)"),
    "double": re.compile(r"[+-]?\d{16,}(\.\d*)?([eE][+-]?\d+)?"),
    "date": re.compile(r"\d{4}-\d\d?-\d\d?[T ].*"),
}
"""Values that rule a type out: a cast to it would round them or drop the time.

For `bigint`, they are longer integers.
"""
_COMMA = "replace(regexp_replace({}, '[.](?=[0-9]{{3}}(?![0-9]))', ''), ',', '.')"
_SOME_COMMAS = "if({0} like '%,%', replace(replace({0}, '.', ''), ',', '.'), {0})"
_POINTS = "regexp_replace({}, '^([0-9]{{2}})[.]([0-9]{{2}})[.]([0-9]{{4}})$', '$3-$2-$1')"
_WRITTEN_OTHERWISE = {
    "decimal(18,2)": (re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d+)(,\d{1,2})?"), _COMMA),
    "double": (re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d+)(,\d+)?"), _COMMA),
    "date": (re.compile(r"\d\d\.\d\d\.\d{4}"), _POINTS),
}
"""Values such as `1.234,56` and `31.01.2026`, and the SQL that rewrites them for a cast.

A cast refuses anything else.
"""
_THOUSAND = re.compile(r"[+-]?\d{1,3}\.\d{3}")
"""In a column with both kinds of numbers, such a value may be 1234 or 1.234."""
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+")
_PARTED = re.compile(r"[+-]?\d{1,3}(\.\d{3})+(,\d*)?")


@dataclass(frozen=True, kw_only=True)
class Guess:
    """The guessed type of a text column. It is empty if the column stays text."""

    kind: str = ""
    otherwise: frozenset[str] = frozenset()
    """The files whose values are written like `1.234,56` or `31.01.2026`."""
    is_mixed: bool = False
    """Whether other files of the same reader have values that a cast accepts unchanged."""
    has_both: bool = False
    """Whether the column stays text because `1.234` may be either number."""

    def fits(self, value: str, file: str) -> bool:
        """Whether a text can have the type in this file."""
        if self.is_mixed and self.kind == "decimal(18,2)" and _THOUSAND.fullmatch(value):
            return False
        if file in self.otherwise:
            return bool(_WRITTEN_OTHERWISE[self.kind][0].fullmatch(value))
        return bool(_TYPES[self.kind].fullmatch(value)) and (self.kind != "bigint" or _is_long(value))

    def loses(self, value: str, file: str) -> bool:
        """Whether a cast to the type would lose a part of this value, although the value looks similar to the type."""
        if self.is_mixed and _THOUSAND.fullmatch(value):
            return False
        if file in self.otherwise and _WRITTEN_OTHERWISE["double"][0].fullmatch(value):
            value = value.replace(".", "").replace(",", ".")
        is_lost = self.kind in _LOSSES and bool(_LOSSES[self.kind].fullmatch(value))
        return is_lost and (self.kind != "bigint" or not _is_long(value))

    def put_sql(self, column: str) -> str:
        """Return SQL that rewrites the value for a cast. Empty if a cast accepts the value unchanged."""
        if not self.otherwise:
            return ""
        mixed = self.is_mixed and self.kind != "date"
        return (_SOME_COMMAS if mixed else _WRITTEN_OTHERWISE[self.kind][1]).format(quote_name(column))

    def clear_sql(self, column: str) -> str:
        """Return SQL that is false for a value that may be 1234 or 1.234. Empty if there is no doubt."""
        if not self.is_mixed or self.kind != "decimal(18,2)":
            return ""
        return f"not coalesce({quote_name(column)} rlike '^[+-]?[0-9]{{1,3}}[.][0-9]{{3}}$', false)"


def guess_type(values: Mapping[str, Sequence[object]], groups: Mapping[str, object]) -> Guess:
    """Return the type of a column whose values are text, by file. One reader reads the files of one group.

    Of the types that hold, it is the type that refuses the fewest values, and the first of several. A value among the
    `_LOSSES` of a type rules that type out.
    """
    if any(value is not None and not isinstance(value, str) for cells in values.values() for value in cells):
        return Guess()
    texts = {
        file: [value.strip() for value in cells if isinstance(value, str) and value.strip()]
        for file, cells in values.items()
    }
    texts = {file: cells for file, cells in texts.items() if cells}
    if not texts or any(_CODE.fullmatch(value) for cells in texts.values() for value in cells):
        return Guess()
    candidates: list[tuple[int, Guess]] = []
    has_both = False
    for guess in (*(Guess(kind=kind) for kind in _TYPES), *_propose_otherwise(texts, groups)):
        misfits = {file: sum(not guess.fits(value, file) for value in cells) for file, cells in texts.items()}
        if not _holds(misfits, texts) or any(guess.loses(value, file) for file in texts for value in texts[file]):
            continue
        has_thousands = any(_PARTED.fullmatch(value) for file in guess.otherwise for value in texts[file])
        if guess.is_mixed and guess.kind == "double" and has_thousands:
            has_both = True
        else:
            candidates.append((sum(misfits.values()), guess))
    return min(candidates, key=lambda each: each[0])[1] if candidates else Guess(has_both=has_both)


def _propose_otherwise(texts: Mapping[str, Sequence[str]], groups: Mapping[str, object]) -> Iterator[Guess]:
    """Yield the types that some of the files have in values such as `1.234,56` or `31.01.2026`."""
    for kind, (looks, _) in _WRITTEN_OTHERWISE.items():
        files = frozenset(
            file
            for file, cells in texts.items()
            if _count_misfits(looks, cells) < _count_misfits(_TYPES[kind], cells)
            and (kind == "date" or _has_decimal_commas(cells))
        )
        if files:
            readers = {groups[file] for file in files}
            is_mixed = any(file not in files and groups[file] in readers for file in texts)
            yield Guess(kind=kind, otherwise=files, is_mixed=is_mixed)


def _is_long(value: str) -> bool:
    """Whether these digits fit into `bigint`."""
    return len(value) <= 20 and -_LONG <= int(value) < _LONG


def _count_misfits(looks: re.Pattern[str], values: Iterable[str]) -> int:
    return sum(not looks.fullmatch(value) for value in values)


def _holds(misfits: Mapping[str, int], texts: Mapping[str, Sequence[str]]) -> bool:
    total = sum(map(len, texts.values()))
    most = min(max(_MOST_BAD * total, _FEW_BAD), _NEVER_BAD * total)
    if sum(misfits.values()) > most:
        return False
    return not any(
        misfits[file] > (_NEVER_BAD if len(cells) >= _ENOUGH else _MAINLY_BAD) * len(cells)
        for file, cells in texts.items()
        if len(cells) >= _SOME
    )


def _has_decimal_commas(values: Sequence[str]) -> bool:
    """Whether commas are in front of decimals, and not of thousands."""
    commas = [value for value in values if "," in value]
    points = sum("." in value and "," not in value and not _THOUSAND.fullmatch(value) for value in values)
    decimals = sum(not _THOUSANDS.fullmatch(value) for value in commas)
    return len(commas) > points and 10 * decimals >= len(commas) > 0


def infer_json_type(values: Iterable[Any]) -> str:
    """Return the type of JSON values as DDL. Empty if all are NULL or empty.

    Values of several types are text, unless few of them differ from the others.
    """
    given = [value for value in values if value is not None]
    kinds = {_JSON.get(type(value), "string") for value in given}
    if kinds == {"bigint", "double"}:
        kinds = {"string" if any(type(value) is int and abs(value) >= _INEXACT for value in given) else "double"}
    if len(kinds) > 1:
        return _find_most(given)
    (kind,) = kinds or {""}
    if kind == "struct":
        names = dict.fromkeys(name for each in given for name in each)
        fields = {name: infer_json_type(each.get(name) for each in given) for name in names}
        inside = ", ".join(f"{quote_name(name)}: {inner}" for name, inner in fields.items() if inner)
        return f"struct<{inside}>" if inside else ""
    if kind == "array":
        inner = infer_json_type(one for each in given for one in each)
        return f"array<{inner}>" if inner else ""
    if kind == "bigint" and any(not -_LONG <= value < _LONG for value in given):
        return "decimal(38,0)"
    return kind


_JSON: Mapping[type, str] = {
    bool: "boolean",
    int: "bigint",
    float: "double",
    str: "string",
    dict: "struct",
    list: "array",
}


def _find_most(values: Sequence[Any]) -> str:
    """Return the type of nearly all values, if few have another type. Otherwise return text, which holds any value."""
    by_kind: dict[str, list[Any]] = {}
    for value in values:
        by_kind.setdefault(_JSON.get(type(value), "string"), []).append(value)
    numbers = by_kind.pop("bigint", []) + by_kind.pop("double", [])
    if numbers:
        by_kind["number"] = numbers
    most = max(by_kind.values(), key=len)
    few = len(values) - len(most) <= min(max(_MOST_BAD * len(values), _FEW_BAD), _NEVER_BAD * len(values))
    return infer_json_type(most) if few else "string"
