"""Each kind and each name of `__all__` can be imported from its package, and importing the packages is quick."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import destinations
import origins
import runners
import stages
from runners import api
from runners.definitions.kinds import CONTRACTS, get_our_kinds
from tests.pages import PAGES

ROOT = Path(__file__).parents[1]
PACKAGES = {"origins": origins, "stages": stages, "destinations": destinations, "runners": runners, "wherry": api}
READMES = [ROOT / "README.md", *(ROOT / folder / "README.md" for folder in PACKAGES if folder != "wherry"), *PAGES]


def run_python(*words: str, path: Path) -> str:
    """Return the output of a Python process that finds modules in this folder."""
    command = [sys.executable, "-c", "; ".join(words)]
    return subprocess.run(
        command, env={"PYTHONPATH": str(path)}, cwd="/", capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize("package", PACKAGES.values(), ids=PACKAGES)
def test_each_exported_name_exists_and_is_listed(package: ModuleType) -> None:
    """`__all__` has no duplicates, and `dir` lists its names."""
    assert sorted(set(package.__all__)) == sorted(package.__all__)
    assert set(package.__all__) <= set(dir(package))
    assert [name for name in package.__all__ if getattr(package, name) is None] == []


@pytest.mark.parametrize("package", PACKAGES.values(), ids=PACKAGES)
def test_a_name_that_is_not_exported_raises_an_attribute_error(package: ModuleType) -> None:
    """Python can then still import a sub-module of that name."""
    with pytest.raises(AttributeError, match=r"module '[a-z.]+' has no attribute 'Fils'"):
        _ = package.Fils
    assert not hasattr(package, "Fils")


@pytest.mark.parametrize(("role", "folder"), [*zip(CONTRACTS, ("origins", "stages", "destinations"), strict=True)])
def test_every_kind_is_exported_by_its_folder(role: str, folder: str) -> None:
    """The package exports each kind under the name of its class."""
    for kind in getattr(get_our_kinds(), folder):
        component = get_our_kinds().resolve(role, kind)  # type: ignore[arg-type]
        assert component.__name__ in PACKAGES[folder].__all__
        assert getattr(PACKAGES[folder], component.__name__) is component


def test_wherry_exports_the_names_of_runners_and_the_three_folders() -> None:
    """`wherry` exports the same objects as `runners`."""
    assert {*api.__all__} == {*runners.__all__, "origins", "stages", "destinations"}
    assert all(getattr(api, name) is getattr(runners, name) for name in runners.__all__)
    assert (api.origins, api.stages, api.destinations) == (origins, stages, destinations)


def test_importing_the_packages_imports_no_spark_and_no_kind() -> None:
    """A name is imported when it is first used."""
    imports = "import sys, origins, stages, destinations, runners, runners.api"
    found = run_python(imports, "print(sorted(name for name in sys.modules if '.' in name))", path=ROOT)
    loaded = {name for name in ast.literal_eval(found) if name.partition(".")[0] in {*PACKAGES, "pyspark"}}
    assert loaded == {"origins.lazy", "runners.api"}


def test_a_pipeline_is_made_without_spark() -> None:
    """Kinds are plain values. Spark is imported only when rows are read."""
    made = "Pipeline(name='a', origin=origins.Generate(rows=1), destinations=[destinations.Delta(path='t')])"
    found = run_python("import sys, origins, destinations", "from runners import Pipeline", made, path=ROOT)
    assert found == ""
    found = run_python(
        "import sys, origins, stages", "origins.Files, stages.Cast", "print('pyspark' in sys.modules)", path=ROOT
    )
    assert found == "False\n"


def list_shown_imports() -> Iterator[tuple[str, str]]:
    """Yield each package and name that a Python block of a README takes from one of Wherry's packages."""
    for readme in READMES:
        for block in re.findall(
            r"^```python\n(.*?)^```$", readme.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        ):
            for node in ast.walk(ast.parse(block)):
                if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] in PACKAGES:
                    yield from ((str(node.module), alias.name) for alias in node.names)
                elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in PACKAGES:
                    yield node.value.id, node.attr


def test_the_examples_of_the_readmes_import_from_the_packages() -> None:
    """A reader does not need to know the file of a class."""
    shown = set(list_shown_imports())
    assert {("runners", "Pipeline"), ("origins", "Files"), ("destinations", "Delta"), ("stages", "Cast")} <= shown
    assert [found for found in shown if found[0] not in PACKAGES or found[1] not in PACKAGES[found[0]].__all__] == []


def test_no_file_of_wherry_imports_from_a_package_itself() -> None:
    """A package imports its files for type checkers, so such an import would be circular."""
    files = [
        file for folder in ("origins", "stages", "destinations", "runners") for file in (ROOT / folder).rglob("*.py")
    ]
    own = [file for file in files if file.name != "__init__.py" and "examples" not in file.parts]
    found = [
        (file.name, alias.name)
        for file in own
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module in PACKAGES
        for alias in node.names
        if alias.name in PACKAGES[str(node.module)].__all__
    ]
    assert len(own) > 100
    assert found == []


@pytest.mark.long
def test_an_installed_wheel_has_wherry(tmp_path: Path) -> None:
    """`import wherry` works from a wheel, with its types, and an editable install finds it in `runners/api`."""
    source = tmp_path / "source"
    for folder in ("origins", "stages", "destinations", "runners"):
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-build-isolation", "--no-deps", "--no-index"]
    subprocess.run([*pip, "install", *offline, "--target", tmp_path / "installed", source], check=True)
    assert (tmp_path / "installed" / "wherry" / "py.typed").is_file()
    asked = "import wherry as w", "print(w.__file__, w.Pipeline.__name__, w.origins.Files.__name__)"
    made = run_python(*asked, path=tmp_path / "installed")
    assert made == f"{tmp_path}/installed/wherry/__init__.py Pipeline Files\n"
