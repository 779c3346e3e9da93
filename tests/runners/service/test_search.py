"""The search: runs, batches and refused rows by their words, and what is left of it without the index."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from deltalake import DeltaTable

from runners.pipeline import Pipeline
from runners.service.index import Index, Indexed, Wanted
from runners.service.indexer import Indexer
from runners.service.serving import make_indexer
from tests.manual_clock import ManualClock
from tests.runners.service.served import Served, serve, write_pipeline


@pytest.fixture
def indexer(served: Served) -> Iterator[Indexer]:
    """The indexer of a server, which has looked once."""
    made = make_indexer(served.service)
    made.look()
    yield made
    made.end()


def find(served: Served, query: str, *, by: str = "owner") -> list[str]:
    """Return the kind and the pipeline of what a search finds."""
    return [f"{hit['kind']} {hit['pipeline']}" for hit in served.get(f"/v1/search?{query}", by=by)["hits"]]


def make_entry(number: int, **changes: str) -> Indexed:
    """Return an entry of the pipeline `orders` that happened this many seconds after a moment."""
    at = datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=number)
    facts = {"pipeline": "orders", "kind": "row", "name": f"p/{number}", "run": "r", "status": "refused"}
    return Indexed(**{**facts, "at": at.isoformat(), "text": f"row {number}", **changes})


def list_names(index: Index, **wanted: object) -> list[str]:
    """Return the names of what is found in the pipeline `orders`."""
    return [found["name"] for _, found in index.search(Wanted(pipelines=["orders"], **wanted))]  # type: ignore[arg-type]


@pytest.mark.usefixtures("indexer")
def test_runs_batches_and_rows_are_found(served: Served) -> None:
    """All conditions count. The beginning of a word is enough, and case does not matter."""
    assert sorted(find(served, "")) == ["batch orders", "row orders", "row orders", "run orders"]
    assert find(served, "kind=run&status=succeeded") == ["run orders"]
    assert find(served, "status=failed") == []
    assert find(served, "text=BIGINT+x2") == ["row orders"]
    assert find(served, "text=0.json&kind=batch") == ["batch orders"]
    assert find(served, "text=amou&pipeline=items") == []
    assert find(served, "until=2026-01-02") == ["row orders", "row orders"]
    assert find(served, "since=2026-01-02&kind=row") == []
    assert served.ask("GET", "/v1/search?since=tomorrow").status == 422
    assert served.ask("GET", "/v1/search?cursor=x").status == 422


@pytest.mark.usefixtures("indexer")
def test_a_cursor_leads_through_the_list(served: Served) -> None:
    """The last answer has none. Nothing comes twice."""
    seen, cursor = [], ""
    for _ in range(3):
        found = served.get(f"/v1/search?limit=2&cursor={cursor}")
        seen += [hit["name"] for hit in found["hits"]]
        cursor = found["cursor"]
    assert (len(seen), len({*seen}), cursor) == (4, 4, "")


def test_a_cursor_leads_through_the_runs(served: Served) -> None:
    """The last answer has none. An unknown cursor finds nothing."""
    for _ in range(3):
        Pipeline.load(served.folder / "orders.yaml").run()
    every = [run["run"] for run in served.get("/v1/pipelines/orders/runs")["runs"]]
    first = served.get("/v1/pipelines/orders/runs?limit=3")
    rest = served.get(f"/v1/pipelines/orders/runs?limit=3&cursor={first['cursor']}")
    assert [run["run"] for run in first["runs"] + rest["runs"]] == every
    assert (len(every), rest["cursor"]) == (4, "")
    assert served.get("/v1/pipelines/orders/runs?cursor=nowhere")["runs"] == []


@pytest.mark.usefixtures("indexer")
def test_a_caller_finds_nothing_of_other_pipelines(served: Served) -> None:
    """Not even by name."""
    served.add_caller("sam", "read", "items")
    assert find(served, "", by="sam") == []
    assert served.ask("GET", "/v1/search?pipeline=orders", by="sam").status == 403


def test_what_is_new_is_taken_in_by_the_next_look(served: Served, indexer: Indexer) -> None:
    """What is gone from the DLQ, and a pipeline that is gone, are found no longer."""
    write_pipeline(served.folder, "orders", rows={5: 50})
    Pipeline.load(served.folder / "orders.yaml").run()
    indexer.look()
    assert (len(find(served, "kind=run")), len(find(served, "kind=batch"))) == (2, 2)
    DeltaTable(served.folder / ".wherry" / "orders" / "dlq").delete("id = 'plan/1'")
    indexer.look()
    assert [hit["name"] for hit in served.get("/v1/search?kind=row")["hits"]] == ["plan/2"]
    (served.folder / "orders.yaml").unlink()
    indexer.look()
    write_pipeline(served.folder, "orders")
    assert find(served, "") == []


def test_a_protected_value_is_not_in_the_index(served: Served, indexer: Indexer) -> None:
    """This holds also if the column is protected later."""
    assert find(served, "text=x2") == ["row orders"]
    write_pipeline(served.folder, "orders", "protect: [amount]\n")
    indexer.look()
    assert (find(served, "text=x2"), len(find(served, "kind=row"))) == ([], 2)
    with sqlite3.connect(served.folder / ".wherry" / "server" / "index.sqlite") as tables:
        (everything,) = tables.execute("SELECT group_concat(body || text) FROM entries").fetchone()
    assert "x2" not in everything


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
def test_a_lost_or_broken_index_is_made_again(served: Served, indexer: Indexer, spoil: Callable[[Path], None]) -> None:
    """Until then, runs and refused rows are still found or the answer says that something is missing."""
    file = served.folder / ".wherry" / "server" / "index.sqlite"
    spoil(file)
    for ending in ("-wal", "-shm"):
        file.with_name(file.name + ending).unlink(missing_ok=True)
    found = served.get("/v1/search?text=bigint")
    assert found["behind"] or found["hits"]
    for _ in range(2):
        indexer.look()
    assert sorted(find(served, "")) == ["batch orders", "row orders", "row orders", "run orders"]
    assert served.get("/v1/search")["behind"] == ""


def test_without_the_index_the_states_are_looked_through(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    """A run goes on, the look is logged once, and the answer says so."""
    file = served.folder / ".wherry" / "server" / "index.sqlite"
    file.mkdir()
    indexer = make_indexer(served.service)
    indexer.look()
    indexer.look()
    assert len([line for line in caplog.messages if "search index cannot be filled" in line]) == 1
    found = served.get("/v1/search?text=bigint&kind=row")
    assert [hit["name"] for hit in found["hits"]] == ["plan/2", "plan/1"]
    assert found["behind"].startswith("The index cannot be used")
    assert find(served, "kind=run&status=succeeded") == ["run orders"]
    assert find(served, "kind=run&text=nowhere") == []
    assert Pipeline.load(served.folder / "orders.yaml").run().status == "succeeded"


def test_a_locked_index_is_behind(served: Served, indexer: Indexer) -> None:
    """It answers what it has, and takes in the rest when it can be written."""
    write_pipeline(served.folder, "orders", rows={5: 50})
    Pipeline.load(served.folder / "orders.yaml").run()
    with sqlite3.connect(served.folder / ".wherry" / "server" / "index.sqlite", isolation_level=None) as tables:
        tables.execute("BEGIN IMMEDIATE")
        indexer.look()
        assert len(find(served, "kind=batch")) == 1
        tables.execute("ROLLBACK")
    indexer.look()
    assert len(find(served, "kind=batch")) == 2


def test_an_index_says_since_when_it_is_behind(served: Served, indexer: Indexer) -> None:
    """It does so half a minute after the last whole look."""
    assert served.get("/v1/search")["behind"] == ""
    served.service.clock = ManualClock(time=datetime.now(timezone.utc) + timedelta(minutes=1))
    assert served.get("/v1/search")["behind"].startswith("The index is behind since 20")


def test_servers_of_a_folder_share_the_index(served: Served) -> None:
    """What one of them takes in, the other finds. A second look adds nothing."""
    with serve(served.folder) as other:
        make_indexer(other.service).look()
        assert len(find(served, "")) == 4
        make_indexer(served.service).look()
        assert len(find(other, "")) == 4


def test_an_entry_that_comes_again_is_kept_once(tmp_path: Path) -> None:
    """Its last form counts. Entries of the same second are kept apart, in all orders."""
    index = Index(tmp_path / "index.sqlite")
    index.put(make_entry(0, name=f"p/{number}") for number in range(3_000))
    index.put([make_entry(0, name="p/7", text="another")])
    assert index.count("orders", "row") == 3_000
    assert list_names(index, text="another") == ["p/7"]
    assert len(list_names(index, limit=5_000)) == 3_000


@pytest.mark.parametrize(
    "text", ['"', "a AND", "NOT", "text:", "(", "*", "--- row", "row -1", "\0row", "'; DROP TABLE entries", "né"]
)
def test_any_text_can_be_searched_for(tmp_path: Path, text: str) -> None:
    """No sign has a meaning. A word without letters and digits does not count."""
    index = Index(tmp_path / "index.sqlite")
    index.put([make_entry(1)])
    list_names(index, text=text)
    assert list_names(index, text="--- row") == ["p/1"]


def test_the_newest_comes_first(tmp_path: Path) -> None:
    """A status and a pipeline are not mixed up with words of the text."""
    index = Index(tmp_path / "index.sqlite")
    index.put(make_entry(number) for number in (2, 3, 1))
    index.put([make_entry(4, pipeline="items"), make_entry(5, text="items", status="failed")])
    assert list_names(index) == ["p/5", "p/3", "p/2", "p/1"]
    assert list_names(index, status="failed") == ["p/5"]
    assert list_names(index, text="refused") == []
    assert json.loads(make_entry(1).body)["text"] == "row 1"
