"""`pytest --wherry-crash pipeline.yaml`: a test for each point at which a process may die."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the definitions."""
    parser.getgroup("wherry").addoption(
        "--wherry-crash",
        action="append",
        default=[],
        metavar="FILE",
        help="kill the pipeline of this definition at every point, in a temporary folder, and check that no row is "
        "lost or there twice",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Collect the named definitions instead of the tests that pytest would find."""
    files = [str(Path(file).absolute()) for file in config.getoption("--wherry-crash")]
    if files:
        named = config.args if config.args_source is pytest.Config.ArgsSource.ARGS else []
        config.args = [*named, *files]


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Return a collector for a named definition."""
    files = [Path(file).absolute() for file in parent.config.getoption("--wherry-crash")]
    return DefinitionFile.from_parent(parent, path=file_path) if file_path in files else None


class DefinitionFile(pytest.File):
    """A definition, and the points at which its runs die."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield a test for each of these points."""
        from origins.crash_points import POINTS

        for point in POINTS:
            yield CrashPoint.from_parent(self, name=point)


class CrashPoint(pytest.Item):
    """A run is killed at a point, and another run continues."""

    def runtest(self) -> None:
        """Check that no row is lost and that no row is delivered twice."""
        from origins.crash_points import POINTS
        from runners.crashes.crash_trial import CrashTrial

        with tempfile.TemporaryDirectory(prefix="wherry-crash-") as folder:
            trial = CrashTrial(self.path, Path(folder))
            if not trial.crash(self.name):
                pytest.skip(f"its batches never reach this point: {POINTS[self.name]}")
            report, audit = trial.finish()
        assert report.balanced is not False, report
        assert audit.balanced is True, "\n".join(problem.message for problem in audit.problems)
        assert audit.problems == []

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show only the message for an error of Wherry."""
        from origins.errors import WherryError

        if isinstance(excinfo.value, WherryError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return the test's name in the list of failures."""
        from origins.crash_points import POINTS

        return self.path, None, f"{self.path.name}, killed {POINTS[self.name]}"
