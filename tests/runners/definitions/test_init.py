"""`wherry init`: its question, the files that it writes, and the files that it does not change."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from origins.errors import WherryError
from runners.command_line import cli
from runners.command_line.commands import wherry
from runners.definitions.definition import load
from runners.definitions.first_pipeline import EXAMPLES, begin

ROOT = Path(__file__).resolve().parents[3]


def test_a_pipeline_has_the_name_of_its_directory(tmp_path: Path) -> None:
    """The definition, its file and its cases have this name."""
    files = begin(tmp_path / "shop")
    assert [str(file.relative_to(tmp_path)) for file in files] == [
        "shop/shop.yaml",
        "shop/landing/sample.csv",
        "shop/shop.test.yaml",
    ]
    pipeline = load(tmp_path / "shop" / "shop.yaml").pipeline
    assert (pipeline.name, pipeline.destinations[0].name) == ("shop", "shop")
    assert "wherry test shop.yaml" in (tmp_path / "shop" / "shop.test.yaml").read_text()


def test_a_pipeline_may_have_another_name_in_an_existing_directory(tmp_path: Path) -> None:
    """The files of the directory do not change."""
    (tmp_path / "mine.txt").write_text("mine")
    begin(tmp_path, "till-2")
    assert load(tmp_path / "till-2.yaml").pipeline.name == "till-2"
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_no_file_is_overwritten(tmp_path: Path) -> None:
    """If one file exists with other content, no file is written. Files with the same content are fine."""
    begin(tmp_path, "shop")
    (tmp_path / "shop.yaml").unlink()
    (tmp_path / "shop.test.yaml").write_text("mine")
    with pytest.raises(WherryError, match=r"shop\.test\.yaml exists already"):
        begin(tmp_path, "shop")
    assert not (tmp_path / "shop.yaml").exists()
    (tmp_path / "shop.test.yaml").unlink()
    begin(tmp_path, "shop")
    assert begin(tmp_path, "shop")


def test_an_invalid_name_is_refused_with_a_valid_one(tmp_path: Path) -> None:
    """No directory is created."""
    with pytest.raises(WherryError, match=r"Add --name my-shop\."):
        begin(tmp_path / "my shop")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_written_is_an_error_message(tmp_path: Path) -> None:
    """A file has the directory's path."""
    (tmp_path / "shop").write_text("")
    with pytest.raises(WherryError, match="cannot be written"):
        begin(tmp_path / "shop", "orders")


def test_databricks_gets_a_bundle_and_a_notebook(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All parts have the same name, which must be valid for a table."""
    assert cli.execute(["init", str(tmp_path / "shop"), "--databricks"]) == 0
    assert "databricks bundle deploy" in capsys.readouterr().out
    names = {file.name for file in (tmp_path / "shop").iterdir()}
    assert names == {"shop.yaml", "databricks.yml", "notebook.py", "landing"}
    assert load(tmp_path / "shop" / "shop.yaml").pipeline.destinations[0].place == "default.shop"
    assert 'given["FOLDER"], "shop.yaml")' in (tmp_path / "shop" / "notebook.py").read_text()
    assert cli.execute(["init", str(tmp_path / "my-shop"), "--databricks"]) == 2
    assert "Add --name my_shop." in capsys.readouterr().err


def test_one_question_is_asked_only_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks for the name. It is not asked if a directory is given."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("runners.command_line.commands.is_terminal", lambda: True)
    result = CliRunner().invoke(wherry, ["init"], input="till\n", standalone_mode=False)
    assert "Name of the pipeline [orders]" in result.stderr
    assert "wherry run till/till.yaml" in result.stdout
    assert CliRunner().invoke(wherry, ["init", "shop"], standalone_mode=False).stderr == ""
    monkeypatch.setattr("runners.command_line.commands.is_terminal", lambda: False)
    assert cli.execute(["init"]) == 0
    assert sorted(place.name for place in tmp_path.iterdir()) == ["orders", "shop", "till"]


@pytest.mark.parametrize(
    ("files", "typed"),
    [
        (["activate"], "source env/bin/activate "),
        (["wherry"], "alias wherry={}/env/bin/wherry "),
        (["activate", "on the PATH/wherry"], "wherry preview shop/shop.yaml "),
    ],
)
def test_the_first_step_lets_the_shell_find_wherry(
    files: list[str], typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the shell finds it already, there is no such step."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "env" / "bin" / "on the PATH"))
    monkeypatch.setattr("sys.executable", str(tmp_path / "env" / "bin" / "python"))
    for name in files:
        file = tmp_path / "env" / "bin" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o755)
    result = CliRunner().invoke(wherry, ["init", "shop"], standalone_mode=False)
    steps = result.stdout.partition("type next")[2].splitlines()
    assert steps[1].startswith(typed.format(tmp_path))


def test_the_files_that_init_copies_are_packaged() -> None:
    """Every file of every example matches a pattern of the wheel."""
    packaged = re.search(r"^runners = (\[.*\])$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    patterns = json.loads(packaged.group(1)) if packaged else []
    files = [file for file in EXAMPLES.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    left = [str(file) for file in files if not any(file.relative_to(EXAMPLES.parent).match(each) for each in patterns)]
    assert files
    assert left == []
