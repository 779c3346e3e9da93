"""Lookups find values for rows in tables and files, batch by batch."""

from __future__ import annotations

import json

import pytest

from runners.model.events import BatchPlanned, Event
from tests.scenarios.conftest import Place

pytestmark = [pytest.mark.spark]

PIPELINE = """
name: orders
origin: {{files: {{path: "landing/*.json", format: json, schema: "id long, land string, email string"}}}}
stages:
  - lookup: {{{place}, on: {{land: code}}, columns: {{country: name}}, unmatched: nack}}
  - mask: {{columns: {{email: hash}}, salt: "${{secret:SALT}}"}}
destinations: [{{delta: {{path: tables/orders}}}}]
dlq: {{window: 0}}
"""


@pytest.fixture
def countries(place: Place) -> str:
    """Provide a table with one country."""
    path = str(place.folder / "dims/countries")
    place.spark.sql("select 'DE' as code, 'Germany' as name").write.format("delta").save(path)
    return path


@pytest.fixture(autouse=True)
def salt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the salt for hashes."""
    monkeypatch.setenv("SALT", "geheimes Salz")


def test_each_run_uses_the_present_version_of_the_table(place: Place, countries: str) -> None:
    """A row without a match is in the DLQ, without the new column. The state does not contain the salt."""
    place.land("a.json", [{"id": 1, "land": "DE", "email": "a"}, {"id": 2, "land": "FR"}])
    report = place.load(PIPELINE.format(place="path: dims/countries")).run()
    assert (report.read, report.delivered, report.nacked, report.balanced) == (2, {"orders": 1}, 1, True)
    [refused] = place.refused()
    assert (refused["stage"], refused["code"]) == ("lookup", "LOOKUP")
    assert json.loads(refused["row"]) == {"id": 2, "land": "FR", "email": None}
    place.spark.sql(f"insert into delta.`{countries}` values ('FR', 'France')")
    place.land("b.json", [{"id": 3, "land": "FR", "email": "a"}])
    assert place.load().run().delivered == {"orders": 1}
    rows = {row["id"]: row for row in place.rows("tables/orders")}
    assert {number: row["country"] for number, row in rows.items()} == {1: "Germany", 3: "France"}
    assert rows[1]["email"] == rows[3]["email"]
    kept = [path.read_bytes() for path in (place.folder / ".wherry").rglob("*") if path.is_file()]
    assert not any(b"geheimes Salz" in content for content in kept)


def test_a_batch_is_planned_again_if_its_lookup_table_is_vacuumed(place: Place, countries: str) -> None:
    """The version of the first plan can no longer be read, so the batch uses the present one."""
    place.land("a.json", [{"id": 1, "land": "DE", "email": "a"}])
    place.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    planned: list[BatchPlanned] = []

    def vacuum(event: Event) -> None:
        if isinstance(event, BatchPlanned):
            planned.append(event)
            if len(planned) == 1:
                new = place.spark.sql("select 'DE' as code, 'Deutschland' as name")
                new.write.format("delta").mode("overwrite").save(countries)
                place.spark.sql(f"vacuum delta.`{countries}` retain 0 hours").collect()

    definition = f"{PIPELINE.format(place='path: dims/countries')}run: {{retry: {{wait: 10ms}}}}\n"
    report = place.load(definition).run(check=False, listeners=[vacuum])
    assert (report.status, report.balanced, len(planned)) == ("succeeded", True, 2)
    assert [row["country"] for row in place.rows("tables/orders")] == ["Deutschland"]
