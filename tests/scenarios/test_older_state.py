"""A state that the first version of this repository left, with a batch open, is opened and gone on from."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from runners.model.entry import FORMAT
from runners.pipeline import Pipeline
from runners.state.delta_ledger import DeltaLedger
from runners.state.journal import Journal, list_settled_ever
from tests.scenarios.conftest import Place, order

OLDER = Path(__file__).with_name("older_state.tar.gz")
"""Four batches carried and a fifth planned by commit c8b1908, whose process then died; three were put together."""
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
    """The folder as it was left."""
    with tarfile.open(OLDER) as packed:
        packed.extractall(tmp_path, filter="data")
    return tmp_path


def test_an_older_ledger_is_read_as_if_it_were_ours(older: Path) -> None:
    """In the format of today, with all batches that it settled and the one that it left open."""
    journal = Journal(DeltaLedger(older / ".wherry/orders/ledger"))
    assert {entry.format for entry in journal.tail} == {FORMAT}
    assert sorted(each.number for each in list_settled_ever(journal)) == [1, 2, 3, 4]
    assert {each.counts.get("way") for each in list_settled_ever(journal)} == {None}
    assert [plan.batch.number for plan in journal.state.open_plans] == [5]
    assert list(journal.state.opened["origins"]) == ["files"]


def test_what_an_older_version_carried_is_proved(older: Path) -> None:
    """By the tables that it left; the open batch is only said."""
    (older / "pipeline.yaml").write_text(ORDERS)
    for file in (older / "landing").iterdir():
        os.utime(file, (1_700_000_000 + int(file.stem),) * 2)
    found = Pipeline.load(older / "pipeline.yaml").audit()
    assert (found.problems, found.read, found.nacked, found.filtered) == ([], 7, 1, 1)
    assert (found.destinations["orders"].delivered, [each["number"] for each in found.open]) == (5, [5])


@pytest.mark.spark
def test_a_run_goes_on_where_the_older_one_died(older: Path, place: Place) -> None:
    """Nothing is lost or twice, its refused row is there, and the audit proves all of it, the older batches too. That
    state and tables were moved together is seen, though their paths were recorded whole."""
    place.define(ORDERS)
    for file in (older / "landing").iterdir():
        os.utime(file, (1_700_000_000 + int(file.stem),) * 2)
    place.land("6.json", [order(9)])
    os.utime(older / "landing/6.json", (1_700_000_006,) * 2)
    report = place.load().run()
    assert (report.status, place.ids("tables/orders")) == ("succeeded", [1, 2, 3, 6, 7, 8, 9])
    assert [row["original"]["id"] for row in place.load().dead_letters()] == [4]
    found = place.load().audit()
    assert (found.problems, found.read, found.nacked) == ([], 9, 1)
    assert found.destinations["orders"].proved_from == {"0": 1}
