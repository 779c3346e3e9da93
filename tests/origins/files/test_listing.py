"""The files that a path selects, on this machine and where only Spark can list."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from origins.errors import OriginError
from origins.files.file_systems import File
from origins.files.listing import FilePattern, parse_pattern

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOBODY = cast("SparkSession", None)
"""On this machine no Spark is needed."""

TREE = [
    "a.json",
    "b.csv",
    "_SUCCESS",
    ".a.json.crc",
    "c.json._COPYING_",
    "2026/01/d.json",
    "2026/02/e.json",
    "2026/_temporary/f.json",
    "2026/.hidden/g.json",
    "exports/x.parquet/part-0.parquet",
    "exports/x.parquet/_SUCCESS",
    "exports/y.parquet",
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with files of all kinds and the same time."""
    for name in TREE:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
        os.utime(file, (1, 1))
    (tmp_path / "empty").mkdir()
    return tmp_path


FOUND = [
    ("", ["a.json", "b.csv"]),
    ("/", ["a.json", "b.csv"]),
    ("/*", ["a.json", "b.csv"]),
    ("/*.json", ["a.json"]),
    ("/[ab].*", ["a.json", "b.csv"]),
    ("/?.json", ["a.json"]),
    ("/a.json", ["a.json"]),
    ("/2026/*/*.json", ["01/d.json", "02/e.json"]),
    ("/2026/0[12]/*", ["01/d.json", "02/e.json"]),
    ("/2026/_temporary", ["f.json"]),
    ("/**/*.json", ["2026/01/d.json", "2026/02/e.json", "a.json"]),
    ("/2026/**", ["01/d.json", "02/e.json"]),
    ("/exports/*.parquet", ["x.parquet/part-0.parquet", "y.parquet"]),
    ("/exports", ["y.parquet"]),
    ("/empty", []),
    ("/*.xml", []),
]


@pytest.mark.parametrize(("pattern", "names"), FOUND)
def test_a_path_selects_the_files_that_match_it(tree: Path, pattern: str, names: list[str]) -> None:
    """A wildcard matches within a name, and `**` matches folders. Hidden files and files being copied are left out."""
    assert [file.name for file in parse_pattern(f"{tree}{pattern}").list_files(NOBODY)] == names


@pytest.mark.spark
def test_spark_finds_the_same_files(spark: SparkSession, tree: Path) -> None:
    """A path has the same meaning on storage that only Spark can list."""
    for pattern, names in FOUND:
        if pattern != "/a.json":
            here = parse_pattern(f"file:{tree}{pattern}")
            there = FilePattern(root=here.root, segments=here.segments, local=False).list_files(spark)
            assert there == here.list_files(NOBODY), pattern
            assert [file.name for file in there] == names, pattern


EXCLUDED = [
    (["a.json"], ["2026/01/d.json", "2026/02/e.json"]),
    (["[de].json"], ["a.json"]),
    (["01/d.json"], ["2026/02/e.json", "a.json"]),
    (["2026/*/e.json", "*.csv"], ["2026/01/d.json", "a.json"]),
    (["2026"], ["2026/01/d.json", "2026/02/e.json", "a.json"]),
]


@pytest.mark.parametrize(("exclude", "names"), EXCLUDED)
def test_excluded_files_are_left_out(tree: Path, exclude: list[str], names: list[str]) -> None:
    """A pattern is compared with the end of a path, so a bare name excludes this name in every folder."""
    place = replace(parse_pattern(f"{tree}/**/*.json"), exclude=tuple(exclude))
    assert [file.name for file in place.list_files(NOBODY)] == names
    every = [file.name for file in replace(place, exclude=()).list_files(NOBODY)]
    assert [name for name in every if place.matches(f"{tree}/{name}")] == names


@pytest.mark.promise("X2")
def test_files_are_ordered_by_time_and_then_by_name(tmp_path: Path) -> None:
    """The order of the rows does not depend on the order of the listing."""
    for name, modified in (("b", 2.5), ("c", 1), ("a", 2.5)):
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, (modified, modified))
    assert parse_pattern(str(tmp_path)).list_files(NOBODY) == [
        File(1000, "c", 1),
        File(2500, "a", 1),
        File(2500, "b", 1),
    ]


@pytest.mark.parametrize(
    "name", ["br[1].json", "st*r.json", "q?.json", "~.json", "co:lon.json", "ü %41+#.json", "a\nb.json"]
)
def test_the_name_of_an_existing_file_is_taken_literally(tmp_path: Path, name: str) -> None:
    """The name of a file or folder may look like a pattern."""
    (tmp_path / name).mkdir()
    (tmp_path / name / name).write_text("")
    (tmp_path / "br1.json").write_text("")
    assert [file.name for file in parse_pattern(str(tmp_path / name)).list_files(NOBODY)] == [name]
    assert [file.name for file in parse_pattern(str(tmp_path / name / name)).list_files(NOBODY)] == [name]


