"""The examples in the READMEs run, and the READMEs describe every kind, option and command."""

from __future__ import annotations

import re
import shlex
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from origins.errors import WherryError
from runners.command_line.commands import wherry
from runners.definitions.definition import load
from runners.definitions.first_pipeline import make
from runners.definitions.kinds import CONTRACTS, get_our_kinds, list_options
from runners.model.spec import BatchOptions, Hook, RetryOptions, RunOptions, ScheduleOptions
from tests.pages import PAGES, PageReader
from tests.traces import list_unnamed

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FOLDER = {"origin": "origins", "stage": "stages", "destination": "destinations"}
ELSEWHERE = {"name", "stages", "lanes", "read", "was"}
"""Options of several kinds, which a page about definitions has."""


def find_blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def test_the_readme_is_short() -> None:
    """It has at most 80 lines. Links lead to the details."""
    assert len(README.splitlines()) <= 80


@pytest.mark.parametrize("name", ["batch.svg", "states.svg"])
def test_a_picture_has_words_and_colours_for_each_reader(name: str) -> None:
    """It is well-formed, it is described in words, and it has colours for dark pages."""
    text = (ROOT / "runners/docs" / name).read_text(encoding="utf-8")
    assert ElementTree.fromstring(text).attrib["aria-label"].endswith(".")  # noqa: S314  (the picture is ours)
    assert "prefers-color-scheme: dark" in text


def test_the_two_commands_are_at_the_top() -> None:
    """One runs the demo and the other runs the tests. Both come before the first definition."""
    demo, tests = find_blocks(README, "bash")
    assert "wherry demo" in demo
    assert "pytest" in tests
    assert README.index("```bash") < README.index("```yaml")


def test_the_definition_of_the_readme_is_valid(tmp_path: Path) -> None:
    """The definition loads without a problem."""
    (definition,) = find_blocks(README, "yaml")
    file = tmp_path / "orders.yaml"
    file.write_text(definition, encoding="utf-8")
    assert load(file).pipeline.name == "orders"


@pytest.mark.spark
def test_the_commands_of_the_readme_run_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """Each command exits with 0 on the orders of the demo."""
    make(tmp_path, files=2, rows=50)
    (definition,) = find_blocks(README, "yaml")
    (tmp_path / "orders.yaml").write_text(definition, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (console,) = find_blocks(README, "console")
    for line in console.splitlines():
        words = shlex.split(line.removeprefix("$ wherry "), comments=True)
        result = CliRunner().invoke(wherry, words, standalone_mode=False)
        assert (result.exception, result.return_value or 0) == (None, 0), line


@pytest.mark.spark
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_can_be_followed(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: object) -> None:
    """Each block runs after the blocks above it, and prints what the page shows. The demo has fewer orders here.

    It leaves only files that a page names.
    """
    monkeypatch.setattr("runners.command_line.trial_commands.make", partial(make, files=2, rows=1_000))
    PageReader(monkeypatch).follow(page, tmp_path)
    assert list_unnamed(tmp_path) == []


@pytest.mark.spark
def test_the_python_block_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: object) -> None:
    """The block delivers the orders of the demo."""
    make(tmp_path, files=1, rows=50)
    monkeypatch.chdir(tmp_path)
    (block,) = find_blocks(README, "python")
    found: dict[str, object] = {}
    exec(block, found)  # noqa: S102  (the README is ours)
    assert getattr(found["report"], "status") == "succeeded"  # noqa: B009


def test_every_kind_and_every_option_is_documented() -> None:
    """Its folder's README, or a page beside it, names each kind and option as code."""
    for role in CONTRACTS:
        pages = [ROOT / FOLDER[role] / "README.md", *(ROOT / FOLDER[role] / "docs").glob("*.md")]
        text = "".join(page.read_text(encoding="utf-8") for page in pages)
        for kind in get_our_kinds().get_kinds(role):
            options = {*list_options(get_our_kinds().resolve(role, kind))} - ELSEWHERE
            assert [name for name in (kind, *options) if f"`{name}`" not in text] == [], kind


def test_every_command_is_documented() -> None:
    """The page of all commands names each command."""
    page = (ROOT / "runners/docs/howto/command-line.md").read_text(encoding="utf-8")
    assert [command for command in wherry.commands if f"wherry {command}" not in page] == []


def test_the_demo_does_not_overwrite_files_of_others(tmp_path: Path) -> None:
    """The demo refuses a folder with a definition that it did not write."""
    (tmp_path / "orders.yaml").write_text("name: mine\n")
    with pytest.raises(WherryError, match="the demo did not write it"):
        make(tmp_path)


@pytest.mark.parametrize(
    ("options", "prefix"),
    [(RunOptions, ""), (BatchOptions, "batch."), (RetryOptions, "retry."), (ScheduleOptions, ""), (Hook, "")],
)
def test_every_option_of_a_run_is_documented(options: type, prefix: str) -> None:
    """A page of settings names each option as code."""
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES if page.parent.name == "reference")
    groups = ("batch", "retry")
    assert [name for name in list_options(options) if f"`{prefix}{name}`" not in text and name not in groups] == []
