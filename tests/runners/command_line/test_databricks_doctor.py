"""`doctor --databricks` names what a notebook or a job lacks. Tests with a server are in `tests/databricks`."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from destinations.delta.delta import Delta
from destinations.files import Files as FilesDestination
from origins.delta import Delta as DeltaOrigin
from origins.files.files import Files
from origins.spark_versions import UnsupportedSpark, check_pyspark_of_databricks
from runners.command_line import cli
from runners.command_line.databricks_doctor import check_tables, check_volumes, examine_databricks, list_volume_paths
from runners.model.spec import PipelineSpec, SchemaState
from runners.spark.session import obtain


class Workspace:
    """A session that refuses statements on some names, as a workspace does, and knows some tables."""

    version = "4.0.0"

    def __init__(self, *denied: str, tables: tuple[str, ...] = ()) -> None:
        self.denied, self.tables, self.asked = denied, tables, list[str]()
        self.catalog = self

    def sql(self, text: str) -> Workspace:
        self.asked.append(text.replace("`", ""))
        if any(name in self.asked[-1] for name in self.denied):
            raise AnalysisException("[INSUFFICIENT_PERMISSIONS] User lacks the right. SQLSTATE: 42501")
        return self

    def collect(self) -> list[object]:
        return []

    def tableExists(self, name: str) -> bool:  # noqa: N802  (as it is there)
        return name in self.tables


def make_pipeline(**changed: Any) -> PipelineSpec:
    given = {
        "origin": DeltaOrigin(table="main.shop.bronze"),
        "destinations": [Delta(table="main.shop.orders")],
        "state": SchemaState(schema="main.wherry"),
    }
    return PipelineSpec(**{"name": "orders", **given, **changed})


def test_elsewhere_it_says_where_to_call_it() -> None:
    """No session is asked for its version of a runtime."""
    spark: Any = Workspace()
    (check,) = examine_databricks(None, spark)
    assert (check.state, check.found) == ("problem", "this process does not run on Databricks")
    assert "cell of a notebook" in check.advice
    assert spark.asked == []


def test_an_old_runtime_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The advice names the oldest runtime and environment with Spark 4."""
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "16.4")
    spark: Any = Workspace()
    spark.version = "3.5.2"
    (check,) = examine_databricks(None, spark)
    assert (check.state, check.found) == ("problem", "This is Spark 3.5.2, and Wherry needs Spark 4.0 or newer.")
    assert "17.3 LTS, serverless environment 4" in check.advice


def test_rights_that_exist_are_shown() -> None:
    """A table that a run creates need not exist. The table that is made to try the schema is dropped."""
    spark: Any = Workspace(tables=("main.shop.bronze",))
    checks = list(check_tables(make_pipeline(), spark))
    assert [(check.state, check.found) for check in checks] == [
        ("ok", "tables can be made in main.wherry"),
        ("ok", "main.shop.bronze can be read"),
        ("ok", "main.shop.orders does not exist; the first run creates it"),
    ]
    made, dropped, read = spark.asked
    assert dropped == f"DROP TABLE {made.split()[2]}"
    assert read == "SELECT * FROM main.shop.bronze LIMIT 0"


@pytest.mark.parametrize(
    ("denied", "found", "advice"),
    [
        (
            "main.wherry",
            "no table can be made in main.wherry: ",
            "GRANT USE SCHEMA, CREATE TABLE ON SCHEMA main.wherry",
        ),
        ("main.shop.bronze", "main.shop.bronze cannot be read: ", "GRANT SELECT ON TABLE main.shop.bronze"),
        ("main.shop.orders", "main.shop.orders cannot be read: ", "GRANT MODIFY, SELECT ON TABLE main.shop.orders"),
    ],
)
def test_a_missing_right_is_named_with_its_grant(denied: str, found: str, advice: str) -> None:
    """The finding has the answer of Databricks in one line."""
    spark: Any = Workspace(denied, tables=("main.shop.orders",))
    (problem,) = (check for check in check_tables(make_pipeline(), spark) if check.state == "problem")
    assert problem.found.startswith(found)
    assert "INSUFFICIENT_PERMISSIONS" in problem.found
    assert advice in problem.advice


def test_a_state_in_a_folder_is_a_problem() -> None:
    """The advice is the line to write."""
    spark: Any = Workspace()
    state = next(iter(check_tables(make_pipeline(state="/Volumes/main/shop/state"), spark)))
    assert (state.state, "/Volumes/main/shop/state is a folder" in state.found) == ("problem", True)
    assert "state: {schema: CATALOG.SCHEMA}" in state.advice


def test_the_volumes_of_a_definition_are_found() -> None:
    """An origin only reads its files, unless it moves or deletes them."""
    kept = Files(path="/Volumes/a/b/in/*.csv", format="csv", schema="id long")
    moved = Files(path="/Volumes/a/b/inbox", format="csv", schema="id long", after="move")
    files = FilesDestination(path="/Volumes/a/b/out", format="json")
    for origin, expected in ((kept, {"/Volumes/a/b/in/*.csv": False}), (moved, {"/Volumes/a/b/inbox": True})):
        found = list_volume_paths(make_pipeline(origin=origin, destinations=[files]))
        assert found == {**expected, "/Volumes/a/b/out": True}
    state = SchemaState(schema="a.b", volume="a.b.rows")
    assert list_volume_paths(make_pipeline(state=state)) == {"/Volumes/a/b/rows": True}


def test_a_volume_that_cannot_be_written_is_a_problem(tmp_path: Path) -> None:
    """A whole file is written there and removed. A volume that is only read gets no file."""
    root = f"{tmp_path}/"
    (tmp_path / "main/shop/landing").mkdir(parents=True)
    (tmp_path / "main/shop/file").write_text("")
    paths = {
        f"{root}main/shop/landing/*.csv": False,
        f"{root}main/shop/landing/x": True,
        f"{root}main/shop/file/x": True,
    }
    good, bad = check_volumes(paths, root)
    assert (good.state, good.found) == ("ok", f"{tmp_path}/main/shop/landing can be read and written")
    assert (bad.state, bad.found) == ("problem", f"{tmp_path}/main/shop/file cannot be written: Not a directory")
    assert "GRANT READ VOLUME, WRITE VOLUME ON VOLUME main.shop.file" in bad.advice
    assert list((tmp_path / "main/shop/landing").iterdir()) == []


@pytest.fixture
def fresh_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no session be active, as in a Python that has just begun."""
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda _: None))


@pytest.mark.usefixtures("fresh_spark")
def test_a_pyspark_that_hides_that_of_databricks_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`pip install "wherry[spark]"` does that. The first command says what to do, and starts nothing."""
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    with pytest.raises(UnsupportedSpark, match="hides the pyspark of Databricks") as refused:
        obtain()
    assert "%pip install wherry" in refused.value.hint
    assert cli.execute(["doctor", "--databricks"]) == 1
    assert "was installed here, and hides the pyspark of Databricks." in capsys.readouterr().out


def test_the_pyspark_of_databricks_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a module for `dbutils`, which open pyspark lacks."""
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    own = ModuleType("pyspark.dbutils")
    own.__spec__ = ModuleSpec("pyspark.dbutils", None)
    monkeypatch.setitem(sys.modules, "pyspark.dbutils", own)
    check_pyspark_of_databricks()
