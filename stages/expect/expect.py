"""`expect`: Great Expectations' rules, with a verdict on each row as a column, and on the batch before delivery.

Each expectation becomes a character of one note beside the row, and all later steps read the note.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any, Literal

from origins.batch import JSON
from origins.lazy import Column, DataFrame, F, pyspark
from origins.nack import make_reason, show_value
from origins.names import HIDDEN, quote_name
from origins.protection import MASK, Protection
from origins.secret import cut_text
from stages.capabilities import StatesRules
from stages.expect import gx
from stages.expect.expectation import (
    BROKEN,
    ELSEWHERE,
    MET,
    MISSING,
    NEVER_MISSING,
    WARNED,
    BatchRefused,
    Expectation,
    list_failures,
    list_findings,
    make_validation_result,
    parse_expectations,
    read_suite,
)
from stages.expressions import check_names
from stages.rows import Rows
from stages.stage import Stage, check_columns

_OF_TEXT = (
    "expect_column_values_to_be_json_parseable",
    "expect_column_values_to_match_json_schema",
    "expect_column_values_to_match_strftime_format",
)
_QUERY = "unexpected_rows_expectation"
_TAG = HIDDEN + "tag"
QUARANTINE_CODE = "QUARANTINE"
"""The code of a row whose batch failed as a whole."""
_MESSAGE_SHOWN = 2000


@dataclass(frozen=True, kw_only=True)
class Expect(Stage, StatesRules):
    """Checks rows and whole batches by rules of Great Expectations, and refuses rows that fail one.

    Example:
        expect:
          expectations:
            - expect_column_values_to_not_be_null: {column: email}
            - expect_table_row_count_to_be_between: {min_value: 1}
          on_batch_failure: quarantine
    """

    expectations: Sequence[Mapping[str, JSON]] = field(default=(), kw_only=False)
    """The rules, each as `{expect_…: {options}}`."""
    suite: str | None = field(default=None, metadata={"path": True})
    """A JSON file with more rules, as Great Expectations writes a suite."""
    on_batch_failure: Literal["stop", "quarantine", "report"] = "stop"
    """What happens to a batch that fails as a whole: it stops the run, goes to the DLQ, or is only reported."""
    tag: str = "failed_expectations"
    """The column that lists the failed rules of a row that goes on, as with `on_error: keep`."""

    def __post_init__(self) -> None:
        if isinstance(self.expectations, str) or not isinstance(self.expectations, Sequence):
            raise ValueError(f"expectations: expected a list, got {self.expectations!r}")
        try:
            inline = parse_expectations(self.expectations)
        except ValueError as error:
            raise ValueError(f"expectations: {error}") from None
        if not inline and self.suite is None:
            raise ValueError("expectations: expected at least one, or a suite")
        try:
            self.rules  # noqa: B018 (reads the suite)
        except ValueError as error:
            raise ValueError(f"suite: {error}") from None
        if self.on_batch_failure not in ("stop", "quarantine", "report"):
            raise ValueError(f"on_batch_failure: expected stop, quarantine or report, got {self.on_batch_failure!r}")
        check_names("tag", [self.tag])

    @cached_property
    def rules(self) -> Sequence[Expectation]:
        """Return all expectations, in the order of the characters in a note."""
        return [*parse_expectations(self.expectations), *(read_suite(self.suite) if self.suite is not None else ())]

    @cached_property
    def answer_cache(self) -> dict[str, Any]:
        """Return the earlier results of Great Expectations, by question. Each batch asks the same questions."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without these results, which are valid only in this process. A copy computes them again."""
        return {name: value for name, value in vars(self).items() if name != "answer_cache"}

    @property
    def tags(self) -> bool:
        """Whether rows that fail an expectation may continue, and so must be reported."""
        kept = self.on_error == "keep"
        return any(rule.of_rows and (kept or rule.severity != "critical") for rule in self.rules)

    @property
    def judges(self) -> bool:
        """Whether the stage needs the whole batch before it lets a row pass."""
        return any(rule.judges_batch or rule.known.way in ("batch", "statistics") for rule in self.rules)

    @property
    def prepares(self) -> str:
        if self.judges or any(rule.known.way in ("window", "order") for rule in self.rules):
            return "decides about a batch as a whole"
        some = self.when is not None or any("row_condition" in rule.options for rule in self.rules)
        lenient = self.tags or self.on_error == "discard"
        return "counts the rows that are not as expected" if some or lenient else ""

    @property
    def needs_places(self) -> bool:
        return any(rule.known.way == "order" for rule in self.rules)

    def summarise_notes(self, notes: Mapping[str, int]) -> JSON:
        return list_findings(self.rules, notes, ())

    @property
    def usual_note(self) -> JSON:
        return MET * sum(rule.of_rows for rule in self.rules)

    def without_stop(self) -> Stage:
        return replace(self, on_batch_failure="report") if self.on_batch_failure == "stop" else self

    def list_failures(self, found: Sequence[Mapping[str, Any]]) -> Sequence[str]:
        return list_failures(self.rules, found)

    def make_validation(
        self, found: Sequence[Mapping[str, Any]], *, suite: str, run: str, batch: str, at: str
    ) -> Mapping[str, JSON]:
        return make_validation_result(self.rules, found, suite=suite, run=run, batch=batch, at=at)

    @cached_property
    def _of_rows(self) -> Sequence[Expectation]:
        return [rule for rule in self.rules if rule.of_rows]

    def apply(self, rows: Rows) -> Rows:
        self._check_rows(rows)
        judging = self.judges and rows.hold is not None
        if judging and any(rule.known.way == "statistics" for rule in self._of_rows):
            rows, _ = _hold_rows(rows, "")
        rows = self._note_answers(rows)
        quarantined: list[str] = []
        if judging:
            rows, quarantined = self._judge(rows)
        return self._refuse(rows, quarantined)

    def _check_rows(self, rows: Rows) -> None:
        for rule in self._of_rows:
            check_columns([name for name in rule.columns if not _is_struct_field(name, rows)], rows)
            if rule.type in _OF_TEXT and not _is_text(rule.columns[0], rows):
                raise ValueError(
                    f"{rule.type}: column {rule.columns[0]} is not text; Great Expectations expects text here"
                )
        if not self.answer_cache:
            for rule in self.rules:
                gx.make_expectation(rule)
            self.answer_cache["checked"] = True
        if self.tags and rows.spell_name(self.tag) in rows.names:
            raise ValueError(f"tag: the rows have a column {self.tag} already; give the tag another name")

    def _note_answers(self, rows: Rows) -> Rows:
        beside = ExpectationColumns.of(rows, self._of_rows, self.answer_cache)
        characters = [self._note_character(rule, beside) for rule in self._of_rows]
        return beside.rows.add_note(F.concat(*characters) if characters else F.lit(""))

    def _note_character(self, rule: Expectation, beside: ExpectationColumns) -> Column:
        concerned, missing, unexpected = beside.answer(rule)
        failed = WARNED if rule.severity != "critical" else BROKEN
        found = F.when(unexpected, F.lit(failed)).otherwise(F.lit(MET))
        if missing is not None:
            found = F.when(missing, F.lit(MISSING)).otherwise(found)
        return found if concerned is None else F.when(concerned, found).otherwise(F.lit(ELSEWHERE))

    def _judge(self, rows: Rows) -> tuple[Rows, list[str]]:
        """Return the stored rows, and why the whole batch goes to the DLQ; an empty list if it does not."""
        held, notes = _hold_rows(rows, rows.note)
        names = {name: f"{HIDDEN}{at}" if "." in name or "`" in name else name for at, name in enumerate(held.names)}
        live = held.frame.where(held.live)
        of_batch = [rule for rule in self.rules if not rule.of_rows]
        answers: dict[int, Mapping[str, JSON]] = {}
        for plain in (True, False):
            asked = [(at, rule) for at, rule in enumerate(of_batch) if plain == _is_about_schema(rule)]
            called = {name: name for name in names} if plain else names
            frame = live.select(*[F.col(quote_name(name)).alias(to) for name, to in called.items()])
            spelled = _AnyCase({name.lower(): f"`{to}`" if "." in to else to for name, to in called.items()})
            results = gx.validate_batch([rule for _, rule in asked], frame, spelled)
            answers.update({at: each for (at, _), each in zip(asked, results, strict=True)})
        findings = [_mask_finding(rule, answers[at], held.protected) for at, rule in enumerate(of_batch)]
        found = list_findings(self.rules, notes, findings)
        assert held.note_finding is not None
        held.note_finding(held.stage, found)
        failed = list_failures(self.rules, found)
        if failed and self.on_batch_failure == "stop":
            raise BatchRefused(held.stage, [f"  {each}" for each in failed])
        return held, failed if self.on_batch_failure == "quarantine" else []

    def _refuse(self, rows: Rows, quarantined: Sequence[str]) -> Rows:
        note = F.col(rows.note)
        whole = make_reason(
            QUARANTINE_CODE, F.lit(cut_text(f"the batch failed: {'; '.join(quarantined)}", _MESSAGE_SHOWN))
        )
        why = whole if quarantined else F.when(note.contains(BROKEN), self._make_reason(rows, note))
        tag = F.when(note.rlike(f"[{BROKEN}{WARNED}]"), F.array_compact(F.array(*self._list_labels(note))))
        tried, put = ({_TAG: tag}, {self.tag: _TAG}) if self.tags else ({}, {})
        left = rows.attempt(tried, why, put)
        return left.select({name: name for name in left.names})

    def _make_reason(self, rows: Rows, note: Column) -> Column:
        code, messages = F.lit(None).cast("string"), []
        for at, rule in reversed([*enumerate(self._of_rows)]):
            if rule.severity == "critical":
                broken = F.substring(note, at + 1, 1) == BROKEN
                code = F.when(broken, F.lit(rule.type)).otherwise(code)
                messages.append(F.when(broken, _make_message(rule, rows)))
        return F.struct(code.alias("code"), F.concat_ws("; ", *reversed(messages)).alias("message"))

    def _list_labels(self, note: Column) -> list[Column]:
        found = []
        for at, rule in enumerate(self._of_rows):
            label = F.lit(f"{rule.type}({', '.join(rule.columns)})")
            found.append(F.when(F.substring(note, at + 1, 1).isin(BROKEN, WARNED), label))
        return found


