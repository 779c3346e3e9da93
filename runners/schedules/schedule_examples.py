"""How others than `wherry schedule` start a run: examples that are packaged, with the paths of this machine."""

from __future__ import annotations

import shutil
import sys
from importlib.resources import files
from pathlib import Path

_FILES = {"cron": "crontab", "systemd": "systemd.service", "airflow": "airflow_dag.py"}


def text_of(example: str, directory: Path) -> str:
    """The example for the definitions of this directory."""
    text = (files("runners") / "examples" / _FILES[example]).read_text(encoding="utf-8")
    return text.replace("DIRECTORY", str(directory.absolute())).replace("WHERRY", command())


def command() -> str:
    """Where `wherry` lies on this machine: cron and systemd look for it in few places."""
    beside = Path(sys.executable).with_name("wherry")
    return str(beside) if beside.exists() else shutil.which("wherry") or "wherry"
