"""Reading a file again that was edited in place."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import pytest

from origins.crash_points import watch_points
from runners.crashes.crash_trial import CrashInjector
from runners.model.errors import Refusal
from runners.operations.offsets import carry_out, plan_reset
from runners.operations.redo import preview_redo
from runners.pipeline import Pipeline
from runners.running.replay import Replay
from tests.scenarios.conftest import Place, order

pytestmark = [pytest.mark.spark]

BY_NAME = """
name: orders
origin:
  files:
    path: "landing/*.json"
    format: json
    schema: "id long, email string, amount string"
    metadata: [file_name]
stages:
  - cast: {amount: "decimal(10,2)"}
destinations:
  - delta: {path: tables/orders}
dlq: {window: 0}
run: {batch: {files: 2}}
"""
BY_STAMP = BY_NAME.replace("    metadata: [file_name]\n", "").replace("orders}", "orders, stamp: _batch}")
BY_PATH = BY_NAME.replace("file_name", "file_path")
MERGED = BY_STAMP.replace("stamp: _batch", "mode: merge, keys: [id]")
TWO = BY_NAME.replace("dlq:", "  - delta: {path: tables/other}\ndlq:")
POINTS = (
    *("before-plan", "after-plan", "after-prepare", "before-prepared", "after-prepared", "before-write", "in-write"),
    *("after-write", "before-dlq", "after-dlq", "before-settle", "after-settle"),
)


def edit(place: Place, name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write a file anew under its old name."""
    file = place.folder / "landing" / name
    before = file.stat().st_mtime
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    os.utime(file, (before + 60, before + 60))


def land_two(place: Place) -> None:
    """Two files, the first of which has a wrong row and one that is refused."""
    place.land("1.json", [order(1), order(2), order(3, amount="x")])
    place.land("2.json", [order(4)])


def begin(place: Place, text: str) -> Pipeline:
    """A pipeline that has read two files, the first of which was edited then."""
    land_two(place)
    pipeline = place.load(text)
    pipeline.run()
    edit(place, "1.json", [order(20), order(3), order(30, amount="y")])
    assert [each.code for each in pipeline.audit().problems] == ["ORIGIN_CHANGED"]
    return pipeline


def waiting(pipeline: Pipeline) -> list[int]:
    """The rows of the DLQ that nobody decided on, by their ids."""
    return [row["row"]["id"] for row in pipeline.dead_letters() if not (row["replayed"] or row["discarded"])]


@pytest.mark.connect
@pytest.mark.parametrize("text", [BY_NAME, BY_PATH, BY_STAMP.replace("files: 2", "files: 1")])
def test_the_old_rows_leave_in_the_commit_that_brings_the_new_ones(place: Place, text: str) -> None:
    """The rows of other files stay, the audit is quiet, and a second call does nothing."""
    pipeline = begin(place, text)
    before = place.commits("tables/orders")
    report = pipeline.redo("1.json")
    assert (report.read, report.nacked, place.ids("tables/orders")) == (3, 1, [3, 4, 20])
    assert report.notices == ("Discarded from the DLQ: 1 refused row of the old 1.json.",)
    assert place.commits("tables/orders") == before + 1
    assert (pipeline.audit().problems, pipeline.redo("1.json").batches) == ([], 0)
    assert pipeline.run().notices == ()
    edit(place, "1.json", [order(5)])
    pipeline.redo("1.json")
    assert (place.ids("tables/orders"), pipeline.audit().problems) == ([4, 5], [])


@pytest.mark.parametrize(("text", "command"), [(BY_NAME, "run"), (BY_NAME, "redo"), (TWO, "run")])
@pytest.mark.parametrize("point", POINTS)
def test_a_redo_that_dies_is_finished_or_undone_by_the_next_run(
    place: Place, text: str, point: str, command: str
) -> None:
    """At each moment the table has the old rows or the new ones, and never both."""
    pipeline = begin(place, text)
    crash = CrashInjector(point, end=None)
    with watch_points(crash):
        assert pipeline.redo("1.json", check=False).status == "failed"
    assert crash.happened
    assert place.ids("tables/orders") in ([1, 2, 4], [3, 4, 20])
    if command == "run":
        pipeline.run()
        assert place.ids("tables/orders") in ([1, 2, 4], [3, 4, 20])
    pipeline.redo("1.json")
    assert (place.ids("tables/orders"), pipeline.audit().problems) == ([3, 4, 20], [])
    assert waiting(pipeline) == [30]


