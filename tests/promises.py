"""List the promises that no test carries: `python -m pytest --promises=FILE`, where FILE holds ids such as `SS-07`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

_IDS = re.compile(
    r"\b(?P<letters>[A-Z]{2})-(?P<first>\d{2})(?:(?:\.\.|…)(?P<last>\d{2})|(?P<others>(?:/\d{2})*))(?!\d)"
    r"(?P<later>\s+\*later\*)?"
    r"|\b(?P<decision>X\d+)\b"
)


@dataclass(frozen=True)
class Promises:
    """The ids in a text, in their order. Ids marked *later* are not due."""

    due: tuple[str, ...]
    later: tuple[str, ...]

    @staticmethod
    def of(text: str) -> Promises:
        """Find the ids in a text. `SS-08/09` and `CN-07..10` each name several. An id with `*later*` is not due, even
        if the text mentions it elsewhere without the mark."""
        found: dict[str, bool] = {}
        for match in _IDS.finditer(text):
            for name in _spell_promises(match):
                found[name] = found.get(name, False) or match["later"] is not None
        return Promises(
            due=tuple(name for name, later in found.items() if not later),
            later=tuple(name for name, later in found.items() if later),
        )

    def report(self, carried: Iterable[str]) -> Iterator[str]:
        """Yield lines that list the promises without a test and the marks of tests that are not promises."""
        marks = set(carried)
        for said, names in (("due", self.due), ("later", self.later)):
            missing = [name for name in names if name not in marks]
            carried_by = f"{len(names) - len(missing)} of {len(names)} carried"
            yield f"{said}: {carried_by}; by no test: {', '.join(missing) or 'none'}"
        unknown = sorted(marks - {*self.due, *self.later})
        if unknown:
            yield f"marked, but no promise: {', '.join(unknown)}"


def _spell_promises(match: re.Match[str]) -> Iterator[str]:
    if match["decision"]:
        yield match["decision"]
        return
    letters, first, last = match["letters"], match["first"], match["last"]
    numbers = range(int(first), int(last) + 1) if last else map(int, [first, *match["others"].split("/")[1:]])
    for number in numbers:
        yield f"{letters}-{number:02}"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--promises`."""
    said = "run nothing; list the ids in FILE that no test carries as its mark `promise`"
    parser.addoption("--promises", metavar="FILE", type=Path, help=said)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run no test if `--promises` is given."""
    return True if session.config.getoption("--promises") else None


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    """Return the report once all tests are collected."""
    file: Path | None = config.getoption("--promises")
    if file is None:
        return []
    carried = (name for item in items for mark in item.iter_markers("promise") for name in mark.args)
    try:
        return list(Promises.of(file.read_text(encoding="utf-8")).report(carried))
    except (OSError, ValueError) as error:
        raise pytest.UsageError(f"--promises {file}: {error}") from error
