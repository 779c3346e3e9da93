"""The core works without each wing: a wing is a folder that the core never imports."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("origins", "stages", "destinations", "runners")
WINGS: Mapping[str, Sequence[str]] = {
    "kafka": ("origins/kafka", "destinations/kafka"),
    "expect": ("stages/expect",),
    "claim": ("stages/claim.py", "stages/claim_store.py", "stages/claim_worker.py", "runners/claims.py"),
    "schedules": (
        "runners/schedules",
        "runners/command_line/schedule_command.py",
        "runners/service",  # a server has the schedule of its folder
        "runners/command_line/serve_command.py",
        "runners/command_line/mcp_command.py",
    ),
    "service": (
        "runners/service",
        "runners/command_line/serve_command.py",
        "runners/command_line/mcp_command.py",
    ),
}
"""What belongs to each wing."""
_OPTIONAL = "runners/examples|runners/docs"


def copy_without(wing: str, folder: Path) -> Path:
    """Copy the source to the folder, without a wing."""
    for room in (*ROOMS, "tests"):
        shutil.copytree(ROOT / room, folder / room, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, folder)
    for part in WINGS[wing]:
        place = folder / part
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    return folder


def call_python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the source in the folder."""
    variables = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=variables, capture_output=True, text=True, check=False
    )


def list_modules(folder: Path) -> list[str]:
    """Return the names of all modules of the source in the folder."""
    files = [file.relative_to(folder) for room in ROOMS for file in sorted((folder / room).rglob("*.py"))]
    kept = [file for file in files if not re.match(_OPTIONAL, str(file))]
    return [".".join(file.with_suffix("").parts).removesuffix(".__init__") for file in kept]


def list_core_tests(folder: Path, wing: str) -> list[str]:
    """Return the test files that need no Spark and do not speak of the wing.

    The list of codes, and the command line, have what belongs to every wing.
    """
    modules = [part.removesuffix(".py").replace("/", ".") for part in WINGS[wing]]
    of_wing = re.compile("|".join([*map(re.escape, modules), rf"\b{wing}\b", "command_line"]), re.IGNORECASE)
    rooms = ("stages", "runners/model", "runners/engine")
    found = (file for room in rooms for file in sorted((folder / "tests" / room).rglob("test_*.py")))
    files = [file for file in found if file.name != "test_codes.py"]
    return [str(file) for file in files if not of_wing.search(file.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("wing", WINGS)
def test_every_module_of_the_core_is_imported_without_a_wing(wing: str, tmp_path: Path) -> None:
    """A module of the core that names a wing at its top fails here."""
    folder = copy_without(wing, tmp_path)
    names = list_modules(folder)
    assert len(names) > 250
    done = call_python(folder, "-W", "ignore", "-c", f"import importlib; [*map(importlib.import_module, {names!r})]")
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.long
@pytest.mark.parametrize("wing", WINGS)
def test_the_tests_of_the_core_pass_without_a_wing(wing: str, tmp_path: Path) -> None:
    """These are the tests without Spark of the stages, the model and the engine."""
    folder = copy_without(wing, tmp_path)
    files = list_core_tests(folder, wing)
    assert len(files) > 30
    done = call_python(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not spark and not server", *files)
    assert done.returncode == 0, done.stdout[-4000:]
