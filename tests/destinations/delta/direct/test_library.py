"""What a commit of `deltalake` lacks on a local disk. Wherry's own commit has it."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

SCRIPT = """
import pyarrow, sys
from deltalake import write_deltalake
write_deltalake(sys.argv[1], pyarrow.table({"id": [1]}))
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="only strace shows what a library asks of the kernel")
@pytest.mark.xfail(strict=True, reason="deltalake links a version without a sync, so a power cut may leave it empty")
def test_a_version_is_durable_before_it_counts(tmp_path: Path) -> None:
    """Its file is synced before it gets its name."""
    calls = tmp_path / "calls"
    trace = ["strace", "-f", "-e", "trace=fsync,fdatasync,linkat", "-o", str(calls)]
    subprocess.run([*trace, sys.executable, "-c", SCRIPT, str(tmp_path / "orders")], check=True)
    before, linked, _ = calls.read_text(encoding="utf-8").partition("linkat(")
    assert (linked, "sync(" in before) == ("linkat(", True)


@pytest.mark.xfail(strict=True, reason="deltalake gives a version the mode that this process's umask leaves")
def test_a_version_has_the_mode_of_sparks_files(tmp_path: Path) -> None:
    """Other users can read it as soon as it exists."""
    before = os.umask(0o077)
    try:
        write_deltalake(str(tmp_path / "orders"), pa.table({"id": [1]}))
    finally:
        os.umask(before)
    version = tmp_path / "orders" / "_delta_log" / f"{0:020}.json"
    assert stat.S_IMODE(version.stat().st_mode) == 0o644
