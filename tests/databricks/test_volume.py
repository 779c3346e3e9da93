"""A volume takes whole files, and nothing that needs more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.databricks.volume import make_volume_environment

HEAD = """
import fcntl, os, sys
path = lambda name: os.path.join(sys.argv[1], name)
open(path("there"), "w").write("old")
"""
NOT_WHOLE = {
    "hard link": ("os.link(path('there'), path('linked'))", "Operation not permitted"),
    "symbolic link": ("os.symlink(path('there'), path('linked'))", "Operation not permitted"),
    "append": ("open(path('there'), 'a')", "Operation not supported"),
    "random write": (
        "file = open(path('there'), 'r+b', buffering=0); file.seek(1); file.write(b'x')",
        "Operation not supported",
    ),
    "write at a place": ("os.pwrite(os.open(path('there'), os.O_RDWR), b'x', 1)", "Operation not supported"),
    "sparse file": ("os.truncate(os.open(path('there'), os.O_RDWR), 4096)", "Operation not supported"),
}
LOCK = "fcntl.flock(os.open(path('there'), os.O_RDWR), fcntl.LOCK_EX)"
COMMIT = "import deltalake, pyarrow; deltalake.write_deltalake(path('table'), pyarrow.table({'a': [1]}))"


def do(action: str, folder: Path, environment: dict[str, str], *, head: str = HEAD) -> str:
    """Do this in a folder in another process. Return what it prints, or the error of the system."""
    folder.mkdir(exist_ok=True)
    program = f"{head}\ntry:\n    {action}\nexcept OSError as error:\n    print(error.strerror or error)"
    command = [sys.executable, "-c", program, str(folder)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("name", NOT_WHOLE)
def test_a_volume_refuses_what_is_not_a_whole_file(name: str, volume_library: Path, tmp_path: Path) -> None:
    """The same works in a folder beside it."""
    action, error = NOT_WHOLE[name]
    environment = make_volume_environment(volume_library, tmp_path / "volume")
    assert do(action, tmp_path / "volume", environment) == error
    assert do(action, tmp_path / "volume-2", environment) == ""


def test_a_volume_takes_whole_files(volume_library: Path, tmp_path: Path) -> None:
    """A file is written from its beginning to its end."""
    write = "file = open(path('new'), 'wb'); file.write(b'x' * 10**6); file.write(b'y'); file.close()"
    environment = make_volume_environment(volume_library, tmp_path / "volume")
    assert do(f"{write}; print(os.stat(path('new')).st_size)", tmp_path / "volume", environment) == "1000001"


def test_a_rename_is_a_copy_and_a_delete(volume_library: Path, tmp_path: Path) -> None:
    """The file at the new path is another one, also where a file was."""
    rename = (
        "old = os.stat(path('there')).st_ino; open(path('new'), 'w').close(); os.replace(path('there'), path('new')); "
        "print(os.stat(path('new')).st_ino == old, os.listdir(sys.argv[1]), open(path('new')).read())"
    )
    environment = make_volume_environment(volume_library, tmp_path / "volume")
    assert do(rename, tmp_path / "volume", environment) == "False ['new'] old"
    assert do(rename, tmp_path / "beside", environment) == "True ['new'] old"


def test_one_kind_of_volume_refuses_locks(volume_library: Path, tmp_path: Path) -> None:
    """Whether volumes know `flock` is open, so a test asks for one or the other."""
    with_locks = make_volume_environment(volume_library, tmp_path / "volume")
    without = make_volume_environment(volume_library, tmp_path / "volume", locks=False)
    assert do(LOCK, tmp_path / "volume", with_locks) == ""
    assert do(LOCK, tmp_path / "volume", without) == "Operation not supported"
    assert do(LOCK, tmp_path / "beside", without) == ""


@pytest.mark.parametrize(
    ("now", "error"), [("full", "No space left on device"), ("read-only", "Read-only file system")]
)
def test_a_volume_may_be_full_or_read_only(now: str, error: str, volume_library: Path, tmp_path: Path) -> None:
    """A new file cannot be written there. It can beside the volume, and what is there can be read."""
    (tmp_path / "volume").mkdir()
    write = "file = open(path('new'), 'wb', buffering=0); file.write(b'x')"
    head, environment = "import os, sys; path = lambda name: os.path.join(sys.argv[1], name)\n", dict[str, str]()
    environment = make_volume_environment(volume_library, tmp_path / "volume", now=now)
    assert do(write, tmp_path / "volume", environment, head=head) == error
    assert do(write, tmp_path / "beside", environment, head=head) == ""


def test_other_libraries_meet_the_same_volume(volume_library: Path, tmp_path: Path) -> None:
    """A commit of deltalake takes its version by a hard link, which is refused."""
    environment = make_volume_environment(volume_library, tmp_path / "volume")
    assert do(COMMIT, tmp_path / "beside", environment) == ""
    assert "Operation not permitted" in do(COMMIT, tmp_path / "volume", environment)
