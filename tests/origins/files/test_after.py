"""What happens to processed files: none is lost, and none is read again."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from origins.batch import Batch, Limits
from origins.errors import OriginError
from origins.files import Files
from origins.files.file_systems import LocalDisk
from origins.origin import Progress
from tests.origins.files.test_files import make_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_SPARK: SparkSession = None  # type: ignore[assignment]
"""A folder of this machine is read without Spark."""
DOES: Sequence[Callable[[str], None]] = [
    lambda path: LocalDisk().delete([path]),
    lambda path: LocalDisk().move({path: f"{path}.done"}),
]
"""A deletion and a move of a file."""


def write_file(folder: Path, name: str, text: str, modified: int = 1_000) -> Path:
    """Write a file with this time."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    os.utime(file, (modified, modified))
    return file


def plan_batch(files: Files) -> Batch:
    """Return all files that wait in lane 0, as one batch."""
    span = files.survey(NO_SPARK, Progress()).take("0", None, Limits())
    assert span is not None
    return make_batch(span, "{}")


def read_folder(folder: Path) -> dict[str, str]:
    """Return the contents of all files below a folder, by name."""
    return {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*") if file.is_file()}


def kill_before(monkeypatch: pytest.MonkeyPatch, call: str, files: Files, carried: Batch) -> None:
    """Notify the origin of the batch, and die in this call."""

    def die(*_: object, **__: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(os, call, die)
        with pytest.raises(SystemExit):
            files.committed(NO_SPARK, carried)


@pytest.mark.promise("CD-13")
@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({}, {"a.json": "1", "x/b.json": "2"}),
        ({"after": "delete"}, {}),
        ({"after": "move"}, {"_carried/a.json": "1", "_carried/x/b.json": "2"}),
    ],
)
def test_files_are_kept_deleted_or_moved_after_their_batch_is_committed(
    tmp_path: Path, options: dict[str, Any], left: dict[str, str]
) -> None:
    """They keep their names below the path's part before the first wildcard. A second notification changes nothing."""
    write_file(tmp_path, "a.json", "1")
    write_file(tmp_path, "x/b.json", "2")
    files = Files(path=f"{tmp_path}/**/*.json", format="json", **options)
    carried = plan_batch(files)
    assert read_folder(tmp_path) == {"a.json": "1", "x/b.json": "2"}
    for _ in range(2):
        files.committed(NO_SPARK, carried)
        assert read_folder(tmp_path) == left
    assert files.listens is bool(options)


def test_files_can_be_moved_to_another_folder(tmp_path: Path) -> None:
    """The folder is made if it is missing."""
    write_file(tmp_path / "in", "ü %.json", "1")
    files = Files(path=str(tmp_path / "in"), format="json", after="move", move_to=str(tmp_path / "done" / "x"))
    files.committed(NO_SPARK, plan_batch(files))
    assert read_folder(tmp_path) == {"done/x/ü %.json": "1"}


@pytest.mark.parametrize("after", ["move", "delete"])
def test_a_file_that_changed_after_its_batch_is_left_unchanged(tmp_path: Path, after: Any) -> None:
    """Its new content was not read."""
    file = write_file(tmp_path, "a.json", "1")
    files = Files(path=str(tmp_path), format="json", after=after)
    carried = plan_batch(files)
    write_file(tmp_path, "a.json", "12", 2_000)
    files.committed(NO_SPARK, carried)
    assert file.read_text() == "12"


def test_a_moved_file_does_not_overwrite_one_with_the_same_name(tmp_path: Path) -> None:
    """A producer that uses a name again loses none of its earlier files."""
    for text in ("1", "2", "3"):
        file = write_file(tmp_path / "in", "a.json", text)
        LocalDisk().move({str(file): str(tmp_path / "done" / "a.json")})
    assert read_folder(tmp_path) == {"done/a.json": "1", "done/a.json~2": "2", "done/a.json~3": "3"}


