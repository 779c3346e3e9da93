"""From one Delta table to another: what is added is carried, once."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from runners.errors import PipelineFailed
from tests.scenarios.conftest import Place

pytestmark = [pytest.mark.spark, pytest.mark.connect]
COPY = """
name: orders
origin:
  delta: {path: in, starting_version: latest}
stages:
  - require: {small: "id < 100"}
destinations:
  - delta: {path: tables/copy}
dlq: {window: 1000, threshold: 500}
"""


def append(place: Place, *ids: int) -> None:
    """A version more."""
    write_deltalake(str(place.folder / "in"), pa.table({"id": list(ids)}), mode="append")


@pytest.mark.promise("SS-11", "SS-23")
def test_what_is_added_after_the_first_run_is_carried_once(place: Place) -> None:
    """Though nothing was there to carry at first; refused rows have their place, and a change stops the run."""
    append(place, 1)
    assert place.load(COPY).run().read == 0
    append(place, 2)
    append(place, 3, 300)
    report = place.load().run()
    assert (report.read, report.nacked, report.balanced) == (3, 1, True)
    assert [row["position"] for row in place.refused()] == [3]
    assert place.load().run().batches == 0
    append(place, 4)
    DeltaTable(str(place.folder / "in")).delete("id = 1")
    with pytest.raises(PipelineFailed, match="changed or took away rows that were there before"):
        place.load().run()
    assert place.ids("tables/copy") == [2, 3]