def _mask_finding(rule: Expectation, found: Mapping[str, JSON], protected: Sequence[str]) -> Mapping[str, JSON]:
    """Return the finding without values of protected columns.

    The result of a query is masked too, since it may read any column.
    """
    protection = Protection(protected)
    if not any(map(protection.covers, rule.columns)) and (not protected or rule.type != _QUERY):
        return found
    return {**found, "result": {"observed_value": MASK}, "exception": found["exception"] and MASK}


def _hold_rows(rows: Rows, note: str) -> tuple[Rows, Mapping[str, int]]:
    assert rows.hold is not None
    return rows.hold(rows, note)


def _make_message(rule: Expectation, rows: Rows) -> Column:
    """Return the message: the rule's name, the column, the value and the expected value.

    Its form allows protected values to be masked.
    """
    found = [F.concat(F.lit(f"column {name}: "), show_value(_get_column(name, rows))) for name in rule.columns]
    expected = f", expected {rule.expected}" if rule.expected else ""
    return F.concat(F.lit(f"{rule.type}: "), F.concat_ws(", ", *found), F.lit(expected))


def _is_struct_field(name: str, rows: Rows) -> bool:
    """Return whether the name means a field of a struct and not a column."""
    root, dot, _ = name.partition(".")
    return bool(dot) and rows.spell_name(name) not in rows.names and rows.spell_name(root) in rows.names


