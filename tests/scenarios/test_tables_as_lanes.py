"""One origin can read several Delta tables. Each is a lane with separate columns and a separate destination."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import write_deltalake

from runners.command_line.commands import wherry
from runners.model.run_report import PipelineFailed
from runners.running.compatibility import OperatorOverrides
from runners.running.replay import Replay
from tests.scenarios.conftest import Place

pytestmark = [pytest.mark.spark, pytest.mark.connect]
MIRROR = """
name: orders
origin:
  delta: {paths: [raw/sales, raw/people]}
destinations:
  - delta: {path: "bronze/{lane}", stamp: _batch}
dlq: {window: 1000, threshold: 500}
"""
CHECKED = MIRROR.replace("destinations:", 'stages:\n  - require: {small: "id < 100"}\ndestinations:')


def append_version(place: Place, table: str, rows: Sequence[dict[str, Any]]) -> None:
    """Append a version to a table."""
    write_deltalake(str(place.folder / "raw" / table), pa.Table.from_pylist(rows), mode="append")


@pytest.fixture
def raw(place: Place) -> Place:
    """Provide two tables whose only common column is `id`."""
    append_version(place, "sales", [{"id": 1, "amount": 1.5}, {"id": 2, "amount": 2.5}])
    append_version(place, "people", [{"id": 7, "name": "Ada"}])
    return place


def test_each_table_has_a_separate_destination_and_separate_counts(raw: Place) -> None:
    """This covers existing and later rows. The audit proves both."""
    report = raw.load(MIRROR).run()
    assert {name: each.delivered for name, each in report.destinations.items()} == {"sales": 2, "people": 1}
    append_version(raw, "people", [{"id": 8, "name": "Grace"}])
    report = raw.load().run()
    assert (report.read, report.delivered, report.balanced) == (1, {"sales": 0, "people": 1}, True)
    assert {name: each.read for name, each in report.destinations.items()} == {"sales": 0, "people": 1}
    assert sorted((row["id"], row["amount"], row["_batch"]) for row in raw.rows("bronze/sales")) == [
        (1, 1.5, "sales/1"),
        (2, 2.5, "sales/1"),
    ]
    assert sorted((row["id"], row["name"], row["_batch"]) for row in raw.rows("bronze/people")) == [
        (7, "Ada", "people/1"),
        (8, "Grace", "people/2"),
    ]
    found = raw.load().audit()
    assert (found.balanced, list(found.problems)) == (True, [])
    assert list(raw.load().offsets.read().lanes) == ["sales", "people"]


def test_refused_rows_are_replayed_to_their_table(raw: Place) -> None:
    """They reach no other table."""
    append_version(raw, "people", [{"id": 300, "name": "Bob"}])
    raw.load(CHECKED).run()
    assert [(row["lane"], row["position"]) for row in raw.refused()] == [("people", 2)]
    raw.load(CHECKED.replace("< 100", "< 1000")).replay(Replay(reason="mended"))
    assert (raw.ids("bronze/people"), raw.ids("bronze/sales")) == ([7, 300], [1, 2])


def test_an_added_table_is_read_from_its_beginning(raw: Place) -> None:
    """A table in the place of another one is refused until the user confirms it."""
    raw.load(MIRROR).run()
    append_version(raw, "shops", [{"id": 5, "city": "Köln"}])
    report = raw.load(MIRROR.replace("raw/people]", "raw/people, raw/shops]")).run()
    assert (report.delivered["shops"], raw.ids("bronze/shops")) == (1, [5])
    append_version(raw, "staff", [{"id": 6, "city": "Ulm"}])
    swapped = raw.load(MIRROR.replace("raw/people]", "raw/people, raw/staff]"))
    with pytest.raises(PipelineFailed, match="shops is gone and staff is new"):
        swapped.run()
    assert swapped.run(ruling=OperatorOverrides(fresh=("staff",), reason="a new one")).delivered["staff"] == 1


def test_tables_of_several_origins_have_the_origins_name_as_a_prefix(raw: Place) -> None:
    """Each origin may have a table of that name. A common destination gets the rows of all of them."""
    append_version(raw, "crm/people", [{"id": 9, "name": "Eve"}])
    origins = "origins:\n  - delta: {paths: [raw/people]}\n    name: shop\n  - delta: {paths: [raw/crm/people]}\n"
    definition = MIRROR.replace("origin:\n  delta: {paths: [raw/sales, raw/people]}\n", origins + "    name: crm\n")
    both = definition.replace("dlq:", "  - delta: {path: all}\ndlq:")
    report = raw.load(both).run()
    assert report.delivered == {"shop_people": 1, "crm_people": 1, "all": 2}
    assert (raw.ids("bronze/crm_people"), raw.ids("all")) == ([9], [7, 9])
    assert raw.load().audit().balanced is True


def test_validate_shows_where_each_table_goes(raw: Place) -> None:
    """It names the tables that a run will create."""
    said = CliRunner().invoke(wherry, ["validate", str(raw.define(MIRROR)), "--json"])
    told = json.loads(said.stdout)
    assert [each["name"] for each in told["origins"]] == ["sales", "people"]
    assert [each["place"] for each in told["destinations"]] == [
        str(raw.folder / "bronze" / name) for name in ("sales", "people")
    ]
    assert told["way"] == "straight"


def test_tables_of_a_catalog_go_to_tables_of_a_catalog(place: Place) -> None:
    """Each keeps its name, in the given schema."""
    raw, bronze = (f"{name}_{place.folder.name.replace('-', '_')}" for name in ("raw", "bronze"))
    for schema in (raw, bronze):
        place.spark.sql(f"CREATE SCHEMA {schema} LOCATION '{place.folder}/{schema}'")
    place.spark.sql(f"CREATE TABLE {raw}.sales USING delta AS SELECT 1L as id, 1.5D as amount").collect()
    place.spark.sql(f"CREATE TABLE {raw}.people USING delta AS SELECT 7L as id, 'Ada' as name").collect()
    names = MIRROR.replace("paths: [raw/sales, raw/people]", f"tables: [{raw}.sales, {raw}.people]")
    report = place.load(names.replace('path: "bronze/{lane}"', f'table: "{bronze}.{{lane}}"')).run()
    assert (report.delivered, report.balanced) == ({"sales": 1, "people": 1}, True)
    found = {name: place.spark.table(f"{bronze}.{name}").collect() for name in ("sales", "people")}
    assert [tuple(row) for row in found["sales"]] == [(1, 1.5, "sales/1")]
    assert [tuple(row) for row in found["people"]] == [(7, "Ada", "people/1")]
    for schema in (raw, bronze):
        place.spark.sql(f"DROP SCHEMA {schema} CASCADE").collect()
