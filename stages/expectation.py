"""One expectation as a definition or a suite has it, checked without Great Expectations."""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from origins.batch import JSON
from origins.secret import cut, put_references
from stages.expectation_table import BESIDE, EXPECTATIONS, Known
from stages.expressions import check_condition

Severity: TypeAlias = Literal["critical", "warning", "info"]
_BROKEN = re.compile(r"unterminated|missing \)|unbalanced|nothing to repeat|bad character range")
"""What is wrong in Java's regular expressions as it is in Python's."""
_LONGEST = 200


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What is expected of each row, or of a batch."""

    type: str
    options: Mapping[str, JSON] = field(default_factory=dict)
    severity: Severity = "critical"
    meta: JSON = None

    @property
    def known(self) -> Known:
        """What there is to know of its kind."""
        return EXPECTATIONS[self.type]

    @property
    def mostly(self) -> float:
        """The share of rows that must be as expected for the batch to be."""
        return float(self.options.get("mostly", 1))

    @property
    def columns(self) -> Sequence[str]:
        """The columns that it looks at, in order."""
        several = self.options.get("column_list")
        named = [self.options[key] for key in ("column", "column_A", "column_B") if key in self.options]
        return [*named, *(several if isinstance(several, list | tuple) else ())]

    @property
    def judges_batch(self) -> bool:
        """Whether a batch can fail it as a whole, however it deals with rows: what gives one answer for the batch, and
        what says which share of its rows is enough."""
        return self.severity == "critical" and (not self.known.of_rows or "mostly" in self.options)

    @property
    def expected(self) -> str:
        """What was expected, for a person; nothing where the name says it all."""
        apart = ("column", "column_A", "column_B", "column_list", "mostly", "condition_parser")
        said = ", ".join(f"{name} {value!r}" for name, value in self.options.items() if name not in apart)
        return cut(said, _LONGEST)

    def config(self) -> dict[str, JSON]:
        """As Great Expectations' own JSON has it."""
        meta = self.meta if isinstance(self.meta, Mapping) else {}
        return {
            "type": self.type,
            "kwargs": put_references(self.options),
            "meta": put_references(meta),
            "severity": self.severity,
        }


def expectation(name: object, options: object) -> Expectation:
    """The expectation of this name, which may have what stands beside among its options. Raises ValueError that says
    what is wrong with it."""
    if not isinstance(name, str) or name not in EXPECTATIONS:
        raise ValueError(f"unknown expectation {name!r}; {_nearest(str(name), EXPECTATIONS)}")
    known, given = EXPECTATIONS[name], {} if options is None else options
    if not isinstance(given, Mapping):
        raise ValueError(f"{name}: expected a mapping of its options, got {given!r}")
    if not known.way:
        raise ValueError(f"{name} is {known.how}")
    for option in given:
        if option not in known.options and option not in BESIDE:
            raise ValueError(f"{name}: unknown option '{option}'; {_nearest(str(option), known.options)}")
    for option in known.required:
        if option not in given:
            raise ValueError(f"{name}: '{option}' is missing")
    severity = given.get("severity", "critical")
    if severity not in get_args(Severity):
        raise ValueError(f"{name}: severity is critical, warning or info, got {severity!r}")
    own = {option: value for option, value in given.items() if option not in BESIDE}
    found = Expectation(type=name, options=own, severity=severity, meta=given.get("meta"))
    try:
        _check(found)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return found


def _check(found: Expectation) -> None:
    options = found.options
    for name in found.columns:
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"expected the name of a column, got {name!r}")
    mostly = options.get("mostly", 1)
    if isinstance(mostly, bool) or not isinstance(mostly, int | float) or not 0 <= mostly <= 1:
        raise ValueError(f"mostly: expected a share from 0 to 1, got {mostly!r}")
    for option in ("value_set", "column_list", "column_set", "regex_list", "type_list"):
        if option in options and not isinstance(options[option], list | tuple):
            raise ValueError(f"{option}: expected a list, got {options[option]!r}")
    if any(isinstance(value, Mapping) and "$PARAMETER" in value for value in options.values()):
        raise ValueError("suite parameters ($PARAMETER) are not known here; put the value in their place")
    for regex in [options["regex"]] if "regex" in options else options.get("regex_list", ()):
        _check_regex(regex)
    low, high = options.get("min_value"), options.get("max_value")
    if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
        raise ValueError(f"min_value {low!r} is above max_value {high!r}")
    if options.get("condition_parser") == "pandas":
        raise ValueError("condition_parser: pandas' conditions cannot be asked of Spark; write row_condition in SQL")
    if isinstance(options.get("row_condition"), str) and "great" not in str(options.get("condition_parser")):
        check_condition("row_condition", options["row_condition"])


def _check_regex(regex: object) -> None:
    """Raises ValueError for what surely is no regular expression; Spark's are Java's, so that some pass here which fail
    there."""
    if not isinstance(regex, str):
        raise ValueError(f"expected a regular expression, got {regex!r}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pythons = re.compile(regex)
    except re.error as error:
        if _BROKEN.search(error.msg):
            raise ValueError(f"the regular expression {regex!r} does not compile: {error}") from None
        return
    name = next(iter(pythons.groupindex), None)
    if name is not None:
        raise ValueError(
            f"the regular expression {regex!r} does not compile: Spark's are Java's, where a group with a name "
            f"is (?<{name}>…), not (?P<{name}>…)"
        )


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean '{near[0]}'?" if near else f"there are: {', '.join(list(known)[:12])}"
