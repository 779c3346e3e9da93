"""`wherry init`: its question, the files that it writes, and the files that it does not change."""

from __future__ import annotations

import json
import re
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from origins.errors import WherryError
from runners.command_line import cli
from runners.command_line.commands import wherry
from runners.definitions.definition import load
from runners.definitions.document import parse, to_plain
from runners.definitions.first_pipeline import COMPUTES, EXAMPLES, begin
from runners.model.text import find_version
from tests.databricks.notebook import list_cells, list_words

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
    assert names == {"shop.yaml", "databricks.yml", "notebook.py", "requirements.txt", "landing"}
    assert load(tmp_path / "shop" / "shop.yaml").pipeline.destinations[0].place == "default.shop"
    assert "dbutils.widgets.get('FOLDER')}/shop.yaml" in (tmp_path / "shop" / "notebook.py").read_text()
    assert f"wherry=={find_version()}\n" in (tmp_path / "shop" / "requirements.txt").read_text()
    assert cli.execute(["init", str(tmp_path / "my-shop"), "--databricks"]) == 2
    assert "Add --name my_shop." in capsys.readouterr().err
    assert cli.execute(["init", str(tmp_path / "till"), "--compute", "classic"]) == 2
    assert "--compute is for --databricks." in capsys.readouterr().err


def read_bundle(folder: Path, compute: str) -> Any:
    begin(folder, "shop", example="databricks", compute=compute)
    return to_plain(parse((folder / "databricks.yml").read_text(), "databricks.yml"))


@pytest.mark.parametrize("compute", COMPUTES)
def test_a_bundle_makes_what_its_jobs_name(tmp_path: Path, compute: str) -> None:
    """A reference makes Databricks create the schema and the volume before the jobs."""
    bundle = read_bundle(tmp_path, compute)
    made = bundle["resources"]
    assert {kind: [*each] for kind, each in made.items()} == {
        "schemas": ["shop"],
        "volumes": ["landing"],
        "jobs": ["shop", "by_hand"],
    }
    job = made["jobs"]["shop"]
    volume = "/Volumes/${var.catalog}/${resources.schemas.shop.name}/${resources.volumes.landing.name}"
    assert job["trigger"] == {"file_arrival": {"url": f"{volume}/"}}
    schema = "${var.catalog}.${resources.schemas.shop.name}"
    assert {each["name"]: each["default"] for each in job["parameters"]} == {"LANDING": volume, "SCHEMA": schema}
    named = set(re.findall(r"\$\{var\.(\w+)\}", (tmp_path / "databricks.yml").read_text()))
    assert named == set(bundle["variables"])
    assert all("default" in each for each in bundle["variables"].values())


@pytest.mark.parametrize("compute", COMPUTES)
def test_one_run_at_a_time_is_not_tried_again(tmp_path: Path, compute: str) -> None:
    """This holds for both jobs, also in development, where a bundle allows four runs by default."""
    for job in read_bundle(tmp_path, compute)["resources"]["jobs"].values():
        assert (job["max_concurrent_runs"], [task["max_retries"] for task in job["tasks"]]) == (1, [0])


def test_both_targets_deploy(tmp_path: Path) -> None:
    """`mode: production` is refused without a folder in the workspace. Only its schema cannot be destroyed."""
    targets = read_bundle(tmp_path, "")["targets"]
    assert (targets["dev"], targets["prod"]["mode"]) == ({"mode": "development", "default": True}, "production")
    assert targets["prod"]["workspace"]["root_path"].startswith("/Workspace/Users/${workspace.current_user.userName}/")
    assert targets["prod"]["resources"]["schemas"]["shop"]["lifecycle"] == {"prevent_destroy": True}


def test_serverless_has_a_pinned_environment(tmp_path: Path) -> None:
    """Older environments have Spark 3.5. A notebook without one would run on any version."""
    jobs = read_bundle(tmp_path, "serverless")["resources"]["jobs"]
    for name, spec in {
        "shop": {"environment_version": "4", "dependencies": ["-r ./requirements.txt"]},
        "by_hand": {"environment_version": "4"},
    }.items():
        assert jobs[name]["environments"] == [{"environment_key": "wherry", "spec": spec}]
        assert [task["environment_key"] for task in jobs[name]["tasks"]] == ["wherry"]
    assert "cluster" not in (tmp_path / "databricks.yml").read_text()


def test_classic_compute_has_a_dedicated_cluster(tmp_path: Path) -> None:
    """Its runtime is the oldest one with Spark 4. The wheel task installs what `requirements.txt` names."""
    jobs = read_bundle(tmp_path, "classic")["resources"]["jobs"]
    (cluster,) = jobs["shop"]["job_clusters"]
    (run,), (look,) = jobs["shop"]["tasks"], jobs["by_hand"]["tasks"]
    assert cluster["new_cluster"]["spark_version"] == "17.3.x-scala2.13"
    assert cluster["new_cluster"]["data_security_mode"] == "SINGLE_USER"
    assert (run["job_cluster_key"], look["new_cluster"]) == (cluster["job_cluster_key"], cluster["new_cluster"])
    assert run["libraries"] == [{"requirements": "./requirements.txt"}]
    assert "environment" not in (tmp_path / "databricks.yml").read_text()


@pytest.mark.parametrize("compute", COMPUTES)
def test_the_wheel_task_calls_a_command_that_exists(tmp_path: Path, compute: str) -> None:
    """It gives the definition all its values, and the ids of the job and of its run."""
    task = read_bundle(tmp_path, compute)["resources"]["jobs"]["shop"]["tasks"][0]["python_wheel_task"]
    (entry,) = entry_points(group="console_scripts", name=task["entry_point"])
    assert (task["package_name"], entry.dist and entry.dist.name) == ("wherry", "wherry")
    name, command, *words = list_words(tmp_path / "databricks.yml")
    assert (name, command, cli.execute(["validate", *words])) == ("wherry", "run", 0)
    asked = set(re.findall(r"\$\{(\w+)", (tmp_path / "shop.yaml").read_text()))
    assert {word.partition("=")[2].partition("=")[0] for word in words[1:]} == {*asked, "JOB_ID", "JOB_RUN_ID"}


def test_a_notebook_installs_in_one_cell_and_restarts(tmp_path: Path) -> None:
    """Wherry is imported after that. Neither a cell nor a task names a path that depends on the working directory."""
    begin(tmp_path, "shop", example="databricks")
    text = (tmp_path / "notebook.py").read_text()
    cells = list_cells(text)
    (install,) = [at for at, cell in enumerate(cells) if "%pip" in cell]
    assert cells[install : install + 2] == [
        "%pip install --quiet -r $folder/requirements.txt",
        "dbutils.library.restartPython()",
    ]
    assert [at > install for at, cell in enumerate(cells) if "wherry" in cell] == [True]
    assert not re.search(r"getcwd|Path\(\)|chdir|\./", text)


def test_one_question_is_asked_only_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks for the name. It is not asked if a directory is given."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("runners.command_line.trial_commands.is_terminal", lambda: True)
    result = CliRunner().invoke(wherry, ["init"], input="till\n", standalone_mode=False)
    assert "Name of the pipeline [orders]" in result.stderr
    assert "wherry run till/till.yaml" in result.stdout
    assert CliRunner().invoke(wherry, ["init", "shop"], standalone_mode=False).stderr == ""
    monkeypatch.setattr("runners.command_line.trial_commands.is_terminal", lambda: False)
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
