"""The shape of the code: who imports whom, and what needs which Spark."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("origins", "stages", "destinations", "runners")
FILES = [file for folder in FOLDERS for file in sorted((ROOT / folder).glob("**/*.py"))]
CLASSIC_ONLY = re.compile(r"\b(_jvm|_jdf|_jsparkSession|sparkContext|DeltaTable\.for\w+|\.rdd\b|\.persist\(|\.cache\()")


def imported(file: Path, *, top_level: bool = False) -> Iterator[str]:
    """The modules that a file imports; with `top_level` only those that importing it imports."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    nodes = tree.body if top_level else list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_imports_point_upstream(file: Path) -> None:
    """A folder imports only from folders that its batch has already passed."""
    downstream = FOLDERS[FOLDERS.index(file.relative_to(ROOT).parts[0]) + 1 :]
    assert [module for module in imported(file) if module.split(".")[0] in downstream] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_only_the_session_knows_which_spark_it_has(file: Path) -> None:
    """What only classic Spark has stands in one file."""
    text = file.read_text(encoding="utf-8")
    assert file.name == "session.py" or CLASSIC_ONLY.findall(text) == []


@pytest.mark.parametrize(
    "name",
    [
        *("dispatcher", "flight", "nack_window", "clock", "progress", "journal", "crew"),
        *("ledgers.ledger", "ledgers.entry", "ledgers.memory_ledger"),
    ],
)
def test_the_scheduling_core_needs_no_spark(name: str) -> None:
    """Importing it, and all that it imports, does not import pyspark."""
    seen, waiting = set(), [f"runners.{name}"]
    assert (ROOT / "runners" / f"{name.replace('.', '/')}.py").is_file()
    while waiting:
        module = waiting.pop()
        file = ROOT / f"{module.replace('.', '/')}.py"
        if module in seen or not file.exists():
            continue
        seen.add(module)
        waiting += imported(file, top_level=True)
        assert "pyspark" not in {found.split(".")[0] for found in imported(file, top_level=True)}, module


def test_nothing_else_stands_at_the_top() -> None:
    """The top level is what was agreed, but for dotfiles and a licence."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = {line.split("/")[0] for line in listed.splitlines()}
    agreed = {*FOLDERS, "tests", "README.md", "pyproject.toml", "LICENSE"}
    assert {name for name in found if not name.startswith(".")} <= agreed
