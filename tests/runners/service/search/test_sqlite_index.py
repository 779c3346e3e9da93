"""The search index in a file: it is made again when it is lost, and keeps nothing that is forgotten."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from runners.pipeline import Pipeline
from runners.service.search.index import IndexUnusable, Wanted
from runners.service.search.indexer import Indexer
from runners.service.search.sqlite_index import SqliteIndex
from runners.service.serving import make_indexer
from tests.runners.service.search.entries import make_entry
from tests.runners.service.served import Served, serve, write_pipeline


@pytest.fixture
def file(served: Served) -> Path:
    """The file with a server's index."""
    return served.folder / ".wherry" / "server" / "index.sqlite"


def count(served: Served, query: str = "") -> int:
    """Return how many entries a search finds."""
    return len(served.get(f"/v1/search?{query}")["hits"])


def test_what_is_forgotten_is_not_in_the_file(tmp_path: Path) -> None:
    """Neither the text nor its words are left, and other entries are."""
    index = SqliteIndex(tmp_path / "index.sqlite")
    index.put([make_entry(1, text="unforgettable"), make_entry(2, text="kept", pipeline="items")])
    index.forget("orders")
    left = b"".join(each.read_bytes() for each in tmp_path.iterdir())
    assert (b"forgettable" in left, b"kept" in left) == (False, True)


def write_nothing(file: Path) -> None:
    """Empty the file."""
    file.write_bytes(b"")


def write_garbage(file: Path) -> None:
    """Write something else into the file."""
    file.write_bytes(b"no database" * 1_000)


def cut(file: Path) -> None:
    """Cut the file in the middle of a page."""
    with sqlite3.connect(file) as tables:
        tables.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2 + 100])


@pytest.mark.parametrize("spoil", [Path.unlink, write_nothing, write_garbage, cut])
def test_a_lost_or_broken_index_is_made_again(
    served: Served, indexer: Indexer, file: Path, spoil: Callable[[Path], None]
) -> None:
    """Until then, the answer says that something is missing."""
    spoil(file)
    for ending in ("-wal", "-shm"):
        file.with_name(file.name + ending).unlink(missing_ok=True)
    assert served.get("/v1/search?text=bigint")["behind"]
    for _ in range(2):
        indexer.look()
    assert count(served) == 4
    assert served.get("/v1/search")["behind"] == ""


def test_without_the_index_the_answer_says_so(served: Served, file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The look is logged once, and a run goes on."""
    file.mkdir()
    indexer = make_indexer(served.service)
    indexer.look()
    indexer.look()
    assert len([line for line in caplog.messages if "search index cannot be filled" in line]) == 1
    found = served.get("/v1/search?text=bigint&kind=row")
    assert found["hits"] == []
    assert found["behind"].startswith("The index cannot be used")
    assert Pipeline.load(served.folder / "orders.yaml").run().status == "succeeded"


@pytest.mark.parametrize(("version", "found"), [(1, 4), (99, 0)])
def test_an_index_of_another_version_is_not_used(
    served: Served, indexer: Indexer, file: Path, version: int, found: int
) -> None:
    """An older one is made again. A newer one stays, because a newer server may use it."""
    with sqlite3.connect(file) as tables:
        tables.execute(f"PRAGMA user_version = {version}")
    assert "cannot be used" in served.get("/v1/search")["behind"]
    for _ in range(2):
        indexer.look()
    assert count(served) == found


def test_a_locked_index_is_behind(served: Served, indexer: Indexer, file: Path) -> None:
    """It answers what it has, and takes in the rest when it can be written."""
    write_pipeline(served.folder, "orders", rows={5: 50})
    Pipeline.load(served.folder / "orders.yaml").run()
    with sqlite3.connect(file, isolation_level=None) as tables:
        tables.execute("BEGIN IMMEDIATE")
        indexer.look()
        assert count(served, "kind=batch") == 1
        tables.execute("ROLLBACK")
    indexer.look()
    assert count(served, "kind=batch") == 2


def test_servers_of_a_folder_share_the_index(served: Served) -> None:
    """What one of them takes in, the other finds. A second look adds nothing."""
    with serve(served.folder) as other:
        make_indexer(other.service).look()
        assert count(served) == 4
        make_indexer(served.service).look()
        assert count(other) == 4


def test_a_search_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    """So a caller cannot keep the server busy."""
    index = SqliteIndex(tmp_path / "index.sqlite")
    index.put(make_entry(number) for number in range(2_000))
    with pytest.raises(IndexUnusable, match="narrow it"):
        index.search(Wanted(pipelines=["orders"], limit=2_000), longest=-1.0)
