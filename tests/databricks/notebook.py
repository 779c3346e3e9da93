"""Run a notebook as Databricks does, cell by cell in a real IPython kernel. Its working directory is empty."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from origins.spark_versions import KNOWN, find_version, shorten_version
from runners.definitions.document import parse, to_plain
from tests.child import LONGEST, tie

ROOT = Path(__file__).resolve().parents[2]
_OURS = re.compile(r"_*(editable_+)?wherry|origins$|stages$|destinations$|runners$")
_SETUP = """
import runpy
runpy.run_path({file!r})["set_up"](get_ipython().user_ns, {given!r})
"""


@dataclass(frozen=True, kw_only=True)
class Compute:
    """What a notebook is attached to."""

    version: str
    """What stands in `DATABRICKS_RUNTIME_VERSION`."""
    spark: str
    """The version of open Spark that comes nearest."""
    clones: str
    """How its client makes another session: by no clone (`missing`, `broken`), by a clone (`works`), or by `new`."""
    dedicated: bool = False
    """Whether its session is a classic one."""

    @property
    def serverless(self) -> bool:
        return self.version.startswith("client.")

    @property
    def kind(self) -> str:
        return "serverless" if self.serverless else "dedicated" if self.dedicated else "standard"


COMPUTES = {
    "serverless 4": Compute(version="client.4.12", spark="4.0", clones="missing"),
    "serverless 5": Compute(version="client.5.3", spark="4.1", clones="broken"),
    "standard 17.3": Compute(version="17.3", spark="4.0", clones="missing"),
    "standard 18.0": Compute(version="18.0", spark="4.1", clones="broken"),
    "standard 19.0": Compute(version="19.0", spark="4.2", clones="new"),
    "standard 19.3": Compute(version="19.3", spark="4.2", clones="works"),
    "dedicated 17.3": Compute(version="17.3", spark="4.0", clones="works", dedicated=True),
    "dedicated 18.0": Compute(version="18.0", spark="4.1", clones="works", dedicated=True),
}


HERE = shorten_version(find_version())
"""The installed version of Spark."""


def list_computes(spark: str = HERE) -> list[str]:
    """Return the computes that have this version of Spark. The newest known one is tried as each of them."""
    return [name for name, compute in COMPUTES.items() if spark in (compute.spark, KNOWN[-1])]


def list_oldest_computes(spark: str = HERE) -> list[str]:
    """Return the oldest of these computes of each kind."""
    oldest = {COMPUTES[name].kind: name for name in reversed(list_computes(spark))}
    return [name for name in COMPUTES if name in oldest.values()]


def list_cases(computes: Sequence[str]) -> list[Any]:
    """Return the computes as cases of a test. All but the first one are long."""
    return [pytest.param(name, marks=[pytest.mark.long] * bool(at)) for at, name in enumerate(computes)]


@dataclass
class Shown:
    """What a notebook shows below a cell."""

    cell: str
    printed: str = ""
    values: list[dict[str, str]] = field(default_factory=list)
    """What was displayed, each by its MIME types."""
    error: str = ""
    """The name and the message of the error with which the cell ended."""
    exited: bool = False
    """Whether the cell has ended the notebook by `dbutils.notebook.exit`."""

    @property
    def html(self) -> str:
        return "".join(value.get("text/html", "") for value in self.values)


def list_cells(notebook: str) -> list[str]:
    """Return the cells with code of a notebook in source format. Their magic commands are in comments there."""
    head, *cells = notebook.split("# COMMAND ----------\n")
    assert head.startswith("# Databricks notebook source\n")
    code = [re.sub(r"^# MAGIC ?", "", cell, flags=re.MULTILINE).strip() for cell in cells]
    assert not re.search(r"^%(?!pip |md)", "\n".join(code), re.MULTILINE), "only %pip and %md are known here"
    return [cell for cell in code if cell and not cell.startswith("%md")]


def list_parameters(bundle: Path, **given: str) -> dict[str, str]:
    """Return the parameters with which a deployed bundle runs its notebook. `given` replaces some of them."""
    jobs, known = _deploy(bundle)
    parameters = jobs["by_hand"]["tasks"][0]["notebook_task"]["base_parameters"]
    assert given.keys() <= parameters.keys()
    return {name: given.get(name, _fill(value, known)) for name, value in parameters.items()}


def list_words(bundle: Path, **given: str) -> list[str]:
    """Return the command line of a deployed bundle's wheel task. `given` replaces some parameters of its job."""
    jobs, known = _deploy(bundle)
    (job,) = (job for key, job in jobs.items() if key != "by_hand")
    parameters = {each["name"]: _fill(each["default"], known) for each in job["parameters"]}
    assert given.keys() <= parameters.keys()
    known |= {f"job.parameters.{name}": value for name, value in {**parameters, **given}.items()}
    task = job["tasks"][0]["python_wheel_task"]
    return [task["entry_point"], *(_fill(word, known) for word in task["parameters"])]


