"""`pytest --wherry-crash pipeline.yaml`, as a user types it."""

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
    """A definition with files to process, rows to refuse, and existing files. A test is beside its folder."""
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


def run_crashes(pytester: pytest.Pytester, *words: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess(*PLUGIN, "--wherry-crash", "shop/pipeline.yaml", *words)


def test_each_point_is_a_test_and_no_other_test_runs(pytester: pytest.Pytester, orders: Path) -> None:
    """Other tests run if they are named too."""
    found = run_crashes(pytester, "--collect-only", "-q").outlines
    assert [line.rpartition("::")[2] for line in found if "::" in line] == list(POINTS)
    assert any("test_of_somebody" in line for line in run_crashes(pytester, "--collect-only", "-q", ".").outlines)


def test_without_the_option_a_definition_is_no_test(pytester: pytest.Pytester, orders: Path) -> None:
    """Only the ordinary test is found."""
    pytester.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=1)


def test_an_invalid_definition_fails_with_its_message(pytester: pytest.Pytester, orders: Path) -> None:
    """It has the message of a run, without a stack trace."""
    orders.write_text(DEFINITION.replace("- cast:", "- casts:"), encoding="utf-8")
    result = run_crashes(pytester, "-k", "before-settle")
    result.assert_outcomes(failed=1)
    assert any("did you mean 'cast'" in line for line in result.outlines)
    assert not any("Traceback" in line or ".py:" in line for line in result.outlines if "conftest" not in line)


def test_an_installed_wherry_provides_the_plugin() -> None:
    """pytest finds plugins by the entry points of a package."""
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(r'\[project.entry-points.pytest11\]\nwherry = "runners.crashes.pytest_crashes"', text)


@pytest.mark.long
@pytest.mark.spark
def test_a_trial_changes_no_file_of_the_user(pytester: pytest.Pytester, orders: Path) -> None:
    """A run is killed, another run finishes, and no file beside the definition is added, deleted or changed."""
    before = read_files(orders.parent)
    run_crashes(pytester, "-k", "before-settle").assert_outcomes(passed=1)
    assert read_files(orders.parent) == before


def read_files(folder: Path) -> dict[str, bytes]:
    """Return the contents of all files below a folder, except compiled Python files."""
    return {
        str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts
    }
