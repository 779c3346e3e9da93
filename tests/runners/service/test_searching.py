"""The search: runs, batches and refused rows by their words."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from destinations.dead_letters import format_moment
from runners.pipeline import Pipeline
from runners.service.search.index import Index, Indexed, Wanted
from runners.service.search.indexer import Indexer
from runners.service.serving import make_indexer
from runners.state.location import StateLocation
from runners.state.run_history import RunRow
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


def test_a_short_list_of_runs_has_archived_ones(served: Served) -> None:
    """They come after all others."""
    pipeline = served.service.find("orders").pipeline
    history = StateLocation.of(pipeline).open_history(pipeline, served.service.spark.open)
    assert history is not None
    row = RunRow.make_running("orders", "old", "", datetime(2025, 1, 1, tzinfo=timezone.utc))
    history.archive.add([vars(replace(row, status="failed"))])
    assert [run["run"] for run in served.get("/v1/pipelines/orders/runs")["runs"]][1:] == ["old"]


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
    (served.folder / "broken.yaml").unlink()
    (served.folder / "orders.yaml").unlink()
    indexer.look()
    write_pipeline(served.folder, "orders")
    assert find(served, "") == []


def test_a_broken_definition_keeps_what_is_known(served: Served, indexer: Indexer) -> None:
    """It is perhaps being written."""
    file = served.folder / "orders.yaml"
    text = file.read_text()
    file.write_text("name: orders\n")
    indexer.look()
    file.write_text(text)
    assert len(find(served, "")) == 4


def test_a_row_that_was_refused_earlier_is_taken_in_later(served: Served, indexer: Indexer) -> None:
    """Several batches refuse rows at the same time, and their commits come in another order."""
    place = served.folder / ".wherry" / "orders" / "dlq"
    rows = DeltaTable(place).to_pyarrow_table()
    first = rows.to_pylist()[0]
    late = {**first, "id": "late/1", "nacked_at": first["nacked_at"] - timedelta(minutes=5)}
    write_deltalake(place, pa.Table.from_pylist([late], rows.schema), mode="append")
    indexer.look()
    assert [hit["name"] for hit in served.get("/v1/search?kind=row")["hits"]] == ["plan/2", "plan/1", "late/1"]


def test_batches_are_found_after_their_entries_were_compacted(served: Served, indexer: Indexer) -> None:
    """Those that were settled between the last look and the compaction are found too."""
    write_pipeline(served.folder, "orders", rows={5: 50})
    Pipeline.load(served.folder / "orders.yaml").run()
    pipeline = served.service.find("orders").pipeline
    journal = StateLocation.of(pipeline).open_journal(pipeline)
    journal.acquire({"host": "elsewhere", "pipeline": "orders", "run": "another"})
    journal.compact(every=1)
    indexer.look()
    assert len(find(served, "kind=batch")) == 2


def test_a_state_that_begins_again_is_read_again(served: Served, indexer: Indexer) -> None:
    """What the deleted state had is forgotten."""
    shutil.rmtree(served.folder / ".wherry" / "orders")
    indexer.look()
    assert find(served, "") == []
    assert served.get("/v1/search")["behind"] == ""


def test_a_run_that_another_one_ended_is_found_once(served: Served, indexer: Indexer) -> None:
    """The run that took over may tell an earlier beginning of it."""
    pipeline = served.service.find("orders").pipeline
    history = StateLocation.of(pipeline).open_history(pipeline, served.service.spark.open)
    assert history is not None
    began = RunRow.make_running("orders", "dead", "", datetime.now(timezone.utc))
    history.write([began])
    indexer.look()
    earlier = began.started_at - timedelta(minutes=1)
    history.write([replace(began, status="killed", reason="taken over", started_at=earlier)])
    indexer.look()
    assert [hit["at"] for hit in served.get("/v1/search?text=dead")["hits"]] == [format_moment(earlier)]


def test_a_state_that_cannot_be_read_is_named(
    served: Served, indexer: Indexer, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once, and named until it can be read. A caller of other pipelines does not see its name."""
    served.add_caller("sam", "read", "items")
    place = served.folder / ".wherry" / "orders" / "ledger"
    whole = place.rename(place.with_name("whole"))
    write_deltalake(place, pa.table({"another": [1]}))
    for _ in range(2):
        indexer.look()
        assert served.get("/v1/search")["behind"] == "The index misses what is new in orders."
    assert served.get("/v1/search", by="sam")["behind"] == ""
    assert len([line for line in caplog.messages if "misses what is new in orders" in line]) == 1
    shutil.rmtree(place)
    whole.rename(place)
    indexer.look()
    assert served.get("/v1/search")["behind"] == ""


