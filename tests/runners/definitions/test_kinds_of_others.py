"""Kinds of other packages, by their installed name or as `module:Class`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import destinations
from runners.command_line import cli
from runners.definitions.definition import definition_of, load
from runners.definitions.document import DefinitionError
from runners.definitions.json_schema import make_json_schema
from runners.definitions.kinds import KindMissing, get_our_kinds, list_kinds
from runners.pipeline import Pipeline

PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "acme-kinds"
version = "1.2"

[project.entry-points."wherry.origins"]
ticks = "acme_kinds:Ticks"

[project.entry-points."wherry.stages"]
shout = "acme_kinds:Shout"

[project.entry-points."wherry.destinations"]
shelf = "acme_kinds:Shelf"
broken = "acme_kinds.no_such_module:Broken"

[tool.setuptools]
py-modules = ["acme_kinds"]
"""
MODULE = '''
from dataclasses import dataclass

import destinations
import origins
import stages


@dataclass(frozen=True, kw_only=True)
class Ticks(origins.Generate):
    """Orders of acme's. They are made up."""

    rows: int = 3
    """How many there are."""


@dataclass(frozen=True)
class Shout(stages.Stage):
    """Writes a column in capitals."""

    column: str

    def apply(self, rows):
        from pyspark.sql import functions as F

        loud = {self.column: F.upper(rows.column(self.column))}
        return rows.select({name: rows.column(name) for name in rows.names} | loud)


@dataclass(frozen=True, kw_only=True)
class Shelf(destinations.Files):
    """Files on acme's shelf."""
'''
DEFINITION = """
name: orders
origin: {ticks: {rows: 5}}
stages: [{shout: email}]
destinations: [{shelf: {path: shelf, format: json}}]
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the installed package, from a wheel that was built without the network."""
    folder = tmp_path_factory.mktemp("acme")
    source, wheels, target = folder / "source", folder / "wheels", folder / "installed"
    source.mkdir()
    (source / "pyproject.toml").write_text(PROJECT)
    (source / "acme_kinds.py").write_text(MODULE)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-index"]
    subprocess.run([*pip, "wheel", "--no-build-isolation", *offline, "--wheel-dir", wheels, source], check=True)
    (wheel,) = wheels.iterdir()
    subprocess.run([*pip, "install", *offline, "--target", target, wheel], check=True)
    return target