def test_the_scheme_shows_where_a_path_is() -> None:
    """`file:` or no scheme is this machine. Any other scheme is elsewhere, also with wildcards."""
    assert parse_pattern("file:///data/in/*.json") == FilePattern(
        root="file:/data/in", segments=("*.json",), local=True
    )
    assert parse_pattern("s3a://bucket/in/*/x.json") == FilePattern(
        root="s3a://bucket/in", segments=("*", "x.json"), local=False
    )
    assert parse_pattern("abfss://c@h.net/in/") == FilePattern(root="abfss://c@h.net/in", segments=("*",), local=False)


@pytest.mark.parametrize("path", ["gone", "gone/*.json", "gone/**", "gone{a,b}"])
def test_a_missing_path_is_an_error(tmp_path: Path, path: str) -> None:
    """A misspelled path is not an empty folder, and the message has a remedy."""
    with pytest.raises(OriginError, match=r"There is nothing at .*gone") as error:
        parse_pattern(str(tmp_path / path)).list_files(NOBODY)
    assert "it may be empty" in error.value.hint


@pytest.mark.parametrize(("path", "near"), [("salez.csv", "sales.csv"), ("lading/2026/*.csv", "landing"), ("x", "")])
def test_a_similar_name_is_suggested(tmp_path: Path, path: str, near: str) -> None:
    """It is looked for in the last existing folder of the path."""
    (tmp_path / "landing").mkdir()
    (tmp_path / "sales.csv").touch()
    with pytest.raises(OriginError, match="There is nothing at") as error:
        parse_pattern(str(tmp_path / path)).list_files(NOBODY)
    assert error.value.hint.startswith(f"Did you mean {tmp_path / near}? Create" if near else "Create")


@pytest.mark.spark
def test_a_path_that_spark_does_not_find_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    """The message is the same as on this machine."""
    with pytest.raises(OriginError, match=r"There is nothing at .*gone"):
        FilePattern(root=f"file:{tmp_path}/gone", segments=("*",), local=False).list_files(spark)


def test_a_broken_link_is_no_file(tmp_path: Path) -> None:
    """It is skipped, like a file that disappears during the listing."""
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    assert parse_pattern(str(tmp_path)).list_files(NOBODY) == []


def test_links_are_read_under_their_own_names(tmp_path: Path) -> None:
    """A link to a file or folder has the size and time of its target."""
    (tmp_path / "in").mkdir()
    (tmp_path / "out" / "x").mkdir(parents=True)
    (tmp_path / "out" / "x" / "a.json").write_text("123")
    os.utime(tmp_path / "out" / "x" / "a.json", (7, 7))
    (tmp_path / "in" / "b.json").symlink_to(tmp_path / "out" / "x" / "a.json")
    (tmp_path / "in" / "folder").symlink_to(tmp_path / "out")
    found = parse_pattern(f"{tmp_path}/in/**/*.json").list_files(NOBODY)
    assert found == [File(7000, "b.json", 3), File(7000, "folder/x/a.json", 3)]


def test_a_circular_link_to_a_folder_is_not_followed(tmp_path: Path) -> None:
    """It may lead to the folder that contains it, or back through another link. Each file is found once."""
    for folder in ("a", "b"):
        (tmp_path / "in" / folder).mkdir(parents=True)
    (tmp_path / "in" / "a" / "x.json").write_text("1")
    (tmp_path / "in" / "a" / "self").symlink_to(".")
    (tmp_path / "in" / "a" / "top").symlink_to(tmp_path)
    (tmp_path / "in" / "a" / "to_b").symlink_to("../b")
    (tmp_path / "in" / "b" / "to_a").symlink_to("../a")
    names = [file.name for file in parse_pattern(f"{tmp_path}/in/**").list_files(NOBODY)]
    assert names == ["a/x.json", "b/to_a/x.json"]


def test_a_listing_takes_at_most_twice_the_time_of_the_system(tmp_path: Path) -> None:
    """The fastest of a hundred turns in processor time counts, so that a busy machine does not fail the test."""
    for number in range(2_000):
        (tmp_path / f"part-{number:06}.json").touch()

    def by_the_system() -> None:
        with os.scandir(tmp_path) as entries:
            assert sum(entry.stat().st_size for entry in entries) == 0

    def took(does: Callable[[], object]) -> float:
        began = time.process_time()
        does()
        return time.process_time() - began

    place = parse_pattern(str(tmp_path))
    turns = [(took(lambda: place.list_files(NOBODY)), took(by_the_system)) for _ in range(100)]
    ours, theirs = (min(times) for times in zip(*turns, strict=True))
    assert ours < 2 * theirs


