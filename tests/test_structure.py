"""The structure of the code: which modules import which, and which need a certain kind of Spark."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("origins", "stages", "destinations", "runners")
FILES = [file for folder in FOLDERS for file in sorted((ROOT / folder).glob("**/*.py"))]
CORE = (
    "runners.engine.dispatcher",
    "runners.engine.planning",
    "runners.engine.work_in_flight",
    "runners.engine.batch_machine",
    "runners.model.nack_window",
    "runners.model.clock",
    "runners.state.progress",
    "runners.state.journal",
    "runners.engine.worker_pool",
    "runners.state.ledger",
    "runners.model.entry",
    "tests.runners.state.ledger.memory_ledger",
)
PRIVATE = {
    *("_client", "_builder", "_user_id", "_session_id", "_server_session_id", "_on_exit"),
    *("_gateway", "_ensure_initialized", "_jvm", "_jsc", "_jconf", "_jsparkSession", "_jdf", "_origin", "_stackTrace"),
}
"""Private names of pyspark."""
DIFFERENT = {
    "getCondition": "origins/errors.py",
    "make_valid_utf8": "origins/nack.py",
    **dict.fromkeys(
        ("arrow_udf", "pyspark.sql.pandas", "delta-spark_", "FileSystemBasedCheckpointFileManager"),
        "origins/spark_versions.py",
    ),
}
"""What only some versions of pyspark have, or have in another way, and the file that asks for it."""
RUNTIME_VARIABLE = "DATABRICKS_RUNTIME_VERSION"
PRINTED = {
    "runners/model/comparison.py",
    "runners/model/spec.py",
    "runners/model/text.py",
    "runners/model/run_report.py",
    "runners/state/run_history.py",
}
"""The modules that turn reports, runs and settings into output of commands."""
LATE = {
    "origins/files/files.py",
    "runners/model/text.py",
    "runners/operations/explain_row.py",
    "runners/operations/printing.py",
    "runners/operations/pytest_cases.py",
    "runners/state/location.py",
    "runners/state/run_history.py",
    "runners/ways/task_executor.py",
    "stages/claim.py",
    "stages/python.py",
}
"""The modules that import pyspark, pyarrow or deltalake indirectly, and only when they need it."""
CLASSIC_ONLY = re.compile(r"\b(_jvm|_jdf|_jsparkSession|sparkContext|DeltaTable\.for\w+|\.rdd\b|\.persist\(|\.cache\()")


def list_imported(file: Path, *, top_level: bool = False) -> Iterator[str]:
    """Yield the modules that a file imports. With `top_level`, yield only the imports at the top of the file."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    nodes = tree.body if top_level else list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def list_named(file: Path) -> Iterator[str]:
    """Yield the full names of what a file imports from modules. If the source is a package, these can be modules."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{name.name}" for name in node.names)


def test_imports_point_upstream() -> None:
    """A folder imports only from folders that its batch has already passed."""
    downstream = {folder: FOLDERS[place + 1 :] for place, folder in enumerate(FOLDERS)}
    assert [
        (str(file.relative_to(ROOT)), module)
        for file in FILES
        for module in list_imported(file)
        if module.split(".")[0] in downstream[file.relative_to(ROOT).parts[0]]
    ] == []


def test_only_the_session_modules_know_which_spark_is_used() -> None:
    """Names that only classic Spark has appear only in `session.py` and `spark_private.py`."""
    others = [file for file in FILES if file.name not in ("session.py", "spark_private.py")]
    found = {str(file.relative_to(ROOT)): CLASSIC_ONLY.findall(file.read_text(encoding="utf-8")) for file in others}
    assert {name: names for name, names in found.items() if names} == {}


def test_private_names_of_pyspark_are_used_in_one_file() -> None:
    """Attributes, arguments and names given to `getattr` are checked. Attributes of `self` are Wherry's and are
    ignored."""
    others = [file for file in FILES if file.name != "spark_private.py"]
    found = {str(file.relative_to(ROOT)): PRIVATE.intersection(list_private_names(file)) for file in others}
    assert {name: names for name, names in found.items() if names} == {}


def test_code_that_suppresses_every_error_gives_its_reason() -> None:
    """The reason is a comment on the same line. Ruff asks for the reason of a broad `except`."""
    lines = [(file.name, line) for file in FILES for line in file.read_text(encoding="utf-8").splitlines()]
    assert [each for each in lines if "suppress(Exception)" in each[1] and "  # " not in each[1]] == []


@pytest.mark.parametrize(("name", "home"), DIFFERENT.items())
def test_what_differs_between_versions_of_pyspark_is_asked_for_in_one_file(name: str, home: str) -> None:
    """A new version then changes only this file."""
    assert [str(file.relative_to(ROOT)) for file in FILES if name in file.read_text(encoding="utf-8")] == [home]


def test_the_variable_of_databricks_is_asked_for_in_two_files() -> None:
    """The command's entry asks by itself, because a foreign package with the name `origins` may hide the function."""
    asking = [str(file.relative_to(ROOT)) for file in FILES if RUNTIME_VARIABLE in file.read_text(encoding="utf-8")]
    assert asking == ["origins/spark_versions.py", "runners/command_line/cli.py"]


