"""`expect`: Great Expectations' rules, each row's verdict as a column, and the batch's before it is delivered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from origins.batch import JSON
from stages.expect.expectation import Expectation, parse_expectations, read_suite
from stages.expect.expectation_results import MET, list_findings
from stages.expressions import check_names
from stages.stage import Stage

if TYPE_CHECKING:
    from stages.rows import Rows


@dataclass(frozen=True, kw_only=True)
class Expect(Stage):
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
            self.rules  # noqa: B018  (reads the suite)
        except ValueError as error:
            raise ValueError(f"suite: {error}") from None
        if self.on_batch_failure not in ("stop", "quarantine", "report"):
            raise ValueError(f"on_batch_failure: expected stop, quarantine or report, got {self.on_batch_failure!r}")
        check_names("tag", [self.tag])

    @cached_property
    def rules(self) -> Sequence[Expectation]:
        """All expectations, in the order of the notes beside rows."""
        return [*parse_expectations(self.expectations), *(read_suite(self.suite) if self.suite is not None else ())]

    @cached_property
    def answer_cache(self) -> dict[str, Any]:
        """What Great Expectations answered before, by what it was asked: batch after batch asks the same."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """Without the answers, which only this process understands: a copy asks again."""
        return {name: value for name, value in vars(self).items() if name != "answer_cache"}

    @property
    def tags(self) -> bool:
        """Whether rows that are not as expected continue, so they have to be reported."""
        kept = self.on_error == "keep"
        return any(rule.known.of_rows and (kept or rule.severity != "critical") for rule in self.rules)

    @property
    def judges(self) -> bool:
        """Whether it has to see the whole batch before it lets a row pass."""
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
        return MET * sum(rule.known.of_rows for rule in self.rules)

    def apply(self, rows: Rows) -> Rows:
        from stages.expect.apply_suite import SuiteRun

        return SuiteRun(self).apply(rows)