@pytest.mark.promise("CD-13")
@pytest.mark.parametrize("call", ["makedirs", "link", "unlink"])
def test_a_process_that_dies_while_it_moves_a_file_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """The file is complete in one of the two folders. After a second notification it is only in the new one."""
    write_file(tmp_path / "in", "a.json", "1")
    write_file(tmp_path / "in", "b.json", "2")
    files = Files(path=str(tmp_path / "in"), format="json", after="move", move_to=str(tmp_path / "done"))
    carried = plan_batch(files)
    kill_before(monkeypatch, call, files, carried)
    assert set(read_folder(tmp_path).values()) == {"1", "2"}
    files.committed(NO_SPARK, carried)
    assert read_folder(tmp_path) == {"done/a.json": "1", "done/b.json": "2"}


def test_a_process_that_dies_while_it_deletes_files_continues_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that are already deleted cause no error."""
    write_file(tmp_path, "a.json", "1")
    write_file(tmp_path, "b.json", "2")
    files = Files(path=str(tmp_path), format="json", after="delete")
    carried = plan_batch(files)
    (tmp_path / "a.json").unlink()
    kill_before(monkeypatch, "unlink", files, carried)
    assert read_folder(tmp_path) == {"b.json": "2"}
    files.committed(NO_SPARK, carried)
    assert read_folder(tmp_path) == {}


@pytest.mark.parametrize("dies_in", ["rename", "unlink", None])
def test_a_file_is_copied_to_another_disk_before_it_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_in: str | None
) -> None:
    """Readers never see an incomplete file under its name, and the file keeps its time."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    write_file(tmp_path / "in", "a.json", "1")
    files = Files(path=str(tmp_path / "in"), format="json", after="move", move_to=str(tmp_path / "done"))
    carried = plan_batch(files)
    if dies_in is not None:
        kill_before(monkeypatch, dies_in, files, carried)
        assert "1" in read_folder(tmp_path).values()
    files.committed(NO_SPARK, carried)
    assert read_folder(tmp_path) == {"done/a.json": "1"}
    assert (tmp_path / "done" / "a.json").stat().st_mtime == 1_000


def test_a_link_is_moved_and_deleted_without_its_target(tmp_path: Path) -> None:
    """At its new place it leads to the same file."""
    write_file(tmp_path / "elsewhere", "a.json", "1")
    for name in ("x.json", "y.json"):
        (tmp_path / name).symlink_to("elsewhere/a.json")
    LocalDisk().delete([str(tmp_path / "x.json")])
    LocalDisk().move({str(tmp_path / "y.json"): str(tmp_path / "done" / "y.json")})
    assert read_folder(tmp_path) == {"elsewhere/a.json": "1", "done/y.json": "1"}


@pytest.mark.parametrize("does", DOES)
def test_a_refused_move_or_deletion_is_reported_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: Callable[[str], None]
) -> None:
    """The file remains in its place."""

    def refuse(path: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    file = write_file(tmp_path, "a.json", "1")
    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(OriginError, match=r"a\.json was processed, but it cannot be .*: Permission denied") as error:
        does(str(file))
    assert "the next run tries again" in error.value.hint
    assert file.read_text() == "1"


@pytest.mark.parametrize(
    ("path", "to", "found"),
    [
        ("**", "done", True),
        ("*", "done", False),
        ("*/*.json", "done", False),
        ("*/*.csv", "done", False),
        ("**", "_done", False),
        ("**", None, False),
        ("**", "../done", False),
    ],
)
def test_a_target_where_files_would_be_read_again_is_refused(
    tmp_path: Path, path: str, to: str | None, found: bool
) -> None:
    """The run stops before it reads anything."""
    landing = tmp_path / "in"
    for name in ("a.json", "x/a.json"):
        write_file(landing, name, "1")
    to = str(landing / to) if to else None
    files = Files(path=f"{landing}/{path}", format="json", after="move", move_to=to)

    def stops() -> bool:
        try:
            files.survey(NO_SPARK, Progress())
        except OriginError as error:
            return "would be read again" in error.message
        return False

    assert stops() is found


@pytest.mark.parametrize("does", DOES)
def test_a_file_that_another_process_removed_is_ignored(tmp_path: Path, does: Callable[[str], None]) -> None:
    """It disappears between the check and the call."""
    does(str(tmp_path / "gone.json"))
    assert read_folder(tmp_path) == {}