def list_private_names(file: Path) -> Iterator[str]:
    """Yield the names through which a file could reach private parts of other objects."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id == "self"):
            yield node.attr
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_the_rule_finds_every_way_to_a_private_name(tmp_path: Path) -> None:
    """Otherwise the test above could pass without checking anything."""
    (tmp_path / "a.py").write_text("f(_jvm=None)\ngetattr(x.client, '_on_exit')\nx.y._jsc.sc()\nself._client\n")
    assert PRIVATE.intersection(list_private_names(tmp_path / "a.py")) == {"_jvm", "_on_exit", "_jsc"}


def test_the_scheduling_core_needs_no_spark() -> None:
    """Importing the module, with everything that it imports, does not import pyspark."""
    for module in CORE:
        seen, waiting = set(), [module]
        assert (ROOT / f"{module.replace('.', '/')}.py").is_file(), module
        while waiting:
            module = waiting.pop()
            file = ROOT / f"{module.replace('.', '/')}.py"
            if module in seen or not file.exists():
                continue
            seen.add(module)
            waiting += list_imported(file, top_level=True)
            assert "pyspark" not in {found.split(".")[0] for found in list_imported(file, top_level=True)}, module


def test_modules_have_no_circular_imports() -> None:
    """Imports inside functions and imports for types count too, because they also show how the code depends."""
    modules = {".".join(file.relative_to(ROOT).with_suffix("").parts): file for file in FILES}
    arrows = {module: modules.keys() & {*list_imported(file), *list_named(file)} for module, file in modules.items()}
    assert "origins.batch" in arrows["runners.model.text"]  # only for types
    assert "runners.running.stop" in arrows["runners.pipeline"]  # in a function
    TopologicalSorter(arrows).prepare()


def test_a_folder_holds_at_most_thirty_files() -> None:
    """A folder with more files is hard to read."""
    sizes = Counter(file.parent.relative_to(ROOT) for file in FILES)
    assert {str(folder): size for folder, size in sizes.items() if size > 30} == {}


def test_a_short_module_serves_more_than_one_other() -> None:
    """A module of fewer than 40 lines that only one module imports belongs in that module."""
    modules = {".".join(file.relative_to(ROOT).with_suffix("").parts): file for file in FILES}
    importers = Counter(name for file in FILES for name in modules.keys() & {*list_imported(file), *list_named(file)})
    short = {name for name, file in modules.items() if len(file.read_text(encoding="utf-8").splitlines()) < 40}
    alone = {name for name in short if importers[name] == 1 and modules[name].name != "__init__.py"}
    assert alone == set()


def test_every_package_is_installed() -> None:
    """`pyproject.toml` lists each package, and the mapped package `wherry`."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.findall(r'"([\w.]+)"', re.findall(r"^packages = \[(.*?)\]", text, re.DOTALL | re.MULTILINE)[0])
    found = {".".join(file.parent.relative_to(ROOT).parts) for file in FILES if file.name == "__init__.py"}
    assert set(listed) == found | {"wherry"}


def test_a_class_name_is_unique() -> None:
    """Only kinds may have the same name as an origin and as a destination. A message is named for what it is about."""
    files = [file for file in FILES if file != ROOT / "runners/service/messages.py"]
    found = Counter(
        node.name for file in files for node in ast.parse(file.read_text()).body if isinstance(node, ast.ClassDef)
    )
    assert {name for name, times in found.items() if times > 1} == {"Delta", "Files", "Kafka", "Memory"}


def test_an_import_inside_a_function_has_a_reason() -> None:
    """Only modules that keep a command quick to start, or a contract free of Spark, import Wherry's modules late."""
    late = {
        str(file.relative_to(ROOT))
        for file in FILES
        for function in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in FOLDERS
    }
    quick = ("runners/command_line/", "runners/pipeline.py", "runners/api/")
    assert {file for file in late if not file.startswith(quick) and not file.endswith("__init__.py")} <= LATE


def test_the_body_of_an_entry_is_read_through_its_type() -> None:
    """`read_body` gives the body a type and refuses a body that it cannot understand. No code reads the body before
    that."""
    looked_into = re.compile(r"\bentry\.body(\[|\.get|\.items)")
    runners = (file for file in FILES if file.is_relative_to(ROOT / "runners"))
    assert [file.name for file in runners if looked_into.search(file.read_text(encoding="utf-8"))] == []


def test_only_printed_documents_have_json_without_a_type() -> None:
    """Offsets, entries and counts have types. Only documents that users or their programs read have no type."""
    typed = ("origins/", "destinations/", "runners/model/", "runners/state/", "runners/engine/")
    mine = {str(file.relative_to(ROOT)): file for file in FILES}
    assert {
        name
        for name, file in mine.items()
        if name.startswith(typed)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and "JSON" in {each.name for each in node.names}
    } == PRINTED


def test_the_top_level_has_only_agreed_entries() -> None:
    """The top level has only the agreed entries, apart from files that begin with a dot."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = {line.split("/")[0] for line in listed.splitlines()}
    agreed = {*FOLDERS, "tests", "README.md", "pyproject.toml", "LICENSE"}
    assert {name for name in found if not name.startswith(".")} <= agreed
