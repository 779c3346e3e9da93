"""`pytest orders.test.yaml`: a test for each case beside a definition."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from runners.operations.cases import Case, CaseResult

SUFFIX = ".test.yaml"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a file with cases, if its definition is in the same folder."""
    if not file_path.name.endswith(SUFFIX):
        return None
    definition = file_path.with_name(file_path.name.removesuffix(SUFFIX) + ".yaml")
    return CaseCollector.from_parent(parent, path=file_path, definition=definition) if definition.exists() else None


class CaseCollector(pytest.File):
    """The cases of one definition. They share a query if they can."""

    def __init__(self, *, definition: Path, **given: Any) -> None:
        super().__init__(**given)
        self.definition = definition
        self._results: dict[str, CaseResult] = {}
        self._wanted: dict[str, Case] = {}

    def collect(self) -> Iterator[pytest.Item]:
        """Yield a test for each case."""
        from origins.errors import WherryError
        from runners.operations.cases import load_cases

        try:
            cases = load_cases(self.path)
        except WherryError as error:
            raise self.CollectError(str(error)) from error
        for case in cases:
            self._wanted[case.name] = case
            yield CaseItem.from_parent(self, name=case.name)

    def find_result(self, name: str) -> CaseResult:
        """Return the result of a case. The first call runs all cases that pytest has chosen."""
        if name not in self._results:
            from runners.definitions.definition import load
            from runners.operations.run_cases import run_cases

            chosen = {item.name for item in self.session.items if item.parent is self} | {name}
            cases = [case for each, case in self._wanted.items() if each in chosen]
            self._results = {result.case: result for result in run_cases(load(self.definition), cases)}
        return self._results[name]


class CaseItem(pytest.Item):
    """A test of one case."""

    def runtest(self) -> None:
        """Fail if anything differs from what the case expects."""
        assert isinstance(self.parent, CaseCollector)
        problems = self.parent.find_result(self.name).problems
        if problems:
            raise CaseFailed("\n".join(problems))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the differences from the expectation, or Wherry's error message."""
        from origins.errors import WherryError

        if isinstance(excinfo.value, CaseFailed | WherryError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"{self.path.name}: {self.name}"


class CaseFailed(AssertionError):
    """The outcome differs from what a case expects."""