@pytest.fixture
def acme(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a definition that uses the kinds of the installed package."""
    monkeypatch.syspath_prepend(installed)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.yaml").write_text(DEFINITION)
    return tmp_path


def find_problem(folder: Path, text: str) -> str:
    """Return the message for an invalid definition."""
    (folder / "orders.yaml").write_text(text)
    with pytest.raises(DefinitionError) as raised:
        load(folder / "orders.yaml")
    return raised.value.message


def test_a_kind_of_an_installed_package_is_found_by_its_name(acme: Path) -> None:
    """It has the options and the checks of its class."""
    pipeline = load(acme / "orders.yaml").pipeline
    assert pipeline.origin is not None
    assert (type(pipeline.origin).__name__, pipeline.origin.name) == ("Ticks", "ticks")
    assert [stage.name for stage in pipeline.stages] == ["shout"]
    assert [type(each).__name__ for each in pipeline.destinations] == ["Shelf"]
    assert "unknown option; did you mean 'rows'?" in find_problem(acme, DEFINITION.replace("rows", "rowz"))


def test_a_definition_is_stored_with_the_names_of_the_package(acme: Path) -> None:
    """This holds for a definition in YAML and for one in Python."""
    definition = load(acme / "orders.yaml")
    kept = json.loads(definition.text)
    assert (kept["origin"], kept["stages"]) == ({"ticks": {"rows": 5}}, [{"shout": "email"}])
    assert [*kept["destinations"][0]] == ["shelf"]
    assert json.loads(definition_of(definition.pipeline).text)["origin"] == kept["origin"]


@pytest.mark.spark
def test_kinds_of_an_installed_package_process_rows(acme: Path, spark: object) -> None:
    """They are an origin, a stage and a destination."""
    report = Pipeline.load(acme / "orders.yaml").run()
    assert (report.status, report.read) == ("succeeded", 5)
    lines = [line for file in (acme / "shelf").rglob("*.json") for line in file.read_text().splitlines()]
    emails = [json.loads(line)["email"] for line in lines if '"email"' in line]
    assert len(emails) == 5
    assert [email.upper() for email in emails] == emails


def test_the_kinds_command_lists_kinds_of_packages(acme: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It shows the package. A kind that cannot be used has the reason."""
    assert cli.execute(["kinds"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}
    assert lines["kind"].split()[:3] == ["kind", "of", "from"]
    assert lines["ticks"].split(maxsplit=4)[1:] == ["origin", "acme-kinds", "1.2", "Orders of acme's."]
    assert lines["generate"].split()[1:3] == ["origin", "wherry"]
    assert "no module 'acme_kinds.no_such_module' is installed" in " ".join(
        kind.summary for kind in list_kinds() if kind.name == "broken"
    )
    assert cli.execute(["kinds", "shout", "--json"]) == 0
    (kind,) = json.loads(capsys.readouterr().out)["kinds"]
    assert (kind["role"], kind["source"], kind["options"][0]["name"]) == ("stage", "acme-kinds 1.2", "column")


def test_the_json_schema_has_the_kinds_of_packages(acme: Path) -> None:
    """Kinds that cannot be used are missing."""
    found = make_json_schema()["$defs"]
    assert "ticks" in found["origin"]["properties"]
    assert found["stage"]["properties"]["shout"]["description"] == "Writes a column in capitals."
    assert {"shelf", "broken"} & {*found["destination"]["properties"]} == {"shelf"}
    assert "shelf" in found["dlq"]["properties"]


def test_a_name_of_two_packages_is_refused(acme: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name of Wherry's kinds is not affected by a package."""
    other = acme / "other" / "other-3.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 3\n")
    (other / "entry_points.txt").write_text("[wherry.origins]\nticks = other:Ticks\nfiles = other:Files\n")
    monkeypatch.syspath_prepend(other.parent)
    with pytest.raises(KindMissing, match=r"of acme-kinds 1\.2 and other 3: expected one package with this name"):
        get_our_kinds().resolve("origin", "ticks")
    assert get_our_kinds().resolve("origin", "files").__module__ == "origins.files.files"


def test_a_class_is_a_kind_by_its_module(acme: Path) -> None:
    """Its module is installed, or is a file beside the definition."""
    text = DEFINITION.replace("shout:", "'acme_kinds:Shout':").replace("ticks", "'mine:Mine'")
    (acme / "mine.py").write_text(MODULE.replace("Ticks", "Mine"))
    (acme / "orders.yaml").write_text(text)
    pipeline = load(acme / "orders.yaml").pipeline
    assert pipeline.origin is not None
    assert (type(pipeline.origin).__name__, pipeline.origin.name) == ("Mine", "mine")
    assert [type(stage).__name__ for stage in pipeline.stages] == ["Shout"]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("nowhere:Mine", "nowhere:Mine: no module 'nowhere' is installed and there is no file"),
        ("mine:Gone", "mine:Gone: the module 'mine' has no 'Gone'"),
        ("raises:Mine", "raises:Mine: its module raises ZeroDivisionError: division by zero"),
        ("mine:Shout", "expected a subclass of origins.Origin, got the stage Shout"),
        ("mine:dataclass", "expected a subclass of origins.Origin, got the function dataclass"),
        ("mine:Half", "expected a subclass of origins.Origin with all abstract members; Half lacks"),
    ],
)
def test_a_class_that_is_no_kind_is_reported_with_its_line(acme: Path, kind: str, said: str) -> None:
    """The message has what was expected and what was found."""
    (acme / "mine.py").write_text(f"{MODULE}\n\nclass Half(origins.Origin):\n    pass\n")
    (acme / "raises.py").write_text("1 / 0")
    told = find_problem(acme, DEFINITION.replace("ticks", f"'{kind}'"))
    assert told.startswith("orders.yaml: 1 problem\n  line 3  origin: the origin ")
    assert said in told


def test_a_definition_of_our_kinds_reads_no_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading the entry points would delay each start."""

    def refuse(**_: object) -> None:
        raise AssertionError("entry points were read")

    monkeypatch.setattr("importlib.metadata.entry_points", refuse)
    (tmp_path / "a.yaml").write_text(
        "name: a\norigin: {generate: {rows: 1}}\ndestinations: [{discard: {}}]\ndlq: {window: 3, discard: {}}\n"
    )
    assert isinstance(load(tmp_path / "a.yaml").pipeline.destinations[0], destinations.Discard)
