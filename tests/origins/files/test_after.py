"""What becomes of files that were carried: nothing is lost, and nothing is found again."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from origins.batch import Batch, Limits
from origins.errors import OriginError
from origins.files import Files
from origins.files.file_systems import delete, move
from origins.origin import Progress
from tests.origins.files.test_files import batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_SPARK: SparkSession = None  # type: ignore[assignment]
"""A folder of this machine is looked at without Spark."""


def land(folder: Path, name: str, text: str, modified: int = 1_000) -> Path:
    """A file of this age."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    os.utime(file, (modified, modified))
    return file


def planned(files: Files) -> Batch:
    """All that waits in lane 0, as one batch."""
    span = files.survey(NO_SPARK, Progress()).take("0", None, Limits())
    assert span is not None
    return batch(span, "{}")


def there(folder: Path) -> dict[str, str]:
    """What lies below a folder."""
    return {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*") if file.is_file()}


def killed_before(monkeypatch: pytest.MonkeyPatch, call: str, files: Files, carried: Batch) -> None:
    """Tell the origin of the batch, and die in this call."""

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
def test_files_are_kept_deleted_or_moved_when_their_batch_is_committed(
    tmp_path: Path, options: dict[str, Any], left: dict[str, str]
) -> None:
    """Under their names below the path's part before the first wildcard; not before that, and told twice is once."""
    land(tmp_path, "a.json", "1")
    land(tmp_path, "x/b.json", "2")
    files = Files(path=f"{tmp_path}/**/*.json", format="json", **options)
    carried = planned(files)
    assert there(tmp_path) == {"a.json": "1", "x/b.json": "2"}
    for _ in range(2):
        files.committed(NO_SPARK, carried)
        assert there(tmp_path) == left
    assert files.listens is bool(options)


def test_files_may_be_moved_to_a_folder_elsewhere(tmp_path: Path) -> None:
    """It is made when it is needed."""
    land(tmp_path / "in", "ü %.json", "1")
    files = Files(path=str(tmp_path / "in"), format="json", after="move", move_to=str(tmp_path / "done" / "x"))
    files.committed(NO_SPARK, planned(files))
    assert there(tmp_path) == {"done/x/ü %.json": "1"}


@pytest.mark.parametrize("after", ["move", "delete"])
def test_a_file_that_is_not_what_was_carried_is_left_alone(tmp_path: Path, after: Any) -> None:
    """What came to it since was not read."""
    file = land(tmp_path, "a.json", "1")
    files = Files(path=str(tmp_path), format="json", after=after)
    carried = planned(files)
    land(tmp_path, "a.json", "12", 2_000)
    files.committed(NO_SPARK, carried)
    assert file.read_text() == "12"


def test_a_file_of_the_same_name_is_not_overwritten(tmp_path: Path) -> None:
    """A producer that uses a name again loses nothing of what it sent before."""
    for text in ("1", "2", "3"):
        file = land(tmp_path / "in", "a.json", text)
        move(str(file), str(tmp_path / "done" / "a.json"))
    assert there(tmp_path) == {"done/a.json": "1", "done/a.json~2": "2", "done/a.json~3": "3"}


@pytest.mark.promise("CD-13")
@pytest.mark.parametrize("call", ["makedirs", "link", "unlink"])
def test_a_process_that_dies_while_it_moves_a_file_has_lost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """The file is whole in one of the two places; told again, it is in its new one, and there once."""
    land(tmp_path / "in", "a.json", "1")
    land(tmp_path / "in", "b.json", "2")
    files = Files(path=str(tmp_path / "in"), format="json", after="move", move_to=str(tmp_path / "done"))
    carried = planned(files)
    killed_before(monkeypatch, call, files, carried)
    assert set(there(tmp_path).values()) == {"1", "2"}
    files.committed(NO_SPARK, carried)
    assert there(tmp_path) == {"done/a.json": "1", "done/b.json": "2"}


def test_a_process_that_dies_while_it_deletes_goes_on_when_it_is_told_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are gone are done with."""
    land(tmp_path, "a.json", "1")
    land(tmp_path, "b.json", "2")
    files = Files(path=str(tmp_path), format="json", after="delete")
    carried = planned(files)
    (tmp_path / "a.json").unlink()
    killed_before(monkeypatch, "unlink", files, carried)
    assert there(tmp_path) == {"b.json": "2"}
    files.committed(NO_SPARK, carried)
    assert there(tmp_path) == {}


@pytest.mark.parametrize("dies_in", ["rename", "unlink", None])
def test_a_file_is_copied_to_another_disk_before_it_leaves_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_in: str | None
) -> None:
    """Nobody sees half of it under its name, and its time stays."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    land(tmp_path / "in", "a.json", "1")
    files = Files(path=str(tmp_path / "in"), format="json", after="move", move_to=str(tmp_path / "done"))
    carried = planned(files)
    if dies_in is not None:
        killed_before(monkeypatch, dies_in, files, carried)
        assert "1" in there(tmp_path).values()
    files.committed(NO_SPARK, carried)
    assert there(tmp_path) == {"done/a.json": "1"}
    assert (tmp_path / "done" / "a.json").stat().st_mtime == 1_000


def test_a_link_is_moved_and_deleted_without_what_it_leads_to(tmp_path: Path) -> None:
    """It leads to the same file from its new place."""
    land(tmp_path / "elsewhere", "a.json", "1")
    for name in ("x.json", "y.json"):
        (tmp_path / name).symlink_to("elsewhere/a.json")
    delete(str(tmp_path / "x.json"))
    move(str(tmp_path / "y.json"), str(tmp_path / "done" / "y.json"))
    assert there(tmp_path) == {"elsewhere/a.json": "1", "done/y.json": "1"}


@pytest.mark.parametrize("does", [delete, lambda path: move(path, f"{path}.done")])
def test_what_is_refused_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: Callable[[str], None]
) -> None:
    """The file stays where it is."""

    def refuse(path: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    file = land(tmp_path, "a.json", "1")
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
def test_files_are_not_moved_to_where_they_would_be_read_again(
    tmp_path: Path, path: str, to: str | None, found: bool
) -> None:
    """The run stops before anything is read, and says where to."""
    landing = tmp_path / "in"
    for name in ("a.json", "x/a.json"):
        land(landing, name, "1")
    to = str(landing / to) if to else None
    files = Files(path=f"{landing}/{path}", format="json", after="move", move_to=to)

    def stops() -> bool:
        try:
            files.survey(NO_SPARK, Progress())
        except OriginError as error:
            return "would be read again" in error.message
        return False

    assert stops() is found


@pytest.mark.parametrize("does", [delete, lambda path: move(path, f"{path}.done")])
def test_a_file_that_somebody_else_took_is_done_with(tmp_path: Path, does: Callable[[str], None]) -> None:
    """Between the look at it and the call."""
    does(str(tmp_path / "gone.json"))
    assert there(tmp_path) == {}
