"""How a suite is applied to rows: every expectation becomes a character of one note beside the row, and all that
follows reads the note."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql import functions as F

from origins.batch import JSON
from origins.nack import reason, shown
from origins.names import HIDDEN, quoted
from origins.protection import MASK, Protection
from origins.secret import cut
from stages import gx
from stages.expectation import Expectation
from stages.expectation_columns import Beside
from stages.findings import BROKEN, ELSEWHERE, MET, MISSING, WARNED, failures, findings
from stages.stage import check_columns

if TYPE_CHECKING:
    from pyspark.sql import Column

    from stages.expect import Expect
    from stages.rows import Marked, Rows

    R = TypeVar("R", bound=Rows)

_OF_TEXT = (
    "expect_column_values_to_be_json_parseable",
    "expect_column_values_to_match_json_schema",
    "expect_column_values_to_match_strftime_format",
)
_QUERY = "unexpected_rows_expectation"
_TAG = HIDDEN + "tag"
QUARANTINE_CODE = "QUARANTINE"
"""Of a row whose batch failed as a whole."""
_MOST_SAID = 2000


class Expecting:
    """One suite on its way over rows."""

    def __init__(self, stage: Expect) -> None:
        self.stage = stage
        self.of_rows = [rule for rule in stage.rules if rule.known.of_rows]
        self.of_batch = [rule for rule in stage.rules if not rule.known.of_rows]

    def applied(self, rows: Rows) -> Rows:
        """The rows behind the stage."""
        self._check(rows)
        judging = self.stage.judges and rows.hold is not None
        if judging and any(rule.known.way == "statistics" for rule in self.of_rows):
            rows, _ = _held(rows, "")
        rows = self._noted(rows)
        quarantined: list[str] = []
        if judging:
            rows, quarantined = self._judged(rows)
        return self._refused(rows, quarantined)

    def _check(self, rows: Rows) -> None:
        for rule in self.of_rows:
            check_columns([name for name in rule.columns if not _inside(name, rows)], rows)
            if rule.type in _OF_TEXT and not _is_text(rule.columns[0], rows):
                raise ValueError(
                    f"{rule.type}: column {rule.columns[0]} is no text; Great Expectations asks it of text"
                )
        if not self.stage.asked:
            for rule in self.stage.rules:
                gx.check(rule)
            self.stage.asked["checked"] = True
        if self.stage.tags and rows.spelled(self.stage.tag) in rows.names:
            raise ValueError(f"tag: there is a column {self.stage.tag} already; name another one for what rows failed")

    def _noted(self, rows: R) -> R:
        beside: Beside[Any] = Beside.of(rows, self.of_rows, self.stage.asked)
        characters = [self._character(rule, beside) for rule in self.of_rows]
        noted: R = beside.rows.noted(F.concat(*characters) if characters else F.lit(""))
        return noted

    def _character(self, rule: Expectation, beside: Beside[Any]) -> Column:
        concerned, missing, unexpected = beside.answers(rule)
        failed = WARNED if rule.severity != "critical" else BROKEN
        found = F.when(unexpected, F.lit(failed)).otherwise(F.lit(MET))
        if missing is not None:
            found = F.when(missing, F.lit(MISSING)).otherwise(found)
        return found if concerned is None else F.when(concerned, found).otherwise(F.lit(ELSEWHERE))

    def _judged(self, rows: Rows) -> tuple[Rows, list[str]]:
        """The rows as they were written down, and why the batch goes to the DLQ whole, if it does."""
        from stages.expect import BatchRefused

        held, notes = _held(rows, rows.note)
        names = {name: f"{HIDDEN}{at}" if "." in name or "`" in name else name for at, name in enumerate(held.names)}
        live = held.frame.where(held.live)
        answers: dict[int, Mapping[str, JSON]] = {}
        for plain in (True, False):
            asked = [(at, rule) for at, rule in enumerate(self.of_batch) if plain == _of_schema(rule)]
            called = {name: name for name in names} if plain else names
            frame = live.select(*[F.col(quoted(name)).alias(to) for name, to in called.items()])
            said = gx.validated([rule for _, rule in asked], frame, _spelled(called))
            answers.update({at: each for (at, _), each in zip(asked, said, strict=True)})
        told = [_discreet(rule, answers[at], held.protected) for at, rule in enumerate(self.of_batch)]
        found = findings(self.stage.rules, notes, told)
        assert held.tell is not None
        held.tell(held.stage, found)
        failed = failures(self.stage.rules, found)
        if failed and self.stage.on_batch_failure == "stop":
            raise BatchRefused(held.stage, [f"  {each}" for each in failed])
        return held, failed if self.stage.on_batch_failure == "quarantine" else []

    def _refused(self, rows: Rows, quarantined: Sequence[str]) -> Rows:
        note = F.col(rows.note)
        whole = reason(QUARANTINE_CODE, F.lit(cut(f"the batch failed: {'; '.join(quarantined)}", _MOST_SAID)))
        why = whole if quarantined else F.when(note.contains(BROKEN), self._why(rows, note))
        tag = F.when(note.rlike(f"[{BROKEN}{WARNED}]"), F.array_compact(F.array(*self._labels(note))))
        tried, put = ({_TAG: tag}, {self.stage.tag: _TAG}) if self.stage.tags else ({}, {})
        left = rows.attempt(tried, why, put)
        return left.select({name: name for name in left.names})

    def _why(self, rows: Rows, note: Column) -> Column:
        code, said = F.lit(None).cast("string"), []
        for at, rule in reversed([*enumerate(self.of_rows)]):
            if rule.severity == "critical":
                broken = F.substring(note, at + 1, 1) == BROKEN
                code = F.when(broken, F.lit(rule.type)).otherwise(code)
                said.append(F.when(broken, _said(rule, rows)))
        return F.struct(code.alias("code"), F.concat_ws("; ", *reversed(said)).alias("message"))

    def _labels(self, note: Column) -> list[Column]:
        found = []
        for at, rule in enumerate(self.of_rows):
            label = F.lit(f"{rule.type}({', '.join(rule.columns)})")
            found.append(F.when(F.substring(note, at + 1, 1).isin(BROKEN, WARNED), label))
        return found


def _discreet(rule: Expectation, found: Mapping[str, JSON], protected: Sequence[str]) -> Mapping[str, JSON]:
    """What was found, without values of columns that nobody is shown; a query may ask for any."""
    protection = Protection(protected)
    if not any(map(protection.covers, rule.columns)) and (not protected or rule.type != _QUERY):
        return found
    return {**found, "result": {"observed_value": MASK}, "exception": found["exception"] and MASK}


def _held(rows: Rows, note: str) -> tuple[Marked, Mapping[str, int]]:
    from stages.rows import Marked

    assert isinstance(rows, Marked)
    assert rows.hold is not None
    return rows.hold(rows, note)


def _said(rule: Expectation, rows: Rows) -> Column:
    """Name, column, what was there, and what was expected; in the form by which protected values are masked."""
    found = [F.concat(F.lit(f"column {name}: "), shown(_value(name, rows))) for name in rule.columns]
    expected = f", expected {rule.expected}" if rule.expected else ""
    return F.concat(F.lit(f"{rule.type}: "), F.concat_ws(", ", *found), F.lit(expected))


def _value(name: str, rows: Rows) -> Column:
    return F.col(name) if _inside(name, rows) else rows.column(name)


def _inside(name: str, rows: Rows) -> bool:
    """Whether this names a field of a struct, and no column of its own."""
    root, dot, _ = name.partition(".")
    return bool(dot) and rows.spelled(name) not in rows.names and rows.spelled(root) in rows.names


def _is_text(name: str, rows: Rows) -> bool:
    kind = rows.frame.select(_value(name, rows)).schema[0].dataType.simpleString()
    return kind == "string" or kind.startswith(("varchar", "char"))


def _of_schema(rule: Expectation) -> bool:
    """Whether it looks at the names and types of columns only, which have to be their own then."""
    return rule.type.startswith("expect_table_column") or rule.type in (
        "expect_column_to_exist",
        "expect_column_type_to_be",
        "expect_column_values_to_be_of_type",
        "expect_column_values_to_be_in_type_list",
        _QUERY,
    )


def _spelled(called: Mapping[str, str]) -> Mapping[str, str]:
    """The names of columns as expectations may write them, each as Great Expectations finds it: in backticks where it
    has a dot."""
    return _AnyCase({name.lower(): f"`{to}`" if "." in to else to for name, to in called.items()})


class _AnyCase(dict[str, str]):
    """Finds a name whatever the case of its letters."""

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)
