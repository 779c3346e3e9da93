"""What the READMEs show is run, and what there is stands in them."""

from __future__ import annotations

import re
import runpy
import shlex
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from origins.errors import WherryError
from runners.command_line.commands import wherry
from runners.definitions.definition import load
from runners.definitions.first_pipeline import make
from runners.definitions.kinds import CONTRACTS, Role, get_our_kinds, list_options
from runners.model.spec import BatchOptions, Hook, RetryOptions, RunOptions, ScheduleOptions
from tests.pages import PAGES, PageReader

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FOLDER = {"origin": "origins", "stage": "stages", "destination": "destinations"}
KINDS = [(role, kind) for role in CONTRACTS for kind in get_our_kinds().get_kinds(role)]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def test_the_readme_is_short() -> None:
    """Whoever wants more follows a link."""
    assert len(README.splitlines()) <= 80


def test_the_pictures_are_those_that_the_script_draws() -> None:
    """`python runners/docs/draw_batch.py` makes them again."""
    script = runpy.run_path(str(ROOT / "runners/docs/draw_batch.py"))
    drawn = {name: script["draw"](picture) for name, picture in script["PICTURES"].items()}
    assert {file.name: file.read_text(encoding="utf-8") for file in (ROOT / "runners/docs").glob("*.svg")} == drawn


def test_the_two_commands_stand_at_the_top() -> None:
    """One runs the demo, the other the tests, and both come before anything else that is shown."""
    demo, tests = blocks(README, "bash")
    assert "wherry demo" in demo
    assert "pytest" in tests
    assert README.index("```bash") < README.index("```yaml")


def test_the_definition_is_well_defined(tmp_path: Path) -> None:
    """It loads without a problem."""
    (definition,) = blocks(README, "yaml")
    file = tmp_path / "orders.yaml"
    file.write_text(definition, encoding="utf-8")
    assert load(file).pipeline.name == "orders"


@pytest.mark.spark
def test_the_commands_run_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: object) -> None:
    """Each ends with 0 over the orders of the demo."""
    make(tmp_path, files=2, rows=50)
    (definition,) = blocks(README, "yaml")
    (tmp_path / "orders.yaml").write_text(definition, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (console,) = blocks(README, "console")
    for line in console.splitlines():
        words = shlex.split(line.removeprefix("$ wherry "), comments=True)
        result = CliRunner().invoke(wherry, words, standalone_mode=False)
        assert (result.exception, result.return_value or 0) == (None, 0), line


@pytest.mark.spark
@pytest.mark.every_case
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_can_be_followed(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: object) -> None:
    """Each block runs after those above it, and prints what the page shows. The demo has fewer orders."""
    monkeypatch.setattr("runners.definitions.first_pipeline.make", partial(make, files=2, rows=1_000))
    PageReader(monkeypatch).follow(page, tmp_path)


@pytest.mark.spark
def test_the_python_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: object) -> None:
    """It carries the orders of the demo."""
    make(tmp_path, files=1, rows=50)
    monkeypatch.chdir(tmp_path)
    (block,) = blocks(README, "python")
    found: dict[str, object] = {}
    exec(block, found)  # noqa: S102  (it is our own README)
    assert getattr(found["report"], "status") == "succeeded"  # noqa: B009


@pytest.mark.parametrize(("role", "kind"), KINDS)
def test_every_kind_and_every_option_is_documented(role: Role, kind: str) -> None:
    """Each stands in its folder's README, in code, or on a page beside it."""
    pages = [ROOT / FOLDER[role] / "README.md", *(ROOT / FOLDER[role] / "docs").glob("*.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    missing = [option for option in list_options(get_our_kinds().resolve(role, kind)) if f"`{option}`" not in text]
    assert f"`{kind}`" in text
    assert [option for option in missing if option not in ("name", "stages", "lanes", "read", "was")] == []


@pytest.mark.parametrize("command", sorted(wherry.commands))
def test_every_command_is_documented(command: str) -> None:
    """Each stands on the page of all commands."""
    page = ROOT / "runners/docs/howto/command-line.md"
    assert f"wherry {command}" in page.read_text(encoding="utf-8")


def test_the_demo_does_not_write_over_what_is_somebody_elses(tmp_path: Path) -> None:
    """It asks for another directory."""
    (tmp_path / "orders.yaml").write_text("name: mine\n")
    with pytest.raises(WherryError, match="the demo did not write it"):
        make(tmp_path)


@pytest.mark.parametrize(
    ("options", "prefix"),
    [(RunOptions, ""), (BatchOptions, "batch."), (RetryOptions, "retry."), (ScheduleOptions, ""), (Hook, "")],
)
def test_every_option_of_a_run_is_documented(options: type, prefix: str) -> None:
    """In the pages of settings."""
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES if page.parent.name == "reference")
    groups = ("batch", "retry")
    assert [name for name in list_options(options) if f"`{prefix}{name}`" not in text and name not in groups] == []