def test_a_secret_is_not_in_the_index(served: Served) -> None:
    """Not even in the names of files."""
    served.service.hidden["0.json"] = "${secret:KEY}"  # type: ignore[index]
    make_indexer(served.service).look()
    assert find(served, "kind=batch") == ["batch orders"]
    assert find(served, "kind=batch&text=json") == []


def test_a_protected_value_is_not_in_the_index(served: Served, indexer: Indexer) -> None:
    """This holds also if the column is protected later."""
    assert find(served, "text=x2") == ["row orders"]
    write_pipeline(served.folder, "orders", "protect: [amount]\n")
    found = served.get("/v1/search")
    assert (found["hits"], found["behind"]) == ([], "The index misses what is new in orders.")
    indexer.look()
    assert (find(served, "text=x2"), len(find(served, "kind=row"))) == ([], 2)


def test_what_is_forgotten_is_not_in_the_file(tmp_path: Path) -> None:
    """Neither the text nor its words are left, and other entries are."""
    index = Index(tmp_path / "index.sqlite")
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
def test_a_lost_or_broken_index_is_made_again(served: Served, indexer: Indexer, spoil: Callable[[Path], None]) -> None:
    """Until then, the answer says that something is missing."""
    file = served.folder / ".wherry" / "server" / "index.sqlite"
    spoil(file)
    for ending in ("-wal", "-shm"):
        file.with_name(file.name + ending).unlink(missing_ok=True)
    found = served.get("/v1/search?text=bigint")
    assert found["behind"]
    for _ in range(2):
        indexer.look()
    assert sorted(find(served, "")) == ["batch orders", "row orders", "row orders", "run orders"]
    assert served.get("/v1/search")["behind"] == ""


def test_without_the_index_the_answer_says_so(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    """The look is logged once, and a run goes on."""
    file = served.folder / ".wherry" / "server" / "index.sqlite"
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
def test_an_index_of_another_version_is_not_used(served: Served, indexer: Indexer, version: int, found: int) -> None:
    """An older one is made again. A newer one stays, because a newer server may use it."""
    with sqlite3.connect(served.folder / ".wherry" / "server" / "index.sqlite") as tables:
        tables.execute(f"PRAGMA user_version = {version}")
    assert "cannot be used" in served.get("/v1/search")["behind"]
    for _ in range(2):
        indexer.look()
    assert len(find(served, "")) == found


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


def test_a_text_that_is_no_unicode_is_found_by_the_rest(tmp_path: Path) -> None:
    """A row may have half of a pair of surrogates."""
    index = Index(tmp_path / "index.sqlite")
    index.put([make_entry(1, text="half \ud800 a pair")])
    ((_, found),) = index.search(Wanted(pipelines=["orders"], text="half pair"))
    assert found["text"] == "half ? a pair"


def test_a_search_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    """So a caller cannot keep the server busy."""
    Index(tmp_path / "index.sqlite").put(make_entry(number) for number in range(2_000))
    with pytest.raises(sqlite3.Error):
        list_names(Index(tmp_path / "index.sqlite", longest=-1.0), limit=2_000)


def test_any_moment_can_be_searched_for(served: Served, tmp_path: Path) -> None:
    """So can a cursor that no answer had. What happened after 2038 is found."""
    index = Index(tmp_path / "index.sqlite")
    index.put([make_entry(0, at="2050-01-01T00:00:00+00:00"), make_entry(1, at="2199-01-01T00:00:00+00:00")])
    assert list_names(index) == ["p/1", "p/0"]
    for query in ("since=2150-01-01", "until=2150-01-01", f"cursor={'9' * 19}"):
        served.get(f"/v1/search?{query}")


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