def test_a_folder_that_cannot_be_listed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a folder does not count as empty."""
    monkeypatch.setattr(os, "scandir", make_refusing(tmp_path))
    with pytest.raises(OriginError, match="cannot be read: Permission denied"):
        parse_pattern(str(tmp_path)).list_files(NOBODY)


def test_a_subfolder_that_cannot_be_listed_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files beside it are read."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.json").touch()
    monkeypatch.setattr(os, "scandir", make_refusing(tmp_path / "a"))
    assert list_found_and_passed(f"{tmp_path}/**") == (["b/x.json"], {"a": "cannot be listed: Permission denied"})


def test_a_folder_that_disappears_during_the_listing_counts_as_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So does a folder that becomes a file."""
    for folder in ("a", "b", "c"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.json").touch()
    scan = os.scandir

    def late(folder: str) -> object:
        if Path(folder).name in ("a", "b"):
            (Path(folder) / "x.json").unlink()
            Path(folder).rmdir()
        if Path(folder).name == "b":
            Path(folder).touch()
        return scan(folder)

    monkeypatch.setattr(os, "scandir", late)
    assert list_found_and_passed(f"{tmp_path}/*/*.json") == (["c/x.json"], {})


@pytest.mark.parametrize("pattern", ["*.json", "**", "**/*.json"])
def test_files_that_are_not_regular_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str) -> None:
    """Opening a named pipe or a device may never end. Links to them are skipped too."""
    monkeypatch.chdir(tmp_path)
    Path("a.json").touch()
    os.mkfifo("pipe.json")
    Path("device.json").symlink_to("/dev/zero")
    Path("to_pipe.json").symlink_to("pipe.json")
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind("socket.json")
        found, passed = list_found_and_passed(f"{tmp_path}/{pattern}")
    kinds = {"pipe": "a named pipe", "to_pipe": "a named pipe", "device": "a device", "socket": "a socket"}
    assert found == ["a.json"]
    assert passed == {f"{name}.json": f"is {kind}; Wherry reads only regular files" for name, kind in kinds.items()}


@pytest.mark.parametrize("pattern", ["*.json", "**", "*.json/*"])
def test_circular_links_to_files_are_skipped(tmp_path: Path, pattern: str) -> None:
    """It is unknown whether they would be files or folders."""
    (tmp_path / "good.json").mkdir()
    (tmp_path / "good.json" / "x").touch()
    (tmp_path / "a.json").symlink_to("b.json")
    (tmp_path / "b.json").symlink_to("a.json")
    (tmp_path / "self.json").symlink_to("self.json")
    found, passed = list_found_and_passed(f"{tmp_path}/{pattern}")
    assert found == ["good.json/x"]
    assert passed == {
        f"{name}.json": "cannot be read: Too many levels of symbolic links" for name in ("a", "b", "self")
    }


def test_a_file_that_cannot_be_checked_again_is_an_error(tmp_path: Path) -> None:
    """It was planned, and does not count as missing."""
    (tmp_path / "a").symlink_to("a")
    with pytest.raises(OriginError, match="a cannot be read: Too many levels"):
        parse_pattern(str(tmp_path)).stat(NOBODY, ["a"])


def make_refusing(refused: Path) -> Callable[[str], object]:
    """Return a function that lists folders, but refuses this one."""
    scan = os.scandir

    def scandir(folder: str) -> object:
        if Path(folder) == refused:
            raise PermissionError(13, "Permission denied", folder)
        return scan(folder)

    return scandir


def list_found_and_passed(path: str) -> tuple[list[str], dict[str, str]]:
    """Return the names of the files that a path selects, and the skipped names with reasons."""
    passed: dict[str, str] = {}
    return [file.name for file in parse_pattern(path).list_files(NOBODY, pass_over=passed.__setitem__)], passed


def test_files_are_checked_again_by_name(tmp_path: Path) -> None:
    """A changed file has its new size, and a missing file is left out."""
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("1")
    place = parse_pattern(str(tmp_path))
    before = place.list_files(NOBODY)
    (tmp_path / "a").unlink()
    (tmp_path / "b").write_text("22")
    seen = place.stat(NOBODY, [file.name for file in before])
    assert {name: file.size for name, file in seen.items()} == {"b": 2}