def test_the_refused_rows_of_the_old_file_are_discarded(place: Place) -> None:
    """Those of other files, and those that the new file leaves, wait."""
    land_two(place)
    place.land("3.json", [order(5, amount="z")])
    pipeline = place.load(BY_NAME)
    pipeline.run()
    edit(place, "1.json", [order(1), order(30, amount="y")])
    found = preview_redo(pipeline, "1.json")
    assert (found.read, found.leaving, found.letters) == (2, {"orders": 2}, 1)
    pipeline.redo("1.json", reason="the shop sent it again")
    assert (sorted(waiting(pipeline)), place.ids("tables/orders")) == ([5, 30], [1, 4])
    assert pipeline.audit().problems == []


@pytest.mark.variant
def test_an_old_row_that_a_replay_refused_again_is_discarded(place: Place) -> None:
    """Also if the batch of its file had other files as well; so no replay brings old rows beside the new ones."""
    place.land("1.json", [order(1), order(3, amount="x")])
    place.land("2.json", [order(4), order(5, amount="z")])
    pipeline = place.load(BY_NAME)
    pipeline.run()
    for _ in range(2):
        pipeline.replay(Replay(reason="try again"))
    edit(place, "1.json", [order(1), order(3)])
    assert preview_redo(pipeline, "1.json").notices == [
        "1 refused row of the old 1.json waits in the DLQ. The redo discards it."
    ]
    assert "Discarded from the DLQ: 1 refused row of the old 1.json." in pipeline.redo("1.json").notices
    assert waiting(pipeline) == [5]
    pipeline.replay(Replay(reason="all that waits"))
    assert (waiting(pipeline), place.ids("tables/orders"), pipeline.audit().problems) == ([5], [1, 3, 4], [])


def test_a_file_that_is_empty_now_takes_its_rows_away(place: Place) -> None:
    """The table is written though nothing comes."""
    pipeline = begin(place, BY_NAME)
    edit(place, "1.json", [])
    pipeline.redo(str(place.folder / "landing" / "1.json"))
    assert (place.ids("tables/orders"), pipeline.audit().problems) == ([4], [])


def test_a_merge_takes_the_new_rows_by_their_keys(place: Place) -> None:
    """The file was the last that came; a row that it lacks stays."""
    place.land("1.json", [order(1), order(2)])
    pipeline = place.load(MERGED)
    pipeline.run()
    edit(place, "1.json", [order(2, amount="7.00")])
    pipeline.redo("1.json")
    assert {row["id"]: str(row["amount"]) for row in place.rows("tables/orders")} == {1: "1.50", 2: "7.00"}
    assert pipeline.audit().problems == []


def test_a_file_that_is_read_again_from_the_beginning_is_redone_no_more(place: Place) -> None:
    """What a rewind forgets, a redo does not keep."""
    pipeline = begin(place, BY_NAME)
    pipeline.redo("1.json")
    carry_out(pipeline, plan_reset(pipeline), reason="all again")
    assert pipeline.run().read == 4
    assert place.ids("tables/orders") == [3, 3, 4, 4, 20, 20]


REFUSED = {
    BY_STAMP: "had other files as well",
    BY_STAMP.replace(", stamp: _batch", ""): "has no column that says from which file a row came",
    MERGED.replace("files: 2", "files: 1"): "keeps the row that arrives last",
    BY_NAME.replace("{path: tables/orders}", "{path: tables/orders, mode: replace}"): "is replaced by each run",
    BY_NAME.replace("dlq:", "  - files: {path: out}\ndlq:"): "is not a Delta table",
    BY_NAME.replace("stages:", "stages:\n  - drop: [file_name]"): "has no column that says",
}


@pytest.mark.parametrize("text", REFUSED)
def test_it_is_refused_in_words_where_the_rows_cannot_be_told(place: Place, text: str) -> None:
    """And nothing is changed."""
    pipeline = begin(place, text)
    before = place.ids("tables/orders")
    with pytest.raises(Refusal, match=REFUSED[text]):
        pipeline.redo("1.json")
    assert place.ids("tables/orders") == before


def test_a_file_that_no_batch_has_read_is_not_redone(place: Place) -> None:
    """The nearest name is offered."""
    pipeline = begin(place, BY_NAME)
    with pytest.raises(Refusal, match=r"No batch has read a file 1\.jso\. Did you mean 1\.json\?"):
        pipeline.redo("1.jso")
    (place.folder / "landing" / "1.json").unlink()
    with pytest.raises(Refusal, match="is missing"):
        pipeline.redo("1.json")


