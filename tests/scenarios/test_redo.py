"""`redo` reads a file again that was edited in place."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import pytest

from origins.crash_points import watch_points
from runners.model.errors import Refusal
from runners.operations.redo import preview_redo
from runners.pipeline import Pipeline
from runners.running.compatibility import OperatorOverrides
from runners.running.replay import Replay
from tests.crash_injector import CrashInjector
from tests.scenarios.conftest import Place, make_order

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


def edit_file(place: Place, name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write new content to a file, with a later time."""
    file = place.folder / "landing" / name
    before = file.stat().st_mtime
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    os.utime(file, (before + 60, before + 60))


def land_two(place: Place) -> None:
    """Write two files. The first has a wrong row and a row that is refused."""
    place.land("1.json", [make_order(1), make_order(2), make_order(3, amount="x")])
    place.land("2.json", [make_order(4)])


def begin_redo(place: Place, text: str) -> Pipeline:
    """Return a pipeline that has read two files, the first of which was edited afterwards."""
    land_two(place)
    pipeline = place.load(text)
    pipeline.run()
    edit_file(place, "1.json", [make_order(20), make_order(3), make_order(30, amount="y")])
    assert [each.code for each in pipeline.audit().problems] == ["ORIGIN_CHANGED"]
    return pipeline


def list_waiting(pipeline: Pipeline) -> list[int]:
    """Return the ids of the rows in the DLQ that were neither replayed nor discarded."""
    return [row["row"]["id"] for row in pipeline.refused.list() if not (row["replayed"] or row["discarded"])]


@pytest.mark.connect
@pytest.mark.parametrize("text", [BY_PATH, BY_STAMP.replace("files: 2", "files: 1")])
def test_one_commit_removes_the_old_rows_and_adds_the_new_ones(place: Place, text: str) -> None:
    """The rows of other files stay, the audit finds no problem, and a second call does nothing. An emptied file removes
    its rows."""
    pipeline = begin_redo(place, text)
    before = place.commits("tables/orders")
    report = pipeline.redo("1.json")
    assert (report.read, report.nacked, place.ids("tables/orders")) == (3, 1, [3, 4, 20])
    assert report.notices == ("Discarded from the DLQ: 1 refused row of the old 1.json.",)
    assert place.commits("tables/orders") == before + 1
    assert (pipeline.audit().problems, pipeline.redo("1.json").batches) == ([], 0)
    assert pipeline.run().notices == ()
    edit_file(place, "1.json", [make_order(5)])
    pipeline.redo("1.json")
    assert (place.ids("tables/orders"), pipeline.audit().problems) == ([4, 5], [])
    edit_file(place, "1.json", [])
    pipeline.redo(str(place.folder / "landing" / "1.json"))
    assert (place.ids("tables/orders"), pipeline.audit().problems) == ([4], [])


@pytest.mark.parametrize(
    ("text", "point", "command"),
    [(BY_NAME, "after-prepared", "run"), (TWO, "after-write", "run"), (BY_NAME, "after-dlq", "redo")],
)
def test_a_redo_that_dies_is_finished_or_undone_by_the_next_run(
    place: Place, text: str, point: str, command: str
) -> None:
    """At each moment, the table has either the old rows or the new ones."""
    pipeline = begin_redo(place, text)
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
    assert list_waiting(pipeline) == [30]


def test_the_refused_rows_of_the_old_file_are_discarded(place: Place) -> None:
    """The refused rows of other files and of the new file still wait."""
    land_two(place)
    place.land("3.json", [make_order(5, amount="z")])
    pipeline = place.load(BY_NAME)
    pipeline.run()
    edit_file(place, "1.json", [make_order(1), make_order(30, amount="y")])
    found = preview_redo(pipeline, "1.json")
    assert (found.read, found.leaving, found.letters) == (2, {"orders": 2}, 1)
    pipeline.redo("1.json", reason="the shop sent it again")
    assert (sorted(list_waiting(pipeline)), place.ids("tables/orders")) == ([5, 30], [1, 4])
    assert pipeline.audit().problems == []


def test_a_redo_into_a_merge_replaces_rows_by_their_keys(place: Place) -> None:
    """The file was the last to arrive. A row that the file no longer has stays in the table."""
    place.land("1.json", [make_order(1), make_order(2)])
    pipeline = place.load(MERGED)
    pipeline.run()
    edit_file(place, "1.json", [make_order(2, amount="7.00")])
    pipeline.redo("1.json")
    assert {row["id"]: str(row["amount"]) for row in place.rows("tables/orders")} == {1: "1.50", 2: "7.00"}
    assert pipeline.audit().problems == []


