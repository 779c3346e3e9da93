"""What a notebook or a job of Databricks gives to a definition, asked from a strict `dbutils`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from runners.definitions.dbutils import find_in_notebook, read_secret, read_widgets
from runners.definitions.definition import load
from runners.definitions.document import DefinitionError
from runners.pipeline import Pipeline
from tests.databricks.in_kernel import Dbutils

DEFINITION = """
name: orders
origin: {files: {path: "${LANDING}/*.csv", format: csv, schema: "id ${KIND:-long}"}}
destinations: [log: {}]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "orders.yaml").write_text(DEFINITION)
    return tmp_path / "orders.yaml"


def open_notebook(monkeypatch: pytest.MonkeyPatch, **widgets: str) -> Dbutils:
    """Make this process a notebook whose job gives these parameters."""
    dbutils = Dbutils(widgets, {})
    monkeypatch.setattr(sys.modules["__main__"], "dbutils", dbutils, raising=False)
    return dbutils


def test_widgets_and_parameters_of_a_job_are_values(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """They win over the environment, and given values win over them. An empty widget has no value."""
    monkeypatch.setenv("KIND", "string")
    dbutils = open_notebook(monkeypatch, LANDING="/Volumes/of/the/job")
    dbutils.widgets.text("KIND", "")
    assert "id string" in load(file).text
    dbutils.widgets.text("KIND", "int")
    assert "id int" in load(file).text
    assert "/Volumes/of/the/job/*.csv" in load(file).text
    assert "/mine/*.csv" in load(file, variables={"LANDING": "/mine"}).text


def test_a_missing_widget_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """A notebook has no command line and often no environment."""
    open_notebook(monkeypatch)
    with pytest.raises(DefinitionError) as wrong:
        load(file)
    said = "the parameter LANDING is missing; make a widget LANDING, or give the job a parameter with this name"
    assert said in str(wrong.value)


def test_a_secret_is_never_read_from_a_widget(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """A widget shows its value to everyone."""
    open_notebook(monkeypatch, LANDING="/x", KEY="hunter2")
    file.write_text(DEFINITION + 'hooks: [{on: failed, webhook: "${secret:KEY}"}]\n')
    with pytest.raises(DefinitionError, match="the secret KEY is missing") as wrong:
        load(file)
    assert "hunter2" not in str(wrong.value)


def test_outside_of_a_notebook_there_are_no_widgets() -> None:
    """A notebook without widgets has an empty mapping instead, also if it refuses to list them."""
    refusing = SimpleNamespace(widgets=SimpleNamespace(getAll=lambda: 1 / 0))
    assert (read_widgets([]), read_widgets([Dbutils({}, {})]), read_widgets([refusing])) == (None, {}, {})
    assert read_widgets() is None


def test_the_names_of_an_ipython_shell_are_searched_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel task may run in a shell whose names are not those of the main module."""
    shell = SimpleNamespace(user_ns={"dbutils": "the shell's"})
    module = ModuleType("IPython")
    module.get_ipython = lambda: shell  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", module)
    assert list(find_in_notebook()) == ["the shell's"]
    module.get_ipython = lambda: None  # type: ignore[attr-defined]
    assert list(find_in_notebook()) == []


def test_a_secret_comes_from_the_first_place() -> None:
    """Databricks may refuse the scope, or not have the key. The reason names no secret."""
    places = [Dbutils({}, {"shop/key": "hunter2"}), Dbutils({}, {"shop/key": "wrong"})]
    assert read_secret("shop", "key", places) == "hunter2"
    with pytest.raises(LookupError, match="Databricks says: Secret does not exist with scope: shop and key: other"):
        read_secret("shop", "other", places)
    denied = SimpleNamespace(secrets=SimpleNamespace(get=deny))
    with pytest.raises(LookupError, match=r"^Databricks says: PERMISSION_DENIED: User lacks READ on scope shop$"):
        read_secret("shop", "key", [denied])
    with pytest.raises(LookupError, match="Databricks is not available here"):
        read_secret("shop", "key", [])
    with pytest.raises(LookupError, match="Databricks says: no user has signed in"):
        read_secret("shop", "key", refuse_dbutils())


def refuse_dbutils() -> Iterator[Dbutils]:
    yield from ()
    raise RuntimeError("no user has signed in")


def deny(scope: str, key: str) -> str:
    raise RuntimeError(f"PERMISSION_DENIED: User lacks READ on scope {scope}\n\tat com.databricks.Thing({key})")


def test_the_ids_of_a_job_change_no_definition(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """Each run of the job has other ids, and the same definition."""
    given = {"LANDING": "/x", "JOB_ID": "41", "JOB_RUN_ID": "42"}
    definition, other = load(file, variables=given), load(file, variables={"LANDING": "/x"})
    assert (definition.pipeline.job, other.pipeline.job) == ({"id": "41", "run": "42"}, {})
    assert (definition.hash, definition.text) == (other.hash, other.text)
    assert Pipeline.load(file, variables=given) == Pipeline.load(file, variables={"LANDING": "/x"})
    open_notebook(monkeypatch, LANDING="/x", JOB_ID="43")
    assert Pipeline.load(file).job == {"id": "43"}
