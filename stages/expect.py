"""`expect`: Great Expectations' rules, each row's verdict as a column, and the batch's before it is delivered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from origins.batch import JSON
from origins.errors import WherryError
from stages.expectation import Expectation
from stages.expectation_suite import listed, read
from stages.expressions import check_names
from stages.findings import MET, findings
from stages.stage import Stage

if TYPE_CHECKING:
    from stages.rows import Rows


class BatchRefused(WherryError):
    """A batch fails a suite as a whole, and that stops the run."""

    code = "EXPECTATION"

    def __init__(self, stage: str, failures: Sequence[str]) -> None:
        super().__init__(
            "\n".join([f"the batch is not as the stage '{stage}' expects it. Nothing of it was delivered.", *failures]),
            hint="see it       wherry preview FILE\n"
            "let it pass  on_batch_failure: report at the stage; or quarantine, and the batch goes to the dead letter "
            "queue whole",
        )
        self.stage = stage


@dataclass(frozen=True, kw_only=True)
class Expect(Stage):
    """Refuses rows that are not as expected, and judges the batch as a whole, by Great Expectations' rules."""

    expectations: Sequence[Mapping[str, JSON]] = field(default=(), kw_only=False)
    """What is expected, each as `{expect_…: {options}}`."""
    suite: str | None = field(default=None, metadata={"path": True})
    """A file with more of them, as Great Expectations writes a suite."""
    on_batch_failure: Literal["stop", "quarantine", "report"] = "stop"
    """What becomes of a batch that fails as a whole: it stops the run, goes to the DLQ whole, or is only reported."""
    tag: str = "failed_expectations"
    """The column in which rows that go on although they are not as expected have what they failed."""

    def __post_init__(self) -> None:
        if isinstance(self.expectations, str) or not isinstance(self.expectations, Sequence):
            raise ValueError(f"expectations: expected a list, got {self.expectations!r}")
        try:
            inline = listed(self.expectations)
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
        return [*listed(self.expectations), *(read(self.suite) if self.suite is not None else ())]

    @cached_property
    def asked(self) -> dict[str, Any]:
        """What Great Expectations answered before, by what it was asked: batch after batch asks the same."""
        return {}

    @property
    def tags(self) -> bool:
        """Whether rows go on that are not as expected, so that they have to be told."""
        kept = self.on_error == "keep"
        return any(rule.known.of_rows and (kept or rule.severity != "critical") for rule in self.rules)

    @property
    def judges(self) -> bool:
        """Whether it has to see the whole batch before it lets a row pass."""
        return any(rule.judges_batch or rule.known.way in ("batch", "statistics") for rule in self.rules)

    @property
    def prepares(self) -> str:
        if self.judges or any(rule.known.way in ("window", "order") for rule in self.rules):
            return "judges a batch as a whole"
        some = self.when is not None or any("row_condition" in rule.options for rule in self.rules)
        lenient = self.tags or self.on_error == "discard"
        return "tells how many rows are not as expected" if some or lenient else ""

    @property
    def needs_places(self) -> bool:
        return any(rule.known.way == "order" for rule in self.rules)

    def found(self, notes: Mapping[str, int]) -> JSON:
        return findings(self.rules, notes, ())

    @property
    def usual_note(self) -> JSON:
        return MET * sum(rule.known.of_rows for rule in self.rules)

    def apply(self, rows: Rows) -> Rows:
        from stages.expecting import Expecting

        return Expecting(self).applied(rows)