def test_a_redo_is_refused_if_the_rows_of_the_file_cannot_be_identified(place: Place) -> None:
    """The error names the reason, and nothing changes. `validate` notes the reasons that do not depend on batches."""
    pipeline = begin_redo(place, BY_STAMP)
    before = place.ids("tables/orders")
    with pytest.raises(Refusal, match="had other files as well"):
        pipeline.redo("1.json")
    assert place.ids("tables/orders") == before


def test_a_file_that_no_batch_has_read_is_not_redone(place: Place) -> None:
    """The error suggests the most similar name. A file that is missing now is refused too."""
    pipeline = begin_redo(place, BY_NAME)
    with pytest.raises(Refusal, match=r"No batch has read a file 1\.jso\. Did you mean 1\.json\?"):
        pipeline.redo("1.jso")
    (place.folder / "landing" / "1.json").unlink()
    with pytest.raises(Refusal, match="is missing"):
        pipeline.redo("1.json")


def test_a_redo_fails_if_a_stage_changes_the_file_name(place: Place) -> None:
    """A later redo could not remove these rows, so nothing changes."""
    text = BY_NAME.replace("stages:", 'stages:\n  - with_columns: {file_name: "upper(file_name)"}')
    pipeline = begin_redo(place, text)
    assert pipeline.redo("1.json", check=False).status == "failed"
    assert place.ids("tables/orders") == [1, 2, 4]


def test_a_redo_removes_rows_that_a_replay_delivered(place: Place) -> None:
    """These rows have the name of the file too."""
    land_two(place)
    place.load(BY_NAME).run()
    mended = BY_NAME.replace("stages:", "stages:\n  - with_columns: {amount: \"replace(amount, 'x', '9')\"}")
    pipeline = place.load(mended)
    pipeline.replay(Replay(reason="x is 9"))
    assert place.ids("tables/orders") == [1, 2, 3, 4]
    edit_file(place, "1.json", [make_order(1)])
    pipeline.redo("1.json")
    assert (place.ids("tables/orders"), pipeline.audit().problems) == ([1, 4], [])


def test_a_redo_is_refused_if_rows_have_the_path_of_another_folder(place: Place) -> None:
    """They may be rows of the same file, from before its folder was moved."""
    pipeline = begin_redo(place, BY_PATH)
    table = f"delta.`{place.folder}/tables/orders`"
    place.spark.sql(f"UPDATE {table} SET file_path = '/elsewhere/landing/1.json' WHERE id = 1").collect()
    with pytest.raises(Refusal, match=r"has rows of /elsewhere/landing/1\.json"):
        pipeline.redo("1.json")
    assert place.ids("tables/orders") == [1, 2, 4]


def test_a_redo_removes_no_rows_of_another_pipeline(place: Place) -> None:
    """The other pipeline has read the same file into the same table, so the redo is refused."""
    land_two(place)
    place.load(BY_NAME).run()
    others = place.load(BY_NAME.replace("name: orders", "name: others", 1))
    others.run(ruling=OperatorOverrides(fresh=("orders",), reason="a second pipeline"))
    edit_file(place, "1.json", [make_order(20)])
    with pytest.raises(Refusal, match="has rows of the pipeline others too"):
        place.load(BY_NAME).redo("1.json")
    assert place.ids("tables/orders") == [1, 1, 2, 2, 4, 4]


def test_a_file_that_two_origins_read_is_not_redone(place: Place) -> None:
    """The redo would also remove the rows of the other origin."""
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
    edit_file(place, "1.json", [make_order(20)])
    with pytest.raises(Refusal, match="both read"):
        place.load(text).redo("landing/1.json")


def test_a_file_that_is_edited_during_an_open_redo_is_redone_after_a_run(place: Place) -> None:
    """Wherry knows the rows of the open redo only once it is settled."""
    pipeline = begin_redo(place, BY_STAMP.replace("files: 2", "files: 1"))
    with watch_points(CrashInjector("after-write", end=None)):
        assert pipeline.redo("1.json", check=False).status == "failed"
    edit_file(place, "1.json", [make_order(50)])
    with pytest.raises(Refusal, match="A redo that began earlier is not finished"):
        pipeline.redo("1.json")
    pipeline.run()
    pipeline.redo("1.json")
    assert (place.ids("tables/orders"), pipeline.audit().problems) == ([4, 50], [])
