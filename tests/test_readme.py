"""What the READMEs show is run, and what there is stands in them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from origins.errors import WherryError
from runners.command_line.commands import wherry
from runners.definitions.definition import load
from runners.definitions.demo import make
from runners.definitions.kinds import CONTRACTS, Role, ours
from runners.definitions.options import options_of
from runners.listeners.hook import Hook
from runners.pipeline import BatchOptions, RetryOptions, RunOptions, ScheduleOptions

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FOLDER = {"origin": "origins", "stage": "stages", "destination": "destinations"}
KINDS = [(role, kind) for role in CONTRACTS for kind in ours().of(role)]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


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
    """Each stands in its folder's README, in code."""
    text = (ROOT / FOLDER[role] / "README.md").read_text(encoding="utf-8")
    missing = [option for option in options_of(ours().resolve(role, kind)) if f"`{option}`" not in text]
    assert f"`{kind}`" in text
    assert [option for option in missing if option not in ("name", "stages", "lanes", "read", "was")] == []


@pytest.mark.parametrize("command", sorted(wherry.commands))
def test_every_command_is_documented(command: str) -> None:
    """Each stands in the README or in that of the runners."""
    runners = (ROOT / "runners" / "README.md").read_text(encoding="utf-8")
    assert f"wherry {command}" in README + runners


def test_the_demo_does_not_write_over_what_is_somebody_elses(tmp_path: Path) -> None:
    """It asks for another directory."""
    (tmp_path / "orders.yaml").write_text("name: mine\n")
    with pytest.raises(WherryError, match="not the demo's"):
        make(tmp_path)


@pytest.mark.parametrize(
    ("options", "prefix"),
    [(RunOptions, ""), (BatchOptions, "batch."), (RetryOptions, "retry."), (ScheduleOptions, ""), (Hook, "")],
)
def test_every_option_of_a_run_is_documented(options: type, prefix: str) -> None:
    """In the runners' README."""
    text = (ROOT / "runners" / "README.md").read_text(encoding="utf-8")
    groups = ("batch", "retry")
    assert [name for name in options_of(options) if f"`{prefix}{name}`" not in text and name not in groups] == []


def test_the_suite_in_the_stages_readme_is_well_defined(tmp_path: Path) -> None:
    """It loads with a suite beside it."""
    (definition,) = re.findall(
        r"<!-- expect -->\n```yaml\n(.*?)^```$",
        (ROOT / "stages" / "README.md").read_text(encoding="utf-8"),
        re.DOTALL | re.MULTILINE,
    )
    (tmp_path / "rules.json").write_text(
        '{"name": "rules", "expectations": [{"type": "expect_table_row_count_to_equal", "kwargs": {"value": 1}}]}'
    )
    (tmp_path / "orders.yaml").write_text(definition, encoding="utf-8")
    first, second = load(tmp_path / "orders.yaml").pipeline.stages
    assert (first.name, second.name) == ("expect", "rules")
