"""A release: its archives install into empty environments, and nothing that publishes it can move by itself."""

from __future__ import annotations

import hashlib
import json
import re
import runpy
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.versions import RUNTIMES

ROOT = Path(__file__).parents[1]
RELEASE = ROOT / ".ci" / "release"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
_PROGRAM = runpy.run_path(str(RELEASE), run_name="release")
EXTRAS, ACCEPTED = _PROGRAM["EXTRAS"], _PROGRAM["ACCEPTED"]
SECURITY = ROOT / ".github" / "SECURITY.md"


@pytest.mark.long
@pytest.mark.parametrize("extra", EXTRAS, ids=lambda extra: extra or "alone")
def test_an_extra_installs_alone_and_its_bill_names_what_it_brings(extra: str, tmp_path: Path) -> None:
    """The wheel has every module and page, and the bill has Wherry and each requirement of the extra."""
    words = [sys.executable, str(RELEASE), str(tmp_path), "--extra", extra]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=1_200)
    assert done.returncode == 0, done.stdout + done.stderr
    bill: dict[str, Any] = json.loads((tmp_path / f"sbom-{extra or 'alone'}.json").read_text())
    named = {normalise(each["name"]) for each in bill["components"]}
    assert {"wherry", *list_required(extra)} <= named
    for line in (tmp_path / "SHA256SUMS").read_text().splitlines():
        sum_, name = line.split()
        assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() == sum_
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        held = {*wheel.namelist()}
    for package in ("origins", "stages", "destinations", "runners"):
        modules = {str(file.relative_to(ROOT)) for file in (ROOT / package).glob("**/*.py")}
        assert {name for name in modules - held if not name.startswith("runners/docs/site/")} == set()
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as source:
        assert any(name.endswith("/LICENSE") for name in source.getnames())


def list_required(extra: str) -> set[str]:
    """Return the names that `pyproject.toml` gives to this extra, and to Wherry alone."""
    text = (ROOT / "pyproject.toml").read_text()
    lists = re.findall(r"^(\w+) = \[\n((?:  \".*\n)+)\]", text, re.MULTILINE)
    return {
        normalise(name)
        for key, lines in lists
        if key in ("dependencies", extra)
        for name in re.findall(r'^  "([\w.-]+)', lines, re.MULTILINE)
    }


def normalise(name: str) -> str:
    """Return the name of a package as an index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: str(file.stem))
def test_every_action_of_a_workflow_is_named_by_its_sha(file: Path) -> None:
    """A tag can be moved to other code, and a SHA cannot. The tag is beside it for people."""
    uses = re.findall(r"uses: (.*)", file.read_text())
    assert uses
    assert [each for each in uses if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d[\d.]*", each)] == []


def test_the_workflows_have_no_known_weakness() -> None:
    """A tool that knows the usual ones finds none, without a network."""
    zizmor = Path(sys.executable).with_name("zizmor")
    words = [str(zizmor), "--offline", "--quiet", "--no-progress", str(ROOT / ".github")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_known_weaknesses_are_looked_up_at_each_release_and_each_week() -> None:
    """Without an answer the program fails, so no package passes unseen."""
    asking = {file.stem for file in WORKFLOWS if re.search(r"run: \.ci/release .*--audit$", file.read_text(), re.M)}
    assert asking == {"audit", "release"}
    assert re.search(r"^  schedule:\n    - cron:", (ROOT / ".github/workflows/audit.yml").read_text(), re.M)
    assert '"--strict"' in RELEASE.read_text()


def test_each_night_every_runtime_of_databricks_is_tried() -> None:
    """A change runs on the newest Spark alone, and the runtimes have older ones and Python of their own."""
    workflow = (ROOT / ".github/workflows/nightly.yml").read_text()
    assert re.search(r"^  schedule:\n    - cron:", workflow, re.M)
    assert re.search(r"^      - run: \.ci/nightly$", workflow, re.M)
    (tried,) = re.findall(r"^\.ci/versions (.+)$", (ROOT / ".ci/nightly").read_text(), re.M)
    assert tried.split() == [runtime.name for runtime in RUNTIMES]
    assert {runtime.python for runtime in RUNTIMES} == {*re.findall(r'python-version: "(.+)"', workflow)}


def test_each_accepted_weakness_is_explained() -> None:
    """The page names it, and the program has a reason."""
    text = SECURITY.read_text()
    assert [name for name, reason in ACCEPTED.items() if name not in text or not reason] == []
    assert ACCEPTED or "No weakness is accepted at present." in text
