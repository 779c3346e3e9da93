"""What needs hard links refuses a volume with a sentence. What can do without them uses it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.databricks.volume import make_volume_environment

HEAD = """
import sys
from pathlib import Path
from origins.errors import WherryError
from stages.python_call import FunctionCannotRun
folder = Path(sys.argv[1])
try:
    {action}
except (WherryError, FunctionCannotRun) as error:
    print(error, getattr(error, "hint", ""))
"""
PUBLISH = "from destinations.batch_folders import BatchFolders; BatchFolders(folder / 'rows').make()"
CLAIM = "from stages.claim_store import FolderFiles; FolderFiles(str(folder / 'claims')).create('value', b'x' * 9)"
MOVE = """
    from origins.files.file_systems import LocalDisk
    (folder / "new.csv").write_text("id\\n1\\n")
    LocalDisk().move({str(folder / "new.csv"): str(folder / "done" / "new.csv")})
    print((folder / "done" / "new.csv").read_text().split(), (folder / "new.csv").exists())
"""
PREPARE = """
    from pyspark.sql.types import StructType
    from runners.state.prepared_store import VolumeStore
    store = VolumeStore(folder / "orders" / "prepared")
    store.put("plan-1-0", [{"id": 1}, {"id": 2}], StructType().add("id", "long"))
    print(store.scan("plan-1-0", lambda _: True).read_all()["id"].to_pylist())
    store.remove(None, "plan-1")
    print(list((folder / "orders" / "prepared").iterdir()))
"""


@pytest.fixture
def environment(volume_library: Path, tmp_path: Path) -> dict[str, str]:
    """Provide the variables of a process that has a volume, of the kind that refuses locks."""
    return make_volume_environment(volume_library, tmp_path / "volume", locks=False)


def do(action: str, folder: Path, environment: dict[str, str]) -> str:
    """Do this with a folder in another process. Return what it prints."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-c", HEAD.format(action=action.strip()), str(folder)]
    root = str(Path(__file__).parents[2])
    done = subprocess.run(command, env={**environment, "PYTHONPATH": root}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_destination_files_refuses_a_volume(environment: dict[str, str], tmp_path: Path) -> None:
    """The error names what is missing there, and what to write instead."""
    printed = do(PUBLISH, tmp_path / "volume", environment)
    assert "needs hard links, and folders of /Volumes and /Workspace have none. Write to a table" in printed
    assert do(PUBLISH, tmp_path / "beside", environment) == ""


def test_claims_refuse_a_volume(environment: dict[str, str], tmp_path: Path) -> None:
    """The error says where large values can be stored instead."""
    assert "use a table or the URL of a store" in do(CLAIM, tmp_path / "volume", environment)
    assert do(CLAIM, tmp_path / "beside", environment) == ""


def test_a_file_is_moved_within_a_volume(environment: dict[str, str], tmp_path: Path) -> None:
    """It is copied, because a second name is refused."""
    assert do(MOVE, tmp_path / "volume", environment) == "['id', '1'] False"


def test_rows_that_wait_are_kept_in_a_volume(environment: dict[str, str], tmp_path: Path) -> None:
    """They are whole files in a folder of the pipeline, and are gone after delivery."""
    assert do(PREPARE, tmp_path / "volume", environment).splitlines() == ["[1, 2]", "[]"]