def test_rows_whose_file_name_a_stage_changes_do_not_come(place: Place) -> None:
    """The table would not let them go again, so nothing is changed."""
    text = BY_NAME.replace("stages:", 'stages:\n  - with_columns: {file_name: "upper(file_name)"}')
    pipeline = begin(place, text)
    assert pipeline.redo("1.json", check=False).status == "failed"
    assert place.ids("tables/orders") == [1, 2, 4]


def test_rows_that_a_replay_brought_leave_with_the_file(place: Place) -> None:
    """They have its name as well."""
    land_two(place)
    place.load(BY_NAME).run()
    mended = BY_NAME.replace("stages:", "stages:\n  - with_columns: {amount: \"replace(amount, 'x', '9')\"}")
    pipeline = place.load(mended)
    pipeline.replay(Replay(reason="x is 9"))
    assert place.ids("tables/orders") == [1, 2, 3, 4]
    edit(place, "1.json", [order(1)])
    pipeline.redo("1.json")
    assert (place.ids("tables/orders"), pipeline.audit().problems) == ([1, 4], [])


def test_rows_from_before_the_column_are_not_doubled(place: Place) -> None:
    """They have NULL where the name of their file would be, so nothing is changed."""
    land_two(place)
    place.load(BY_NAME.replace("    metadata: [file_name]\n", "")).run()
    place.spark.sql(f"ALTER TABLE delta.`{place.folder}/tables/orders` ADD COLUMNS (file_name STRING)").collect()
    edit(place, "1.json", [order(20)])
    with pytest.raises(Refusal, match="has rows with NULL in file_name"):
        place.load(BY_NAME).redo("1.json")
    assert place.ids("tables/orders") == [1, 2, 4]


def test_rows_with_the_path_of_another_folder_are_not_doubled(place: Place) -> None:
    """They may be rows of the same file, from before its folder was moved."""
    pipeline = begin(place, BY_PATH)
    table = f"delta.`{place.folder}/tables/orders`"
    place.spark.sql(f"UPDATE {table} SET file_path = '/elsewhere/landing/1.json' WHERE id = 1").collect()
    with pytest.raises(Refusal, match=r"has rows of /elsewhere/landing/1\.json"):
        pipeline.redo("1.json")
    assert place.ids("tables/orders") == [1, 2, 4]


@pytest.mark.parametrize("text", [BY_NAME, BY_PATH])
def test_rows_of_another_pipeline_do_not_leave(place: Place, text: str) -> None:
    """It read the same file into the same table."""
    land_two(place)
    place.load(text).run()
    place.load(text.replace("name: orders", "name: others", 1)).run()
    edit(place, "1.json", [order(20)])
    with pytest.raises(Refusal, match="has rows of the pipeline others too"):
        place.load(text).redo("1.json")
    assert place.ids("tables/orders") == [1, 1, 2, 2, 4, 4]


def test_a_file_that_two_origins_read_is_not_redone(place: Place) -> None:
    """The rows of one origin would leave with those of the other."""
    land_two(place)
    origin = '{path: "%s/*.json", format: json, schema: "id long, email string, amount string", metadata: [file_path]}'
    text = "\n".join(
        [
            "name: orders",
            "origins:",
            f"  - {{name: one, files: {origin % 'landing'}}}",
            f"  - {{name: two, files: {origin % '*'}}}",
            "destinations: [delta: {path: tables/orders}]",
        ]
    )
    place.load(text).run()
    edit(place, "1.json", [order(20)])
    with pytest.raises(Refusal, match="both read"):
        place.load(text).redo("landing/1.json")


def test_a_file_that_is_edited_while_its_redo_is_open_is_redone_after_a_run(place: Place) -> None:
    """What the open redo brings is known only once it is settled."""
    pipeline = begin(place, BY_STAMP.replace("files: 2", "files: 1"))
    with watch_points(CrashInjector("after-write", end=None)):
        assert pipeline.redo("1.json", check=False).status == "failed"
    edit(place, "1.json", [order(50)])
    with pytest.raises(Refusal, match="A redo that began earlier is not finished"):
        pipeline.redo("1.json")
    pipeline.run()
    pipeline.redo("1.json")
    assert (place.ids("tables/orders"), pipeline.audit().problems) == ([4, 50], [])
