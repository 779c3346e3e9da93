"""Runs whose state and files are in an object store end at any point, or lose the store for a while."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Literal

import pytest

from origins.crash_points import watch_points
from origins.object_store import open_bucket
from origins.store_access import StoreUrl
from runners.model.events import BatchPlanned, BatchSettled, Event
from runners.pipeline import Pipeline
from tests.crash_injector import CrashInjector
from tests.scenarios.test_store_files import put_files, read_ids
from tests.stores.fault_proxy import Fault
from tests.stores.s3 import S3

pytestmark = pytest.mark.usefixtures("no_spark")

TEXT = """
name: orders
origin:
  files: {path: "PATH", format: json, schema: "id long, email string, amount double", after: delete}
destinations:
  - delta: {path: tables/orders}
run: {batch: {files: 1}, runners: 1, retry: {wait: 100ms, most: 1s}}
"""


@pytest.fixture
def pipeline(tmp_path: Path, s3: S3) -> Pipeline:
    """Provide a pipeline that has delivered its first batch. Its state is created in a folder, and then copied to the
    store."""
    text = TEXT.replace("PATH", s3.make_url("landing/*.json", "s3"))
    spark = f"spark: {json.dumps({'conf': s3.spark_settings})}\n"
    file = tmp_path / "pipeline.yaml"
    file.write_text(text + spark)
    put_files(s3, 1)
    Pipeline.load(file).run()
    state, store = tmp_path / ".wherry/orders", open_bucket(StoreUrl(s3.make_url("wherry/orders"), s3.spark_settings))
    for each in (each for each in state.rglob("*") if each.is_file()):
        store.put_new(f"wherry/orders/{each.relative_to(state)}", each.read_bytes())
    file.write_text(f"{text}{spark}state: {s3.make_url('wherry/orders', 's3')}\n")
    put_files(s3, 2, 3)
    return Pipeline.load(file)


@pytest.mark.parametrize("point", ["after-plan", "in-write", "before-settle"])
@pytest.mark.promise("CD-22", "CD-27")
def test_a_run_continues_from_the_state_in_the_store_after_a_crash_at_any_point(
    tmp_path: Path, pipeline: Pipeline, point: str
) -> None:
    """Each row is delivered once, no batch is open, and the audit finds no problem."""
    crash = CrashInjector(point, end=None)
    with watch_points(crash):
        ended = pipeline.run(check=False, listeners=[crash.note_event])
    assert (crash.happened, ended.status) == (True, "failed")
    report = pipeline.run()
    assert (report.status, report.left_open, read_ids(tmp_path)) == ("succeeded", 0, [1, 2, 3])
    assert pipeline.audit().json()["problems"] == []


Meanwhile = Literal["reset", "slow_down", "refused"]


class Outage:
    """A listener that makes the store unavailable for some seconds at the first event of a kind. The store resets every
    connection, answers 503, or does not listen."""

    def __init__(self, s3: S3, kind: type[Event], seconds: float, meanwhile: Meanwhile = "reset") -> None:
        self.s3, self.kind, self.seconds, self.meanwhile = s3, kind, seconds, meanwhile
        self.happened = False

    def note_event(self, event: Event) -> None:
        """Start the outage at the first event of the kind."""
        if not isinstance(event, self.kind) or self.happened:
            return
        self.happened = True
        if self.meanwhile == "refused":
            self.s3.proxy.shut()
            threading.Timer(self.seconds, self.s3.proxy.come_back).start()
        else:
            self.s3.proxy.go_away(self.seconds, self.meanwhile)


@pytest.mark.promise("CD-27")
def test_a_run_survives_a_short_outage_of_its_store(tmp_path: Path, pipeline: Pipeline, s3: S3) -> None:
    """Every connection is reset for two seconds. The run tries again, and then delivers the rest."""
    outage = Outage(s3, BatchPlanned, 2.0)
    report = pipeline.run(listeners=[outage.note_event])
    assert (outage.happened, report.status, read_ids(tmp_path)) == (True, "succeeded", [1, 2, 3])
    assert pipeline.audit().json()["problems"] == []


@pytest.mark.long
@pytest.mark.parametrize(("kind", "meanwhile"), [(BatchPlanned, "slow_down"), (BatchSettled, "refused")])
@pytest.mark.promise("CD-27")
def test_a_run_survives_an_outage_of_its_store_for_a_minute(
    tmp_path: Path, pipeline: Pipeline, s3: S3, kind: type[Event], meanwhile: Meanwhile
) -> None:
    """The run has the default of `retry`. Its state, its files and its DLQ are in that store."""
    file = tmp_path / "pipeline.yaml"
    file.write_text(file.read_text().replace(", retry: {wait: 100ms, most: 1s}", ""))
    outage = Outage(s3, kind, 60.0, meanwhile)
    report = Pipeline.load(file).run(check=False, listeners=[outage.note_event])
    assert (outage.happened, report.status, report.error, read_ids(tmp_path)) == (True, "succeeded", None, [1, 2, 3])
    assert report.seconds > 60
    assert pipeline.audit().json()["problems"] == []


@pytest.mark.long
@pytest.mark.promise("CD-27")
def test_a_store_that_stays_unavailable_ends_the_run_and_loses_nothing(
    tmp_path: Path, pipeline: Pipeline, s3: S3
) -> None:
    """The error reports that the store does not answer. Once the store is back, the next run delivers the rest."""
    outage = Outage(s3, BatchSettled, float("inf"))
    report = pipeline.run(check=False, listeners=[outage.note_event])
    assert (report.status, "does not answer" in str(report.error)) == ("failed", True), report.error
    s3.proxy.come_back()
    assert (pipeline.run().status, read_ids(tmp_path)) == ("succeeded", [1, 2, 3])
    assert pipeline.audit().json()["problems"] == []


def test_a_store_that_refuses_to_list_its_files_is_reported_and_no_row_is_lost(
    tmp_path: Path, pipeline: Pipeline, s3: S3
) -> None:
    """Once the store permits it again, each file is read once."""
    s3.proxy.add(Fault("forbid", "LIST", "landing", times=None))
    report = pipeline.run(check=False)
    assert (report.status, "no right to do that" in str(report.error)) == ("failed", True), report.error
    s3.proxy.clear()
    assert (pipeline.run().status, read_ids(tmp_path)) == ("succeeded", [1, 2, 3])
