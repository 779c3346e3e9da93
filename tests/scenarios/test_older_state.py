"""A state of the first version of this repository, with an open batch, is opened and continued."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from runners.model.entry import FORMAT
from runners.pipeline import Pipeline
from runners.state.delta_ledger import DeltaLedger
from runners.state.journal import Journal, list_settled_ever
from tests.scenarios.conftest import Place, make_order

OLDER = Path(__file__).with_name("older_state.tar.gz")
"""The state of commit c8b1908. It delivered four batches, three of which are compacted, and planned a fifth. Then its
process died."""
ORDERS = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, schema: "id long, email string, amount string"}
stages:
  - cast: {amount: "decimal(10,2)"}
  - filter: "email is not null"
destinations:
  - delta: {path: tables/orders}
dlq: {window: 1000, threshold: 500}
run: {batch: {files: 1}}
"""


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """Unpack the folder."""
    with tarfile.open(OLDER) as packed:
        packed.extractall(tmp_path, filter="data")
    return tmp_path


def test_an_older_ledger_is_read_in_the_present_format(older: Path) -> None:
    """It has all settled batches and the open one."""
    journal = Journal(DeltaLedger(older / ".wherry/orders/ledger"))
    assert {entry.format for entry in journal.tail} == {FORMAT}
    assert sorted(each.number for each in list_settled_ever(journal)) == [1, 2, 3, 4]
    assert {each.counts.way for each in list_settled_ever(journal)} == {""}
    assert [plan.batch.number for plan in journal.state.open_plans] == [5]
    assert list(journal.state.opened.origins) == ["files"]


def test_the_batches_of_an_older_version_are_proved(older: Path) -> None:
    """Its tables prove them. The open batch is only reported."""
    (older / "pipeline.yaml").write_text(ORDERS)
    for file in (older / "landing").iterdir():
        os.utime(file, (1_700_000_000 + int(file.stem),) * 2)
    found = Pipeline.load(older / "pipeline.yaml").audit()
    assert (found.problems, found.read, found.nacked, found.filtered) == ([], 7, 1, 1)
    assert (found.destinations["orders"].delivered, [each["number"] for each in found.open]) == (5, [5])


@pytest.mark.spark
def test_a_run_continues_where_an_older_version_died(older: Path, place: Place) -> None:
    """No row is lost or doubled, and the audit also proves the older batches. Wherry sees that state and tables were
    moved together, although full paths were recorded."""
    place.define(ORDERS)
    for file in (older / "landing").iterdir():
        os.utime(file, (1_700_000_000 + int(file.stem),) * 2)
    place.land("6.json", [make_order(9)])
    os.utime(older / "landing/6.json", (1_700_000_006,) * 2)
    report = place.load().run()
    assert (report.status, place.ids("tables/orders")) == ("succeeded", [1, 2, 3, 6, 7, 8, 9])
    assert [row["original"]["id"] for row in place.load().refused.list()] == [4]
    found = place.load().audit()
    assert (found.problems, found.read, found.nacked) == ([], 9, 1)
    assert found.destinations["orders"].proved_from == {"0": 1}
