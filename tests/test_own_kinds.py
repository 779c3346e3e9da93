"""The kinds that the how-to guides show keep the promises of their contracts, as a reader tests them."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stages.rows import Rows
from tests.pages import ROOT, list_blocks


@pytest.mark.spark
@pytest.mark.parametrize(
    ("page", "suites"),
    [
        ("write-an-origin", {"TestNumbers"}),
        ("write-a-stage", {"TestCapitals", "TestKnown"}),
        ("write-a-destination", {"TestParquet", "TestSqlite"}),
    ],
)
def test_the_suites_of_a_guide_pass_in_a_folder_with_its_files_only(
    page: str, suites: set[str], tmp_path: Path
) -> None:
    """The guide has all that pytest needs, also the fixture `spark`."""
    for block in list_blocks(ROOT / f"runners/docs/howto/{page}.md"):
        kind, _, name = block.note.partition(": ")
        if kind == "file" and block.language == "python":
            (tmp_path / name).write_text(block.text, encoding="utf-8")
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--rootdir", "."],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    passed = [line for line in tested.stdout.splitlines() if " PASSED" in line]
    assert tested.returncode == 0, tested.stdout
    assert {line.split("::")[1] for line in passed} == suites


def test_the_guide_for_stages_names_each_method_of_rows() -> None:
    """It names no other."""
    text = (ROOT / "runners/docs/howto/write-a-stage.md").read_text(encoding="utf-8")
    methods = {name for name, each in vars(Rows).items() if inspect.isfunction(each) or isinstance(each, property)}
    assert set(re.findall(r"`rows\.(\w+)", text)) == {name for name in methods if not name.startswith("_")}