def _deploy(bundle: Path) -> tuple[Any, dict[str, str]]:
    """Return the jobs of a bundle, and what its references mean."""
    plain: Any = to_plain(parse(bundle.read_text(), bundle.name))
    known = {f"var.{name}": variable["default"] for name, variable in plain["variables"].items()}
    for kind in ("schemas", "volumes"):
        known |= {f"resources.{kind}.{key}.name": each["name"] for key, each in plain["resources"][kind].items()}
    return plain["resources"]["jobs"], known | {
        "workspace.file_path": str(bundle.parent),
        "job.id": "41",
        "job.run_id": "42",
    }


def _fill(text: str, known: Mapping[str, str]) -> str:
    return re.sub(r"[${]\{(.*?)\}+", lambda found: known[found[1]], text)


def make_environment(folder: Path) -> Path:
    """Make a Python with the packages of this one, but without Wherry. Return its interpreter."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder / "python")
    packages = folder / "packages"
    packages.mkdir()
    for installed in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for each in Path(installed).iterdir():
            if not _OURS.match(each.name):
                (packages / each.name).symlink_to(each)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (folder / "python" / "lib" / version / "site-packages" / "packages.pth").write_text(f"{packages}\n")
    return folder / "python" / "bin" / "python"


def build_wheel(folder: Path) -> Path:
    """Build the wheel of Wherry from this checkout, without the network."""
    source = folder / "source"
    for name in ("origins", "stages", "destinations", "runners"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("README.md", "pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-build-isolation", "--no-deps", "--no-index"]
    subprocess.run([*pip, "wheel", *offline, "--wheel-dir", folder / "dist", source], check=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


def hide(folder: Path | None) -> list[str]:
    """Return the words before a command that finds nothing in a folder. There are none if that takes other rights."""
    if folder is None or os.geteuid() != 0 or shutil.which("unshare") is None:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    return ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(folder)]


class Notebook:
    """A notebook that is attached to a compute. Its Python starts with the first cell.

    It finds nothing in the `hidden` folder, if this process may mount there. So Spark alone reaches managed tables.
    """

    def __init__(
        self,
        compute: Compute,
        address: str,
        python: Path,
        parameters: Mapping[str, str] | None = None,
        *,
        hidden: Path | None = None,
    ) -> None:
        self._hidden = hidden
        self._folder = Path(tempfile.mkdtemp(prefix="notebook-"))
        self._python = python
        self._environment = {
            "DATABRICKS_RUNTIME_VERSION": compute.version,
            "HOME": str(self._folder / "home"),
            "PATH": os.defpath,
            "PIP_NO_INDEX": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        self._given = {"address": address, "clones": compute.clones, "widgets": dict(parameters or {}), "secrets": {}}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Notebook:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()  # as Databricks cancels a job: its Python is killed
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, source: str) -> Iterator[Shown]:
        """Run the cells of a notebook until one fails, and yield what each shows."""
        for cell in list_cells(source):
            shown = self.run_cell(cell)
            yield shown
            if shown.error or shown.exited:
                return

    def run_cell(self, cell: str) -> Shown:
        """Run a cell, and return what it shows."""
        if self._process is None:
            self._start()
        shown = Shown(cell)
        reply = self._client.execute_interactive(
            cell, allow_stdin=False, timeout=LONGEST, output_hook=lambda message: _note(message, shown)
        )["content"]
        raised = reply.get("ename", "")
        shown.exited = raised == "NotebookExited"
        if raised == "PythonRestarted":
            self._stop()
        elif raised and not shown.exited:
            shown.error = f"{raised}: {reply['evalue']}"
        return shown

    def _start(self) -> None:
        from jupyter_client.blocking.client import BlockingKernelClient
        from jupyter_client.connect import write_connection_file

        chosen_by_nobody = Path(tempfile.mkdtemp(dir=self._folder))
        connection, _ = write_connection_file(str(chosen_by_nobody / "connection.json"))
        command = [*tie(), *hide(self._hidden), str(self._python), "-m", "ipykernel_launcher", "-f", connection]
        with (self._folder / "kernel.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=chosen_by_nobody,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._client: Any = BlockingKernelClient(connection_file=connection)
        self._client.load_connection_file()
        self._client.start_channels()
        self._wait()
        ready = self._client.execute_interactive(
            _SETUP.format(file=str(ROOT / "tests/databricks/in_kernel.py"), given=self._given),
            store_history=False,
            timeout=LONGEST,
            output_hook=lambda _: None,
        )["content"]
        assert ready["status"] == "ok", ready

    def _wait(self) -> None:
        while True:
            try:
                self._client.wait_for_ready(timeout=LONGEST)
            except RuntimeError:  # no heart beats yet
                if self._process is None or self._process.poll() is not None:
                    raise
            else:
                return

    def _stop(self) -> None:
        if self._process is not None:
            self._client.stop_channels()
            self._process.kill()
            self._process.wait()
        self._process = None


def _note(message: Mapping[str, Any], shown: Shown) -> None:
    kind, content = message["header"]["msg_type"], message["content"]
    if kind == "stream":
        shown.printed += content["text"]
    elif kind in ("display_data", "execute_result"):
        shown.values.append(content["data"])
