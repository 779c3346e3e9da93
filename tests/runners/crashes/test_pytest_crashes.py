"""`pytest --wherry-crash pipeline.yaml`, as somebody types it."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from origins.crash_points import POINTS

DEFINITION = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, after: move, schema: "id long, amount string"}
stages:
  - cast: {amount: int}
destinations:
  - delta: {path: tables/orders}
  - files: {path: out}
"""


@pytest.fixture
def orders(pytester: pytest.Pytester) -> Path:
    """A definition with files to carry, rows to refuse and something that was written before; and a test elsewhere."""
    shop = pytester.mkdir("shop")
    for place in ("tables/orders", "out", ".wherry/orders"):
        (shop / place).mkdir(parents=True)
        (shop / place / "before").touch()
    landing = shop / "landing"
    landing.mkdir()
    for number in range(2):
        amount = ("1", "x")[number]
        (landing / f"{number}.json").write_text(f'{{"id": {number}, "amount": "{amount}"}}\n', encoding="utf-8")
    pytester.makepyfile("def test_of_somebody(): pass")
    file = shop / "pipeline.yaml"
    file.write_text(DEFINITION, encoding="utf-8")
    return file


INSTALLED = bool(entry_points(group="pytest11", name="wherry"))
PLUGIN = () if INSTALLED else ("-p", "runners.crashes.pytest_crashes")


def crash(pytester: pytest.Pytester, *words: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess(*PLUGIN, "--wherry-crash", "shop/pipeline.yaml", *words)


def test_each_point_is_a_test_and_no_other_is_run(pytester: pytest.Pytester, orders: Path) -> None:
    """Where no other was named."""
    found = crash(pytester, "--collect-only", "-q").outlines
    assert [line.rpartition("::")[2] for line in found if "::" in line] == list(POINTS)
    assert any("test_of_somebody" in line for line in crash(pytester, "--collect-only", "-q", ".").outlines)


def test_without_it_a_definition_is_no_test(pytester: pytest.Pytester, orders: Path) -> None:
    """Nothing but the test beside it is found."""
    pytester.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=1)


def test_what_cannot_be_carried_says_why(pytester: pytest.Pytester, orders: Path) -> None:
    """In the words of a run, and without a trace."""
    orders.write_text(DEFINITION.replace("- cast:", "- casts:"), encoding="utf-8")
    result = crash(pytester, "-k", "before-settle")
    result.assert_outcomes(failed=1)
    assert any("did you mean 'cast'" in line for line in result.outlines)
    assert not any("Traceback" in line or ".py:" in line for line in result.outlines if "conftest" not in line)


def test_an_installed_wherry_brings_it() -> None:
    """As pytest finds plugins, by the names in the package."""
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(r'\[project.entry-points.pytest11\]\nwherry = "runners.crashes.pytest_crashes"', text)


@pytest.mark.long
@pytest.mark.spark
def test_nothing_of_the_users_own_is_touched(pytester: pytest.Pytester, orders: Path) -> None:
    """A run is killed, another finishes, and no file has come, gone or changed beside the definition."""
    before = files(orders.parent)
    crash(pytester, "-k", "before-settle").assert_outcomes(passed=1)
    assert files(orders.parent) == before


def files(folder: Path) -> dict[str, bytes]:
    """Everything below a folder but what Python compiled."""
    return {
        str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts
    }