def _is_text(name: str, rows: Rows) -> bool:
    kind = rows.frame.select(_get_column(name, rows)).schema[0].dataType.simpleString()
    return kind == "string" or kind.startswith(("varchar", "char"))


def _is_about_schema(rule: Expectation) -> bool:
    """Return whether the rule reads only names and types of columns. These must then be the original ones."""
    return rule.type.startswith("expect_table_column") or rule.type in (
        "expect_column_to_exist",
        "expect_column_type_to_be",
        "expect_column_values_to_be_of_type",
        "expect_column_values_to_be_in_type_list",
        _QUERY,
    )


class _AnyCase(dict[str, str]):
    """The names that expectations may use, in upper or lower case, each in Great Expectations' form.

    A name with a dot is in backticks.
    """

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)


_NAN = ("bigint", "double", "int")
"""The types for which Great Expectations ignores NaN when it compares a row with the previous row."""


@dataclass
class ExpectationColumns:
    """Rows with the values that expectations need.

    A value is present only if an expectation is about the row and the row is live. So nothing is evaluated on other
    rows, and no window includes them.
    """

    rows: Rows
    asked: dict[str, Any] = field(default_factory=dict)
    """The earlier results of Great Expectations."""
    concerned: dict[str, str] = field(default_factory=dict)
    """By condition, the column that shows whether the condition selects a row."""
    values: dict[tuple[str, str], str] = field(default_factory=dict)
    """By group of rows and column name, the column with the values."""
    looked_at: DataFrame | None = None
    """The rows with these columns only."""
    arrival: Column | None = None
    """A column that increases in the order in which rows were read."""

    @staticmethod
    def of(rows: Rows, rules: Sequence[Expectation], asked: dict[str, Any]) -> ExpectationColumns:
        """Return the rows with everything that these expectations need. Questions in `asked` are not asked again."""
        beside = ExpectationColumns(rows, asked)
        if not rules:
            return beside
        conditions, ignoring, values = {}, {}, {}
        for rule in rules:
            key = f"row_condition {_make_condition_key(rule)} {rows.schema.simpleString()}"
            if key not in asked:
                asked[key] = gx.make_row_condition(rule, rows.frame) if "row_condition" in rule.options else None
            condition = asked[key]
            meant = F.when(rows.live, F.lit(True) if condition is None else F.coalesce(condition, F.lit(False)))
            key = _make_condition_key(rule)
            name = beside.concerned.setdefault(key, f"{HIDDEN}meant{len(beside.concerned)}")
            conditions[name] = meant
            group = _group_key(rule)
            if group not in beside.concerned:
                beside.concerned[group] = f"{HIDDEN}meant{len(beside.concerned)}"
                ignoring[beside.concerned[group]] = F.when(F.col(name) & ~_is_ignored(rule, rows), F.lit(True))
            for column in rule.columns:
                own = beside.values.setdefault((group, column), f"{HIDDEN}value{len(beside.values)}")
                values[own] = F.when(F.col(beside.concerned[group]), _get_column(column, rows))
        if any(rule.known.way == "order" for rule in rules):
            rows, beside.arrival = rows.in_order()
        frame = rows.frame
        for each in (conditions, ignoring, values):
            frame = frame.select("*", *[column.alias(name) for name, column in each.items()])
        beside.rows = rows.with_frame(frame)
        beside.looked_at = frame.select(*beside.concerned.values(), *beside.values.values())
        return beside

    def answer(self, rule: Expectation) -> tuple[Column | None, Column | None, Column]:
        """Return three conditions of a row: the rule is about it, it has no value to check, and it breaks the rule.

        The first is None if the rule is about every row, and the second if no value can be missing.
        """
        meant = F.col(self.concerned[_make_condition_key(rule)]) if "row_condition" in rule.options else None
        group = _group_key(rule)
        names = {column: self.values[group, column] for column in rule.columns}
        missing = None
        if "column" not in rule.options:
            missing = F.col(self.concerned[group]).isNull()
        elif rule.type not in NEVER_MISSING:
            missing = F.col(names[rule.options["column"]]).isNull()
        return meant, missing, self._is_unexpected(rule, names, group)

    def _is_unexpected(self, rule: Expectation, names: Mapping[str, str], group: str) -> Column:
        assert self.looked_at is not None
        if rule.known.way == "order":
            (name,) = names.values()
            return self._is_out_of_order(rule, name, F.col(self.concerned[group]))
        if rule.type == "expect_compound_columns_to_be_unique":
            listed = [*rule.options["column_list"], self.concerned[group]]
            rule = replace(rule, options={**rule.options, "column_list": listed})
        if rule.known.way == "statistics":
            judged = self.rows.hold is not None
            figures = gx.compute_figures(rule, self.looked_at, names) if judged else gx.NOTHING
            return gx.make_unexpected_column(rule, self.looked_at, names, figures)
        key = f"{rule.type} {dict(rule.options)} {dict(names)} {self.looked_at.schema.simpleString()}"
        if key not in self.asked:
            self.asked[key] = gx.make_unexpected_column(rule, self.looked_at, names)
        column: Column = self.asked[key]
        return column

    def _is_out_of_order(self, rule: Expectation, name: str, meant: Column) -> Column:
        """Return whether the value is on the wrong side of the previous one.

        Great Expectations compares rows in Spark's order, which may change. Here it is the order in which rows were
        read.
        """
        assert self.looked_at is not None
        assert self.arrival is not None
        value, kind = F.col(name), self.looked_at.schema[name].dataType.simpleString()
        compared = meant & value.isNotNull() & ~F.isnan(value) if kind in _NAN else meant
        compared = F.coalesce(compared, F.lit(False))
        before = pyspark.sql.Window.partitionBy(compared).orderBy(self.arrival)
        if kind in ("date", "timestamp"):
            rise = F.datediff(value, F.lag(value).over(before))
        else:
            exact = value.cast("decimal(38,0)") if kind in ("tinyint", "smallint", "int", "bigint") else value
            rise = exact - F.lag(exact).over(before)
        rising = rule.type == "expect_column_values_to_be_increasing"
        wrong = rise < 0 if rising else rise > 0
        if rule.options.get("strictly"):
            wrong = wrong | (rise == 0)
        return compared & F.coalesce(wrong, F.lit(False))


def _make_condition_key(rule: Expectation) -> str:
    return f"{rule.options.get('condition_parser')}: {rule.options.get('row_condition')}"


def _group_key(rule: Expectation) -> str:
    """Return a key that is equal for expectations about the same rows."""
    if "column" in rule.options:
        return _make_condition_key(rule)
    return f"{_make_condition_key(rule)} of {list(rule.columns)} but {_ignore_policy(rule)}"


def _ignore_policy(rule: Expectation) -> str:
    default = "all_values_are_missing" if "column_list" in rule.options else "both_values_are_missing"
    return str(rule.options.get("ignore_row_if", default))


def _is_ignored(rule: Expectation, rows: Rows) -> Column:
    missing = [_get_column(name, rows).isNull() for name in rule.columns]
    how = _ignore_policy(rule)
    if how in ("all_values_are_missing", "both_values_are_missing"):
        return reduce(lambda one, other: one & other, missing)
    if how in ("any_value_is_missing", "either_value_is_missing"):
        return reduce(lambda one, other: one | other, missing)
    return F.lit(False)


def _get_column(name: str, rows: Rows) -> Column:
    return rows.column(name) if rows.spell_name(name) in rows.names else F.col(name)
