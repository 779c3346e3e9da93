"""The state, the files and the table of runs are in HDFS. Small runs need no Spark, as in an object store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable

from origins.crash_points import watch_points
from origins.object_store import open_store
from runners.crashes.crash_trial import CrashInjector
from runners.definitions.definition import DefinitionError
from runners.model.errors import Owned
from runners.model.events import BatchPlanned, Event
from runners.pipeline import Pipeline
from tests.stores.hdfs import Hdfs

pytestmark = pytest.mark.usefixtures("no_spark")

TEXT = """
name: orders
origin:
  files: {path: "FOLDER/landing/*.json", format: json, schema: "id long, email string, amount double", after: delete}
destinations:
  - delta: {path: "FOLDER/tables/orders"}
state: FOLDER/wherry/orders
run: {batch: {files: 1}, runners: 1, retry: {wait: 100ms, most: 1s}}
"""


def load_pipeline(folder: Path, hdfs: Hdfs) -> Pipeline:
    """Load the pipeline, with all of its paths in HDFS."""
    file = folder / "pipeline.yaml"
    file.write_text(TEXT.replace("FOLDER", hdfs.make_url().rstrip("/")))
    return Pipeline.load(file)


def put_file(hdfs: Hdfs, *numbers: int) -> None:
    """Write a file of one row for each number."""
    for number in numbers:
        row = {"id": number, "email": f"a{number}@x.com", "amount": number / 2}
        open_store(hdfs.make_url("landing")).put_new(f"{number}.json", json.dumps(row).encode())


def list_ids(hdfs: Hdfs) -> list[int]:
    """Return the sorted ids of the table."""
    ids: list[int] = DeltaTable(hdfs.make_url("tables/orders")).to_pyarrow_table()["id"].to_pylist()
    return sorted(ids)


def test_a_run_from_hdfs_to_hdfs_starts_no_spark(tmp_path: Path, hdfs: Hdfs) -> None:
    """The run deletes the files that it has delivered, and the audit finds no problem."""
    put_file(hdfs, 1, 2)
    report = load_pipeline(tmp_path, hdfs).run()
    assert (report.status, report.read, report.balanced) == ("succeeded", 2, True)
    assert list_ids(hdfs) == [1, 2]
    assert [*open_store(hdfs.make_url("landing")).list_pages()] == []
    assert load_pipeline(tmp_path, hdfs).audit().json()["problems"] == []


@pytest.mark.parametrize(
    "point",
    [
        "after-write",
        *(pytest.param(each, marks=pytest.mark.variant) for each in ("after-plan", "in-write", "before-settle")),
    ],
)
def test_a_run_continues_from_the_state_in_hdfs_after_a_crash_at_any_point(
    tmp_path: Path, hdfs: Hdfs, point: str
) -> None:
    """Each row is delivered once, no batch is open, and the audit finds no problem."""
    put_file(hdfs, 1)
    load_pipeline(tmp_path, hdfs).run()
    put_file(hdfs, 2, 3)
    crash = CrashInjector(point, end=None)
    with watch_points(crash):
        ended = load_pipeline(tmp_path, hdfs).run(check=False, listeners=[crash.note_event])
    assert (crash.happened, ended.status) == (True, "failed")
    report = load_pipeline(tmp_path, hdfs).run()
    assert (report.status, report.left_open, list_ids(hdfs)) == ("succeeded", 0, [1, 2, 3])
    assert load_pipeline(tmp_path, hdfs).audit().json()["problems"] == []


def test_only_one_of_two_simultaneous_runs_owns_the_pipeline(tmp_path: Path, hdfs: Hdfs) -> None:
    """The other run is refused, and each row is delivered once."""
    put_file(hdfs, 1)
    pipeline = load_pipeline(tmp_path, hdfs)
    pipeline.run()
    put_file(hdfs, 2, 3, 4)

    class Second:
        """Another run that starts when the first one has planned a batch."""

        refused = False

        def note_event(self, event: Event) -> None:
            if isinstance(event, BatchPlanned) and not self.refused:
                with pytest.raises(Owned):
                    load_pipeline(tmp_path, hdfs).run()
                self.refused = True

    second = Second()
    pipeline.run(listeners=[second.note_event])
    assert second.refused
    assert list_ids(hdfs) == [1, 2, 3, 4]


def test_a_state_in_hdfs_without_its_library_is_refused_with_the_package_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the extra of the package."""
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        TEXT.replace("state: FOLDER", "state: hdfs://node").replace("FOLDER", "here").replace("delete", "keep")
    )
    monkeypatch.setattr("origins.store_access._can_reach_hdfs", lambda: False)
    with pytest.raises(DefinitionError, match=r'pip install "wherry\[hdfs\]"'):
        Pipeline.load(file)
